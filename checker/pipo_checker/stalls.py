"""Notices from here that a pipeline is stuck: the stall watcher of one stream.

The pipeline sends how it gets on, as ages; here they become moments of this process's clock,
and the rules of `pipo.stall` say when to look. What is found is reported and nothing else:
the pipeline looks again with its own numbers, and tells. A report is repeated at each look
until the pipeline says that the stall is told, so none is lost and one too many does no harm.

A pipeline without `stall` sends nothing, and then nothing here ever wakes up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from pipo import stall
from pipo.clock import Clock
from pipo.rpc.stubs.checker_pb2 import Progress


class StallWatch:
    """What one pipeline said last. `report` is told for how long nothing got through, in ms."""

    def __init__(self, clock: Clock, report: Callable[[int], None]) -> None:
        self._clock = clock
        self._report = report
        self._seen: stall.Progress | None = None
        self._news = asyncio.Event()

    @property
    def watches(self) -> bool:
        """Whether the pipeline wants to be watched: it has told how it gets on."""
        return self._seen is not None

    def take(self, told: Progress) -> None:
        """The pipeline says how it gets on."""
        now_ms = self._now_ms()
        last_ms = now_ms - told.last_progress_ms if told.HasField("last_progress_ms") else None
        self._seen = stall.Progress(
            after_ms=told.after_ms,
            pending_moving=told.pending_moving,
            clock_from_ms=now_ms - told.clock_from_ms,
            last_progress_ms=last_ms,
            looking=told.looking,
            told=told.told,
        )
        self._news.set()

    async def run(self) -> NoReturn:
        """Looks until it is cancelled; it sleeps while no look could find a stall."""
        while True:
            seen = self._seen
            wait_ms = None if seen is None else stall.next_look_ms(seen, self._now_ms())
            if not await self._hears_within(wait_ms):
                self._look()

    async def _hears_within(self, wait_ms: float | None) -> bool:
        """Whether there are news before the time is over."""
        self._news.clear()
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000.0):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _look(self) -> None:
        seen, now_ms = self._seen, self._now_ms()
        if seen is not None and stall.is_stalled(seen, now_ms):
            self._report(int(now_ms - seen.since_ms))

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000.0
