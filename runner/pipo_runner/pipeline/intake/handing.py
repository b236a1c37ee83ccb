"""Packets that other pipelines hand over, as they come over the wire.

A stream carries the hand-offs of one write. Each message is one commit, and is answered once
that is on disk; a sender that goes away meanwhile leaves packets that go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from pipo.connectors.contract import (
    Accepted,
    HandOver,
    HandOverInput,
    Refused,
    RefusedArrival,
    RejectedArrival,
    Taken,
)
from pipo.errors import PipoError, Rejected, Unavailable
from pipo.payload import BadPayload, decode
from pipo.rpc.errors import info_of, moved
from pipo.rpc.stubs import pipeline_pb2
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.intake.body_budget import BodyBudget
from pipo_runner.pipeline.intake.pieces import Pieces


class HandOvers:
    """Hand-offs to one pipeline."""

    def __init__(self, *, name: str, packet_limit: int, timers: Timers, budget: BodyBudget) -> None:
        self._name = name
        self._limit = packet_limit
        self._timers = timers
        self._budget = budget
        self.input: HandOverInput | None = None
        """The one that takes them; None for a pipeline without one."""

    async def stream(
        self, requests: AsyncIterator[pipeline_pb2.DeliverRequest]
    ) -> AsyncIterator[pipeline_pb2.DeliverReply]:
        """The answers, message by message.

        Raises: Unavailable, if a message was meant for another pipeline.
        """
        pieces = Pieces(self._limit, self._budget)
        try:
            async for request in requests:
                if request.pipeline != self._name:
                    raise moved(request.pipeline, self._name)
                work = self._timers.spawn(self._answers(pieces, request), name="hand-over")
                # A call that ends here leaves the work to its owner.
                await asyncio.wait({work})
                if answers := work.result():
                    yield pipeline_pb2.DeliverReply(answers=answers)
        finally:
            pieces.close()

    async def _answers(
        self, pieces: Pieces, request: pipeline_pb2.DeliverRequest
    ) -> list[pipeline_pb2.HandOffAnswer]:
        answers: list[pipeline_pb2.HandOffAnswer] = []
        numbers: list[int] = []
        handed: list[HandOver] = []
        for one in request.hand_offs:
            try:
                raw = pieces.join(one.request_id, one.data, more=one.more)
                if raw is not None:
                    handed.append(self._hand_over(request.sender, one, raw))
                    numbers.append(one.request_id)
            except PipoError as error:
                answers.append(_refused(one.request_id, error))
        if handed:
            taken = await self._taken(handed)
            answers += map(_answer, numbers, taken)
        return answers

    def _hand_over(self, sender: str, one: pipeline_pb2.HandOff, raw: bytes) -> HandOver:
        try:
            return HandOver(sender, one.packet_id, one.key, one.depth, decode(raw))
        except BadPayload as error:
            raise Rejected(f"data is not JSON: {error}", hint="hand one JSON value over") from None

    async def _taken(self, handed: Sequence[HandOver]) -> Sequence[Taken | PipoError]:
        if self.input is None:
            error = Rejected(
                f"{self._name} has no input `via: pipeline`",
                hint=f"give it one with from: [{handed[0].sender}]",
            )
            return [error] * len(handed)
        try:
            return [_as_error(one) for one in await self.input.deliver(handed)]
        except PipoError as error:
            return [error] * len(handed)


def _as_error(taken: Taken | Refused) -> Taken | PipoError:
    """What was taken, or why it was not; a rejection names its packet and its rule."""
    match taken:
        case Refused():
            return Rejected(taken.message, hint=taken.hint)
        case RejectedArrival(packet_id, message, rule):
            named = f"; the rule is: {rule}" if rule and rule not in message else ""
            kept = f"it is kept as {packet_id}{named}"
            return Rejected(message, packet_id=packet_id, hint=kept)
        case RefusedArrival(message, hint):
            return Unavailable(message, hint=hint)
        case Accepted():
            return taken


def _answer(number: int, taken: Taken | PipoError) -> pipeline_pb2.HandOffAnswer:
    if isinstance(taken, PipoError):
        return _refused(number, taken)
    assert isinstance(taken, Accepted), taken
    return pipeline_pb2.HandOffAnswer(
        request_id=number,
        packet_id=taken.packet_id,
        duplicate=taken.duplicate,
        state=taken.state,
    )


def _refused(number: int, error: PipoError) -> pipeline_pb2.HandOffAnswer:
    state = "rejected" if isinstance(error, Rejected) else ""
    packet_id = error.packet_id if isinstance(error, Rejected) else ""
    return pipeline_pb2.HandOffAnswer(
        request_id=number, packet_id=packet_id, state=state, error=info_of(error)
    )
