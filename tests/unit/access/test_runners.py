"""How runners are told, and taken over."""

from __future__ import annotations

from itertools import product

import pytest

from pipo.access import runners
from pipo.access.runners import Seen, state_of
from pipo.clock import SystemClock
from pipo.home import Home, desired, registry
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.registry import Entry

CLOCK = SystemClock()


def seen(words: str) -> Seen:
    names = ("alive", "supervised", "detached", "known", "over")
    return Seen(**{name: name in words.split() for name in names})


@pytest.mark.parametrize(
    ("words", "answers", "state"),
    [
        ("alive supervised known", True, "attached"),
        ("alive supervised known", False, "unreachable"),
        ("alive known", True, "detached"),
        ("alive detached known", True, "detached"),
        ("alive supervised detached known", True, "detached"),
        ("alive detached", False, "unreachable"),
        ("supervised known", False, "attached"),
        ("supervised detached known", False, "detached"),
        ("known", False, "stale"),
        ("detached known", False, "stale"),
        ("known over", False, None),
        ("", False, None),
    ],
)
def test_the_state_of_a_runner(words: str, answers: bool, state: str | None) -> None:
    """Edge 401."""
    assert state_of(seen(words), answers=answers) == state


def test_every_combination_has_a_state_or_is_none() -> None:
    for flags in product((False, True), repeat=6):
        *facts, answers = flags
        found = state_of(Seen(*facts), answers=answers)
        assert found is not None or not facts[0]


def test_the_last_two_carry_a_hint_to_attach(tmp_path: object) -> None:
    """Edge 401."""
    home = Home(tmp_path / "home")  # type: ignore[operator]
    home.ensure()
    hints = {
        state: runners.info(home, "x", state, None).hint
        for state in ("attached", "detached", "stale", "unreachable")
    }
    assert hints["attached"] == hints["detached"] == ""
    assert "`pipo attach x`" in hints["stale"]
    assert "`pipo attach x`" in hints["unreachable"]


def test_what_a_dead_process_left(tmp_path: object) -> None:
    home = Home(tmp_path / "home")  # type: ignore[operator]
    home.ensure()
    files = home.pipeline("x")
    desired.write(files, Desired("running", "/x.pipo", {"detached": True}, state="running"))
    entry = Entry("x", 1, 42, "h", "a:1", None, None, "running", "active", 7, "r", "/x.pipo", 0)
    registry.write(home, entry)
    found = runners.look(home, "x", supervised=False)
    assert found == seen("detached known")
    told = runners.info(home, "x", "stale", None)
    assert (told.pid, told.host, told.started_at, told.host_id) == (42, "h", 7, "")
    lease = Lease.acquire(files.lease, clock=CLOCK)
    assert runners.look(home, "x", supervised=True) == seen("alive supervised detached known")
    assert runners.info(home, "x", "detached", None).pid != 42
    lease.release()
