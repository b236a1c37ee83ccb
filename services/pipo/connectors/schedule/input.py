"""Makes packets by the clock: every so often, or at the times of a cron expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from pipo.clock import iso
from pipo.connectors.contract import Arrival, Input, InputContext, InputSpec
from pipo.connectors.formats import parse_pushed
from pipo.connectors.schedule.ticking import Pause, Ticks, Untaken, offer, stopped_within
from pipo.connectors.schedule.timetable import ByCron, Every, Timetable, period_ms_of
from pipo.errors import BadRequest
from pipo.lang.cron import BadCron, Cron


def build(specs: Sequence[InputSpec], context: InputContext) -> Input:
    return ScheduleInputs(specs, context)


class ScheduleInputs(Ticks):
    """All schedules of a pipeline."""

    def __init__(
        self, specs: Sequence[InputSpec], context: InputContext, *, pause: Pause = stopped_within
    ) -> None:
        super().__init__([_Schedule(spec, context) for spec in specs], context, pause=pause)


class _Schedule:
    """One schedule: what its ticks carry, and when they come."""

    def __init__(self, spec: InputSpec, context: InputContext) -> None:
        self.name = spec.name
        self._context = context
        self._payload = parse_pushed(spec.format, spec.settings.get("payload", {}))
        self._make = _timetable_of(spec)

    def timetable(self) -> Timetable:
        return self._make(self._context)

    async def tick(self, due_ms: int) -> Untaken | None:
        """One packet, by the time it was due (edge 43)."""
        due = iso(due_ms)
        # A copy: what a step does to one packet must not show in the next.
        arrival = Arrival(self.name, deepcopy(self._payload), "schedule", due)
        return await offer(self._context, arrival, due)


def _timetable_of(spec: InputSpec) -> Callable[[Any], Timetable]:
    """Raises: BadRequest, for a schedule that never ticks or ticks without pause."""
    every, cron = spec.settings.get("every"), spec.settings.get("cron")
    if (every is None) == (cron is None):
        raise BadRequest(
            f"input '{spec.name}' needs exactly one of `every` and `cron`", hint="remove the other"
        )
    if every is not None:
        period_ms = period_ms_of(spec)
        return lambda context: Every(period_ms, context.clock)
    try:
        read = Cron(str(cron), spec.settings.get("timezone", "UTC"))
    except BadCron as error:
        raise BadRequest(f"input '{spec.name}': {error}", hint=error.hint) from None
    return lambda context: ByCron(read, context.clock)
