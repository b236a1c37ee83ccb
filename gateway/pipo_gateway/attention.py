"""Who uses the API now, and since when nobody has: that keeps an idle engine awake (edge 436)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipo.clock import Clock


class Attention:
    """Counts requests, calls and streams under way; probes and scrapes are not counted."""

    def __init__(self, clock: Clock) -> None:
        self.under_way = 0
        self._clock = clock
        self._last = clock.monotonic()

    def begin(self) -> None:
        """Somebody asks."""
        self.under_way += 1

    def end(self) -> None:
        """And has the answer, or went away."""
        self.under_way -= 1
        self._last = self._clock.monotonic()

    @contextmanager
    def given(self) -> Iterator[None]:
        """Both, around an answer."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    @property
    def quiet_s(self) -> float:
        """Seconds since the last one ended; 0 while one is under way."""
        return 0.0 if self.under_way else self._clock.monotonic() - self._last
