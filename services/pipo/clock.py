"""The one source of time and chance: everything that waits or stamps takes a `Clock`.

Wall time is integer milliseconds since the epoch (decision 24); waits use the
monotonic clock. Nothing else in Pipo calls `time.time`, `time.monotonic` or
`random` (a lint rule holds this).
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
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
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def jitter(self, span_s: float) -> float:
        return random.random() * span_s


def iso(at_ms: int) -> str:
    """`2026-10-10T21:13:48.263Z` for milliseconds since the epoch."""
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
