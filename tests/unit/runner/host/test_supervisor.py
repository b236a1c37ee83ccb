"""One host's pipelines: started, restarted, stopped, found again, let go."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import Clock, SystemClock
from pipo.errors import BadRequest, InvalidState, NotFound, Unavailable
from pipo.home import Home, PipelineHome, desired, leases, registry
from pipo.home.config import Config, Restart
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.registry import Entry, ServiceEntry
from pipo_runner.host import insistence
from pipo_runner.host.options import Asked
from pipo_runner.host.placement import FAILOVER_AFTER_MS, OTHERS_AFTER_MS
from pipo_runner.host.policy import Ending
from pipo_runner.host.supervisor import Supervisor
from pipo_runner.host.surroundings import Target


def write(home: Home, name: str, words: str) -> None:
    (home.root / f"{name}.pipo").write_text(words)


def pid_of(home: Home, name: str) -> int:
    entry = registry.read(home, name)
    assert entry is not None
    return entry.pid


def wish(home: Home, name: str) -> Desired:
    found = desired.read(home.pipeline(name))
    assert found is not None
    return found


@pytest.fixture
async def supervisor(make: Any) -> AsyncIterator[Supervisor]:
    one = Supervisor(make())
    yield one
    await one.suspend(60.0)


async def test_a_start_serves_on_return_and_is_desired(supervisor: Supervisor, home: Home) -> None:
    write(home, "p", "serve")
    one = await supervisor.start("p")
    assert (one.state, one.own) == ("running", True)
    assert wish(home, "p") == Desired(
        "running", str(home.root / "p.pipo"), state="running", runner="here"
    )
    assert leases.holder(home.pipeline("p").claim) is not None
    assert supervisor.supervised == [one]


async def test_a_second_start_is_refused_with_where_it_runs(
    supervisor: Supervisor, home: Home, make: Any
) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    pid = pid_of(home, "p")
    for host in (supervisor, Supervisor(make(runner_id="other"))):
        with pytest.raises(InvalidState, match=f"p is already running: pid {pid} on "):
            await host.start("p")


async def test_a_second_file_of_the_name_is_told_of_the_first(home: Home, make: Any) -> None:
    write(home, "p", "serve")
    first = str(home.root / "p.pipo")
    files = {"first": first, "second": "/elsewhere/p.pipo"}

    def resolve(target: str) -> Target:
        return Target("p", files[target])

    ours, other = (Supervisor(make(runner_id=i, resolve=resolve)) for i in ("here", "other"))
    await ours.start("first")
    for host in (ours, other):
        with pytest.raises(InvalidState) as refused:
            await host.start("second")
        assert refused.value.message == (
            f"p is already running: {leases.holder(home.pipeline('p').lease)},"
            f" from another file: {first}"
        )
        assert "give /elsewhere/p.pipo a `name` of its own" in refused.value.hint
    await ours.suspend(60.0)


@pytest.mark.parametrize(
    ("word", "error", "text"),
    [
        ("refuse", Unavailable, "no luck"),
        ("broken", BadRequest, "bad secret"),
        ("mute", Unavailable, r"p ended before it served \(exit 3\)"),
    ],
)
async def test_a_refused_start_changes_nothing(
    supervisor: Supervisor, home: Home, word: str, error: type[Exception], text: str
) -> None:
    write(home, "p", word)
    with pytest.raises(error, match=text):
        await supervisor.start("p")
    assert not home.pipeline("p").folder.exists()
    assert registry.entries(home) == []
    assert supervisor.supervised == []


async def test_a_refused_start_keeps_what_was_desired(supervisor: Supervisor, home: Home) -> None:
    before = Desired("stopped", "/old.pipo", {"ttl": "8h"}, state="stopped")
    desired.write(home.pipeline("p"), before)
    write(home, "p", "refuse")
    with pytest.raises(Unavailable):
        await supervisor.start("p")
    assert wish(home, "p") == before


async def test_a_start_that_hangs_is_ended(make: Any, home: Home) -> None:
    config = replace(Config(), start_timeout_s=0.3)
    supervisor = Supervisor(make(config=config))
    write(home, "p", "hang")
    with pytest.raises(Unavailable, match=r"p did not serve within 0\.3 s"):
        await supervisor.start("p")
    assert leases.holder(home.pipeline("p").lease) is None


async def test_an_unknown_target(supervisor: Supervisor) -> None:
    with pytest.raises(NotFound):
        await supervisor.start("nobody")


async def test_a_killed_process_is_restarted(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "serve")
    one = await supervisor.start("p")
    first = pid_of(home, "p")
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: one.state == "running" and pid_of(home, "p") != first)
    entry = registry.read(home, "p")
    assert entry is not None
    assert entry.restarts == 1
    assert wish(home, "p").last_exit == "signal 9"
    assert len(wish(home, "p").restart_times) == 1
    assert supervisor.crash_restarts == 1


async def test_a_crash_loop_ends_crashed_with_the_way_out(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "die")
    await supervisor.start("p")
    await eventually(lambda: supervisor.supervised == [])
    found = wish(home, "p")
    assert (found.desired, found.state) == ("running", "crashed")
    assert len(found.restart_times) == 3
    assert found.error is not None
    assert str(home.pipeline("p").log) in found.error
    assert "pipo start p" in found.error
    assert registry.read(home, "p") is not None
    await supervisor.adopt()
    assert supervisor.supervised == []
    write(home, "p", "serve")
    await supervisor.start("p")
    assert wish(home, "p").restart_times == ()


async def test_a_restart_that_somebody_has_to_mend_is_not_repeated(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "die broken serve")
    await supervisor.start("p")
    await eventually(lambda: supervisor.supervised == [])
    found = wish(home, "p")
    assert (found.desired, found.state, found.error) == ("stopped", "failed", "bad secret")
    assert registry.read(home, "p") is None


async def test_a_restart_that_may_succeed_later_is_repeated(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "die refuse mute serve")
    one = await supervisor.start("p")
    await eventually(lambda: one.state == "running" and one.restarts == 3)
    assert len(wish(home, "p").restart_times) == 3


async def test_a_completed_pipeline_is_not_restarted(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "complete")
    await supervisor.start("p")
    await eventually(lambda: supervisor.supervised == [])
    assert (wish(home, "p").desired, wish(home, "p").state) == ("stopped", "completed")
    assert wish(home, "p").last_exit == "exit 0"


async def test_a_failed_pipeline_is_not_restarted(make: Any, home: Home, eventually: Any) -> None:
    async def halted(*_: object) -> Ending:
        return Ending("failed", "halted at out")

    supervisor = Supervisor(make(last_word=halted))
    write(home, "p", "die")
    await supervisor.start("p")
    await eventually(lambda: supervisor.supervised == [])
    assert (wish(home, "p").state, wish(home, "p").error) == ("failed", "halted at out")
    # Nor by whoever takes up what should run, this host or the next.
    for host in (supervisor, Supervisor(make(last_word=halted, runner_id="next"))):
        await host.adopt()
        assert host.supervised == []
    assert wish(home, "p").desired == "stopped"


async def test_a_halt_that_its_host_did_not_live_to_see_is_one(make: Any, home: Home) -> None:
    async def halted(*_: object) -> Ending:
        return Ending("failed", "halted at out")

    write(home, "p", "serve")
    desired.write(home.pipeline("p"), Desired("running", str(home.root / "p.pipo"), runner="here"))
    supervisor = Supervisor(make(last_word=halted))
    await supervisor.adopt()
    assert supervisor.supervised == []
    found = wish(home, "p")
    assert (found.desired, found.state, found.error) == ("stopped", "failed", "halted at out")


async def test_a_process_that_was_suspended_alone_is_resumed(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "serve")
    one = await supervisor.start("p")
    first = pid_of(home, "p")
    os.kill(first, signal.SIGTERM)
    await eventually(lambda: one.own and (e := registry.read(home, "p")) and e.pid != first)
    assert wish(home, "p").restart_times == ()


async def test_a_restart_drains_and_serves_anew_on_return(
    supervisor: Supervisor, home: Home, calls: Any
) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    first = pid_of(home, "p")
    one = await supervisor.restart("p")
    assert (one.state, one.own, calls.restarted) == ("running", True, ["p"])
    assert pid_of(home, "p") != first
    assert (wish(home, "p").desired, wish(home, "p").restart_times) == ("running", ())
    assert one.restarts == 0
    # Nothing of the restart's deadline is left to end the new process.
    await supervisor.restart("p")
    assert pid_of(home, "p") != first


async def test_a_restart_of_what_does_not_run_is_a_start(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    assert await supervisor.stop("p", now=True) == ("stopped", False)
    one = await supervisor.restart("p")
    assert (one.state, wish(home, "p").desired) == ("running", "running")
    with pytest.raises(NotFound):
        await supervisor.restart("nobody")


async def test_a_restart_without_its_file_stops_nothing(supervisor: Supervisor, home: Home) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    first = pid_of(home, "p")
    (home.root / "p.pipo").unlink()
    with pytest.raises(NotFound):
        await supervisor.restart("p")
    assert pid_of(home, "p") == first


async def test_a_restart_that_drains_for_long_is_told_and_goes_on(
    supervisor: Supervisor, home: Home, calls: Any, eventually: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pipo_runner.host.supervisor.RESTART_WAIT_S", 0.01)
    write(home, "p", "serve")
    await supervisor.start("p")
    first = pid_of(home, "p")
    calls.idle = True
    one = await supervisor.restart("p")
    assert (one.state, wish(home, "p").desired) == ("stopping", "running")
    with pytest.raises(InvalidState, match="p is stopping"):
        await supervisor.restart("p")
    os.kill(first, signal.SIGUSR2)
    await eventually(lambda: one.state == "running" and pid_of(home, "p") != first)


async def test_a_restart_that_is_stuck_is_ended_and_comes_up(
    make: Any, home: Home, calls: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pipo_runner.host.supervised.STOP_MARGIN_S", 0.0)
    config = replace(Config(), stop_timeout_s=0.2)
    supervisor = Supervisor(make(drain_s=lambda file: 0.05, config=config))
    write(home, "p", "serve")
    await supervisor.start("p")
    first = pid_of(home, "p")
    calls.idle = True
    one = await supervisor.restart("p")
    assert one.state == "running"
    assert pid_of(home, "p") != first
    await supervisor.suspend(60.0)


async def test_a_restart_that_cannot_come_up_says_why(supervisor: Supervisor, home: Home) -> None:
    write(home, "p", "serve broken")
    await supervisor.start("p")
    with pytest.raises(Unavailable, match="p did not start again: bad secret") as caught:
        await supervisor.restart("p")
    assert "pipo start p" in caught.value.hint


async def test_a_stop_in_a_restart_wins(
    supervisor: Supervisor, home: Home, calls: Any, eventually: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pipo_runner.host.supervisor.RESTART_WAIT_S", 0.01)
    write(home, "p", "serve")
    await supervisor.start("p")
    first = pid_of(home, "p")
    calls.idle = True
    await supervisor.restart("p")

    async def stop(address: str, pipeline: str, *, now: bool) -> bool:
        # It drains already, and its reason stays.
        os.kill(first, signal.SIGUSR2)
        return True

    calls.stop = stop
    assert await supervisor.stop("p", now=False) == ("draining", True)
    await eventually(lambda: supervisor.supervised == [])
    assert (wish(home, "p").desired, wish(home, "p").state) == ("stopped", "stopped")


async def test_a_restart_whose_host_died_is_finished_by_the_next(
    supervisor: Supervisor, home: Home
) -> None:
    write(home, "p", "serve")
    file = str(home.root / "p.pipo")
    desired.write(home.pipeline("p"), Desired("running", file, state="stopping", runner="here"))
    (home.pipeline("p").folder / "ending").write_text("stopped restart")
    await supervisor.adopt()
    (one,) = supervisor.supervised
    assert one.name == "p"
    await supervisor.suspend(60.0)


async def test_stop_now_returns_when_it_is_gone(
    supervisor: Supervisor, home: Home, calls: Any
) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    assert await supervisor.stop("p", now=True) == ("stopped", False)
    assert calls.asked == [("p", True)]
    assert (wish(home, "p").desired, wish(home, "p").state) == ("stopped", "stopped")
    assert registry.read(home, "p") is None
    assert leases.holder(home.pipeline("p").claim) is None
    assert await supervisor.stop("p", now=True) == ("stopped", True)
    with pytest.raises(NotFound, match="no pipeline named 'q'"):
        await supervisor.stop("q", now=True)


async def test_a_drain_answers_at_once_and_is_desired_first(
    supervisor: Supervisor, home: Home, calls: Any, eventually: Any
) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    seen = []
    real = calls.stop

    async def stop(*args: Any, **kwargs: Any) -> bool:
        seen.append(wish(home, "p").desired)
        return bool(await real(*args, **kwargs))

    calls.stop = stop
    assert await supervisor.stop("p", now=False) == ("draining", False)
    assert seen == ["stopped"]
    await eventually(lambda: supervisor.supervised == [])
    assert wish(home, "p").state == "stopped"


async def test_a_stop_that_is_not_obeyed_gets_harsher(
    make: Any, home: Home, calls: Any, monkeypatch: Any, eventually: Any
) -> None:
    monkeypatch.setattr("pipo_runner.host.supervised.STOP_MARGIN_S", 0.0)
    config = replace(Config(), stop_timeout_s=0.5)
    supervisor = Supervisor(make(config=config))
    write(home, "p", "serve")
    await supervisor.start("p")
    os.kill(pid_of(home, "p"), signal.SIGSTOP)
    calls.silent = True
    # The answer waits for the kill, but not for ever: a slow machine hears `stopping`.
    state, _ = await supervisor.stop("p", now=True)
    assert state in ("stopped", "stopping")
    await eventually(lambda: wish(home, "p").last_exit == "signal 9")
    assert wish(home, "p").state == "stopped"
    assert (home.pipeline("p").folder / "ending").read_text() == "stopped killed"


async def test_a_stop_during_a_backoff_cancels_it(make: Any, home: Home, eventually: Any) -> None:
    config = replace(Config(), restart=Restart(backoff_s=60.0))
    supervisor = Supervisor(make(config=config))
    write(home, "p", "die")
    one = await supervisor.start("p")
    await eventually(lambda: one.state == "backoff")
    assert await supervisor.stop("p", now=False) == ("stopped", False)
    assert wish(home, "p").state == "stopped"
    assert registry.read(home, "p") is None
    assert (home.pipeline("p").folder / "ending").read_text() == "stopped crashed"


async def test_a_start_during_a_backoff_is_at_once(make: Any, home: Home, eventually: Any) -> None:
    config = replace(Config(), restart=Restart(backoff_s=60.0))
    supervisor = Supervisor(make(config=config))
    write(home, "p", "die serve")
    one = await supervisor.start("p")
    await eventually(lambda: one.state == "backoff")
    again = await supervisor.start("p")
    assert (again.state, again.restarts) == ("running", 0)
    await supervisor.suspend(60.0)


async def test_a_stop_of_a_crashed_one_counts_as_its_clean_end(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "die")
    await supervisor.start("p")
    await eventually(lambda: supervisor.supervised == [])
    assert await supervisor.stop("p", now=False) == ("stopped", False)
    assert wish(home, "p").desired == "stopped"
    assert registry.read(home, "p") is None
    assert (home.pipeline("p").folder / "ending").read_text() == "stopped crashed"


@pytest.mark.parametrize(
    ("left", "state", "buried"),
    [
        ("", "stopped", "stopped crashed"),
        ("", "stopping", "stopped crashed"),
        ("stopped shutdown", "stopped", "stopped stop"),
        ("stopped stop", "stopped", None),
        ("", "failed", None),
    ],
)
async def test_a_stop_that_found_no_host_is_journaled_by_the_next_start(
    supervisor: Supervisor, home: Home, left: str, state: str, buried: str | None
) -> None:
    """Edge 305, 306, 324: of a run that crashed or was suspended; the start is a new one."""
    write(home, "p", "serve")
    files = home.pipeline("p")
    files.ensure()
    note = files.folder / "ending"
    if left:
        note.write_text(left)
    desired.write(files, Desired("stopped", str(home.root / "p.pipo"), state=state))
    one = await supervisor.start("p")
    assert one.state == "running"
    assert (note.read_text() if note.exists() else None) == buried


async def test_a_host_that_ends_suspends_its_own(make: Any, home: Home, eventually: Any) -> None:
    supervisor = Supervisor(make())
    write(home, "p", "serve")
    await supervisor.start("p")
    await supervisor.suspend(60.0)
    assert leases.holder(home.pipeline("p").lease) is None
    assert (home.pipeline("p").folder / "ending").exists() is False
    assert (wish(home, "p").desired, wish(home, "p").state) == ("running", "stopped")
    with pytest.raises(Unavailable, match="is stopping"):
        await supervisor.start("p")
    following = Supervisor(make())
    await following.adopt()
    (one,) = following.supervised
    await eventually(lambda: one.state == "running" and one.runs)
    assert one.restarts == 0
    await following.suspend(60.0)


async def test_a_dead_hosts_pipeline_is_adopted_with_its_pid(
    make: Any, home: Home, eventually: Any
) -> None:
    first = Supervisor(make())
    write(home, "p", "serve serve")
    one = await first.start("p")
    pid = pid_of(home, "p")
    # The host dies: its tasks and its claim go, the process stays.
    await one.dissolve()
    second = Supervisor(make(runner_id="next"))
    await second.adopt()
    (adopted,) = second.supervised
    assert (adopted.state, adopted.own) == ("running", False)
    assert pid_of(home, "p") == pid
    assert wish(home, "p").runner == "next"
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: adopted.own)
    assert wish(home, "p").last_exit is None
    assert pid_of(home, "p") != pid
    await second.suspend(60.0)


@pytest.mark.parametrize("entry", [True, False])
async def test_a_start_whose_host_died_before_it_noted_it_is_one(
    make: Any, home: Home, entry: bool
) -> None:
    """The process serves; that it was stopped is the word of an earlier run."""
    first = Supervisor(make())
    write(home, "p", "serve")
    one = await first.start("p", Asked(ttl="1h", listen=8001))
    await one.dissolve()
    desired.write(
        home.pipeline("p"), replace(one.wish, desired="stopped", state="stopped", options={})
    )
    if not entry:
        registry.remove(home, "p")
    second = Supervisor(make())
    await second.adopt()
    (adopted,) = second.supervised
    # With no entry yet nobody knows where to ask it.
    assert adopted.state == ("running" if entry else "unreachable")
    assert wish(home, "p").desired == "running"
    assert wish(home, "p").options == ({"ttl": "1h", "listen": 8001} if entry else {})
    os.kill(pid_of(home, "p") if entry else _holder(home, "p"), signal.SIGTERM)
    await second.suspend(60.0)


async def test_a_stop_whose_host_died_before_it_was_heard_is_asked_again(
    make: Any, home: Home, calls: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the process was frozen, and is so still when the next host finds it."""
    monkeypatch.setattr(insistence, "ASK_AGAIN_S", 0.01)
    first = Supervisor(make())
    write(home, "p", "serve")
    one = await first.start("p")
    await one.dissolve()
    desired.write(home.pipeline("p"), replace(one.wish, desired="stopped", state="stopping"))
    calls.silent = True
    second = Supervisor(make())
    await second.adopt()
    (adopted,) = second.supervised
    assert adopted.state == "stopping"
    calls.silent = False
    await eventually(lambda: second.supervised == [])
    assert (wish(home, "p").desired, wish(home, "p").state) == ("stopped", "stopped")
    assert leases.holder(home.pipeline("p").lease) is None


