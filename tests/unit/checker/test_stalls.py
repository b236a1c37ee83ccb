"""The checker's side of stall detection: ages in, reports out, and nothing in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pipo.rpc.stubs.checker_pb2 import Progress
from pipo_checker.outbox import Outbox
from pipo_checker.stalls import StallWatch

if TYPE_CHECKING:
    from tests.unit.checker.conftest import LoopClock, Run


@asynccontextmanager
async def watching(
    clock: LoopClock,
) -> AsyncIterator[tuple[StallWatch, list[tuple[float, int]]]]:
    """A watch at work, with its reports: when, and for how long nothing got through."""
    began = clock.monotonic()
    reports: list[tuple[float, int]] = []
    watch = StallWatch(
        clock, lambda quiet_ms: reports.append((round(clock.monotonic() - began, 3), quiet_ms))
    )
    task = asyncio.create_task(watch.run(), name="watch")
    try:
        yield watch, reports
    finally:
        task.cancel()
        await asyncio.wait({task})


def stuck(**changes: Any) -> Progress:
    """Three packets on their way for 1 s, and 5 s is too long."""
    words = {"pending_moving": 3, "clock_from_ms": 1000, "after_ms": 5000, "looking": True}
    return Progress(**words | changes)


def test_a_stall_is_reported_once_it_is_one_and_again_until_it_is_told(
    patiently: Run[None],
) -> None:
    async def scene(clock: LoopClock) -> None:
        async with watching(clock) as (watch, reports):
            watch.take(stuck())
            await asyncio.sleep(6.5)
            assert reports == [(4.001, 5001), (5.001, 6001), (6.001, 7001)]
            watch.take(stuck(clock_from_ms=7500, told=True))
            await asyncio.sleep(60)
            assert len(reports) == 3

    patiently(scene)


def test_what_got_through_puts_it_off(patiently: Run[None]) -> None:
    async def scene(clock: LoopClock) -> None:
        async with watching(clock) as (watch, reports):
            watch.take(stuck())
            for _ in range(20):
                await asyncio.sleep(1.25)
                watch.take(stuck(clock_from_ms=1000, last_progress_ms=200))
            assert reports == []
            await asyncio.sleep(4.85)
            assert [at for at, _ in reports] == [29.801]

    patiently(scene)


def test_nothing_wakes_up_where_nothing_can_stall(patiently: Run[None]) -> None:
    async def scene(clock: LoopClock) -> None:
        async with watching(clock) as (watch, reports):
            await asyncio.sleep(3600)
            for quiet in (stuck(pending_moving=0), stuck(looking=False), stuck(told=True)):
                watch.take(quiet)
                await asyncio.sleep(3600)
            assert reports == []

    patiently(scene)


def test_a_short_after_is_noticed_well_before_a_second(patiently: Run[None]) -> None:
    async def scene(clock: LoopClock) -> None:
        async with watching(clock) as (watch, reports):
            watch.take(stuck(after_ms=200, clock_from_ms=0))
            await asyncio.sleep(0.26)
            assert reports == [(0.201, 201), (0.251, 251)]

    patiently(scene)


async def test_a_report_leaves_once_and_is_forgotten_with_its_stream() -> None:
    outbox = Outbox()
    assert await outbox.filled(0) is False
    outbox.report_stall(500)
    outbox.report_stall(700)
    assert await outbox.filled(60) is True
    report = outbox.take_stall()
    assert report is not None
    assert report.quiet_ms == 700
    assert outbox.take_stall() is None
    assert await outbox.filled(0) is False
    outbox.report_stall(900)
    outbox.clear()
    assert await outbox.filled(0) is False
