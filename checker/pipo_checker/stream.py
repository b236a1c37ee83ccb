"""One Verifications stream: hello, offers and progress in, verdicts, stall reports and
heartbeats out.

The reader takes offers only while the verifier has room, so a pipeline that offers
more than was agreed is slowed by the transport. The writer sends what has gathered
in the outbox and, when it said nothing for a while, a heartbeat: after 3 s while something is
held or a stall is watched for, else after 20 s, since each one wakes two processes and there may
be hundreds of idle pipelines. Whoever of the two ends first ends the stream.
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
IDLE_HEARTBEAT_S = 20.0
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
        writing = group.create_task(_send(call, verifier, watch, clock), name="verdicts out")
        watching = group.create_task(watch.run(), name="stall watch")
        await _receive(call, verifier, watch)
        watching.cancel()
        writing.cancel()


async def _receive(call: Any, verifier: Verifier, watch: StallWatch) -> None:
    while (reply := await call.read()) is not grpc.aio.EOF:
        idle = _is_idle(verifier, watch)
        if reply.HasField("progress"):
            watch.take(reply.progress)
        verifier.offer(reply.verifications)
        verifier.withdraw(reply.withdrawn)
        if idle and not _is_idle(verifier, watch):
            verifier.outbox.rouse()
        await verifier.room()


def _is_idle(verifier: Verifier, watch: StallWatch) -> bool:
    return not verifier.held_count and not watch.watches


async def _send(call: Any, verifier: Verifier, watch: StallWatch, clock: Clock) -> None:
    spoke = clock.monotonic()
    while True:
        pause_s = IDLE_HEARTBEAT_S if _is_idle(verifier, watch) else HEARTBEAT_S
        await verifier.outbox.filled(max(0.0, spoke + pause_s - clock.monotonic()))
        verdicts, stall = verifier.verdicts(), verifier.outbox.take_stall()
        beat = clock.monotonic() >= spoke + pause_s
        if beat or verdicts or stall is not None:
            spoke = clock.monotonic()
            await _write(call, VerificationsRequest(heartbeat=beat, verdicts=verdicts, stall=stall))


async def _write(call: Any, message: VerificationsRequest) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await call.write(message)
