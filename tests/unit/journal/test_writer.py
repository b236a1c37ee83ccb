"""The writer's own time: the tip every minute, staged changes without a moving clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipo.journal import writer
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import accepted, copies, fanned_out, rerun, version


class SteppedClock:
    """Time that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    def jitter(self, span_s: float) -> float:
        return 0.0


def tip_of(folder: Path) -> tuple[int, bool, int]:
    found = json.loads((folder / "tip").read_text())
    return found["seq"], found["clean"], found["at"]


async def test_the_tip_follows_every_minute_and_at_the_end(tmp_path: Path) -> None:
    clock = SteppedClock()
    journal = open_quick(tmp_path, clock=clock)
    assert tip_of(tmp_path) == (0, False, 1_000_000)
    await journal.commit(version(), accepted(1))
    clock.now_s += 59
    await journal.commit(accepted(2))
    assert tip_of(tmp_path) == (0, False, 1_000_000)
    clock.now_s += 2
    await journal.commit(accepted(3))
    await journal.commit(accepted(4))
    # The writer keeps the tip after it has answered, so the minute may end on either commit.
    assert tip_of(tmp_path) in ((2, False, 1_061_000), (3, False, 1_061_000))
    await journal.close(clean=True)
    assert tip_of(tmp_path) == (4, True, 1_061_000)


async def test_staged_changes_do_not_wait_for_a_clock_that_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "STAGE_DELAY_S", 0.001)
    journal = open_quick(tmp_path, clock=SteppedClock())
    journal.stage(version(), accepted(1))
    assert await journal.wait_beyond(0, 5.0) == 1
    await journal.close(clean=True)


async def test_many_staged_changes_wait_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "STAGE_DELAY_S", 60.0)
    journal = open_quick(tmp_path)
    journal.stage(version())
    journal.stage(*(accepted(n) for n in range(1, writer.STAGE_HIGH_WATER)))
    assert await journal.wait_beyond(0, 5.0) == writer.STAGE_HIGH_WATER - 1
    await journal.close(clean=True)


def test_each_copy_weighs_as_much_as_its_packet() -> None:
    """A transaction is bounded by what it writes, and a split writes its payload often."""
    assert writer._weight(accepted(1, data=b"12345")) == 5
    assert writer._weight(accepted(1, data=b"12345", copies=copies(1, "a", "b"))) == 15
    assert writer._weight(fanned_out(1, "a", "b", data=b"12345")) == 15
    assert writer._weight(rerun(1, data=b"12345")) == 5