def _holder(home: Home, name: str) -> int:
    found = leases.holder(home.pipeline(name).lease)
    assert found is not None
    return found.pid


async def test_an_adopted_one_that_does_not_answer_is_left_alone(
    make: Any, home: Home, calls: Any
) -> None:
    first = Supervisor(make())
    write(home, "p", "serve")
    one = await first.start("p")
    pid = pid_of(home, "p")
    await one.dissolve()
    calls.silent = True
    second = Supervisor(make())
    await second.adopt()
    (adopted,) = second.supervised
    assert adopted.state == "unreachable"
    with pytest.raises(Unavailable, match="does not answer"):
        await second.stop("p", now=True)
    assert wish(home, "p").desired == "running"
    await second.suspend(1.0)
    os.kill(pid, 0)
    os.kill(pid, signal.SIGTERM)


async def test_two_hosts_never_supervise_one_pipeline(make: Any, home: Home) -> None:
    first, second = Supervisor(make(runner_id="a")), Supervisor(make(runner_id="b"))
    write(home, "p", "serve")
    await first.start("p")
    await second.adopt()
    assert second.supervised == []
    await first.suspend(60.0)


ENTRY = Entry(
    pipeline="p",
    version=1,
    pid=1,
    host="here",
    address="127.0.0.1:9",
    listen=None,
    ttl=None,
    state="running",
    status="active",
    started_at=1,
    runner="gone",
    file="/p.pipo",
    restarts=0,
)


