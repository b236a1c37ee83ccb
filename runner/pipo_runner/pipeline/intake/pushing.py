"""Packets that are pushed: one, or a stream of groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Final

from pipo.connectors.contract import (
    Accepted,
    Arrival,
    Intake,
    RefusedArrival,
    RejectedArrival,
    Taken,
)
from pipo.connectors.formats import parse_pushed
from pipo.errors import BadRequest, PipoError, Rejected, Unavailable
from pipo.lang.model import Input
from pipo.payload import BadPayload, decode
from pipo.rpc.errors import moved
from pipo.rpc.stubs import packet_pb2, pipo_pb2
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.intake.body_budget import BodyBudget
from pipo_runner.pipeline.intake.pieces import Pieces, busy, too_large

SOURCE_CHARACTERS_LIMIT: Final = 200
# Groups of one stream whose commit is awaited at once; more wait in the transport.
GROUPS_IN_FLIGHT: Final = 64
# An answer is under 200 bytes, so this many stay far below a message's 1 MiB.
RESULTS_TOGETHER: Final = 1000


class Pushes:
    """Pushes for one pipeline, through any of its inputs (R054)."""

    def __init__(
        self,
        *,
        name: str,
        inputs: tuple[Input, ...],
        intake: Intake,
        packet_limit: int,
        timers: Timers,
        budget: BodyBudget,
    ) -> None:
        self._name = name
        self._inputs = {entry.name: entry for entry in inputs}
        self._intake = intake
        self._limit = packet_limit
        self._timers = timers
        self._budget = budget
        self._default = _default_input(inputs)

    async def push(self, request: pipo_pb2.PushRequest) -> pipo_pb2.PushReply:
        """One packet, answered once it is on disk.

        Raises: BadRequest; Rejected with the journaled rejection; Unavailable.
        """
        self._mine(request.pipeline)
        size = len(request.data)
        if not self._budget.take(size):
            raise busy()
        try:
            arrival = self._arrival(request.data, request.source, request.input)
            taken = (await self._intake.take([arrival]))[0]
        finally:
            self._budget.give_back(size)
        error = _error_of(taken, self._name)
        if error is not None:
            raise error
        assert isinstance(taken, Accepted)
        return pipo_pb2.PushReply(packet_id=taken.packet_id, pipeline=self._name, state="accepted")

    async def stream(
        self, requests: AsyncIterator[pipo_pb2.PushStreamRequest]
    ) -> AsyncIterator[pipo_pb2.PushStreamReply]:
        """Answers of a stream of groups, each as soon as its group is on disk.

        Raises: Unavailable, if a stop ends it, or a group was meant for another pipeline; what
            was taken has been answered by then.
        """
        session = _Stream(asyncio.Semaphore(GROUPS_IN_FLIGHT), Pieces(self._limit, self._budget))
        reader = self._timers.read(self._read(session, requests), name="push stream")
        try:
            while (reply := await session.replies.get()) is not None:
                groups = session.merge_into(reply)
                for message in _cut(reply):
                    yield message
                # Only now: a sender that reads no answers is read no further.
                for _ in range(groups):
                    session.room.release()
            if session.error is not None:
                raise session.error
            if session.cut:
                raise Unavailable(
                    f"pipeline {self._name!r} is stopping",
                    hint="packets without an answer were not accepted: send them when it runs",
                )
        finally:
            reader.cancel()

    async def _read(
        self, session: _Stream, requests: AsyncIterator[pipo_pb2.PushStreamRequest]
    ) -> None:
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for request in requests:
                self._mine(request.pipeline)
                await session.room.acquire()
                task = self._timers.spawn(self._group(session, request), name="push group")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except PipoError as error:
            # The sender's mistake: it ends this stream, not this process.
            session.error = error
        except asyncio.CancelledError:
            session.cut = True
            raise
        finally:
            try:
                if tasks:
                    await asyncio.wait(tasks)
            finally:
                session.pieces.close()
                session.replies.put_nowait(None)

    async def _group(self, session: _Stream, request: pipo_pb2.PushStreamRequest) -> None:
        results: list[pipo_pb2.PushResult] = []
        try:
            numbers: list[int] = []
            arrivals: list[Arrival] = []
            for item in request.items:
                try:
                    arrival = self._item(session, item)
                except PipoError as error:
                    results.append(failure(item.request_id, error))
                    continue
                if arrival is not None:
                    numbers.append(item.request_id)
                    arrivals.append(arrival)
            if arrivals:
                results += await self._taken(numbers, arrivals)
        finally:
            if results:
                session.replies.put_nowait(pipo_pb2.PushStreamReply(results=results))
            else:
                session.room.release()

    async def _taken(
        self, numbers: list[int], arrivals: list[Arrival]
    ) -> list[pipo_pb2.PushResult]:
        try:
            taken = await self._intake.take(arrivals)
        except PipoError as error:
            return [failure(number, error) for number in numbers]
        return [
            _result(number, one, self._name) for number, one in zip(numbers, taken, strict=True)
        ]

    def _item(self, session: _Stream, item: pipo_pb2.PushItem) -> Arrival | None:
        """The item's arrival; None while more pieces of it follow."""
        whole = session.pieces.join(item.request_id, item.data, more=item.more)
        return None if whole is None else self._arrival(whole, item.source, item.input)

    def _mine(self, pipeline: str) -> None:
        """Refuses what was meant for another pipeline: a port may have changed hands."""
        if pipeline and pipeline != self._name:
            raise moved(pipeline, self._name)

    def _arrival(self, raw: bytes, source: str, input_name: str) -> Arrival:
        if len(raw) > self._limit:
            raise too_large(len(raw), self._limit)
        if not raw:
            raise BadRequest("data is missing", hint="send one JSON value; null is one")
        if len(source) > SOURCE_CHARACTERS_LIMIT:
            raise BadRequest(
                f"source has {len(source)} characters",
                hint=f"at most {SOURCE_CHARACTERS_LIMIT}",
            )
        entry = self._input(input_name)
        try:
            data = decode(raw)
        except BadPayload as error:
            raise BadRequest(f"data is not JSON: {error}", hint="send one JSON value") from None
        data = parse_pushed(entry.format, data)
        return Arrival(input=entry.name, data=data, trigger="push", source=source or "api")

    def _input(self, name: str) -> Input:
        """The input that is named, or the only one that can be meant (R056, edge 81)."""
        known = ", ".join(self._inputs)
        if name:
            if name not in self._inputs:
                raise BadRequest(f"{self._name} has no input '{name}'", hint=f"inputs: {known}")
            return self._inputs[name]
        if self._default is None:
            raise BadRequest(
                f"{self._name} has several inputs and none was named",
                hint=f"name one of: {known}",
            )
        return self._default


