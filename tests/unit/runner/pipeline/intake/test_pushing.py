"""Pushed packets: one, or a stream of groups, through the right input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from pipo.connectors.contract import (
    Accepted,
    Arrival,
    RefusedArrival,
    RejectedArrival,
    Settlement,
    Taken,
)
from pipo.errors import BadRequest, Rejected, Unavailable
from pipo.lang.model import Input
from pipo.rpc.stubs import pipo_pb2 as pb
from pipo_runner.pipeline.intake.body_budget import BodyBudget
from pipo_runner.pipeline.intake.pushing import GROUPS_IN_FLIGHT, RESULTS_TOGETHER, Pushes
from tests.unit.runner.pipeline.rig import FakeClock, ManualTimers, quiet

LIMIT = 100
PUSH = Input("pushed", "push")
HOOK = Input("hook", "http")
ROWS = Input("rows", "http", format="csv")


class Inbox:
    """Takes what comes; holds it while `held`."""

    def __init__(self) -> None:
        self.groups: list[list[Arrival]] = []
        self.held: asyncio.Event | None = None
        self.says: Taken | None = None
        self.error: Exception | None = None
        self._count = 0

    async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
        self.groups.append(list(arrivals))
        if self.held is not None:
            await self.held.wait()
        if self.error is not None:
            raise self.error
        return [self.says or Accepted(self._id()) for _ in arrivals]

    def _id(self) -> str:
        self._count += 1
        return f"p{self._count}"

    async def settled(self, packet_id: str, timeout_s: float) -> Settlement:
        raise AssertionError("a push does not wait for the end")

    async def state(self, input_name: str) -> Mapping[str, str]:
        raise AssertionError("a push has no state")

    async def remember(self, input_name: str, state: Mapping[str, str | None]) -> None:
        raise AssertionError("a push has no state")

    @property
    def arrivals(self) -> list[Arrival]:
        return [arrival for group in self.groups for arrival in group]


class Door:
    """The pushes of one pipeline, and one stream of them."""

    def __init__(self, *inputs: Input, budget: int = 1000) -> None:
        self.inbox = Inbox()
        self.timers = ManualTimers(FakeClock())
        self.budget = BodyBudget(budget)
        self.pushes = Pushes(
            name="people",
            inputs=inputs or (PUSH,),
            intake=self.inbox,
            packet_limit=LIMIT,
            timers=self.timers,
            budget=self.budget,
        )
        self.replies: list[pb.PushStreamReply] = []
        self._sent: asyncio.Queue[pb.PushStreamRequest | None] = asyncio.Queue(1000)

    async def push(self, data: bytes = b"1", **words: Any) -> pb.PushReply:
        return await self.pushes.push(pb.PushRequest(data=data, **words))

    def open(self) -> asyncio.Task[None]:
        self.stream = asyncio.create_task(self._read(), name="a sender reads")
        return self.stream

    async def requests(self) -> AsyncIterator[pb.PushStreamRequest]:
        while (sent := await self._sent.get()) is not None:
            yield sent

    async def _read(self) -> None:
        async for reply in self.pushes.stream(self.requests()):
            self.replies.append(reply)

    async def send(self, *items: pb.PushItem, pipeline: str = "") -> None:
        await self._sent.put(pb.PushStreamRequest(pipeline=pipeline, items=items))
        await quiet()

    async def end(self) -> None:
        await self._sent.put(None)
        await quiet()

    @property
    def results(self) -> dict[int, pb.PushResult]:
        return {one.request_id: one for reply in self.replies for one in reply.results}

    def free_bytes(self, size: int) -> bool:
        """Whether `size` bytes are left of the budget."""
        free = self.budget.take(size)
        if free:
            self.budget.give_back(size)
        return free


def item(number: int, data: bytes = b"1", **words: Any) -> pb.PushItem:
    return pb.PushItem(request_id=number, data=data, **words)


# ── one ──────────────────────────────────────────────────────────────────────


async def test_a_push_is_answered_once_it_is_on_disk() -> None:
    door = Door()
    door.inbox.held = asyncio.Event()
    push = asyncio.create_task(door.push(b'{"n":1}', source="cli"))
    await quiet()
    assert not push.done()
    door.inbox.held.set()
    reply = await push
    assert (reply.packet_id, reply.pipeline, reply.state) == ("p1", "people", "accepted")
    assert door.inbox.arrivals == [Arrival("pushed", {"n": 1}, "push", "cli")]


async def test_null_is_data_and_the_default_source_is_api() -> None:
    door = Door()
    await door.push(b"null")
    assert door.inbox.arrivals == [Arrival("pushed", None, "push", "api")]


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        (b"", {}, "data is missing"),
        (b"{", {}, "data is not JSON"),
        (b'{"a":1,"a":2}', {}, "data is not JSON: the key 'a' stands twice"),
        (b"1", {"source": "x" * 201}, "source has 201 characters"),
        (b'"' + b"x" * LIMIT + b'"', {}, "engine.packet_limit (100)"),
        (b"1", {"input": "nothing"}, "people has no input 'nothing'"),
    ],
)
async def test_bad_pushes_are_refused_with_the_reason(
    data: bytes, words: dict[str, str], message: str
) -> None:
    door = Door()
    with pytest.raises(BadRequest) as caught:
        await door.push(data, **words)
    assert message in caught.value.message
    assert door.inbox.groups == []


async def test_an_unknown_input_lists_the_known_in_file_order() -> None:
    with pytest.raises(BadRequest) as caught:
        await Door(ROWS, HOOK, PUSH).push(input="nothing")
    assert caught.value.hint == "inputs: rows, hook, pushed"


@pytest.mark.parametrize(
    ("inputs", "chosen"),
    [((HOOK,), "hook"), ((PUSH,), "pushed"), ((HOOK, PUSH, ROWS), "pushed")],
)
async def test_an_unnamed_push_goes_to_the_one_that_can_be_meant(
    inputs: tuple[Input, ...], chosen: str
) -> None:
    door = Door(*inputs)
    await door.push()
    assert door.inbox.arrivals[0].input == chosen


@pytest.mark.parametrize("inputs", [(HOOK, ROWS), (PUSH, Input("second", "push"))])
async def test_an_unnamed_push_that_can_mean_several_is_refused(
    inputs: tuple[Input, ...],
) -> None:
    with pytest.raises(BadRequest) as caught:
        await Door(*inputs).push()
    assert caught.value.hint == "name one of: " + ", ".join(one.name for one in inputs)


async def test_a_named_push_goes_through_any_input() -> None:
    door = Door(HOOK, PUSH)
    await door.push(b"1", input="hook")
    assert door.inbox.arrivals == [Arrival("hook", 1, "push", "api")]


async def test_a_text_is_parsed_as_its_input_asks() -> None:
    door = Door(ROWS)
    await door.push(b'"a,b\\n1,2\\n"')
    assert door.inbox.arrivals[0].data == {"a": "1", "b": "2"}


@pytest.mark.parametrize("text", [b'""', b'"a,b\\n"'])
async def test_a_csv_text_without_a_record_is_refused(text: bytes) -> None:
    door = Door(ROWS)
    with pytest.raises(BadRequest):
        await door.push(text)
    door.open()
    await door.send(item(1, text))
    assert door.results[1].error.code == "bad_request"
    assert door.timers.crashes == []
    await door.end()


async def test_a_rejection_carries_its_packet_and_a_hint() -> None:
    door = Door()
    door.inbox.says = RejectedArrival("p9", "too young", "data.age >= 18")
    with pytest.raises(Rejected) as caught:
        await door.push()
    error = caught.value
    assert (error.code, error.message, error.packet_id) == ("rejected", "too young", "p9")
    shows = "pipo inspect people p9 shows it"
    assert error.hint == f"it is kept as p9; the rule is: data.age >= 18; {shows}"


async def test_a_refusal_is_unavailable_and_keeps_its_hint() -> None:
    door = Door()
    door.inbox.says = RefusedArrival("buffer full (3 packets pending)", "raise buffer.max")
    with pytest.raises(Unavailable) as caught:
        await door.push()
    assert (caught.value.message, caught.value.hint) == (
        "buffer full (3 packets pending)", "raise buffer.max",
    )  # fmt: skip


async def test_a_push_for_another_pipeline_is_not_taken() -> None:
    door = Door()
    with pytest.raises(Unavailable, match="'others' does not run here"):
        await door.push(pipeline="others")
    assert door.inbox.groups == []


# ── a stream ─────────────────────────────────────────────────────────────────


async def test_a_group_is_one_take_and_each_item_has_its_answer() -> None:
    door = Door()
    door.open()
    await door.send(item(5, b"1"), item(6, b"2"), item(7, b"{"))
    assert [len(group) for group in door.inbox.groups] == [2]
    assert {n: (r.packet_id, r.error.code) for n, r in door.results.items()} == {
        5: ("p1", ""), 6: ("p2", ""), 7: ("", "bad_request"),
    }  # fmt: skip
    await door.end()
    await door.stream


async def test_nothing_of_a_group_is_answered_before_it_is_on_disk() -> None:
    door = Door()
    door.inbox.held = asyncio.Event()
    door.open()
    await door.send(item(1))
    await door.send(item(2))
    assert door.results == {}
    assert len(door.inbox.groups) == 2
    door.inbox.held.set()
    await quiet()
    assert set(door.results) == {1, 2}
    await door.end()


async def test_a_rejected_item_names_its_packet() -> None:
    door = Door()
    door.inbox.says = RejectedArrival("p9", "too young", "")
    door.open()
    await door.send(item(1))
    result = door.results[1]
    assert (result.packet_id, result.error.code, result.error.packet_id) == ("p9", "rejected", "p9")
    await door.end()


async def test_a_journal_that_fails_is_every_items_answer() -> None:
    door = Door()
    door.inbox.error = Unavailable("the disk is gone")
    door.open()
    await door.send(item(1), item(2))
    assert {r.error.message for r in door.results.values()} == {"the disk is gone"}
    assert door.timers.crashes == []
    await door.end()


async def test_the_stream_ends_once_every_group_is_answered() -> None:
    door = Door()
    door.inbox.held = asyncio.Event()
    door.open()
    await door.send(item(1))
    await door.end()
    assert not door.stream.done()
    door.inbox.held.set()
    await door.stream
    assert set(door.results) == {1}


async def test_a_sender_that_leaves_stops_nothing_that_was_taken() -> None:
    door = Door()
    door.inbox.held = asyncio.Event()
    door.open()
    await door.send(item(1))
    door.stream.cancel()
    await quiet()
    assert door.stream.cancelled()
    assert len(door.inbox.groups) == 1
    door.inbox.held.set()
    await quiet()
    assert door.timers.crashes == []


async def test_a_stop_answers_what_was_taken_and_says_why_it_ends() -> None:
    door = Door()
    door.inbox.held = asyncio.Event()
    door.open()
    await door.send(item(1))
    door.timers.end_reading()
    await quiet()
    assert not door.stream.done()
    door.inbox.held.set()
    with pytest.raises(Unavailable, match="stopping"):
        await door.stream
    assert set(door.results) == {1}


async def test_groups_in_flight_are_bounded() -> None:
    door = Door()
    door.inbox.held = asyncio.Event()
    door.open()
    for number in range(GROUPS_IN_FLIGHT + 5):
        await door.send(item(number))
    await quiet(200)
    assert len(door.inbox.groups) == GROUPS_IN_FLIGHT
    door.inbox.held.set()
    await quiet(200)
    assert len(door.results) == GROUPS_IN_FLIGHT + 5
    await door.end()


async def test_an_item_in_pieces_is_one_packet() -> None:
    door = Door()
    door.open()
    await door.send(item(1, b'{"a"', more=True), item(2, b"2"))
    await door.send(item(1, b":", more=True))
    assert set(door.results) == {2}
    await door.send(item(1, b"1}", source="cli"))
    assert door.inbox.arrivals[-1] == Arrival("pushed", {"a": 1}, "push", "cli")
    assert door.results[1].packet_id == "p2"
    assert door.free_bytes(1000)
    await door.end()


async def test_pieces_beyond_the_limit_are_refused_and_not_kept() -> None:
    door = Door()
    door.open()
    for _ in range(20):
        await door.send(item(1, b"x" * 60, more=True))
    assert door.free_bytes(1000 - 2 * 60)
    await door.send(item(1, b"x"))
    assert door.results[1].error.message == (
        "the packet has 1201 bytes, more than engine.packet_limit (100)"
    )
    assert door.free_bytes(1000)
    await door.end()


async def test_pieces_beyond_the_budget_are_unavailable() -> None:
    door = Door(budget=100)
    door.open()
    await door.send(item(1, b"x" * 80, more=True), item(2, b"x" * 80, more=True))
    await door.send(item(2, b"x"))
    assert door.results[2].error.code == "unavailable"
    await door.send(item(1, b"x"))
    assert door.free_bytes(100)
    await door.end()


@pytest.mark.parametrize("how", ["end", "cancel"])
async def test_pieces_of_a_stream_that_ends_are_given_back(how: str) -> None:
    door = Door()
    door.open()
    await door.send(item(1, b"x" * 80, more=True))
    if how == "end":
        await door.end()
    else:
        door.stream.cancel()
        await quiet()
    assert door.stream.done()
    assert door.free_bytes(1000)


async def test_answers_that_are_ready_together_travel_together() -> None:
    door = Door()
    door.inbox.held = asyncio.Event()
    door.open()
    for number in range(5):
        await door.send(item(number))
    door.inbox.held.set()
    await door.end()
    await door.stream
    assert len(door.replies) < 5
    assert set(door.results) == set(range(5))


async def test_a_sender_that_reads_no_answers_is_read_no_further() -> None:
    door = Door()
    stream = door.pushes.stream(door.requests())
    reading = asyncio.ensure_future(anext(stream))
    for number in range(3 * GROUPS_IN_FLIGHT):
        await door.send(item(number))
    await quiet(300)
    assert len(door.inbox.groups) <= GROUPS_IN_FLIGHT
    seen = {result.request_id for result in (await reading).results}
    await door.end()
    async for reply in stream:
        seen |= {result.request_id for result in reply.results}
    assert seen == set(range(3 * GROUPS_IN_FLIGHT))


async def test_many_answers_are_cut_into_messages() -> None:
    door = Door()
    door.open()
    await door.send(*(item(number, b"{") for number in range(2 * RESULTS_TOGETHER + 5)))
    assert [len(reply.results) for reply in door.replies] == [
        RESULTS_TOGETHER, RESULTS_TOGETHER, 5,
    ]  # fmt: skip
    await door.end()


async def test_a_stream_for_another_pipeline_ends_with_its_reason() -> None:
    door = Door()
    door.open()
    await door.send(item(1), pipeline="others")
    with pytest.raises(Unavailable, match="'others' does not run here"):
        await asyncio.wait_for(door.stream, 60)
    assert door.timers.crashes == []


async def test_a_single_push_takes_from_the_budget_and_gives_back() -> None:
    door = Door(PUSH, budget=10)
    with pytest.raises(Unavailable, match="too many large packets"):
        await door.push(b'"longer than ten"')
    for _ in range(3):
        await door.push(b'"ten by."')
