"""A thread for each destination file, so that a slow one holds up no other.

A lane is one thread and the thing it works on (an open database, an open file).
Its jobs run one at a time, in the order they came. At most `limit` lanes are
open; the one that rested longest is closed when another is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """What a lane works on; `close` runs on the lane's own thread and does not fail."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
R = TypeVar("R")


class Lanes(Generic[T]):
    """Lanes by place (a path); `make` gives a place its thing, and touches nothing yet.

    `on_rest` hears of a place whose lane is closed to make room for another.
    """

    def __init__(
        self,
        make: Callable[[str], T],
        *,
        limit: int,
        on_rest: Callable[[str], None] = lambda place: None,
    ) -> None:
        self._make = make
        self._on_rest = on_rest
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._lanes: dict[str, _Lane[T]] = {}  # the least recently used comes first

    async def run(self, place: str, job: Callable[[T], R]) -> R:
        """What `job` returns, run on the thread of its place.

        Cancelled: a job that has started runs on to its end; the next one of its place waits for it.
        """
        async with self._slots:
            lane = self._lanes.pop(place, None)
            if lane is None:
                await self._make_room()
                lane = self._lanes.pop(place, None) or _Lane(self._make(place))
            self._lanes[place] = lane
            return await lane.run(job)

    async def close(self) -> None:
        """Closes every lane, once its jobs have ended."""
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.close() for lane in lanes.values()))

    async def _make_room(self) -> None:
        while len(self._lanes) >= self._limit:
            resting = next((place for place, lane in self._lanes.items() if lane.rests), None)
            if resting is None:
                return
            lane = self._lanes.pop(resting)
            self._on_rest(resting)
            await lane.close()


class _Lane(Generic[T]):
    def __init__(self, thing: T) -> None:
        self._thing = thing
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="destination")
        self._jobs: set[Future[Any]] = set()

    @property
    def rests(self) -> bool:
        return not self._jobs

    async def run(self, job: Callable[[T], R]) -> R:
        future = self._thread.submit(job, self._thing)
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        try:
            await asyncio.wrap_future(self._thread.submit(self._thing.close))
        finally:
            self._thread.shutdown(wait=False)
