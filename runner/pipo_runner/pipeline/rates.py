"""Acceptances of the last minute, in sixty buckets of a second."""

from __future__ import annotations

_WINDOW_S = 60


class MinuteRate:
    """Counts what happened in the last 60 s without keeping the moments."""

    def __init__(self) -> None:
        self._counts = [0] * _WINDOW_S
        self._seconds = [-1] * _WINDOW_S

    def add(self, count: int, at_ms: int) -> None:
        """`count` happened at `at_ms`."""
        second = at_ms // 1000
        slot = second % _WINDOW_S
        if self._seconds[slot] != second:
            self._seconds[slot] = second
            self._counts[slot] = 0
        self._counts[slot] += count

    def total(self, now_ms: int) -> int:
        """How many happened in the 60 s up to now."""
        oldest = now_ms // 1000 - _WINDOW_S
        pairs = zip(self._seconds, self._counts, strict=True)
        return sum(count for second, count in pairs if second > oldest)
