"""Hand-offs as they come over the wire: each has its own answer, and none is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from pipo.connectors.contract import (
    Accepted,
    HandOver,
    Refused,
    RefusedArrival,
    RejectedArrival,
    Taken,
)
from pipo.errors import Unavailable
from pipo.rpc.stubs.pipeline_pb2 import DeliverRequest, HandOff, HandOffAnswer
from pipo_runner.pipeline.intake.body_budget import BodyBudget
from pipo_runner.pipeline.intake.handing import HandOvers
from tests.unit.runner.pipeline.rig import FakeClock, ManualTimers, quiet

LIMIT = 100


class FakeInput:
    """Answers by the data of what is handed over."""

    def __init__(self) -> None:
        self.handed: list[HandOver] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.done = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def deliver(self, handed: Sequence[HandOver]) -> list[Taken | Refused]:
        self.handed += handed
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.done += len(handed)
        answers: dict[str, Taken | Refused] = {
            "known": Accepted("01K", duplicate=True, state="delivered"),
            "wrong": RejectedArrival("01R", "it does not hold", "data.x > 1"),
            "full": RefusedArrival("buffer full", "wait"),
            "never": Refused("not listed", hint="list it"),
        }
        return [answers.get(str(one.data), Accepted("01N")) for one in handed]


class Desk:
    """Hand-overs to `store`, with everything around them."""

    def __init__(self) -> None:
        self.timers = ManualTimers(FakeClock())
        self.budget = BodyBudget(8 * LIMIT)
        self.taker = FakeInput()
        self.hand_overs = HandOvers(
            name="store", packet_limit=LIMIT, timers=self.timers, budget=self.budget
        )
        self.hand_overs.input = self.taker

    async def answers(self, *requests: DeliverRequest) -> dict[int, HandOffAnswer]:
        found: dict[int, HandOffAnswer] = {}
        async for reply in self.hand_overs.stream(_each(requests)):
            found |= {one.request_id: one for one in reply.answers}
        return found


async def _each(requests: Sequence[DeliverRequest]) -> AsyncIterator[DeliverRequest]:
    for request in requests:
        yield request


def off(number: int, data: bytes, *, more: bool = False) -> HandOff:
    return HandOff(
        request_id=number, key=f"k{number}", packet_id="01S", depth=2, data=data, more=more
    )


def message(*hand_offs: HandOff) -> DeliverRequest:
    return DeliverRequest(pipeline="store", sender="gate", hand_offs=hand_offs)


async def test_each_has_its_own_answer() -> None:
    desk = Desk()
    words = ("new", "known", "wrong", "full", "never")
    offs = [off(n, f'"{word}"'.encode()) for n, word in enumerate(words)]
    found = await desk.answers(message(*offs, off(9, b"{")))
    assert desk.taker.handed[0] == HandOver("gate", "01S", "k0", 2, "new")
    assert [(a.packet_id, a.duplicate, a.state) for a in (found[0], found[1])] == [
        ("01N", False, "accepted"),
        ("01K", True, "delivered"),
    ]
    assert [(found[n].error.code, found[n].packet_id) for n in (2, 3, 4, 9)] == [
        ("rejected", "01R"),
        ("unavailable", ""),
        ("rejected", ""),
        ("rejected", ""),
    ]
    assert "data.x > 1" in found[2].error.hint
    assert found[4].error.hint == "list it"
    assert "not JSON" in found[9].error.message


async def test_a_large_one_comes_in_pieces_beside_small_ones() -> None:
    desk = Desk()
    found = await desk.answers(
        message(off(1, b'"a', more=True)),
        message(off(2, b'"small"')),
        message(off(1, b'bc"')),
        message(off(3, b'"' + b"x" * LIMIT, more=True)),
        message(off(3, b'"')),
    )
    assert [one.data for one in desk.taker.handed] == ["small", "abc"]
    assert "102 bytes, more than engine.packet_limit (100)" in found[3].error.message
    assert desk.budget.take(8 * LIMIT)


async def test_what_a_stream_leaves_half_is_given_back() -> None:
    desk = Desk()
    assert await desk.answers(message(off(1, b"x" * 80, more=True))) == {}
    assert desk.budget.take(8 * LIMIT)


async def test_a_message_for_another_pipeline_is_refused() -> None:
    desk = Desk()
    with pytest.raises(Unavailable, match="'other' does not run here"):
        await desk.answers(DeliverRequest(pipeline="other", hand_offs=[off(1, b"1")]))
    assert desk.taker.handed == []


async def test_without_an_input_for_it_all_is_rejected() -> None:
    desk = Desk()
    desk.hand_overs.input = None
    found = await desk.answers(message(off(1, b"1")))
    assert (found[1].error.code, found[1].error.hint) == (
        "rejected",
        "give it one with from: [gate]",
    )


async def test_a_journal_that_takes_nothing_is_each_ones_answer() -> None:
    desk = Desk()
    desk.taker.error = Unavailable("200001 changes wait for the journal")
    found = await desk.answers(message(off(1, b"1"), off(2, b"2")))
    assert [one.error.code for one in found.values()] == ["unavailable"] * 2
    assert desk.timers.crashes == []


async def test_a_sender_that_leaves_cuts_nothing_short() -> None:
    desk = Desk()
    desk.taker.gate.clear()
    asked = asyncio.create_task(desk.answers(message(off(1, b"1"))))
    await quiet()
    asked.cancel()
    await quiet()
    assert asked.cancelled()
    desk.taker.gate.set()
    await quiet()
    assert desk.taker.done == 1
