"""How many pipelines start at once on one host.

A start is mostly computing: two hundred at once take no less time together than in turn, and
each of them so long that its limit is over before it serves.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

# While one waits for its disk another computes.
STARTS_PER_CORE = 2


def starts_at_once() -> int:
    """The places of a host, by the processors that it may use."""
    return STARTS_PER_CORE * len(os.sched_getaffinity(0))


class Gate:
    """Places for starts. A start that somebody waits for goes before those that nobody does."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._first: deque[asyncio.Future[None]] = deque()
        self._rest: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def place(
        self, *, first: bool = False, until: asyncio.Event | None = None
    ) -> AsyncIterator[None]:
        """Holds a place inside; entered without one once `until` is set.

        Cancelled: the place, or the wait for it, is given back.
        """
        held = await self._enter(self._first if first else self._rest, until)
        try:
            yield
        finally:
            if held:
                self._leave()

    async def _enter(self, queue: deque[asyncio.Future[None]], until: asyncio.Event | None) -> bool:
        if self._free > 0:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        roused = asyncio.create_task((until or asyncio.Event()).wait(), name="no place needed")
        either: set[asyncio.Future[Any]] = {turn, roused}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if turn.done():
                self._leave()
            raise
        finally:
            roused.cancel()
            if not turn.done():
                queue.remove(turn)
        return turn.done()

    def _leave(self) -> None:
        queue = self._first or self._rest
        if queue:
            queue.popleft().set_result(None)
        else:
            self._free += 1
