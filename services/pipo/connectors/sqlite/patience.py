"""How long one attempt waits for the locks of others."""

from __future__ import annotations

from threading import Event

from pipo.clock import Clock

_NAP_S_FIRST = 0.001
_NAP_S_MAX = 0.05


class Patience:
    """One wait for all the locks that an attempt meets: to open, to begin and to commit (edge 168).

    SQLite's own timeout begins anew with each of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._never = Event()

    def begin(self, seconds: float) -> None:
        """An attempt begins that may wait this long in all."""
        self._until = self._clock.monotonic() + seconds

    def __call__(self, tries: int) -> bool:
        """Whether to try once more, after a nap; SQLite's busy handler."""
        left = self._until - self._clock.monotonic()
        if left <= 0:
            return False
        self._never.wait(min(left, _NAP_S_MAX, _NAP_S_FIRST * 2 ** min(tries, 10)))
        return True
