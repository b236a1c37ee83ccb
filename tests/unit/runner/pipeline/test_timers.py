"""Readers of streams end at a stop, and what they took is still answered."""

from __future__ import annotations

import asyncio

import pytest

from pipo_runner.pipeline.timers import Timers


def fail(error: BaseException) -> None:
    raise AssertionError(error)


async def test_a_reader_ends_with_the_reading_and_other_tasks_go_on() -> None:
    timers = Timers(fail)
    reader = timers.read(asyncio.Event().wait(), name="reader")
    task = timers.spawn(asyncio.sleep(0.01, "done"), name="task")
    timers.end_reading()
    timers.end_reading()
    await asyncio.wait({reader})
    assert reader.cancelled()
    assert await task == "done"


async def test_a_reader_that_comes_too_late_ends_at_once() -> None:
    timers = Timers(fail)
    timers.end_reading()
    late = timers.read(asyncio.Event().wait(), name="late")
    with pytest.raises(asyncio.CancelledError):
        await late
