"""One owner of waits and tasks: nothing fails in silence, nothing is left behind."""

from __future__ import annotations

import asyncio

from pipo_runner.pipeline.flow.timers import Timers
from tests.unit.runner.pipeline.rig import quiet, until


class Owned:
    def __init__(self) -> None:
        self.crashes: list[BaseException] = []
        self.timers = Timers(self.crashes.append)
        self.called: list[int] = []


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def broken() -> None:
    raise ZeroDivisionError("oops")


async def test_a_wait_calls_back_with_its_arguments() -> None:
    owned = Owned()
    owned.timers.after(0.0, owned.called.append, 7)
    assert owned.timers.waiting == 1
    await until(lambda: owned.called)
    assert (owned.called, owned.timers.waiting) == ([7], 0)


async def test_waits_that_are_given_back_do_not_fire() -> None:
    owned = Owned()
    for number in range(3):
        owned.timers.after(0.0, owned.called.append, number)
    assert owned.timers.cancel_waits() == 3
    await quiet()
    assert (owned.called, owned.timers.waiting) == ([], 0)


async def test_a_callback_that_raises_stops_the_process() -> None:
    owned = Owned()
    owned.timers.after(0.0, broken)
    owned.timers.soon(broken)
    await until(lambda: len(owned.crashes) == 2)
    assert all(isinstance(error, ZeroDivisionError) for error in owned.crashes)


async def test_a_task_that_raises_stops_the_process() -> None:
    owned = Owned()

    async def work() -> None:
        broken()

    owned.timers.spawn(work(), name="work")
    await until(lambda: owned.crashes)


async def test_a_task_that_is_cancelled_does_not() -> None:
    owned = Owned()
    task = owned.timers.spawn(forever(), name="work")
    await quiet()
    task.cancel()
    await quiet()
    assert owned.crashes == []


async def test_close_waits_for_tasks_and_ends_those_that_are_late() -> None:
    owned = Owned()
    task = owned.timers.spawn(forever(), name="late")
    quick = owned.timers.spawn(asyncio.sleep(0), name="quick")
    owned.timers.after(3600.0, owned.called.append, 1)
    await owned.timers.close(0.0)
    assert task.cancelled()
    assert quick.done()
    assert owned.timers.waiting == 0
    await owned.timers.close(0.0)


async def test_readers_end_when_reading_is_over() -> None:
    owned = Owned()
    early = owned.timers.read(forever(), name="early")
    other = owned.timers.spawn(forever(), name="no reader")
    await quiet()
    owned.timers.end_reading()
    late = owned.timers.read(forever(), name="late")
    await quiet()
    assert early.cancelled()
    assert late.cancelled()
    assert not other.done()
    await owned.timers.close(0.0)
    assert owned.crashes == []
