"""A whole pipeline process on a clock that the test moves, killed between two ticks."""

from __future__ import annotations

import asyncio

import pytest

from pipo.connectors.schedule import input as schedule
from pipo.connectors.schedule.ticking import Ticks
from tests.contract.connectors.test_schedule_year import Clock, ms
from tests.unit.runner.pipeline.test_process import House, house

__all__ = ["house"]

DAILY = (
    "input: { via: schedule, with: { cron: '30 1 * * *', timezone: America/New_York } }\n"
    "output: { from: input, to: file, with: { path: ./out.jsonl } }\n"
)


class Sleeper:
    """Waits that are over at once, once the process serves and until the clock stands at `until_ms`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.until_ms = 0
        self.rests = asyncio.Event()
        self.serves = asyncio.Event()

    async def pause(self, stop: asyncio.Event, seconds: float) -> bool:
        await self.serves.wait()
        if self._clock.ms + seconds * 1000 > self.until_ms:
            self._clock.ms = self.until_ms
            self.rests.set()
            return await stop.wait()
        self._clock.ms += seconds * 1000
        return False


async def test_report_01_a_kill_between_the_two_half_past_ones(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R01: what the journal holds of a day whose 01:30 comes twice, at 05:30Z and at 06:30Z."""
    house.clock = clock = Clock(ms("2027-11-06T00:00:00Z"))
    sleeper = Sleeper(clock)

    def build(specs: object, context: object) -> Ticks:
        return schedule.ScheduleInputs(specs, context, pause=sleeper.pause)  # type: ignore[arg-type]

    monkeypatch.setattr(schedule, "build", build)
    for until in ("2027-11-07T05:50:00Z", "2027-11-07T06:20:00Z", "2027-11-08T12:00:00Z"):
        sleeper.until_ms = ms(until)
        sleeper.rests.clear()
        sleeper.serves.clear()
        await house.start(DAILY)
        sleeper.serves.set()
        await asyncio.wait_for(sleeper.rests.wait(), 60)
        assert clock.ms == ms(until)
        if until < "2027-11-08":
            await house.kill()
    rows = await house.journal.rows.rows("SELECT source FROM units ORDER BY id")
    assert [source for (source,) in rows] == [
        "2027-11-06T05:30:00.000Z",
        "2027-11-07T05:30:00.000Z",
        "2027-11-08T06:30:00.000Z",
    ]
    await house.end()