@dataclass(slots=True)
class _Stream:
    """One push stream: its answers, and the items that are still arriving."""

    room: asyncio.Semaphore
    pieces: Pieces
    # Bounded by `room`: a group is read only when a place is free, and keeps it until it is answered.
    replies: asyncio.Queue[pipo_pb2.PushStreamReply | None] = field(default_factory=asyncio.Queue)
    # This process ended it, not its sender.
    cut: bool = False
    error: PipoError | None = None

    def merge_into(self, reply: pipo_pb2.PushStreamReply) -> int:
        """Answers that became ready together travel together, up to a limit; of how many groups."""
        groups = 1
        while len(reply.results) < RESULTS_TOGETHER and not self.replies.empty():
            more = self.replies.get_nowait()
            if more is None:
                self.replies.put_nowait(None)
                break
            reply.results.extend(more.results)
            groups += 1
        return groups


def _cut(reply: pipo_pb2.PushStreamReply) -> Iterator[pipo_pb2.PushStreamReply]:
    """The answers in messages of at most RESULTS_TOGETHER."""
    if len(reply.results) <= RESULTS_TOGETHER:
        yield reply
        return
    for start in range(0, len(reply.results), RESULTS_TOGETHER):
        yield pipo_pb2.PushStreamReply(results=reply.results[start : start + RESULTS_TOGETHER])


def _default_input(inputs: tuple[Input, ...]) -> Input | None:
    if len(inputs) == 1:
        return inputs[0]
    pushes = [entry for entry in inputs if entry.via == "push"]
    return pushes[0] if len(pushes) == 1 else None


def _error_of(taken: Taken, pipeline: str) -> PipoError | None:
    match taken:
        case Accepted():
            return None
        case RejectedArrival(packet_id, message, rule):
            named = f"; the rule is: {rule}" if rule and rule not in message else ""
            kept = f"it is kept as {packet_id}{named}; pipo inspect {pipeline} {packet_id} shows it"
            return Rejected(message, packet_id=packet_id, hint=kept)
        case RefusedArrival(message, hint):
            return Unavailable(message, hint=hint)


def _result(number: int, taken: Taken, pipeline: str) -> pipo_pb2.PushResult:
    if isinstance(taken, Accepted):
        return pipo_pb2.PushResult(request_id=number, packet_id=taken.packet_id)
    error = _error_of(taken, pipeline)
    assert error is not None
    return failure(number, error)


def failure(number: int, error: PipoError) -> pipo_pb2.PushResult:
    """The answer for an item that was not accepted."""
    packet_id = getattr(error, "packet_id", "")
    return pipo_pb2.PushResult(
        request_id=number,
        packet_id=packet_id,
        error=packet_pb2.ErrorInfo(
            code=error.code, message=error.message, hint=error.hint, packet_id=packet_id
        ),
    )