class Moving(SystemClock):
    """Time that passes when the test says so, too: milliseconds."""

    ahead = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead / 1000


async def test_another_hosts_pipeline_is_restarted_after_a_wait(
    make: Any, home: Home, eventually: Any
) -> None:
    write(home, "p", "serve")
    desired.write(home.pipeline("p"), Desired("running", str(home.root / "p.pipo"), runner="gone"))
    moving = Moving()
    supervisor = Supervisor(make(clock=moving))
    await supervisor.adopt()
    assert supervisor.supervised == []
    moving.ahead = FAILOVER_AFTER_MS + 1
    await supervisor.adopt()
    (one,) = supervisor.supervised
    await eventually(lambda: one.state == "running" and one.runs)
    await supervisor.suspend(60.0)


class Beside:
    """Another host of the home, as far as files tell of it; it supervises nothing."""

    def __init__(self, home: Home, id: str) -> None:
        self._lease = Lease.acquire(registry.service_lease(home, "runner", id), clock=SystemClock())
        entry = ServiceEntry("runner", id, 1, "there", "127.0.0.1:9", "", 1)
        registry.write_service(home, entry)

    def die(self) -> None:
        self._lease.release()


async def test_a_dead_hosts_pipelines_are_spread_over_the_living(
    make: Any, home: Home, eventually: Any
) -> None:
    names = [f"p{number}" for number in range(6)]
    for name in names:
        write(home, name, "serve")
        file = str(home.root / f"{name}.pipo")
        desired.write(home.pipeline(name), Desired("running", file, runner="gone"))
    for id in ("one", "two"):
        Beside(home, id)
    clocks = Moving(), Moving()
    hosts = [
        Supervisor(make(clock=clock, runner_id=id))
        for clock, id in zip(clocks, ("one", "two"), strict=True)
    ]
    for host in hosts:
        await host.adopt()
        assert host.supervised == []
    for clock in clocks:
        clock.ahead = FAILOVER_AFTER_MS + 1
    # Both look at once: nothing starts twice.
    await asyncio.gather(*(host.adopt() for host in hosts))
    taken = [[one.name for one in host.supervised] for host in hosts]
    assert sorted(taken[0] + taken[1]) == names
    assert [len(part) for part in taken] == [3, 3]
    await eventually(lambda: all(o.state == "running" for h in hosts for o in h.supervised))
    assert [home.pipeline(name).log.read_text().count("hello from") for name in names] == [1] * 6
    await asyncio.gather(*(host.suspend(60.0) for host in hosts))


