"""One multiplexed Ingest stream: many requests per message under load, one without delay.

Requests gather in an open message. A writer hands it to the stream as soon as the
stream takes one, and while it does, the next message gathers: an idle lane sends
each request at once and alone, a busy one sends dozens together, and no timer is
involved. Messages stay under 1 MiB: a full one is sealed and waits its turn.

A body that is larger than a piece travels in pieces, at most one per message, the
large bodies in turn, so that none holds up its neighbours. Its sender waits until
each piece is taken.

Request ids rise. Heads enter messages in the order of their ids, so "was it sent?"
is one comparison with the highest id taken, and a piece may ride in a message only
when its head stands in that one or went before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from pipo.clock import Clock
from pipo.records import record
from pipo.rpc.errors import from_rpc
from pipo.rpc.stubs import pipeline_pb2
from pipo.telemetry.logs import logger

# Room for one more piece stays below 1 MiB.
MESSAGE_BYTES_MAX = 700 * 1024
# The backstop behind `respond: delivered`, whose own timeout the author chooses. A frozen
# process is noticed long before, by the channel's keepalive.
ANSWER_TIMEOUT_S = 3600.0
SWEEP_S = 5.0
# A lane that nobody used for so long is given up: its pings would keep two processes busy.
IDLE_S = 60.0
# What a request costs in a message beside its headers and body.
PART_BYTES = 64

_log = logger("gateway.lane")


class NotSent(Exception):
    """The lane ended and the pipeline had not taken the request."""


class NotAnswered(Exception):
    """The lane ended after the request left: the packet may have been accepted."""


@record
class Head:
    """What a request says before its body."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    peer: str
    content_length: int | None
    size: int
    """Bytes of all of it, about."""


@dataclass(slots=True)
class _Piece:
    request_id: int
    body: bytes
    last: bool
    taken: asyncio.Future[None]


