"""One Verifications stream: hello, offers and progress in, verdicts, stall reports and
heartbeats out.

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
from pipo_checker.stalls import StallWatch
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
    watch = StallWatch(clock, verifier.outbox.report_stall)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(_send(call, verifier, clock), name="verdicts out")
        watching = group.create_task(watch.run(), name="stall watch")
        await _receive(call, verifier, watch)
        watching.cancel()
        writing.cancel()


async def _receive(call: Any, verifier: Verifier, watch: StallWatch) -> None:
    while (reply := await call.read()) is not grpc.aio.EOF:
        if reply.HasField("progress"):
            watch.take(reply.progress)
        verifier.offer(reply.verifications)
        verifier.withdraw(reply.withdrawn)
        await verifier.room()


async def _send(call: Any, verifier: Verifier, clock: Clock) -> None:
    beat_due = clock.monotonic() + HEARTBEAT_S
    while True:
        await verifier.outbox.filled(max(0.0, beat_due - clock.monotonic()))
        verdicts, stall = verifier.verdicts(), verifier.outbox.take_stall()
        beat = clock.monotonic() >= beat_due
        if beat:
            beat_due = clock.monotonic() + HEARTBEAT_S
        if beat or verdicts or stall is not None:
            await _write(call, VerificationsRequest(heartbeat=beat, verdicts=verdicts, stall=stall))


async def _write(call: Any, message: VerificationsRequest) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await call.write(message)
