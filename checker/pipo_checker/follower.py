"""Stays attached to one pipeline process for as long as its registry entry stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

import grpc

from pipo.clock import Clock
from pipo.errors import NotFound, PipoError
from pipo.home.registry import Entry
from pipo.rpc import channels, errors
from pipo.rpc.stubs.checker_pb2 import CheckerHello
from pipo.rpc.stubs.pipeline_pb2 import HelloRequest
from pipo.rpc.stubs.pipeline_pb2_grpc import PipelineStub
from pipo.telemetry.logs import logger
from pipo_checker import stream
from pipo_checker.meters import Meters
from pipo_checker.targets import Connectors
from pipo_checker.verifier import CAPACITY, Verifier

BACKOFF_S = (0.1, 2.0)
# A stream that lasted this long had no trouble to start.
STEADY_S = 5.0
# After a stream that the pipeline ended in order; an entry that stays is tried again then.
STOPPING_PAUSE_S = 1.0
# After a bug, which the next attempt may well meet again.
BUG_PAUSE_S = 2.0

_log = logger("checker.follower")


class Follower:
    """One pipeline process and the stream to it, opened anew whenever it breaks.

    `lost` is called when a stream ended, so that the registry is read again.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        checker_id: str,
        token: Callable[[], str],
        connectors: Connectors,
        clock: Clock,
        lost: Callable[[], None],
    ) -> None:
        self.meters = Meters()
        self._name = entry.pipeline
        self._address = entry.address
        self._hello = CheckerHello(checker_id=checker_id, capacity=CAPACITY)
        self._token = token
        self._connectors = connectors
        self._clock = clock
        self._lost = lost
        self._complained = False

    async def run(self) -> NoReturn:
        """Follows until it is cancelled; a bug with one pipeline stays with that pipeline.

        Cancelled: what was held is dropped; the pipeline offers it to another checker.
        """
        while True:
            try:
                async with Verifier(
                    self._connectors, clock=self._clock, meters=self.meters
                ) as verifier:
                    await self._follow(verifier)
            except Exception:
                _log.exception(
                    "verifying failed in a way it must not: this is a bug",
                    action="verifications.bug",
                    pipeline=self._name,
                )
            await asyncio.sleep(BUG_PAUSE_S + self._clock.jitter(BUG_PAUSE_S))

    async def _follow(self, verifier: Verifier) -> NoReturn:
        failures = 0
        while True:
            began = self._clock.monotonic()
            why = await self._attach(verifier)
            verifier.clear()
            self._lost()
            if why is None:
                # Most likely it stops, and left the registry first: the roster ends us.
                self._ended()
                await asyncio.sleep(STOPPING_PAUSE_S)
                continue
            if self._clock.monotonic() - began >= STEADY_S:
                failures = 0
            self._complain(why)
            await asyncio.sleep(backoff_s(failures, self._clock))
            failures += 1

    async def _attach(self, verifier: Verifier) -> str | None:
        """One stream from its hello to its end; why it broke, None if the pipeline ended it."""
        why = None
        channel = None
        try:
            channel = channels.dial(self._address, self._token(), quiet=True)
            stub = PipelineStub(channel)
            await self._meet(stub)
            call = stub.Verifications()
            await stream.greet(call, self._hello)
            self._attached()
            await stream.converse(call, verifier, self._clock)
        except* (PipoError, grpc.RpcError, asyncio.InvalidStateError, TimeoutError) as broken:
            why = _reason(broken.exceptions[0])
        finally:
            self.meters.attached = False
            if channel is not None:
                await channel.close()
        return why

    async def _meet(self, stub: PipelineStub) -> None:
        """Makes sure who answers: a port that was freed may be another pipeline's now.

        Raises: NotFound.
        """
        reply = await stub.Hello(HelloRequest())
        if reply.pipeline != self._name:
            raise NotFound(f"{self._address} is pipeline {reply.pipeline!r} now")

    def _attached(self) -> None:
        self.meters.attached = True
        self._complained = False
        _log.info("attached", action="verifications.attached", pipeline=self._name)

    def _ended(self) -> None:
        _log.info(
            "the pipeline ended the stream", action="verifications.ended", pipeline=self._name
        )

    def _complain(self, why: str) -> None:
        """One line for an outage, however many attempts it takes."""
        if not self._complained:
            self._complained = True
            _log.warning(
                "cannot reach a pipeline; its checks wait until it is back",
                action="verifications.lost",
                pipeline=self._name,
                reason=why,
            )


def backoff_s(failures: int, clock: Clock) -> float:
    """The wait before the next attempt: 0.1 s, doubling to 2 s, half of it by chance."""
    least, most = BACKOFF_S
    span: float = min(most, least * 2 ** min(failures, 16))
    return span / 2 + clock.jitter(span / 2)


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case PipoError():
            return error.message
        case grpc.RpcError():
            return errors.from_rpc(error, "the pipeline").message
        case TimeoutError():
            return "the pipeline took nothing in time"
        case _:
            return "the stream had ended"
