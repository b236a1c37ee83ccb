"""The one source of time and chance: everything that waits or stamps takes a `Clock`.

Wall time is integer milliseconds since the epoch (decision 24); waits use the
monotonic clock. Nothing else in Pipo calls `time.time`, `time.monotonic` or
`random` (a lint rule holds this).

The rules of the two clocks. A wall clock may be set, by an hour or by years, either way; the
monotonic one only rises, and stands still while the machine sleeps.

1. What happens within a run is waited for and measured on the monotonic clock: retries and
   back-offs, batches, checks, windows of acks, stalls, the ttl, `uptime`, `in_per_min`,
   `every`, the rhythm of the clean-up. A jump of the wall clock neither hastens nor delays it.
2. What must survive a restart is a moment of the wall clock on disk (the next attempt, the
   deadline of an ack, the anchor of the ttl). The next run takes what is left of it once, and
   waits no longer than the whole wait, however far back the clock was set: no retry is stuck for an
   hour, and no ttl lasts longer than itself.
3. What is about the wall clock follows it: `cron`, the ages of retention, the day between two
   compactions, stamps. A minute of `cron` fires once, also where the clock comes by it again;
   minutes that a jump leaves out are missed, counted and not made up for. A compaction that lies
   in the future begins its day anew.
4. Order comes from numbers, never from stamps: the sequence of events, the places in the queue,
   ids that only rise.
5. A machine that sleeps makes the waits of rule 1 last longer by its sleep, and the next
   look at a wall clock is a jump ahead: nothing is made up for twice.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """What code may ask about time and chance."""

    def now_ms(self) -> int:
        """Wall time, milliseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds that only rise, for waits and durations."""

    def jitter(self, span_s: float) -> float:
        """A random number of seconds from 0 up to `span_s`."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return _wall_ms()

    def monotonic(self) -> float:
        return time.monotonic()

    def jitter(self, span_s: float) -> float:
        return random.random() * span_s


def _machine_ms() -> int:
    return time.time_ns() // 1_000_000


def _wall_clock() -> Callable[[], int]:
    """The wall clock; with PIPO_CLOCK_SHIFT, for tests, one that a test can set.

    The variable names a file: as many milliseconds as it says the clock is off, from the moment
    at which it says so. Every process of that environment has the same clock.
    """
    if not (shift := os.environ.get("PIPO_CLOCK_SHIFT")):
        return _machine_ms
    file = Path(shift)

    def shifted_ms() -> int:
        return _machine_ms() + int(file.read_text())

    return shifted_ms


_wall_ms = _wall_clock()


def iso(at_ms: int) -> str:
    """`2026-10-10T21:13:48.263Z` for milliseconds since the epoch."""
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
