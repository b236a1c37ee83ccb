"""Pages of journal events: of one pipeline, or of all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pipo.access import Access, answers
from pipo.access.requests import EVENTS_DEFAULT
from pipo.errors import BadRequest, NotFound
from pipo.rpc.stubs import packet_pb2, pipo_pb2

# Over all pipelines, this many of the newest can be followed (doors.md, /events).
WINDOW = 1000
PARALLEL_MAX = 16


class GoneEvent(NotFound):
    """An event id that is no longer among the newest."""

    http_status = 410


class EventPages:
    """Reads pages; keeps nothing between two of them."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def of_one(self, pipeline: str, after: str, limit: int) -> dict[str, Any]:
        """One pipeline's events after a number or an event id, oldest first."""
        request = pipo_pb2.ListEventsRequest(
            pipeline=pipeline, after_seq=_seq(after, pipeline) if after else 0, limit=limit
        )
        return answers.events(await self._access.list_events(request), pipeline)

    async def of_all(self, after: str, limit: int, sees: Callable[[str], bool]) -> dict[str, Any]:
        """The newest 1,000 events of all pipelines after an event id, oldest first.

        Raises: GoneEvent, when the id is not among them.
        """
        names = [name for name in self._access.directory.names() if sees(name)]
        newest = await self._newest(names)
        begin = 0
        if after:
            ids = [f"{event.pipeline}:{event.seq}" for event in newest]
            if after not in ids:
                raise GoneEvent(
                    f"event {after[:100]!r} is not among the newest {WINDOW}",
                    hint="begin again without `after`, or follow one pipeline with `pipeline`",
                )
            begin = ids.index(after) + 1
        page = newest[begin : begin + (limit or EVENTS_DEFAULT)]
        last = f"{page[-1].pipeline}:{page[-1].seq}" if page else (after or None)
        return {
            "events": [answers.event(event) for event in page],
            "more": begin + len(page) < len(newest),
            "last_id": last,
        }

    async def _newest(self, names: list[str]) -> list[packet_pb2.Event]:
        places = asyncio.Semaphore(PARALLEL_MAX)

        async def one(name: str) -> list[packet_pb2.Event]:
            async with places:
                return await self._tail(name)

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(one(n), name=f"events of {n}") for n in names]
        found = [event for task in asked for event in task.result()]
        found.sort(key=lambda event: (event.at, event.pipeline, event.seq))
        return found[-WINDOW:]

    async def _tail(self, name: str) -> list[packet_pb2.Event]:
        """A pipeline's newest events."""
        info = await self._access.get_pipeline(name)
        request = pipo_pb2.ListEventsRequest(
            pipeline=name, after_seq=max(0, info.last_seq - WINDOW), limit=WINDOW
        )
        return list((await self._access.list_events(request)).events)


def _seq(after: str, pipeline: str) -> int:
    """The number in `12` or `signups:12`. Raises: BadRequest."""
    name, colon, number = after.rpartition(":")
    if (colon and name != pipeline) or not (number.isascii() and number.isdigit()):
        raise BadRequest(
            f"after is {after[:100]!r}",
            hint=f"after is a number from 0, or an id such as {pipeline}:12",
        )
    return min(int(number), 2**63 - 1)
