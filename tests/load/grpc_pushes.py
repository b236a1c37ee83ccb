"""Pushes numbered sign-ups over one bidirectional gRPC stream of the public API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from tests.load.http_posts import Body, signup
from tests.load.ledger import Ledger


async def push(
    count: int,
    *,
    port: int,
    pipeline: str,
    group: int = 64,
    in_flight: int = 1024,
    ledger: Ledger | None = None,
    body: Body = signup,
    deadline_s: float = 120.0,
) -> float:
    """Pushes `count` packets in groups, at most `in_flight` unanswered; the seconds it took.

    Raises: AssertionError, for any answer that is an error.
    """
    room = asyncio.Semaphore(max(1, in_flight // group))
    began = time.perf_counter()
    left = {"answers": count}

    async def requests() -> AsyncIterator[pipo_pb2.PushStreamRequest]:
        for first in range(0, count, group):
            await room.acquire()
            items = [
                pipo_pb2.PushItem(request_id=n, data=body(n), source="bench")
                for n in range(first, min(first + group, count))
            ]
            yield pipo_pb2.PushStreamRequest(pipeline=pipeline, items=items)

    channel = dial(f"127.0.0.1:{port}", "")
    try:
        stub = pipo_pb2_grpc.PipoStub(channel)
        answered = 0
        async with asyncio.timeout(deadline_s):
            async for reply in stub.PushStream(requests()):
                for result in reply.results:
                    assert not result.error.code, result.error
                    if ledger is not None:
                        ledger.note(str(result.request_id))
                answered += len(reply.results)
                left["answers"] -= len(reply.results)
                while answered >= group:
                    answered -= group
                    room.release()
                if not left["answers"]:
                    break
    finally:
        await channel.close()
    if ledger is not None:
        ledger.sync()
    return time.perf_counter() - began


async def lone(
    count: int, *, port: int, pipeline: str, pause_s: float = 0.02
) -> list[tuple[str, float]]:
    """Pushes one packet at a time on an open stream: ids, and milliseconds to the answer."""
    queue: asyncio.Queue[pipo_pb2.PushStreamRequest | None] = asyncio.Queue(maxsize=1)

    async def requests() -> AsyncIterator[pipo_pb2.PushStreamRequest]:
        while (request := await queue.get()) is not None:
            yield request

    channel = dial(f"127.0.0.1:{port}", "")
    answered = []
    try:
        call = pipo_pb2_grpc.PipoStub(channel).PushStream(requests())
        replies = aiter(call)
        for number in range(count):
            item = pipo_pb2.PushItem(request_id=number, data=signup(number), source="bench")
            began = time.perf_counter()
            await queue.put(pipo_pb2.PushStreamRequest(pipeline=pipeline, items=[item]))
            reply = await anext(replies)
            taken = (time.perf_counter() - began) * 1000.0
            answered.append((reply.results[0].packet_id, taken))
            await asyncio.sleep(pause_s)
        await queue.put(None)
    finally:
        await channel.close()
    return answered
