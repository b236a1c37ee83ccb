"""The schedule input: ticks through intake, and what happens to those it does not take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import Arrival, InputSpec, Taken
from pipo.connectors.schedule.input import ScheduleInputs
from pipo.errors import BadRequest
from tests.contract.connectors.intake import FakeIntake, input_context


class JumpingClock(SystemClock):
    """Time that passes only where the schedule waits, or where the test says so."""

    def __init__(self) -> None:
        self.ms = 1_796_000_000_000.0

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic(self) -> float:
        return self.ms / 1000


def spec(format: str = "json", **settings: Any) -> InputSpec:
    return InputSpec("tick", settings, format)


class Run:
    """A schedule whose waits are over at once, until it has waited `waits` times."""

    def __init__(self, intake: FakeIntake, *specs: InputSpec, waits: int) -> None:
        self.clock = JumpingClock()
        self.slept: list[float] = []
        self.logged: list[tuple[str, str, Any]] = []
        self.keys: list[dict[str, Any]] = []
        self._left = waits
        self._done = asyncio.Event()
        context = input_context(intake, clock=self.clock, log=self._log)
        self.inputs = ScheduleInputs(specs, context, pause=self._pause)

    def _log(self, level: str, message: str, **keys: Any) -> None:
        self.logged.append((level, message, keys.get("reason", keys.get("missed"))))
        self.keys.append(keys)

    async def _pause(self, stop: asyncio.Event, seconds: float) -> bool:
        self._left -= 1
        if self._left < 0:
            self._done.set()
            return await stop.wait()
        self.slept.append(seconds)
        self.clock.ms += seconds * 1000 + 1
        await asyncio.sleep(0)
        return stop.is_set()

    async def until_it_waits(self) -> None:
        await self.inputs.open()
        await asyncio.wait_for(self._done.wait(), 60)
        await self.inputs.close()


async def test_ticks_carry_the_payload_and_their_due_time() -> None:
    intake = FakeIntake()
    run = Run(intake, spec(every="5s", payload={"status": "alive"}), waits=3)
    await run.until_it_waits()
    assert intake.data == [{"status": "alive"}] * 3
    sources = [arrival.source for arrival in intake.arrivals]
    assert len(set(sources)) == 3
    assert all(source.endswith("Z") for source in sources)
    assert {arrival.trigger for arrival in intake.arrivals} == {"schedule"}
    assert run.slept == pytest.approx([5, 5, 5], abs=0.01)


async def test_the_payload_is_copied_and_empty_by_default() -> None:
    intake = FakeIntake()
    given = {"list": []}  # type: ignore[var-annotated]
    run = Run(intake, spec(every="1s", payload=given), spec(every="1s"), waits=4)
    await run.until_it_waits()
    made = [data for data in intake.data if data]
    assert made[0] == given
    assert made[0]["list"] is not made[1]["list"] is not given["list"]
    assert {} in intake.data


async def test_long_waits_are_cut_so_that_a_jump_is_noticed() -> None:
    intake = FakeIntake()
    run = Run(intake, spec(cron="0 0 * * *"), waits=20)
    await run.until_it_waits()
    assert set(run.slept) == {30.0}
    assert intake.arrivals == []


async def test_a_tick_that_is_not_taken_is_logged_and_dropped() -> None:
    words = iter(["refuse", "reject", "accept"])
    intake = FakeIntake(lambda arrival: next(words))
    run = Run(intake, spec(every="1s"), waits=3)
    await run.until_it_waits()
    assert run.logged == [
        ("warn", "tick skipped", "buffer full (2 packets pending)"),
        ("warn", "tick rejected", "too young"),
    ]


async def test_what_happens_at_every_tick_is_counted_and_told_once_a_minute() -> None:
    intake = FakeIntake(lambda arrival: "refuse")
    run = Run(intake, spec(every="1s"), waits=150)
    await run.until_it_waits()
    # At the first, at the first after each minute, and the rest at the end.
    assert [keys["ticks"] for keys in run.keys] == [1, 60, 60, 29]
    assert len({keys["due"] for keys in run.keys}) == 4
    assert {keys["reason"] for keys in run.keys} == {"buffer full (2 packets pending)"}


async def test_ticks_missed_again_and_again_are_counted_too() -> None:
    class Slow(FakeIntake):
        async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
            run.clock.ms += 2
            return await super().take(arrivals)

    run = Run(Slow(), spec(every="1ms"), waits=300)
    await run.until_it_waits()
    first, rest = [keys["missed"] for keys in run.keys]
    assert first < 5
    assert rest > 300


async def test_an_intake_that_fails_loses_one_tick() -> None:
    intake = FakeIntake()
    intake.failure = RuntimeError("disk on fire")
    run = Run(intake, spec(every="1s"), waits=2)
    await run.until_it_waits()
    assert run.logged == [("error", "tick lost", "disk on fire")] * 2


async def test_a_slow_intake_misses_ticks_in_one_warning() -> None:
    class Slow(FakeIntake):
        async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
            run.clock.ms += 3500
            return await super().take(arrivals)

    intake = Slow()
    run = Run(intake, spec(every="1s"), waits=1)
    await run.until_it_waits()
    assert len(intake.arrivals) == 1
    assert len(run.logged) == 1
    assert run.logged[0][2] == 3


async def test_a_close_waits_for_the_tick_in_hand() -> None:
    intake = FakeIntake()
    intake.hold = asyncio.Event()
    run = Run(intake, spec(every="1s"), waits=1)
    await run.inputs.open()
    await run.inputs.open()
    await asyncio.wait_for(intake.reached.wait(), 60)
    closing = asyncio.ensure_future(run.inputs.close())
    await asyncio.sleep(0)
    assert not closing.done()
    intake.hold.set()
    await asyncio.wait_for(closing, 60)
    await run.inputs.close()
    assert len(intake.arrivals) == 1


async def test_it_ticks_in_real_time() -> None:
    intake = FakeIntake()
    inputs = registry.build_inputs("schedule", [spec(every="1ms")], input_context(intake))
    await inputs.open()
    await asyncio.wait_for(intake.reached.wait(), 60)
    await inputs.close()
    assert intake.arrivals


async def test_a_text_payload_is_read_by_the_format() -> None:
    intake = FakeIntake()
    run = Run(intake, spec("csv", every="1s", payload="a,b\n1,2\n"), waits=1)
    await run.until_it_waits()
    assert intake.data == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "exactly one of"),
        ({"every": "1s", "cron": "* * * * *"}, "exactly one of"),
        ({"every": "0s"}, "`every: 0s` is too short"),
        ({"cron": "61 * * * *"}, "minute"),
        ({"cron": "* * * * *", "timezone": "Mars/Base"}, "Mars/Base"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        registry.build_inputs("schedule", [spec(**settings)], input_context(FakeIntake()))


async def test_push_opens_and_closes() -> None:
    inputs = registry.build_inputs(
        "push", [InputSpec("p", {}, "json")], input_context(FakeIntake())
    )
    await inputs.close()
    await inputs.open()
    await inputs.close()