async def test_what_another_host_was_dealt_and_leaves_is_taken_a_little_later(
    make: Any, home: Home, eventually: Any
) -> None:
    """It lives, by its lease, and is frozen."""
    for name in ("p0", "p1"):
        write(home, name, "serve")
        file = str(home.root / f"{name}.pipo")
        desired.write(home.pipeline(name), Desired("running", file, runner="gone"))
    frozen = Beside(home, "a")
    moving = Moving()
    supervisor = Supervisor(make(clock=moving, runner_id="b"))
    await supervisor.adopt()
    moving.ahead = FAILOVER_AFTER_MS + 1
    await supervisor.adopt()
    assert [one.name for one in supervisor.supervised] == ["p1"]
    moving.ahead += OTHERS_AFTER_MS
    await supervisor.adopt()
    assert [one.name for one in supervisor.supervised] == ["p0", "p1"]
    await supervisor.suspend(60.0)
    frozen.die()


async def test_a_restart_stays_where_it_was(make: Any, home: Home) -> None:
    """The other host has less to do, and waits."""
    for name in ("p0", "p1"):
        write(home, name, "serve")
        file = str(home.root / f"{name}.pipo")
        desired.write(home.pipeline(name), Desired("running", file, runner="here"))
    other = Beside(home, "a")
    supervisor = Supervisor(make())
    await supervisor.adopt()
    assert [one.name for one in supervisor.supervised] == ["p0", "p1"]
    await supervisor.suspend(60.0)
    other.die()


