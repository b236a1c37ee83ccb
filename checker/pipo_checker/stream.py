"""One Verifications stream: hello, offers in, verdicts and heartbeats out.

The reader takes offers only while the verifier has room, so a pipeline that offers
more than was agreed is slowed by the transport. The writer sends what has gathered
in the outbox and, every 3 s, a heartbeat; it waits for no timer otherwise. Whoever
of the two ends first ends the stream.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from pipo.clock import Clock
from pipo.rpc.stubs.checker_pb2 import CheckerHello, VerificationsRequest
from pipo_checker.verifier import Verifier

HEARTBEAT_S = 3.0
# A pipeline that takes nothing for this long is treated as gone.
WRITE_TIMEOUT_S = 10.0


async def greet(call: Any, hello: CheckerHello) -> None:
    """Says who attaches; on return the pipeline's server has the connection."""
    await _write(call, VerificationsRequest(hello=hello))


async def converse(call: Any, verifier: Verifier, clock: Clock) -> None:
    """Speaks until the pipeline ends the stream.

    Raises: an ExceptionGroup of what broke it.
    Cancelled: the call is cancelled with it.
    """
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(_send(call, verifier, clock), name="verdicts out")
        await _receive(call, verifier)
        writing.cancel()


async def _receive(call: Any, verifier: Verifier) -> None:
    while (reply := await call.read()) is not grpc.aio.EOF:
        verifier.offer(reply.verifications)
        verifier.withdraw(reply.withdrawn)
        await verifier.room()


async def _send(call: Any, verifier: Verifier, clock: Clock) -> None:
    beat_due = clock.monotonic() + HEARTBEAT_S
    while True:
        await verifier.outbox.filled(max(0.0, beat_due - clock.monotonic()))
        verdicts = verifier.verdicts()
        beat = clock.monotonic() >= beat_due
        if beat:
            beat_due = clock.monotonic() + HEARTBEAT_S
        if beat or verdicts:
            await _write(call, VerificationsRequest(heartbeat=beat, verdicts=verdicts))


async def _write(call: Any, message: VerificationsRequest) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await call.write(message)
