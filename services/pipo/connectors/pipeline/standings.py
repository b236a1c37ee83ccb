"""How handed packets stand at one receiver, told by it and not asked for in a loop.

One stream goes to the receiver for as long as it lasts. A packet is named on it once; the
receiver answers when the packet settles, or after REFRESH_S with where it stands. Whoever
looks before that gets a future that is done when an answer has come, or the stream is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import grpc

from pipo.connectors.contract import CheckError
from pipo.connectors.pipeline.receivers import Absent, Receivers
from pipo.errors import PipoError, Unavailable
from pipo.rpc.errors import calling
from pipo.rpc.stubs.pipeline_pb2 import (
    DownstreamStanding,
    DownstreamStateRequest,
    DownstreamWait,
)

REFRESH_S = 30.0
# What nobody came to look at is forgotten after this long: its verification was withdrawn.
FORGET_S = 10.0
# A wait is under 50 bytes, so a message of so many stays far below 1 MiB.
WAITS_TOGETHER = 1000


@dataclass(slots=True)
class Standing:
    """Where a packet stands, as far as was told: `state` is empty before that."""

    packet_id: str
    news: asyncio.Future[None]
    state: str = ""
    reason: str = ""
    asked: bool = False


class Standings:
    """The handed packets of one receiver that somebody waits for."""

    def __init__(self, receiver: str, receivers: Receivers) -> None:
        self._name = receiver
        self._receivers = receivers
        self._call: Any = None
        self._readers: set[asyncio.Task[None]] = set()
        self._known: dict[str, Standing] = {}
        self._asked: dict[int, Standing] = {}
        self._numbers = 0

    async def look(self, packet_ids: Sequence[str]) -> list[Standing]:
        """Where these packets stand by what was told; those that are not settled are asked for.

        Raises: CheckError, when the receiver is not there.
        Cancelled: what was not asked for is asked for by the next look.
        """
        found = [self._standing(packet_id) for packet_id in packet_ids]
        await self._ask([one for one in found if not one.asked and not one.news.done()])
        for one in found:
            if one.news.done():
                # Handed out once, also where the answer came during this look: a packet may be
                # replayed and settle again.
                self._forget(one)
        # As they stand now: what is told after this look is the next one's to hand out.
        return [replace(one) for one in found]

    def _standing(self, packet_id: str) -> Standing:
        standing = self._known.get(packet_id)
        if standing is None:
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            standing = self._known[packet_id] = Standing(packet_id, news)
        return standing

    async def _ask(self, standings: Sequence[Standing]) -> None:
        if not standings:
            return
        try:
            call = self._attached()
            with calling(f"pipeline {self._name!r}"):
                for begin in range(0, len(standings), WAITS_TOGETHER):
                    await self._send(call, standings[begin : begin + WAITS_TOGETHER])
        except Absent as absent:
            raise self._failed(absent) from absent
        except PipoError as error:
            raise self._failed(self._receivers.failed(self._name, error)) from error
        except asyncio.InvalidStateError as error:
            ended = Unavailable(f"pipeline {self._name!r} has ended the call")
            raise self._failed(self._receivers.failed(self._name, ended)) from error

    def _failed(self, error: Absent | PipoError) -> CheckError:
        self._lost()
        hint = f" ({error.hint})" if error.hint else ""
        return CheckError(f"{error.message}{hint}")

    async def _send(self, call: Any, standings: Sequence[Standing]) -> None:
        waits = []
        for one in standings:
            self._numbers += 1
            self._asked[self._numbers] = one
            waits.append(
                DownstreamWait(
                    request_id=self._numbers,
                    packet_id=one.packet_id,
                    timeout_ms=int(REFRESH_S * 1000),
                )
            )
        await call.write(DownstreamStateRequest(pipeline=self._name, waits=waits))
        for one in standings:
            one.asked = True

    def _attached(self) -> Any:
        """The stream to the receiver, opened when there is none. Raises: Absent."""
        if self._call is None:
            self._call = self._receivers.find(self._name).stub.DownstreamState()
            reader = asyncio.create_task(self._read(self._call), name=f"standings at {self._name}")
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
        return self._call

    async def _read(self, call: Any) -> None:
        try:
            with calling(f"pipeline {self._name!r}"):
                while (reply := await call.read()) is not grpc.aio.EOF:
                    self._told(reply.standings)
        except (PipoError, asyncio.InvalidStateError):
            # Whoever looks next finds nobody there, and says so.
            pass
        finally:
            if call is self._call:
                self._lost()

    def _told(self, standings: Iterable[DownstreamStanding]) -> None:
        for told in standings:
            standing = self._asked.pop(told.request_id, None)
            if standing is not None:
                standing.state, standing.reason = told.state, told.reason
                _done(standing)
                asyncio.get_running_loop().call_later(FORGET_S, self._forget, standing)

    def _forget(self, standing: Standing) -> None:
        if self._known.get(standing.packet_id) is standing:
            del self._known[standing.packet_id]

    def _lost(self) -> None:
        """The stream is gone: whoever waits looks again, and is asked for anew."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        waiting, self._known = self._known, {}
        self._asked.clear()
        for standing in waiting.values():
            _done(standing)

    async def close(self) -> None:
        """Ends the stream. Safe twice."""
        self._lost()
        if self._readers:
            await asyncio.wait(self._readers)


def _done(standing: Standing) -> None:
    if not standing.news.done():
        standing.news.set_result(None)
