"""How many starts go on at once."""

import asyncio

import pytest

from pipo_runner.host.gate import Gate, starts_at_once


class Visits:
    """Visitors of a gate, by name: who is inside, and in which order they came in."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._doors: dict[str, asyncio.Event] = {}

    async def come(self, name: str, **words: object) -> None:
        door = self._doors[name] = asyncio.Event()

        async def visit() -> None:
            async with self._gate.place(**words):  # type: ignore[arg-type]
                self.order.append(name)
                await door.wait()

        self.tasks[name] = asyncio.create_task(visit())
        await _settled()

    async def go(self, name: str) -> None:
        self._doors[name].set()
        await _settled()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await _settled()


async def _settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


@pytest.fixture
def visits() -> Visits:
    return Visits(Gate(2))


async def test_no_more_are_inside_than_there_are_places(visits: Visits) -> None:
    for name in "abcd":
        await visits.come(name)
    assert visits.order == ["a", "b"]
    await visits.go("b")
    assert visits.order == ["a", "b", "c"]
    for name in "acd":
        await visits.go(name)
    assert visits.order == ["a", "b", "c", "d"]
    assert all(task.done() for task in visits.tasks.values())


async def test_a_start_that_somebody_waits_for_goes_first(visits: Visits) -> None:
    for name in "abcd":
        await visits.come(name)
    await visits.come("waited for", first=True)
    await visits.go("a")
    assert visits.order == ["a", "b", "waited for"]


async def test_one_that_needs_no_place_any_more_comes_in_without_one(visits: Visits) -> None:
    stop = asyncio.Event()
    for name in "ab":
        await visits.come(name)
    await visits.come("stopped", until=stop)
    await visits.come("next")
    stop.set()
    await _settled()
    assert visits.order == ["a", "b", "stopped"]
    await visits.go("stopped")
    assert visits.order == ["a", "b", "stopped"]
    await visits.go("a")
    assert visits.order == ["a", "b", "stopped", "next"]


async def test_a_place_is_given_back_by_one_that_is_cancelled(visits: Visits) -> None:
    for name in "abcde":
        await visits.come(name)
    await visits.cancel("c")
    await visits.cancel("a")
    assert visits.order == ["a", "b", "d"]
    # One whose turn comes as it is cancelled gives it to the next.
    visits._doors["b"].set()
    visits._doors["d"].set()
    await visits.cancel("e")
    await visits.come("last")
    assert visits.order[-1] == "last"


def test_a_host_has_places_for_its_processors() -> None:
    assert starts_at_once() >= 2
