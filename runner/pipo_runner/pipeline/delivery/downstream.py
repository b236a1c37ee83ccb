"""Waits of other pipelines' checkers for packets to settle here.

A wait costs a timer and is answered the moment its packet settles, so nobody asks in a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from pipo.connectors.contract import Settlement
from pipo.errors import BadRequest, PipoError
from pipo.journal.states import SETTLED
from pipo.rpc.errors import moved
from pipo.rpc.stubs import pipeline_pb2
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.timers import Timers

GONE: Final = "gone"
"""The state of a packet that this pipeline does not hold, or no longer."""
# Twice what one checker holds at a time for one sender.
WAITS_MAX: Final = 8192
# A standing has a reason of up to some kilobytes: so many stay under a message's 1 MiB.
STANDINGS_TOGETHER: Final = 100
REASON_CHARACTERS_MAX: Final = 2000


class Downstream:
    """How the packets of one pipeline stand, for whoever handed them over."""

    def __init__(
        self,
        *,
        name: str,
        pending: Pending,
        standing_of: Callable[[str], Awaitable[tuple[str, str] | None]],
        timers: Timers,
    ) -> None:
        self._name = name
        self._pending = pending
        self._standing_of = standing_of
        self._timers = timers

    async def stream(
        self, requests: AsyncIterator[pipeline_pb2.DownstreamStateRequest]
    ) -> AsyncIterator[pipeline_pb2.DownstreamStateReply]:
        """Answers as they come; those that came together travel together.

        Raises: Unavailable, if a wait was meant for another pipeline; BadRequest, for too many.
        """
        session = _Session()
        reader = self._timers.read(self._read(session, requests), name="downstream waits")
        try:
            while standings := await session.next():
                yield pipeline_pb2.DownstreamStateReply(standings=standings)
            if session.error is not None:
                raise session.error
        finally:
            reader.cancel()
            session.end()

    async def _read(
        self,
        session: _Session,
        requests: AsyncIterator[pipeline_pb2.DownstreamStateRequest],
    ) -> None:
        try:
            async for request in requests:
                self._take(session, request)
        except PipoError as error:
            # The asker's mistake: it ends this stream, not this process.
            session.error = error
            session.end()
        except asyncio.CancelledError:
            # This process stops: who waits learns it from the end of the stream.
            session.end()
            raise
        finally:
            session.read()

    def _take(self, session: _Session, request: pipeline_pb2.DownstreamStateRequest) -> None:
        if request.pipeline != self._name:
            raise moved(request.pipeline, self._name)
        if len(session.waits) + len(request.waits) > WAITS_MAX:
            raise BadRequest(f"more than {WAITS_MAX} waits at once", hint="wait for fewer packets")
        for wait in request.waits:
            session.waits.add(
                self._timers.spawn(self._wait(session, wait), name=f"wait for {wait.packet_id}")
            )

    async def _wait(self, session: _Session, wait: pipeline_pb2.DownstreamWait) -> None:
        try:
            found = await self._standing(wait.packet_id, wait.timeout_ms / 1000.0)
            session.tell(
                pipeline_pb2.DownstreamStanding(
                    request_id=wait.request_id,
                    state=found.state,
                    reason=found.error[:REASON_CHARACTERS_MAX],
                )
            )
        finally:
            task = asyncio.current_task()
            assert task is not None
            session.answered(task)

    async def _standing(self, packet_id: str, timeout_s: float) -> Settlement:
        if self._pending.holds(packet_id):
            settlement = await self._pending.wait(packet_id, timeout_s)
            if settlement.state in SETTLED:
                return settlement
        found = await self._standing_of(packet_id)
        return Settlement(GONE) if found is None else Settlement(*found)


class _Session:
    """One stream: its open waits, and the answers that have not gone out."""

    def __init__(self) -> None:
        self.waits: set[asyncio.Task[None]] = set()
        self.error: PipoError | None = None
        self._answers: list[pipeline_pb2.DownstreamStanding] = []
        self._news = asyncio.Event()
        self._read = False

    def tell(self, standing: pipeline_pb2.DownstreamStanding) -> None:
        self._answers.append(standing)
        self._news.set()

    def answered(self, wait: asyncio.Task[None]) -> None:
        self.waits.discard(wait)
        self._news.set()

    def read(self) -> None:
        """No more waits come."""
        self._read = True
        self._news.set()

    def end(self) -> None:
        """Ends every open wait without an answer."""
        for wait in self.waits:
            wait.cancel()

    async def next(self) -> list[pipeline_pb2.DownstreamStanding]:
        """The answers of one message; empty at the end."""
        while not self._answers and not (self._read and not self.waits):
            self._news.clear()
            await self._news.wait()
        out = self._answers[:STANDINGS_TOGETHER]
        del self._answers[:STANDINGS_TOGETHER]
        return out
