"""One public push stream, passed on to its pipeline and back.

Messages that arrive while the pipeline's stream takes one are joined, so a client
that sends packet by packet still reaches the pipeline in groups; each message stays
under 1 MiB and an item over 256 KiB travels in pieces. At most `HELD_BYTES_MAX` wait
here: then the client's stream is not read, and it waits in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import grpc

from pipo.errors import BadRequest, PipoError, Unavailable
from pipo.rpc.connections import Peer
from pipo.rpc.errors import Unanswered, calling
from pipo.rpc.stubs import pipo_pb2
from pipo.rpc.wire import STREAM_PIECE_BYTES_MAX

# Room for one more piece stays below 1 MiB.
MESSAGE_BYTES_MAX = 700 * 1024
HELD_BYTES_MAX = 4 * 1024 * 1024

Requests = AsyncIterator[pipo_pb2.PushStreamRequest]
Write = Callable[[pipo_pb2.PushStreamReply], Awaitable[None]]


async def first_of(requests: Requests) -> pipo_pb2.PushStreamRequest | None:
    """The first message, which names the pipeline; None for a stream without any.

    Raises: BadRequest, if it names none.
    """
    first = await anext(requests, None)
    if first is not None and not first.pipeline:
        raise BadRequest("pipeline is missing", hint="the first message of the stream names it")
    return first


async def relay(
    first: pipo_pb2.PushStreamRequest, requests: Requests, write: Write, peer: Peer
) -> None:
    """Carries a stream until the pipeline has answered everything.

    Raises: Unavailable, if the pipeline went away; what the pipeline ended the stream with.
    Cancelled: the pipeline's stream ends; what it took may still be accepted.
    """
    call = peer.stub.PushStream()
    try:
        outgoing = _Outgoing(call, first)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(outgoing.read(requests), name="push stream reader")
            writing = group.create_task(outgoing.write(), name="push stream writer")
            with calling(peer.whom):
                async for reply in call:
                    await write(reply)
            reading.cancel()
            writing.cancel()
    except* Unanswered as gone:
        raise Unavailable(
            _first(gone).message,
            hint="packets without an answer may have been accepted: look before you send them again",
        ) from gone
    except* PipoError as refused:
        raise _first(refused) from refused
    finally:
        call.cancel()


class _Outgoing:
    """Messages on their way to the pipeline."""

    def __init__(self, call: grpc.aio.StreamStreamCall, first: pipo_pb2.PushStreamRequest) -> None:
        self._call = call
        self._messages: deque[pipo_pb2.PushStreamRequest] = deque()
        self._open_bytes = 0
        self._held_bytes = 0
        self._ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._add(first)

    async def read(self, requests: Requests) -> None:
        """Takes the client's messages until it ends its side."""
        async for request in requests:
            if request.pipeline:
                request.pipeline = ""
            self._add(request)
            while self._held_bytes > HELD_BYTES_MAX:
                self._room.clear()
                await self._room.wait()
        self._ended = True
        self._changed.set()

    async def write(self) -> None:
        """Hands messages to the pipeline's stream as fast as it takes them."""
        while True:
            if self._messages:
                message = self._messages.popleft()
                if not self._messages:
                    self._open_bytes = 0
                self._held_bytes -= message.ByteSize()
                self._room.set()
                try:
                    await self._call.write(message)
                except (asyncio.InvalidStateError, grpc.RpcError):
                    # The stream has ended; whoever reads its answers learns how.
                    return
            elif self._ended:
                await self._call.done_writing()
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    def _add(self, request: pipo_pb2.PushStreamRequest) -> None:
        size = request.ByteSize()
        if size > MESSAGE_BYTES_MAX:
            for piece in pieces(request):
                self._join(piece, piece.ByteSize())
        else:
            self._join(request, size)
        self._changed.set()

    def _join(self, request: pipo_pb2.PushStreamRequest, size: int) -> None:
        """Adds to the newest message, or begins one when it would grow too large."""
        if self._messages and self._open_bytes + size <= MESSAGE_BYTES_MAX:
            newest = self._messages[-1]
            before = newest.ByteSize()
            newest.MergeFrom(request)
            self._open_bytes += size
            self._held_bytes += newest.ByteSize() - before
        else:
            self._messages.append(request)
            self._open_bytes = size
            self._held_bytes += size


def pieces(request: pipo_pb2.PushStreamRequest) -> Iterator[pipo_pb2.PushStreamRequest]:
    """The same items, one by one, and those over 256 KiB in pieces."""
    pipeline = request.pipeline
    for item in request.items:
        for begin in range(0, max(1, len(item.data)), STREAM_PIECE_BYTES_MAX):
            end = begin + STREAM_PIECE_BYTES_MAX
            piece = pipo_pb2.PushItem(
                request_id=item.request_id,
                data=item.data[begin:end],
                more=item.more or end < len(item.data),
                source=item.source,
                input=item.input,
            )
            yield pipo_pb2.PushStreamRequest(pipeline=pipeline, items=[piece])
            pipeline = ""


def _first(group: BaseExceptionGroup[PipoError]) -> PipoError:
    found = group.exceptions[0]
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
