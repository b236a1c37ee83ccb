"""What follows from an end: every row of the tables, and the arithmetic of restarts."""

from itertools import product

import pytest

from pipo.errors import InvalidState
from pipo.home.config import Restart
from pipo_runner.host import launching
from pipo_runner.host.policy import (
    Action,
    Ending,
    Exit,
    Found,
    GiveUp,
    Verdict,
    Wait,
    act_on,
    after_crash,
    judge,
    next_streak,
)

SETTINGS = Restart()
STOPPED = Ending("stopped", "stop")
SUSPENDED = Ending("stopped", "shutdown")
RESTARTED = Ending("stopped", "restart")


@pytest.mark.parametrize(
    ("ending", "stop_wanted", "suspending", "verdict"),
    [
        (Ending("completed", ""), False, False, Verdict.COMPLETED),
        (Ending("completed", ""), True, True, Verdict.COMPLETED),
        (Ending("failed", "halted"), False, False, Verdict.FAILED),
        (Ending("failed", "halted"), True, True, Verdict.FAILED),
        (STOPPED, False, False, Verdict.STOPPED),
        (STOPPED, True, True, Verdict.STOPPED),
        (SUSPENDED, True, False, Verdict.STOPPED),
        (SUSPENDED, False, True, Verdict.SUSPENDED),
        (SUSPENDED, False, False, Verdict.RESUME),
        (RESTARTED, True, False, Verdict.STOPPED),
        (RESTARTED, False, True, Verdict.SUSPENDED),
        (RESTARTED, False, False, Verdict.RESUME),
        (None, True, False, Verdict.KILLED),
        (None, True, True, Verdict.KILLED),
        (None, False, True, Verdict.SUSPENDED),
        (None, False, False, Verdict.CRASHED),
    ],
)
def test_every_end_has_its_verdict(
    ending: Ending | None, stop_wanted: bool, suspending: bool, verdict: Verdict
) -> None:
    assert judge(ending, stop_wanted=stop_wanted, suspending=suspending) is verdict


def test_the_wait_doubles_up_to_its_limit() -> None:
    waits = []
    for streak in range(7):
        decided = after_crash((), now_ms=10**12, streak=streak, settings=SETTINGS)
        assert isinstance(decided, Wait)
        waits.append(decided.delay_s)
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_the_sixth_restart_within_the_window_is_not_made() -> None:
    times: tuple[int, ...] = ()
    now_ms = 10**12
    for _ in range(5):
        decided = after_crash(times, now_ms=now_ms, streak=0, settings=SETTINGS)
        assert isinstance(decided, Wait)
        times = decided.restart_times
        now_ms += 60_000
    assert after_crash(times, now_ms=now_ms, streak=0, settings=SETTINGS) == GiveUp(times)


def test_restarts_older_than_the_window_are_forgotten() -> None:
    now_ms = 10**12
    old = tuple(now_ms - 600_000 - n for n in range(9, -1, -1))
    decided = after_crash((*old, now_ms - 1), now_ms=now_ms, streak=0, settings=SETTINGS)
    assert decided == Wait(1.0, (now_ms - 1, now_ms))


def test_restart_times_from_a_clock_that_was_ahead_do_not_count() -> None:
    decided = after_crash((10**13,) * 9, now_ms=10**12, streak=0, settings=SETTINGS)
    assert decided == Wait(1.0, (10**12,))


def test_no_restart_may_be_allowed_at_all() -> None:
    settings = Restart(max_restarts=0)
    assert after_crash((), now_ms=1, streak=0, settings=settings) == GiveUp(())


def test_a_stable_run_ends_the_streak() -> None:
    assert next_streak(4, ran_s=59.9, settings=SETTINGS) == 4
    assert next_streak(4, ran_s=60.0, settings=SETTINGS) == 0


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({"claimed_elsewhere": True, "live": True}, Action.LEAVE),
        ({"live": True}, Action.ADOPT),
        ({"live": True, "wanted": False}, Action.ADOPT),
        ({"live": True, "known": False, "wanted": False, "entry": False}, Action.ADOPT),
        ({"known": False, "wanted": False, "entry": False}, Action.LEAVE),
        ({"wanted": False}, Action.SETTLE),
        ({"wanted": False, "entry": False}, Action.LEAVE),
        ({"wanted": False, "entry": False, "settled": False}, Action.SETTLE),
        ({"over": True}, Action.SETTLE),
        ({"over": True, "entry": False}, Action.SETTLE),
        ({"given_up": True, "file_there": False}, Action.LEAVE),
        ({"file_there": False}, Action.FAIL),
        ({"ours": True}, Action.RESTART),
        ({}, Action.RESTART),
    ],
)
def test_what_a_host_does_about_a_pipeline_it_finds(
    changes: dict[str, bool], action: Action
) -> None:
    found = {
        "claimed_elsewhere": False,
        "live": False,
        "known": True,
        "wanted": True,
        "entry": True,
        "over": False,
        "given_up": False,
        "settled": True,
        "file_there": True,
        "ours": False,
    }
    assert act_on(Found(**(found | changes))) is action


def test_nothing_found_ever_starts_what_runs_or_is_not_wanted() -> None:
    for values in product([False, True], repeat=10):
        found = Found(*values)
        if found.live or found.claimed_elsewhere or not found.wanted or found.over:
            assert act_on(found) is not Action.RESTART


def test_an_exit_reads_as_a_person_says_it() -> None:
    """Each goes on with `the process ended with`."""
    assert str(Exit(code=0)) == "exit 0"
    assert str(Exit(signal=9)) == "signal 9"
    assert str(Exit()) == "an exit that nobody saw"


def test_a_person_is_told_what_is_behind_a_sigkill() -> None:
    assert (
        Exit(signal=9).told == "signal 9: killed by somebody, or by the kernel when memory ran out"
    )
    assert Exit(signal=11).told == "signal 11"
    assert Exit(code=70).told == "exit 70"


def test_a_failure_is_told_with_its_way_out() -> None:
    newer = InvalidState("schema 9", hint="run it with the newer Pipo")
    assert launching.told(newer) == "schema 9; run it with the newer Pipo"
    assert launching.told(InvalidState("it is gone")) == "it is gone"
