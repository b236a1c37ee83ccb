"""When the next tick is due. No waiting here: time is asked, never slept away.

Two clocks: `every` keeps to a grid of the monotonic clock, `cron` to the wall clock.
A tick is armed only after the one before was answered; what fell due meanwhile is
missed, counted, and never made up for.
"""

from __future__ import annotations

from typing import Protocol

from pipo import durations
from pipo.clock import Clock
from pipo.connectors.contract import InputSpec
from pipo.errors import BadRequest
from pipo.lang.cron import Cron

# A clock that is set back further than this was wrong before; the schedule starts anew.
SET_BACK_MS = 24 * 60 * 60 * 1000
MISSED_COUNT_MAX = 1000


class Timetable(Protocol):
    """The ticks of one schedule."""

    def wait_s(self) -> float:
        """Seconds until the armed tick; 0 or less when it is due."""

    def due_ms(self) -> int:
        """When the armed tick is due, in wall time."""

    def advance(self) -> int:
        """Arms the next tick; returns how many were missed since the last one."""


class Every:
    """Ticks on the grid `start + n × period`, the first one a full period after the start."""

    def __init__(self, period_ms: float, clock: Clock) -> None:
        self._period_s = period_ms / 1000.0
        self._clock = clock
        self._start = clock.monotonic()
        self._start_ms = clock.now_ms()
        self._armed = 1

    def wait_s(self) -> float:
        return self._start + self._armed * self._period_s - self._clock.monotonic()

    def due_ms(self) -> int:
        return self._start_ms + round(self._armed * self._period_s * 1000)

    def advance(self) -> int:
        latest = int((self._clock.monotonic() - self._start) / self._period_s)
        missed = max(0, latest - self._armed)
        self._armed = max(latest, self._armed) + 1
        return missed


class ByCron:
    """Ticks at the minutes that a cron expression names."""

    def __init__(self, cron: Cron, clock: Clock) -> None:
        self._cron = cron
        self._clock = clock
        self._arm(clock.now_ms())

    def wait_s(self) -> float:
        now = self._clock.now_ms()
        if now + SET_BACK_MS < self._after:
            self._arm(now)
        return (self._due - now) / 1000.0

    def due_ms(self) -> int:
        return self._due

    def advance(self) -> int:
        now = self._clock.now_ms()
        missed = 0
        # Strictly after the tick just fired: a timer that fires early makes no minute twice.
        self._arm(self._due)
        while self._due <= now and missed < MISSED_COUNT_MAX:
            missed += 1
            self._arm(self._due)
        if self._due <= now:
            self._arm(now)
        return missed

    def _arm(self, after: int) -> None:
        self._after = after
        self._due = self._cron.next_after(after)


def period_ms_of(spec: InputSpec) -> float:
    """The `every` of an input.

    Raises: BadRequest, for one without any pause.
    """
    every = str(spec.settings["every"])
    period_ms = durations.parse(every)
    if period_ms < 1:
        raise BadRequest(f"input '{spec.name}': `every: {every}` is too short", hint="1ms at least")
    return period_ms