async def test_crash_restarts_count_across_hosts(make: Any, home: Home, eventually: Any) -> None:
    """Those that its last host made are used up; that host's own end is none of them."""
    write(home, "p", "die")
    clock = Moving()
    times = tuple(clock.now_ms() - ago_ms for ago_ms in (3000, 2000, 1000))
    file = str(home.root / "p.pipo")
    desired.write(home.pipeline("p"), Desired("running", file, restart_times=times, runner="gone"))
    supervisor = Supervisor(make(clock=clock))
    await supervisor.adopt()
    clock.ahead = FAILOVER_AFTER_MS + 1
    await supervisor.adopt()
    await eventually(lambda: wish(home, "p").state == "crashed")
    assert home.pipeline("p").log.read_text().count("hello from") == 1
    assert wish(home, "p").restart_times == times
    # And it stays so, on this host and on the next.
    for host in (supervisor, Supervisor(make(clock=clock, runner_id="next"))):
        clock.ahead += FAILOVER_AFTER_MS
        await host.adopt()
        assert host.supervised == []


async def test_what_ended_for_good_after_the_look_is_not_restarted(make: Any, home: Home) -> None:
    """Another host restarts it, and it completes, while this one still reads the last word."""
    write(home, "p", "serve")
    running = Desired("running", str(home.root / "p.pipo"), state="running", runner="here")
    desired.write(home.pipeline("p"), running)

    async def meanwhile(files: PipelineHome, since_ms: int) -> Ending | None:
        desired.write(files, replace(running, desired="stopped", state="completed"))
        return None

    supervisor = Supervisor(make(last_word=meanwhile))
    await supervisor.adopt()
    assert supervisor.supervised == []
    assert leases.holder(home.pipeline("p").claim) is None
    await supervisor.adopt()
    assert wish(home, "p").state == "completed"


