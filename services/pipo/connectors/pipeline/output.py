"""Hands units over to another pipeline, which journals each once and only then answers.

The place of a unit is its receiver: units that are ready together travel in one call, each
with its own key and its own answer. A key that was handed over before is answered with the
packet that it made, so a write may be repeated at any time.

A failed hand-off is told as `downstream_unavailable` (the receiver is not there, does not
answer in time, or takes nothing now) or `downstream_rejected` (it refuses this packet); the
output's policy retries both (edge 246).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pipo.connectors.contract import (
    ConnectorError,
    Context,
    Flush,
    Output,
    Refused,
    RetryAfter,
    WriteFailed,
    WriteUnit,
)
from pipo.connectors.pipeline.receivers import Absent, Receivers
from pipo.errors import PipoError
from pipo.payload import BadPayload, encode
from pipo.rpc.errors import calling
from pipo.rpc.stubs.packet_pb2 import ErrorInfo
from pipo.rpc.stubs.pipeline_pb2 import DeliverRequest, HandOff, HandOffAnswer
from pipo.rpc.wire import STREAM_MESSAGE_BYTES_MAX, STREAM_PIECE_BYTES_MAX

TIMEOUT_S = 10.0
UNAVAILABLE = "downstream_unavailable"
REJECTED = "downstream_rejected"
# What a hand-off takes beside its data: two ids, a key and the fields' tags.
_OVERHEAD_BYTES = 512


def build(context: Context) -> Output:
    return PipelineOutput(context)


class PipelineOutput:
    """One call for each group, each hand-off in it with `timeout_s`."""

    def __init__(self, context: Context, *, timeout_s: float = TIMEOUT_S) -> None:
        self._name = context.pipeline
        self._home = context.home
        self._clock = context.clock
        self._log = context.log
        self._timeout_s = timeout_s
        self._receivers: Receivers | None = None
        self._complained: set[str] = set()

    async def open(self, marks: Mapping[str, int]) -> None:
        if self._receivers is None:
            if self._home is None:
                raise Refused("there is no home to find other pipelines in")
            self._receivers = Receivers(self._home, self._clock)

    def place(self, settings: Mapping[str, Any], key: str) -> str:
        return str(settings["pipeline"])

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        return None

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> None:
        """Whatever is handed over is the receiver's to judge."""

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        receiver = self.place(units[0].settings, units[0].key)
        results: list[Mapping[str, Any] | WriteFailed | RetryAfter | Refused]
        results = [WriteFailed("it was not handed over")] * len(units)
        hand_offs: list[HandOff] = []
        for number, unit in enumerate(units):
            try:
                hand_offs.append(_hand_off(number, unit))
            except BadPayload as error:
                results[number] = WriteFailed(f"what it hands over is no JSON: {error}")
        answers, missing = await self._handed(receiver, hand_offs)
        for one in hand_offs:
            answer = answers.get(one.request_id)
            results[one.request_id] = missing if answer is None else _result(receiver, answer)
        return Flush(results)

    async def recover(self, settings: Mapping[str, Any]) -> None:
        """A crash leaves nothing here: the unit is handed over again, with its key."""

    async def close(self) -> None:
        if self._receivers is not None:
            await self._receivers.close()

    async def _handed(
        self, receiver: str, hand_offs: Sequence[HandOff]
    ) -> tuple[dict[int, HandOffAnswer], WriteFailed]:
        """The answers by number, and what is to be said of a hand-off that has none."""
        assert self._receivers is not None, "a write before open"
        answers: dict[int, HandOffAnswer] = {}
        error: ConnectorError | PipoError
        try:
            peer = self._receivers.find(receiver)
            with calling(peer.whom):
                requests = _messages(receiver, self._name, hand_offs)
                call = peer.stub.Deliver(requests, timeout=self._timeout_s)
                async for reply in call:
                    answers |= {one.request_id: one for one in reply.answers}
            self._complained.discard(receiver)
            error = WriteFailed(f"{peer.whom} left it without an answer")
        except Absent as absent:
            error = absent
            self._complain(receiver, error.message)
        except PipoError as failed:
            error = self._receivers.failed(receiver, failed)
            self._complain(receiver, error.message)
        return answers, WriteFailed(f"{UNAVAILABLE}: {error.message}", hint=error.hint)

    def _complain(self, receiver: str, why: str) -> None:
        """One line for an outage, however many attempts it takes."""
        if receiver not in self._complained:
            self._complained.add(receiver)
            self._log("warning", why, action="chain.unavailable", receiver=receiver)


def _hand_off(number: int, unit: WriteUnit) -> HandOff:
    data = unit.settings.get("data", unit.data)
    return HandOff(
        request_id=number,
        key=unit.key,
        packet_id=unit.id.partition(":")[0],
        depth=(unit.upstream or {}).get("depth", 0) + 1,
        data=encode(data),
    )


async def _messages(
    receiver: str, sender: str, hand_offs: Sequence[HandOff]
) -> AsyncIterator[DeliverRequest]:
    """The hand-offs in messages under the limit; a large one in pieces, beside no other."""

    def message(group: Sequence[HandOff]) -> DeliverRequest:
        return DeliverRequest(pipeline=receiver, sender=sender, hand_offs=group)

    group: list[HandOff] = []
    room = STREAM_MESSAGE_BYTES_MAX
    for one in hand_offs:
        if len(one.data) > STREAM_PIECE_BYTES_MAX:
            for piece in _pieces(one):
                yield message([piece])
            continue
        size = len(one.data) + _OVERHEAD_BYTES
        if group and size > room:
            yield message(group)
            group, room = [], STREAM_MESSAGE_BYTES_MAX
        group.append(one)
        room -= size
    if group:
        yield message(group)


def _pieces(one: HandOff) -> list[HandOff]:
    """One hand-off in pieces; each names it, and the last one is not followed by `more`."""
    data = one.data
    made = []
    for begin in range(0, len(data), STREAM_PIECE_BYTES_MAX):
        end = begin + STREAM_PIECE_BYTES_MAX
        made.append(
            HandOff(
                request_id=one.request_id,
                key=one.key,
                packet_id=one.packet_id,
                depth=one.depth,
                data=data[begin:end],
                more=end < len(data),
            )
        )
    return made


def _result(receiver: str, answer: HandOffAnswer) -> Mapping[str, Any] | WriteFailed:
    """What is stored of an answer (O048), or the failure that it is."""
    if not answer.HasField("error"):
        return {
            "pipeline": receiver,
            "packet_id": answer.packet_id,
            "duplicate": answer.duplicate,
        }
    return _failure(receiver, answer.error)


def _failure(receiver: str, error: ErrorInfo) -> WriteFailed:
    code = UNAVAILABLE if error.code == "unavailable" else REJECTED
    return WriteFailed(f"{code}: pipeline {receiver!r}: {error.message}", hint=error.hint)
