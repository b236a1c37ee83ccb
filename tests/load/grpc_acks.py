"""Acknowledges packets over the public gRPC API, many at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc


async def ack(ids: Sequence[str], *, port: int, pipeline: str, at_once: int = 64) -> float:
    """Acks each packet once, at most `at_once` unanswered; the seconds it took.

    Raises: AssertionError, for one that was acked before.
    """
    room = asyncio.Semaphore(at_once)
    channel = dial(f"127.0.0.1:{port}", "")
    began = time.perf_counter()
    try:
        stub = pipo_pb2_grpc.PipoStub(channel)

        async def one(id: str) -> None:
            async with room:
                reply = await stub.Ack(pipo_pb2.AckRequest(pipeline=pipeline, packet_id=id))
                assert not reply.already, reply

        async with asyncio.TaskGroup() as group:
            for id in ids:
                group.create_task(one(id), name=f"ack {id}")
    finally:
        await channel.close()
    return time.perf_counter() - began
