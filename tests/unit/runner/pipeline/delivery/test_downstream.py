"""Who waits for packets here is told the moment they settle, or where they stand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pipo.connectors.contract import Settlement
from pipo.errors import BadRequest, Unavailable
from pipo.rpc.stubs.pipeline_pb2 import (
    DownstreamStanding,
    DownstreamStateRequest,
    DownstreamWait,
)
from pipo_runner.pipeline.delivery import downstream
from pipo_runner.pipeline.delivery.downstream import Downstream
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.life.recovery import unit_of
from tests.unit.runner.pipeline.rig import FakeClock, ManualTimers, pending, quiet, until


class Waiter:
    """One stream of waits at `store`, which holds the packets u1 and u2."""

    def __init__(self) -> None:
        self.timers = ManualTimers(FakeClock())
        self.stored: dict[str, tuple[str, str]] = {}
        self.pending = Pending(self._settlement)
        for number in (1, 2):
            self.pending.add(unit_of(pending(number)))
        self.downstream = Downstream(
            name="store",
            pending=self.pending,
            standing_of=self._standing,
            timers=self.timers,
        )
        self.told: list[DownstreamStanding] = []
        self._requests: asyncio.Queue[DownstreamStateRequest | None] = asyncio.Queue(10_000)
        self.stream = asyncio.create_task(self._listen(), name="a checker")

    async def _settlement(self, packet_id: str) -> Settlement:
        raise AssertionError(packet_id)

    async def _standing(self, packet_id: str) -> tuple[str, str] | None:
        return self.stored.get(packet_id)

    async def _listen(self) -> None:
        async for reply in self.downstream.stream(self._each()):
            self.told += reply.standings

    async def _each(self) -> AsyncIterator[DownstreamStateRequest]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def wait(self, *packets: str, ms: int = 60_000, pipeline: str = "store") -> None:
        waits = [
            DownstreamWait(request_id=n, packet_id=packet, timeout_ms=ms)
            for n, packet in enumerate(packets)
        ]
        self._requests.put_nowait(DownstreamStateRequest(pipeline=pipeline, waits=waits))
        await quiet()

    async def end(self) -> None:
        self._requests.put_nowait(None)
        await quiet()

    @property
    def states(self) -> dict[int, str]:
        return {one.request_id: one.state for one in self.told}


async def test_a_wait_is_answered_when_its_packet_settles() -> None:
    waiter = Waiter()
    await waiter.wait("u1", "u2")
    assert waiter.told == []
    waiter.pending.settled(["u2"], Settlement("dead_lettered", "no table"))
    await quiet()
    assert [(one.request_id, one.state, one.reason) for one in waiter.told] == [
        (1, "dead_lettered", "no table")
    ]
    waiter.pending.settled(["u1"], Settlement("delivered"))
    await quiet()
    assert waiter.states == {0: "delivered", 1: "dead_lettered"}
    await waiter.end()
    assert waiter.stream.done()


async def test_what_is_settled_or_gone_is_answered_at_once() -> None:
    waiter = Waiter()
    waiter.stored["old"] = ("filtered", "")
    await waiter.wait("old", "purged")
    assert waiter.states == {0: "filtered", 1: "gone"}
    await waiter.end()


async def test_a_wait_that_is_over_says_where_the_packet_stands() -> None:
    waiter = Waiter()
    waiter.stored["u1"] = ("verifying", "")
    await waiter.wait("u1", ms=0)
    await until(lambda: waiter.told)
    assert waiter.states == {0: "verifying"}
    await waiter.end()


async def test_the_last_answer_goes_out_before_a_stream_ends() -> None:
    waiter = Waiter()
    await waiter.wait("u1")
    await waiter.end()
    assert not waiter.stream.done()
    waiter.pending.settled(["u1"], Settlement("delivered"))
    await quiet()
    assert (waiter.states, waiter.stream.done()) == ({0: "delivered"}, True)


async def test_a_stop_ends_the_stream_without_an_answer() -> None:
    waiter = Waiter()
    await waiter.wait("u1")
    waiter.timers.end_reading()
    await quiet()
    assert (waiter.told, waiter.stream.done()) == ([], True)
    assert waiter.stream.exception() is None


async def test_a_caller_that_leaves_leaves_no_wait_behind() -> None:
    waiter = Waiter()
    await waiter.wait("u1")
    waiter.stream.cancel()
    await quiet()
    assert waiter.pending._waits == {}
    assert waiter.timers.crashes == []


async def test_a_wait_for_another_pipeline_ends_the_stream() -> None:
    waiter = Waiter()
    await waiter.wait("u1", pipeline="other")
    with pytest.raises(Unavailable, match="'other' does not run here"):
        await waiter.stream
    assert waiter.timers.crashes == []


async def test_too_many_waits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downstream, "WAITS_MAX", 2)
    waiter = Waiter()
    await waiter.wait("u1", "u2")
    await waiter.wait("u1")
    with pytest.raises(BadRequest, match="more than 2 waits"):
        await waiter.stream
