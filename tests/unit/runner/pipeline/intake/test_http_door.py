"""Requests in pieces on a gateway's stream: limits, cancels, the budget, the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import pytest

from pipo.connectors.contract import Arrival, HttpAnswer, HttpRequest
from pipo.rpc.stubs import pipeline_pb2 as pb
from pipo_runner.pipeline.intake.body_budget import BodyBudget
from pipo_runner.pipeline.intake.http_door import MESSAGE_BYTES_LIMIT, HttpDoor
from tests.unit.runner.pipeline.rig import FakeClock, ManualTimers, quiet, until

LIMIT = 100
BUDGET = 250


class Target:
    """Http inputs of a pipeline: `/quick` is answered with others, `/slow` when `let_go`."""

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []
        self.groups: list[list[Arrival]] = []
        self.cancelled: list[str] = []
        self.free = asyncio.Event()
        self.error: Exception | None = None

    def early(self, request: HttpRequest) -> HttpAnswer | None:
        assert request.body == b""
        return None if request.path != "/nowhere" else HttpAnswer(404, b"{}")

    def arrival(self, request: HttpRequest) -> Arrival | HttpAnswer | None:
        if request.path == "/quick":
            return Arrival("input", request.body, "http", request.peer)
        return HttpAnswer(404, b"{}") if request.path == "/nowhere" else None

    async def answer_arrivals(self, arrivals: Sequence[Arrival]) -> list[HttpAnswer]:
        self.groups.append(list(arrivals))
        if self.error is not None:
            raise self.error
        return [HttpAnswer(202, arrival.data) for arrival in arrivals]

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        if request.path == "/slow":
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                self.cancelled.append(request.body.decode())
                raise
        return HttpAnswer(200, request.body, [("x-peer", request.peer)])


class Gateway:
    """The other end of the stream."""

    def __init__(self, target: Target | None, budget: BodyBudget | None = None) -> None:
        self.timers = ManualTimers(FakeClock())
        self.errors: list[BaseException] = []
        self.budget = budget or BodyBudget(BUDGET)
        self.door = HttpDoor(
            target,
            packet_limit=LIMIT,
            budget=self.budget,
            timers=self.timers,
            name="a gateway",
            on_error=self.errors.append,
        )
        self.replies: list[pb.IngestReply] = []
        self._sent: asyncio.Queue[pb.IngestRequest | Exception | None] = asyncio.Queue(1000)
        self.stream = asyncio.create_task(self._read(), name="a gateway reads")

    async def _requests(self) -> AsyncIterator[pb.IngestRequest]:
        while (sent := await self._sent.get()) is not None:
            if isinstance(sent, Exception):
                raise sent
            yield sent

    async def _read(self) -> None:
        async for reply in self.door.serve(self._requests()):
            self.replies.append(reply)

    async def send(self, *parts: pb.IngestPart) -> None:
        """All parts in one message."""
        await self._sent.put(pb.IngestRequest(parts=parts))
        await quiet()

    async def end(self) -> None:
        await self._sent.put(None)
        await quiet()

    @property
    def answers(self) -> dict[int, pb.IngestAnswer]:
        return {answer.request_id: answer for reply in self.replies for answer in reply.answers}

    @property
    def statuses(self) -> dict[int, int]:
        return {number: answer.status for number, answer in self.answers.items()}

    def free_bytes(self) -> int:
        """What is left of the budget, found by asking."""
        for size in range(BUDGET, -1, -1):
            if self.budget.take(size):
                self.budget.give_back(size)
                return size
        raise AssertionError("more was given back than taken")


def head(number: int, path: str, body: bytes = b"", *, last: bool = False) -> pb.IngestPart:
    made = pb.IngestHead(method="POST", path=path, peer="10.0.0.1")
    return pb.IngestPart(request_id=number, head=made, body=body, last=last)


def piece(number: int, body: bytes, *, last: bool = False) -> pb.IngestPart:
    return pb.IngestPart(request_id=number, body=body, last=last)


def cancel(number: int) -> pb.IngestPart:
    return pb.IngestPart(request_id=number, cancelled=True)


@pytest.fixture
def target() -> Target:
    return Target()


async def test_a_whole_request_is_answered(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(7, "/plain", b"hi", last=True))
    answer = gateway.answers[7]
    assert (answer.status, answer.body) == (200, b"hi")
    assert [(h.name, h.value) for h in answer.headers] == [("x-peer", "10.0.0.1")]
    assert gateway.free_bytes() == BUDGET


async def test_a_body_in_pieces_is_put_together(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/plain", b"a"), head(2, "/plain", b"x"))
    await gateway.send(piece(2, b"y", last=True), piece(1, b"b"))
    assert gateway.statuses == {2: 200}
    await gateway.send(piece(1, b"c", last=True))
    assert {n: a.body for n, a in gateway.answers.items()} == {1: b"abc", 2: b"xy"}
    assert gateway.free_bytes() == BUDGET


async def test_an_empty_last_piece_ends_a_body(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/plain", b"a"), piece(1, b"", last=True))
    assert gateway.answers[1].body == b"a"


async def test_quick_requests_of_one_message_are_taken_together(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(*(head(n, "/quick", str(n).encode(), last=True) for n in range(4)))
    assert [len(group) for group in target.groups] == [4]
    assert {n: a.body for n, a in gateway.answers.items()} == {n: str(n).encode() for n in range(4)}
    assert len(gateway.replies) == 1
    assert gateway.free_bytes() == BUDGET


async def test_an_early_refusal_needs_no_body(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/nowhere", b"x" * 10))
    assert gateway.statuses == {1: 404}
    await gateway.send(piece(1, b"x" * 10), piece(1, b"", last=True))
    assert len(gateway.answers) == 1
    assert target.asked == []
    assert gateway.free_bytes() == BUDGET


async def test_a_whole_request_that_is_refused_holds_nothing(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/nowhere", b"x" * 10, last=True))
    assert gateway.statuses == {1: 404}
    assert gateway.free_bytes() == BUDGET


async def test_a_body_over_the_limit_is_413_and_names_the_key(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/plain", b"x" * (LIMIT + 1), last=True))
    await gateway.send(head(2, "/plain", b"x" * LIMIT), piece(2, b"y"))
    await gateway.send(piece(2, b"z", last=True))
    assert gateway.statuses == {1: 413, 2: 413}
    assert "engine.packet_limit" in json.loads(gateway.answers[2].body)["hint"]
    assert target.asked == []
    assert gateway.free_bytes() == BUDGET


async def test_a_body_of_exactly_the_limit_is_taken(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/plain", b"x" * LIMIT, last=True))
    await gateway.send(head(2, "/plain", b"x" * (LIMIT - 1)), piece(2, b"y", last=True))
    assert gateway.statuses == {1: 200, 2: 200}


async def test_beyond_the_budget_is_503_with_retry_after(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(*(head(n, "/slow", b"x" * LIMIT, last=True) for n in (1, 2)))
    await gateway.send(head(3, "/plain", b"x" * 51, last=True))
    await gateway.send(head(4, "/plain", b"x" * 40), piece(4, b"x" * 40))
    assert gateway.statuses == {3: 503, 4: 503}
    assert [(h.name, h.value) for h in gateway.answers[3].headers] == [("Retry-After", "1")]
    assert gateway.free_bytes() == BUDGET - 2 * LIMIT
    target.free.set()
    await quiet()
    assert gateway.statuses == {1: 200, 2: 200, 3: 503, 4: 503}
    assert gateway.free_bytes() == BUDGET


async def test_a_cancelled_body_gives_its_pieces_back(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/plain", b"x" * 60), piece(1, b"x" * 30))
    assert gateway.free_bytes() == BUDGET - 90
    await gateway.send(cancel(1), piece(1, b"x", last=True))
    assert gateway.answers == {}
    assert gateway.free_bytes() == BUDGET


async def test_a_cancelled_request_is_left_and_gives_its_body_back(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/slow", b"one", last=True))
    await gateway.send(cancel(1))
    assert target.cancelled == ["one"]
    assert gateway.answers == {}
    assert gateway.free_bytes() == BUDGET


async def test_a_request_that_is_cancelled_in_its_own_message_holds_nothing(
    target: Target,
) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/slow", b"one", last=True), cancel(1))
    assert gateway.answers == {}
    assert gateway.free_bytes() == BUDGET


async def test_a_cancel_of_nothing_is_no_matter(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(cancel(9), piece(9, b"x"), head(1, "/plain", last=True))
    await gateway.send(cancel(1))
    assert gateway.statuses == {1: 200}


async def test_answers_leave_out_of_order(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/slow", b"1", last=True))
    await gateway.send(head(2, "/plain", b"2", last=True))
    assert list(gateway.answers) == [2]
    target.free.set()
    await quiet()
    assert list(gateway.answers) == [2, 1]


async def test_the_stream_ends_once_everything_is_answered(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/slow", b"1", last=True))
    await gateway.end()
    assert not gateway.stream.done()
    target.free.set()
    await gateway.stream
    assert gateway.statuses == {1: 200}


async def test_a_stop_ends_the_stream_once_everything_is_answered(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/slow", b"1", last=True))
    gateway.timers.end_reading()
    await quiet()
    assert not gateway.stream.done()
    target.free.set()
    await gateway.stream
    assert gateway.statuses == {1: 200}
    assert gateway.timers.crashes == []


async def test_a_stream_that_ends_in_mid_body_gives_its_pieces_back(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/plain", b"x" * 60), head(2, "/plain", b"x" * 30))
    await gateway.end()
    await gateway.stream
    assert gateway.free_bytes() == BUDGET


async def test_a_stream_that_is_lost_leaves_nothing_behind(target: Target) -> None:
    gateway = Gateway(target)
    await gateway.send(head(1, "/plain", b"x" * 60), head(2, "/slow", b"two", last=True))
    gateway.stream.cancel()
    await quiet()
    assert target.cancelled == ["two"]
    assert gateway.free_bytes() == BUDGET
    assert gateway.timers.crashes == []


async def test_large_answers_are_cut_into_messages(target: Target) -> None:
    async def large(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, b"x" * (MESSAGE_BYTES_LIMIT // 2 - 1000))

    target.answer = large  # type: ignore[method-assign]
    gateway = Gateway(target)
    await gateway.send(*(head(n, "/plain", last=True) for n in range(5)))
    assert len(gateway.answers) == 5
    assert all(len(r.SerializeToString()) <= MESSAGE_BYTES_LIMIT for r in gateway.replies)


@pytest.mark.parametrize("path", ["/plain", "/quick"])
async def test_a_bug_is_a_500_that_says_nothing_of_it(target: Target, path: str) -> None:
    target.error = ZeroDivisionError("s3cr3t")
    gateway = Gateway(target)
    await gateway.send(head(1, path, b"x", last=True))
    assert gateway.statuses == {1: 500}
    assert b"s3cr3t" not in gateway.answers[1].body
    assert gateway.errors == [target.error]
    assert gateway.timers.crashes == []
    assert gateway.free_bytes() == BUDGET


async def test_a_pipeline_without_http_says_so() -> None:
    gateway = Gateway(None)
    await gateway.send(head(1, "/plain", b"x", last=True), head(2, "/plain", b"x"))
    await gateway.send(piece(2, b"y", last=True))
    assert gateway.statuses == {1: 404, 2: 404}


async def test_the_budget_is_shared_by_all_streams(target: Target) -> None:
    one = Gateway(target)
    two = Gateway(target, one.budget)
    await one.send(*(head(n, "/slow", b"x" * LIMIT, last=True) for n in (1, 2)))
    await two.send(head(1, "/plain", b"x" * LIMIT, last=True))
    assert two.statuses == {1: 503}
    target.free.set()
    await until(lambda: one.statuses == {1: 200, 2: 200})
    await two.send(head(2, "/plain", b"x" * LIMIT, last=True))
    assert two.statuses == {1: 503, 2: 200}
