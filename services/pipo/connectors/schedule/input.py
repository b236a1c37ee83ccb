"""Makes packets by the clock: every so often, or at the times of a cron expression."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from typing import Any

from pipo.clock import iso
from pipo.connectors.contract import (
    Arrival,
    Input,
    InputContext,
    InputSpec,
    RefusedArrival,
    RejectedArrival,
)
from pipo.connectors.formats import parse_pushed
from pipo.connectors.schedule.timetable import ByCron, Every, Timetable
from pipo.errors import BadRequest
from pipo.lang import durations
from pipo.lang.cron import BadCron, Cron

# A jump of the wall clock is noticed within this time; an idle process has no busier timer.
SLEEP_MAX_S = 30.0

Pause = Callable[[asyncio.Event, float], Awaitable[bool]]


def build(specs: Sequence[InputSpec], context: InputContext) -> Input:
    return ScheduleInputs(specs, context, pause=stopped_within)


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Whether `stop` is set, waiting up to `seconds` for it."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True


class ScheduleInputs:
    """All schedules of a pipeline; each has a task of its own."""

    def __init__(self, specs: Sequence[InputSpec], context: InputContext, *, pause: Pause) -> None:
        self._context = context
        self._pause = pause
        self._schedules = [_Schedule(spec, context) for spec in specs]
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts the clocks: `every` counts from here."""
        if self._running is None:
            self._running = asyncio.create_task(self._run_all(), name="schedules")

    async def close(self) -> None:
        """Returns when no tick is being taken any more (edge 51)."""
        self._stop.set()
        running, self._running = self._running, None
        if running is not None:
            await running

    async def _run_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for schedule in self._schedules:
                group.create_task(self._run(schedule), name=f"schedule {schedule.name}")

    async def _run(self, schedule: _Schedule) -> None:
        timetable = schedule.timetable()
        while not self._stop.is_set():
            left = timetable.wait_s()
            if left > 0:
                await self._pause(self._stop, min(left, SLEEP_MAX_S))
                continue
            await schedule.tick(timetable.due_ms())
            missed = timetable.advance()
            if missed:
                self._context.log(
                    "warn",
                    "ticks missed: the one before took longer, or the process stood still",
                    action="ticks_missed",
                    input=schedule.name,
                    missed=missed,
                )


class _Schedule:
    """One schedule: what its ticks carry, and when they come."""

    def __init__(self, spec: InputSpec, context: InputContext) -> None:
        self.name = spec.name
        self._context = context
        self._payload = parse_pushed(spec.format, spec.settings.get("payload", {}))
        self._make = _timetable_of(spec)

    def timetable(self) -> Timetable:
        return self._make(self._context)

    async def tick(self, due_ms: int) -> None:
        """One packet; a tick that is not taken is logged and dropped (edge 45)."""
        due = iso(due_ms)
        # A copy: what a step does to one packet must not show in the next.
        arrival = Arrival(self.name, deepcopy(self._payload), "schedule", due)
        try:
            (taken,) = await self._context.intake.take([arrival])
        except Exception as error:
            self._log("error", "tick lost", due, "tick_lost", str(error))
            return
        if isinstance(taken, RefusedArrival):
            self._log("warn", "tick skipped", due, "tick_skipped", taken.message)
        elif isinstance(taken, RejectedArrival):
            self._log("warn", "tick rejected", due, "tick_rejected", taken.message)

    def _log(self, level: str, message: str, due: str, action: str, reason: str) -> None:
        self._context.log(level, message, action=action, input=self.name, due=due, reason=reason)


def _timetable_of(spec: InputSpec) -> Callable[[Any], Timetable]:
    """Raises: BadRequest, for a schedule that never ticks or ticks without pause."""
    every, cron = spec.settings.get("every"), spec.settings.get("cron")
    if (every is None) == (cron is None):
        raise BadRequest(
            f"input '{spec.name}' needs exactly one of `every` and `cron`", hint="remove the other"
        )
    if every is not None:
        period_ms = durations.parse(every)
        if period_ms < 1:
            raise BadRequest(
                f"input '{spec.name}': `every: {every}` is too short", hint="1ms at least"
            )
        return lambda context: Every(period_ms, context.clock)
    try:
        read = Cron(str(cron), spec.settings.get("timezone", "UTC"))
    except BadCron as error:
        raise BadRequest(f"input '{spec.name}': {error}", hint=error.hint) from None
    return lambda context: ByCron(read, context.clock)
