"""Lanes: one thread per place, in order, and never more than the limit."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pipo.connectors.lanes import Lanes


class Thing:
    """Remembers which threads used it."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.threads: set[str] = set()
        self.jobs: list[int] = []
        self.closed = 0
        made.append(self)

    def job(self, number: int = 0) -> str:
        self.threads.add(threading.current_thread().name)
        self.jobs.append(number)
        return self.place

    def close(self) -> None:
        self.closed += 1
        self.threads.add(threading.current_thread().name)


made: list[Thing] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


async def test_jobs_of_one_place_keep_their_order_on_one_thread() -> None:
    lanes = Lanes(Thing, limit=4)
    await asyncio.gather(*(lanes.run("a", lambda t, n=n: t.job(n)) for n in range(50)))  # type: ignore[misc]
    await lanes.close()
    (thing,) = made
    assert thing.jobs == list(range(50))
    assert len(thing.threads) == 1
    assert "MainThread" not in thing.threads
    assert thing.closed == 1


async def test_a_stuck_place_holds_up_no_other() -> None:
    lanes = Lanes(Thing, limit=4)
    go = threading.Event()
    stuck = asyncio.ensure_future(lanes.run("a", lambda t: go.wait(60)))
    assert await lanes.run("b", Thing.job) == "b"
    assert not stuck.done()
    go.set()
    assert await stuck
    await lanes.close()


async def test_the_place_that_rested_longest_makes_room() -> None:
    lanes = Lanes(Thing, limit=2)
    for place in ("a", "b", "a", "c"):
        await lanes.run(place, Thing.job)
    assert [(thing.place, thing.closed) for thing in made] == [("a", 0), ("b", 1), ("c", 0)]
    await lanes.run("b", Thing.job)
    assert [(thing.place, thing.closed) for thing in made] == [
        ("a", 1),
        ("b", 1),
        ("c", 0),
        ("b", 0),
    ]
    await lanes.close()
    assert all(thing.closed == 1 for thing in made)


async def test_more_places_at_once_than_the_limit_take_turns() -> None:
    lanes = Lanes(Thing, limit=3)
    places = [f"p{n % 20}" for n in range(200)]
    assert await asyncio.gather(*(lanes.run(place, Thing.job) for place in places)) == places
    await lanes.close()
    assert sum(len(thing.jobs) for thing in made) == 200
    assert all(thing.closed == 1 for thing in made)


async def test_a_cancelled_job_runs_on_and_the_next_of_its_place_waits() -> None:
    lanes = Lanes(Thing, limit=1)
    go, begun = threading.Event(), threading.Event()

    def slow(thing: Thing) -> None:
        begun.set()
        go.wait(60)
        thing.job(1)

    task = asyncio.ensure_future(lanes.run("a", slow))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    after = asyncio.ensure_future(lanes.run("a", lambda t: t.job(2)))
    other = asyncio.ensure_future(lanes.run("b", Thing.job))
    await asyncio.sleep(0)
    go.set()
    await after
    await other
    await lanes.close()
    assert made[0].jobs == [1, 2]


async def test_an_error_of_a_job_is_the_callers() -> None:
    lanes = Lanes(Thing, limit=1)
    with pytest.raises(ZeroDivisionError):
        await lanes.run("a", lambda t: 1 // 0)
    assert await lanes.run("a", Thing.job) == "a"
    await lanes.close()
    await lanes.close()
