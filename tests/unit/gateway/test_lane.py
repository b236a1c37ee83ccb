"""The lane against a stream that the test holds still or lets run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from pipo.clock import SystemClock
from pipo.rpc.stubs import pipeline_pb2
from pipo_gateway.ingress.lane import ANSWER_TIMEOUT_S, IDLE_S, Head, Lane, NotAnswered, NotSent

HEAD = Head("POST", "/x", "", [("A", "b")], "127.0.0.1", None, 10)


class Stream:
    """A call: writes wait while `blocked`, answers come from a queue."""

    def __init__(self) -> None:
        self.written: list[pipeline_pb2.IngestRequest] = []
        self.open = asyncio.Event()
        self.open.set()
        self.entered = asyncio.Event()
        self.replies: asyncio.Queue[pipeline_pb2.IngestReply | None] = asyncio.Queue()
        self.cancelled = False
        self.breaks = False

    async def write(self, message: pipeline_pb2.IngestRequest) -> None:
        self.written.append(message)
        self.entered.set()
        await self.open.wait()

    def __aiter__(self) -> AsyncIterator[pipeline_pb2.IngestReply]:
        return self._replies()

    async def _replies(self) -> AsyncIterator[pipeline_pb2.IngestReply]:
        while (reply := await self.replies.get()) is not None:
            yield reply
        if self.breaks:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing)

    def answer(self, *ids: int) -> None:
        answers = [pipeline_pb2.IngestAnswer(request_id=i, status=202) for i in ids]
        self.replies.put_nowait(pipeline_pb2.IngestReply(answers=answers))

    def cancel(self) -> None:
        self.cancelled = True

    async def done_writing(self) -> None:
        """The pipeline ends the stream then, in order."""
        self.replies.put_nowait(None)


class Clock(SystemClock):
    at = 0.0

    def monotonic(self) -> float:
        return self.at


@pytest_asyncio.fixture
async def stream() -> Stream:
    return Stream()


@pytest_asyncio.fixture
async def lane(stream: Stream) -> AsyncIterator[Lane]:
    made = Lane(stream, "pipeline 'x'", Clock())
    running = asyncio.get_running_loop().create_task(made.run())
    await settle()
    yield made
    running.cancel()
    await asyncio.wait({running})
    assert stream.cancelled
    assert made.closed


async def settle() -> None:
    """Lets every ready task run until it waits again."""
    for _ in range(10):
        await asyncio.sleep(0)


def ids(message: pipeline_pb2.IngestRequest) -> list[int]:
    return [part.request_id for part in message.parts]


async def test_an_idle_lane_sends_at_once_and_a_busy_one_gathers(
    lane: Lane, stream: Stream
) -> None:
    stream.open.clear()
    first, answer = lane.send(HEAD, b"1")
    await settle()
    assert [ids(m) for m in stream.written] == [[first]]
    more = [lane.send(HEAD, b"2")[0] for _ in range(5)]
    await settle()
    assert len(stream.written) == 1
    stream.open.set()
    await settle()
    assert [ids(m) for m in stream.written] == [[first], more]
    stream.answer(more[2], first)
    await settle()
    assert answer.result().request_id == first


async def test_messages_are_cut_below_one_mib_in_order(lane: Lane, stream: Stream) -> None:
    stream.open.clear()
    lane.send(HEAD, b"")
    await settle()
    sent = [lane.send(HEAD, b"x" * 200_000)[0] for _ in range(20)]
    stream.open.set()
    await settle()
    assert all(m.ByteSize() < 1024 * 1024 for m in stream.written)
    assert [i for m in stream.written[1:] for i in ids(m)] == sent


async def test_a_piece_never_overtakes_its_head_nor_holds_up_the_small_ones(
    lane: Lane, stream: Stream
) -> None:
    stream.open.clear()
    lane.send(HEAD, b"")
    await settle()
    for _ in range(8):
        lane.send(HEAD, b"x" * 250_000)
    large, _ = lane.send(HEAD, b"a" * 1000, last=False)
    piece = asyncio.get_running_loop().create_task(lane.send_piece(large, b"b" * 1000, last=True))
    await settle()
    assert not piece.done()
    stream.open.set()
    await settle()
    assert piece.done()
    parts = [p for m in stream.written for p in m.parts if p.request_id == large]
    assert [(p.HasField("head"), p.body[:1], p.last) for p in parts] == [
        (True, b"a", False),
        (False, b"b", True),
    ]
    assert all(m.ByteSize() < 1024 * 1024 for m in stream.written)


async def test_a_stream_that_breaks_tells_sent_from_not_sent(lane: Lane, stream: Stream) -> None:
    stream.breaks = True
    stream.open.clear()
    _, sent = lane.send(HEAD, b"1")
    await settle()
    _, waiting = lane.send(HEAD, b"2")
    stream.replies.put_nowait(None)
    await settle()
    assert isinstance(sent.exception(), NotAnswered)
    assert isinstance(waiting.exception(), NotSent)
    _, late = lane.send(HEAD, b"3")
    assert isinstance(late.exception(), NotSent)


async def test_a_pipeline_that_ends_its_stream_in_order_has_taken_nothing_more(
    lane: Lane, stream: Stream
) -> None:
    _, first = lane.send(HEAD, b"1")
    _, second = lane.send(HEAD, b"2")
    await settle()
    stream.answer(1)
    stream.replies.put_nowait(None)
    await settle()
    assert first.result().status == 202
    assert isinstance(second.exception(), NotSent)


async def test_a_piece_that_waits_is_released_by_the_end_or_the_answer(
    lane: Lane, stream: Stream
) -> None:
    stream.open.clear()
    request_id, answer = lane.send(HEAD, b"", last=False)
    await settle()
    loop = asyncio.get_running_loop()
    first = loop.create_task(lane.send_piece(request_id, b"x", last=False))
    await settle()
    stream.answer(request_id)
    await settle()
    assert first.done()
    assert answer.result().status == 202
    await lane.send_piece(request_id, b"y", last=True)
    other_id, _other = lane.send(HEAD, b"", last=False)
    second = loop.create_task(lane.send_piece(other_id, b"x", last=False))
    await settle()
    assert not second.done()
    stream.replies.put_nowait(None)
    await settle()
    assert second.done()
    assert isinstance(_other.exception(), NotSent)


async def test_a_cancelled_request_is_told_and_its_late_answer_ignored(
    lane: Lane, stream: Stream
) -> None:
    request_id, answer = lane.send(HEAD, b"1")
    await settle()
    lane.cancel(request_id)
    lane.cancel(request_id)
    await settle()
    assert [p.cancelled for m in stream.written for p in m.parts] == [False, True]
    stream.answer(request_id)
    await settle()
    assert answer.cancelled()


async def test_quiet_waits_for_the_last_answer(lane: Lane, stream: Stream) -> None:
    request_id, _ = lane.send(HEAD, b"1")
    quiet: asyncio.Task[Any] = asyncio.get_running_loop().create_task(lane.quiet())
    await settle()
    assert not quiet.done()
    stream.answer(request_id)
    await settle()
    assert quiet.done()


async def test_a_request_that_is_never_answered_ends_at_the_backstop(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo_gateway.ingress.lane.SWEEP_S", 0.0)
    clock = Clock()
    lane = Lane(stream, "pipeline 'x'", clock)
    running = asyncio.get_running_loop().create_task(lane.run())
    try:
        _, answer = lane.send(HEAD, b"1")
        await settle()
        clock.at = ANSWER_TIMEOUT_S - 1
        await settle()
        assert not answer.done()
        clock.at = ANSWER_TIMEOUT_S + 1
        await settle()
        assert isinstance(answer.exception(), NotAnswered)
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_lane_that_nobody_uses_is_given_up(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo_gateway.ingress.lane.SWEEP_S", 0.0)
    clock = Clock()
    lane = Lane(stream, "pipeline 'x'", clock)
    running = asyncio.get_running_loop().create_task(lane.run())
    await settle()
    first, answer = lane.send(HEAD, b"1")
    await settle()
    clock.at += IDLE_S + 1
    await settle()
    assert not lane.closed, "a request waits"
    stream.answer(first)
    await settle()
    clock.at += IDLE_S - 1
    lane.send(HEAD, b"2")
    stream.answer(2)
    await settle()
    clock.at += IDLE_S - 1
    await settle()
    assert (answer.result().request_id, lane.closed) == (first, False)
    clock.at += 2
    async with asyncio.timeout(60):
        await running
    assert lane.closed