async def test_a_settling_host_leaves_what_was_started_meanwhile(make: Any, home: Home) -> None:
    """Its journal's last word is of the run before."""
    write(home, "p", "serve")
    over = Desired("running", str(home.root / "p.pipo"), state="running", runner="gone")
    desired.write(home.pipeline("p"), over)
    claims: list[Lease] = []

    async def meanwhile(files: PipelineHome, since_ms: int) -> Ending | None:
        claims.append(Lease.acquire(files.claim, clock=SystemClock()))
        desired.write(files, replace(over, runner="other"))
        return Ending("completed", "")

    supervisor = Supervisor(make(last_word=meanwhile))
    await supervisor.adopt()
    assert (wish(home, "p").desired, wish(home, "p").runner) == ("running", "other")
    claims[0].release()


async def test_few_start_at_once_and_a_stop_needs_no_place(
    make: Any, home: Home, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo_runner.host.supervisor.starts_at_once", lambda: 2)
    names = [f"p{number}" for number in range(5)]
    for name in names:
        write(home, name, "hang")
        file = str(home.root / f"{name}.pipo")
        desired.write(home.pipeline(name), Desired("running", file, runner="here"))
    supervisor = Supervisor(make())
    await supervisor.adopt()

    def started() -> list[int]:
        held = (leases.holder(home.pipeline(name).lease) for name in names)
        return [holder.pid for holder in held if holder is not None]

    await eventually(lambda: len(started()) == 2)
    assert len(supervisor.supervised) == 5
    assert await supervisor.stop("p4", now=False) == ("stopped", False)
    assert len(started()) == 2
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60.0):
            suspending = asyncio.create_task(supervisor.suspend(60.0))
            for pid in started():
                os.kill(pid, signal.SIGKILL)
            await suspending
    assert started() == []


