"""Acceptances of the last minute, in sixty buckets of a second.

Seconds are those of the monotonic clock: set the wall clock as you like, a minute is one.
"""

from __future__ import annotations

WINDOW_S = 60


class MinuteRate:
    """Counts what happened in the last 60 s without keeping the moments."""

    def __init__(self) -> None:
        self._counts = [0] * WINDOW_S
        self._seconds = [-1] * WINDOW_S

    def add(self, count: int, at_s: float) -> None:
        """`count` happened at `at_s`, on the monotonic clock."""
        second = int(at_s)
        slot = second % WINDOW_S
        if self._seconds[slot] != second:
            self._seconds[slot] = second
            self._counts[slot] = 0
        self._counts[slot] += count

    def total(self, now_s: float) -> int:
        """How many happened in the 60 s up to now."""
        oldest = int(now_s) - WINDOW_S
        pairs = zip(self._seconds, self._counts, strict=True)
        return sum(count for second, count in pairs if second > oldest)
