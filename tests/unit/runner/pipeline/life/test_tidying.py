"""The clean-up of a running pipeline: one pass at a time, every ten minutes, until the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pipo.errors import Unavailable
from pipo.journal.clean_up import Cleaned, CleanUp, NoRoom
from pipo.lang.model import Retention
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.life.tidying import EVERY_S, Tidying
from tests.unit.runner.pipeline.rig import quiet


class Passes(CleanUp):
    """A clean-up whose passes are counted, and end as they are told."""

    def __init__(self) -> None:
        self.kept: list[Retention] = []
        self.compactions = 0
        self.ends: list[Cleaned | Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, keep: Retention) -> Cleaned:
        self.kept.append(keep)
        await self.gate.wait()
        end = self.ends.pop(0) if self.ends else Cleaned(0, 0)
        if isinstance(end, Exception):
            raise end
        return end

    async def compact(self) -> bool:
        self.compactions += 1
        return False


class Waits(Timers):
    """Timers that ring when the test says so."""

    def __init__(self) -> None:
        super().__init__(self._crashed)
        self.crashes: list[BaseException] = []
        self.set: list[tuple[float, Callable[[], None]]] = []

    def _crashed(self, error: BaseException) -> None:
        self.crashes.append(error)

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self.set.append((delay_s, call))


class Rig:
    def __init__(self) -> None:
        self.passes = Passes()
        self.timers = Waits()
        self.keep = Retention(data_ms=1.0)
        self.said: list[tuple[str, str, dict[str, Any]]] = []
        self.tidying = Tidying(self.passes, lambda: self.keep, timers=self.timers, log=self._say)

    def _say(self, level: str, message: str, **keys: Any) -> None:
        self.said.append((level, message, keys))


@pytest.mark.seed("L051")
async def test_a_pass_at_the_start_and_one_every_ten_minutes() -> None:
    rig = Rig()
    rig.tidying.begin()
    await quiet()
    assert len(rig.passes.kept) == 1
    ((delay_s, again),) = rig.timers.set
    assert delay_s == EVERY_S == 600
    rig.keep = Retention(data_ms=2.0)
    again()
    await quiet()
    assert [keep.data_ms for keep in rig.passes.kept] == [1.0, 2.0], "the retention in force"
    assert rig.passes.compactions == 2
    assert rig.said == []


async def test_no_wait_runs_beside_a_pass() -> None:
    rig = Rig()
    rig.passes.gate.clear()
    rig.tidying.begin()
    await quiet()
    assert rig.timers.set == []
    rig.passes.gate.set()
    await quiet()
    assert len(rig.timers.set) == 1


async def test_what_was_removed_is_told() -> None:
    rig = Rig()
    rig.passes.ends = [Cleaned(3, 2)]
    rig.tidying.begin()
    await quiet()
    assert rig.said == [("info", "old packets were cleaned up", {"cleared": 3, "deleted": 2})]


async def test_a_busy_journal_puts_it_off_in_silence_and_a_full_disk_aloud() -> None:
    rig = Rig()
    rig.passes.ends = [Unavailable("too many changes wait"), NoRoom("no room", hint="make room")]
    rig.tidying.begin()
    await quiet()
    assert rig.said == []
    rig.timers.set[0][1]()
    await quiet()
    assert rig.said == [("warning", "no room", {"hint": "make room"})]
    assert len(rig.timers.set) == 2
    assert rig.timers.crashes == []


async def test_an_end_stops_a_pass_and_none_follows() -> None:
    rig = Rig()
    rig.passes.gate.clear()
    rig.tidying.begin()
    await quiet()
    rig.tidying.end()
    rig.tidying.end()
    rig.passes.gate.set()
    await quiet()
    assert rig.timers.set == []
    rig.tidying.begin()
    await quiet()
    assert len(rig.passes.kept) == 1