async def test_a_pipeline_whose_file_is_gone_failed(supervisor: Supervisor, home: Home) -> None:
    desired.write(home.pipeline("p"), Desired("running", "/nowhere/p.pipo", runner="here"))
    await supervisor.adopt()
    found = wish(home, "p")
    assert (found.desired, found.state) == ("stopped", "failed")
    assert found.error == "its file is gone: /nowhere/p.pipo"


async def test_a_run_that_journaled_its_stop_is_not_restarted(
    supervisor: Supervisor, home: Home
) -> None:
    write(home, "p", "serve")
    desired.write(home.pipeline("p"), Desired("running", str(home.root / "p.pipo"), runner="here"))
    (home.pipeline("p").folder / "ending").write_text("completed")
    await supervisor.adopt()
    assert supervisor.supervised == []
    assert (wish(home, "p").desired, wish(home, "p").state) == ("stopped", "completed")


async def test_cut_files_of_one_pipeline_stop_no_other(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "good", "serve")
    for name in ("bad", "good"):
        file = str(home.root / f"{name}.pipo")
        desired.write(home.pipeline(name), Desired("running", file, runner="here"))
    for path in home.pipeline("bad").folder.iterdir():
        path.write_text('{"desired": "run')
    (home.run / "bad.json").write_text('{"pipeline": "ba')
    await supervisor.adopt()
    (one,) = supervisor.supervised
    assert one.name == "good"
    await eventually(lambda: one.state == "running" and one.runs)


