"""Real gRPC between a follower and a pipeline process that is written for the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pipo.clock import SystemClock
from pipo.home.registry import Entry
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs.checker_pb2 import Progress, Verdict, VerificationsReply
from pipo_checker import follower, stream
from pipo_checker.follower import Follower, backoff_s
from tests.stack import soon

if TYPE_CHECKING:
    from tests.unit.checker.conftest import FakeChecks, FakeConnectors, FakePipeline, LoopClock

TOKEN = "internal"


Followed = Callable[[], AbstractAsyncContextManager[tuple[Follower, RunningServer]]]


@pytest.fixture
def followed(
    pipeline: FakePipeline, connectors: FakeConnectors, entry: Callable[[int], Entry]
) -> Followed:
    """A follower of the served pipeline."""

    @asynccontextmanager
    async def run() -> AsyncIterator[tuple[Follower, RunningServer]]:
        server = await serve(pipeline, bind="127.0.0.1", port=0, internal_token=TOKEN)
        made = Follower(
            entry(server.port),
            checker_id="c1",
            token=lambda: TOKEN,
            connectors=connectors,
            clock=SystemClock(),
            lost=lambda: None,
        )
        running = asyncio.create_task(made.run(), name="follower")
        try:
            yield made, server
        finally:
            running.cancel()
            await asyncio.wait({running})
            await server.stop(0)

    return run


async def test_says_who_attaches_and_gives_verdicts(
    followed: Followed, pipeline: FakePipeline, checks: FakeChecks, offer: Callable[..., Any]
) -> None:
    checks.present.add("a")
    async with followed() as (made, _):
        hello = (await pipeline.hello()).hello
        assert (hello.checker_id, hello.capacity) == ("c1", 4096)
        await pipeline.offers.put(VerificationsReply(verifications=[offer("a"), offer("b")]))
        (passed,) = await pipeline.verdicts(1)
        assert (passed.id, passed.outcome) == ("a:1:1", Verdict.OUTCOME_PASSED)
        assert made.meters.attached
        assert len(made.meters.held) == 1
        await pipeline.offers.put(VerificationsReply(withdrawn=["b:1:1"]))
        await soon(lambda: len(made.meters.held) == 0)
    assert not made.meters.attached
    assert checks.closed
    assert pipeline.ended.is_set()


async def test_a_stall_is_reported_without_waiting_for_a_heartbeat(
    followed: Followed, pipeline: FakePipeline
) -> None:
    async with followed():
        await pipeline.hello()
        stuck = Progress(pending_moving=1, clock_from_ms=60_000, after_ms=60_000, looking=True)
        await pipeline.offers.put(VerificationsReply(progress=stuck))
        # The interval of a long `after` is a second, a heartbeat comes every third.
        report = await pipeline.next()
        assert report.HasField("stall")
        assert 60_000 < report.stall.quiet_ms < 63_000
        assert not report.heartbeat
        stuck.told = True
        await pipeline.offers.put(VerificationsReply(progress=stuck))
        assert (await pipeline.next()).heartbeat


async def test_many_verdicts_share_few_messages_below_a_mebibyte(
    followed: Followed, pipeline: FakePipeline, checks: FakeChecks, offer: Callable[..., Any]
) -> None:
    names = [f"u{n}" for n in range(2000)]
    checks.present.update(names)
    async with followed():
        await pipeline.hello()
        for at in range(0, 2000, 200):
            offers = [offer(name) for name in names[at : at + 200]]
            await pipeline.offers.put(VerificationsReply(verifications=offers))
        found = await pipeline.verdicts(2000)
    assert {v.id for v in found} == {f"{name}:1:1" for name in names}
    assert len(pipeline.messages) < 60
    assert max(m.ByteSize() for m in pipeline.messages) < 1024 * 1024


async def test_heartbeats_come_when_nothing_else_is_said(
    followed: Followed, pipeline: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "IDLE_HEARTBEAT_S", 0.02)
    async with followed():
        await pipeline.hello()
        assert [(await pipeline.next()).heartbeat for _ in range(2)] == [True, True]


async def test_heartbeats_are_rare_until_something_is_held(
    followed: Followed,
    pipeline: FakePipeline,
    offer: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(stream, "IDLE_HEARTBEAT_S", 3600.0)
    async with followed():
        await pipeline.hello()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await pipeline.next()
        await pipeline.offers.put(VerificationsReply(verifications=[offer("absent")]))
        assert [(await pipeline.next()).heartbeat for _ in range(3)] == [True] * 3


async def test_heartbeats_are_often_where_a_stall_is_watched_for(
    followed: Followed, pipeline: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(stream, "IDLE_HEARTBEAT_S", 3600.0)
    async with followed():
        await pipeline.hello()
        calm = Progress(pending_moving=0, clock_from_ms=0, after_ms=60_000)
        await pipeline.offers.put(VerificationsReply(progress=calm))
        assert [(await pipeline.next()).heartbeat for _ in range(3)] == [True] * 3


async def test_attaches_again_after_the_stream_ended_and_forgets_what_was_held(
    followed: Followed,
    pipeline: FakePipeline,
    checks: FakeChecks,
    offer: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "STOPPING_PAUSE_S", 0.01)
    async with followed() as (made, _):
        await pipeline.hello()
        await pipeline.offers.put(VerificationsReply(verifications=[offer("a")]))
        await soon(lambda: len(made.meters.held) == 1)
        await pipeline.offers.put(None)
        await pipeline.hello()
        assert len(made.meters.held) == 0
        checks.present.add("a")
        again = offer("a")
        again.id = "a:1:2"
        await pipeline.offers.put(VerificationsReply(verifications=[again]))
        assert [v.id for v in await pipeline.verdicts(1)] == ["a:1:2"]


async def test_only_a_stream_that_broke_is_a_warning(
    followed: Followed,
    pipeline: FakePipeline,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(follower, "STOPPING_PAUSE_S", 0.01)
    caplog.set_level(logging.INFO, "pipo.checker.follower")
    async with followed() as (made, server):
        await pipeline.hello()
        await pipeline.offers.put(None)
        await pipeline.hello()
        assert _said(caplog, "verifications.ended") == ["INFO"]
        assert _said(caplog, "verifications.lost") == []
        await server.stop(0)
        await soon(lambda: _said(caplog, "verifications.lost") == ["WARNING"])
    assert not made.meters.attached


def _said(caplog: pytest.LogCaptureFixture, action: str) -> list[str]:
    """The levels of the lines of that action."""
    found: list[Any] = [(record.msg, record.levelname) for record in caplog.records]
    return [level for line, level in found if line["action"] == action]


async def test_attaches_when_the_pipeline_comes_back(
    followed: Followed, pipeline: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "BACKOFF_S", (0.01, 0.01))
    async with followed() as (made, server):
        await pipeline.hello()
        await server.stop(0)
        await soon(lambda: not made.meters.attached)
        back = await serve(pipeline, bind="127.0.0.1", port=server.port, internal_token=TOKEN)
        try:
            await pipeline.hello()
        finally:
            await back.stop(0)


async def test_another_pipeline_at_the_address_is_left_alone(
    followed: Followed, pipeline: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "BACKOFF_S", (0.01, 0.01))
    pipeline.name = "orders"
    async with followed() as (made, _):
        await soon(lambda: pipeline.met > 2)
        assert not made.meters.attached
        assert pipeline.messages == []


def test_the_waits_between_attempts_grow_to_two_seconds(
    patiently: Callable[[Callable[[LoopClock], Coroutine[Any, Any, Any]]], Any],
) -> None:
    async def scene(clock: LoopClock) -> list[float]:
        return [backoff_s(n, clock) * 2 for n in (0, 1, 2, 3, 4, 5, 1000)]

    assert patiently(scene) == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