class Lane:
    """An open stream to one pipeline process. Whoever opened it runs `run`."""

    def __init__(self, call: grpc.aio.StreamStreamCall, whom: str, clock: Clock) -> None:
        self.closed = False
        self._call = call
        self._whom = whom
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._last_id = 0
        self._taken_id = 0
        self._open = pipeline_pb2.IngestRequest()
        self._open_bytes = 0
        self._sealed: deque[tuple[pipeline_pb2.IngestRequest, int]] = deque()
        self._pieces: deque[_Piece] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._waiting: dict[int, asyncio.Future[pipeline_pb2.IngestAnswer]] = {}
        self._since: deque[tuple[int, float]] = deque()

    # ── for the sender of a request ──────────────────────────────────────────

    def send(
        self, head: Head, body: bytes, *, last: bool = True
    ) -> tuple[int, asyncio.Future[pipeline_pb2.IngestAnswer]]:
        """Begins a request; its id, and its answer to come.

        With `last` False, `send_piece` follows. The answer raises NotSent or NotAnswered.
        """
        size = PART_BYTES + len(body) + head.size
        if self._open_bytes + size > MESSAGE_BYTES_MAX:
            self._seal()
        request_id = self._last_id = self._last_id + 1
        part = self._open.parts.add(request_id=request_id, body=body, last=last)
        to = part.head
        to.method = head.method
        to.path = head.path
        to.query = head.query
        to.peer = head.peer
        if head.content_length is not None:
            to.content_length = head.content_length
        add = to.headers.add
        for name, value in head.headers:
            add(name=name, value=value)
        self._open_bytes += size
        answer = self._waiting[request_id] = self._loop.create_future()
        if self.closed:
            self._end_one(request_id, answer)
        self._wake()
        return request_id, answer

    async def send_piece(self, request_id: int, body: bytes, *, last: bool) -> None:
        """Sends the next piece of a body; returns once a message has taken it.

        Returns at once when the answer is there or the lane has ended.
        """
        answer = self._waiting.get(request_id)
        if self.closed or answer is None:
            return
        taken = self._loop.create_future()
        self._pieces.append(_Piece(request_id, body, last, taken))
        self._wake()
        await asyncio.wait({taken, answer}, return_when=asyncio.FIRST_COMPLETED)

    def cancel(self, request_id: int) -> None:
        """The client went away: the pipeline need not answer."""
        answer = self._waiting.pop(request_id, None)
        if answer is None or self.closed:
            return
        answer.cancel()
        self._open.parts.add(request_id=request_id, cancelled=True)
        self._open_bytes += PART_BYTES
        self._wake()

    async def quiet(self) -> None:
        """Returns once no request waits for its answer."""
        while waiting := list(self._waiting.values()):
            await asyncio.wait(waiting)

    # ── for the owner of the lane ────────────────────────────────────────────

    async def run(self) -> None:
        """Carries requests and answers until either side ends the stream; then `closed`.

        A pipeline that stops ends it in order, once all that it took is answered: then
        nothing that still waits was accepted. A stream that breaks leaves that open.
        Cancelled: the stream ends; requests that were sent count as not answered.
        """
        orderly = False
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write(), name=f"lane writer of {self._whom}")
                sweeping = group.create_task(self._sweep(), name=f"lane sweeper of {self._whom}")
                await self._read()
                orderly = True
                writing.cancel()
                sweeping.cancel()
        except* grpc.RpcError as failed:
            reason = from_rpc(_first(failed), self._whom).message
            _log.warning("lost the connection to a pipeline", action="lane.broken", reason=reason)
        finally:
            self._end(orderly)

    def _end(self, orderly: bool) -> None:
        """Every waiting request learns whether the pipeline may have taken it."""
        self.closed = True
        if orderly:
            self._taken_id = 0
        self._call.cancel()
        waiting, self._waiting = self._waiting, {}
        for request_id, answer in waiting.items():
            self._end_one(request_id, answer)
        while self._pieces:
            _done(self._pieces.popleft().taken)

    def _end_one(self, request_id: int, answer: asyncio.Future[pipeline_pb2.IngestAnswer]) -> None:
        if not answer.done():
            sent = request_id <= self._taken_id
            answer.set_exception(NotAnswered() if sent else NotSent())

    async def _write(self) -> None:
        while True:
            message = self._next()
            if message is None:
                self._idle = self._loop.create_future()
                await self._idle
                continue
            try:
                await self._call.write(message)
            except asyncio.InvalidStateError:
                # The stream has ended; the reader learns how.
                return

    def _next(self) -> pipeline_pb2.IngestRequest | None:
        """The message to send now: sealed or open, with one piece of a large body."""
        if self._sealed:
            message, last_id = self._sealed.popleft()
        elif self._open.parts:
            message, last_id = self._open, self._last_id
            self._open = pipeline_pb2.IngestRequest()
            self._open_bytes = 0
        elif self._pieces:
            message, last_id = pipeline_pb2.IngestRequest(), self._taken_id
        else:
            return None
        self._taken_id = last_id
        if self._pieces and self._pieces[0].request_id <= last_id:
            piece = self._pieces.popleft()
            _done(piece.taken)
            if piece.request_id in self._waiting:
                message.parts.add(request_id=piece.request_id, body=piece.body, last=piece.last)
        return message

    async def _read(self) -> None:
        waiting = self._waiting
        async for reply in self._call:
            for answer in reply.answers:
                asked = waiting.pop(answer.request_id, None)
                if asked is not None and not asked.done():
                    asked.set_result(answer)

    async def _sweep(self) -> None:
        """Ends requests that have waited for an hour, and the lane once nobody uses it."""
        used_id, used = 0, self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            self._since.append((self._last_id, now))
            while self._since[0][1] + ANSWER_TIMEOUT_S <= now:
                last_id, _ = self._since.popleft()
                for request_id in [i for i in self._waiting if i <= last_id]:
                    self._end_one(request_id, self._waiting.pop(request_id))
            if self._waiting or self._last_id != used_id:
                used_id, used = self._last_id, now
            elif now - used >= IDLE_S:
                # The next request opens a new one; the pipeline ends this one in order.
                self.closed = True
                await self._call.done_writing()
                return
            await asyncio.sleep(SWEEP_S)

    def _seal(self) -> None:
        self._sealed.append((self._open, self._last_id))
        self._open = pipeline_pb2.IngestRequest()
        self._open_bytes = 0

    def _wake(self) -> None:
        if self._idle is not None:
            _done(self._idle)
            self._idle = None


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _first(failed: BaseExceptionGroup[grpc.RpcError]) -> grpc.RpcError:
    found = failed.exceptions[0]
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