async def test_what_is_desired_is_rebuilt_from_the_registry(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    entry = registry.read(home, "p")
    assert entry is not None
    await supervisor.stop("p", now=True)
    registry.write(home, entry)
    for path in home.pipeline("p").folder.glob("desired*"):
        path.unlink()
    await supervisor.adopt()
    (one,) = supervisor.supervised
    await eventually(lambda: one.state == "running" and one.runs)
    assert wish(home, "p").file == entry.file
    assert one.restarts == 1


async def test_a_taken_lease_of_a_strange_process_is_adopted(make: Any, home: Home) -> None:
    supervisor = Supervisor(make())
    lease = Lease.acquire(_made(home).lease, clock=SystemClock())
    await supervisor.adopt()
    (one,) = supervisor.supervised
    assert one.state == "unreachable"
    await supervisor.suspend(1.0)
    lease.release()


async def test_adopted_ones_are_asked_in_turn_whether_they_answer(
    make: Any, home: Home, calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo_runner.host.supervisor.PROBES_AT_ONCE", 2)
    asked: list[str] = []

    async def answers(address: str, pipeline: str) -> bool:
        asked.append(pipeline)
        return True

    calls.answers = answers
    held = []
    for name in "abc":
        files = home.pipeline(name)
        files.ensure()
        held.append(Lease.acquire(files.lease, clock=SystemClock()))
        registry.write(home, replace(ENTRY, pipeline=name))
    supervisor = Supervisor(make())
    for _ in range(3):
        await supervisor.adopt()
    assert asked == ["a", "b", "c", "a", "b", "c"]
    await supervisor.suspend(1.0)
    for lease in held:
        lease.release()


def _made(home: Home) -> PipelineHome:
    files = home.pipeline("p")
    files.ensure()
    return files


async def test_a_start_finishes_though_its_caller_goes_away(
    supervisor: Supervisor, home: Home, eventually: Any
) -> None:
    write(home, "p", "serve")
    asking = asyncio.create_task(supervisor.start("p"))
    await eventually(lambda: supervisor.supervised)
    asking.cancel()
    await asyncio.wait({asking})
    (one,) = supervisor.supervised
    await eventually(lambda: one.state == "running" and one.runs)
    assert json.loads(home.pipeline("p").desired.read_text())["desired"] == "running"


class FullHome:
    """`desired.write` on a disk without room, while `full` says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        self._write = desired.write
        monkeypatch.setattr(desired, "write", self)

    def __call__(self, files: PipelineHome, wanted: Desired) -> None:
        if self.full:
            raise Unavailable(f"cannot write {files.desired}: No space left on device")
        self._write(files, wanted)


async def test_a_first_start_that_cannot_claim_leaves_nothing(
    supervisor: Supervisor, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk made no pipeline that a listing would show from then on."""

    def full(path: Path, *, clock: Clock) -> Lease:
        path.touch()
        raise Unavailable(f"cannot write {path}: No space left on device")

    write(home, "p", "serve")
    with monkeypatch.context() as patched:
        patched.setattr(Lease, "try_acquire", full)
        with pytest.raises(Unavailable, match="No space"):
            await supervisor.start("p")
    assert home.pipeline_names() == []
    assert (await supervisor.start("p")).state == "running"


async def test_a_start_that_cannot_be_noted_leaves_nothing_running(
    supervisor: Supervisor, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "p", "serve")
    FullHome(monkeypatch)
    with pytest.raises(Unavailable, match="No space left"):
        await supervisor.start("p")
    assert leases.holder(home.pipeline("p").lease) is None
    assert supervisor.supervised == []


async def test_a_full_home_does_not_end_the_supervision(
    supervisor: Supervisor, home: Home, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "p", "serve")
    one = await supervisor.start("p")
    first = pid_of(home, "p")
    FullHome(monkeypatch)
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: one.state == "running" and pid_of(home, "p") != first)
    assert supervisor.supervised == [one]


async def test_a_stop_that_cannot_be_noted_is_refused(
    supervisor: Supervisor, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "p", "serve")
    one = await supervisor.start("p")
    disk = FullHome(monkeypatch)
    with pytest.raises(Unavailable, match="No space left"):
        await supervisor.stop("p", now=True)
    assert (one.state, one.wish.desired) == ("running", "running")
    disk.full = False
    assert (await supervisor.stop("p", now=True))[0] == "stopped"


async def test_a_drain_that_is_cut_short_was_not_stopped_already(
    supervisor: Supervisor, home: Home, calls: Any
) -> None:
    write(home, "p", "serve")
    await supervisor.start("p")
    calls.already = True
    assert await supervisor.stop("p", now=True) == ("stopped", False)


async def test_a_clock_that_was_set_back_does_not_hide_the_last_word(
    make: Any, home: Home, eventually: Any
) -> None:
    """The run ends, by the clock, before it began."""

    async def completed_long_ago(files: PipelineHome, since_ms: int) -> Ending | None:
        return Ending("completed", "") if since_ms <= 5 else None

    supervisor = Supervisor(make(last_word=completed_long_ago))
    write(home, "p", "serve")
    await supervisor.start("p")
    os.kill(pid_of(home, "p"), signal.SIGKILL)
    await eventually(lambda: supervisor.supervised == [])
    assert wish(home, "p").state == "completed"


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (None, "stopped"),
        (Ending("stopped", "stop"), "stopped"),
        (Ending("completed", ""), "completed"),
    ],
)
async def test_a_drain_whose_host_died_is_settled_by_the_next_host(
    make: Any, home: Home, ending: Ending | None, state: str
) -> None:
    """The process ended in order and took its entry along; nobody was there to note it."""

    async def said(files: PipelineHome, since_ms: int) -> Ending | None:
        return ending

    desired.write(home.pipeline("p"), Desired("stopped", "/p.pipo", state="stopping"))
    supervisor = Supervisor(make(last_word=said))
    await supervisor.adopt()
    assert wish(home, "p").state == state
    assert supervisor.supervised == []
