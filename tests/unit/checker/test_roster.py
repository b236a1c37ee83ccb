from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipo.errors import Unavailable
from pipo.home.registry import Entry
from pipo_checker.meters import Meters
from pipo_checker.roster import Roster


class FakeFollower:
    """Runs until it is cancelled, and says so in `log`."""

    def __init__(self, entry: Entry, log: list[str]) -> None:
        self.meters = Meters()
        self._name = f"{entry.pipeline}@{entry.address}"
        self._log = log

    async def run(self) -> None:
        self._log.append(f"+{self._name}")
        try:
            await asyncio.Event().wait()
        finally:
            self._log.append(f"-{self._name}")


class Registry:
    """Entries as the test sets them; counts the reads and lets a test wait for them."""

    def __init__(self, *entries: Entry) -> None:
        self.entries = list(entries)
        self.fails = False
        self.log: list[str] = []
        self.lost: list[Callable[[], None]] = []
        self.reads = 0

    def read(self) -> list[Entry]:
        self.reads += 1
        if self.fails:
            raise Unavailable("cannot read run/")
        return list(self.entries)

    def follow(self, entry: Entry, lost: Callable[[], None]) -> Any:
        self.lost.append(lost)
        return FakeFollower(entry, self.log)


def entry(name: str, address: str = "127.0.0.1:1", started_at: int = 1) -> Entry:
    return Entry(
        pipeline=name,
        version=1,
        pid=7,
        host="h",
        address=address,
        listen=None,
        ttl=None,
        state="active",
        status="active",
        started_at=started_at,
        runner="r",
        file="f",
        restarts=0,
    )


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a scene while a roster reads `registry` every few milliseconds."""
    monkeypatch.setattr("pipo_checker.roster.READ_EVERY_S", 0.004)
    monkeypatch.setattr("pipo_checker.roster.READ_PAUSE_S", 0.002)

    async def run(registry: Registry, scene: Callable[[Roster], Any]) -> None:
        roster = Roster(registry.read, registry.follow)
        running = asyncio.create_task(roster.run(), name="roster")
        try:
            await scene(roster)
        finally:
            running.cancel()
            await asyncio.wait({running})

    return run


async def seen(registry: Registry, *log: str) -> None:
    """Returns once the log stands as given and the registry was read twice more."""
    async with asyncio.timeout(60):
        while registry.log != list(log):  # noqa: ASYNC110  reads run on a thread
            await asyncio.sleep(0.001)
        until = registry.reads + 2
        while registry.reads < until:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert registry.log == list(log)


async def test_follows_what_is_there_and_ends_with_the_roster(watched: Any) -> None:
    registry = Registry(entry("a"), entry("b", "127.0.0.1:2"))

    async def scene(roster: Roster) -> None:
        await seen(registry, "+a@127.0.0.1:1", "+b@127.0.0.1:2")
        assert list(roster.meters()) == ["a", "b"]

    await watched(registry, scene)
    assert sorted(registry.log[2:]) == ["-a@127.0.0.1:1", "-b@127.0.0.1:2"]


async def test_an_entry_that_goes_ends_its_stream(watched: Any) -> None:
    registry = Registry(entry("a"))

    async def scene(roster: Roster) -> None:
        await seen(registry, "+a@127.0.0.1:1")
        registry.entries.clear()
        await seen(registry, "+a@127.0.0.1:1", "-a@127.0.0.1:1")
        assert roster.meters() == {}

    await watched(registry, scene)


async def test_another_process_of_a_pipeline_is_followed_instead(watched: Any) -> None:
    registry = Registry(entry("a"))

    async def scene(roster: Roster) -> None:
        await seen(registry, "+a@127.0.0.1:1")
        registry.entries = [entry("a", "127.0.0.1:9", started_at=2)]
        await seen(registry, "+a@127.0.0.1:1", "-a@127.0.0.1:1", "+a@127.0.0.1:9")

    await watched(registry, scene)


async def test_a_state_that_moves_changes_nothing(watched: Any) -> None:
    registry = Registry(entry("a"))

    async def scene(roster: Roster) -> None:
        await seen(registry, "+a@127.0.0.1:1")
        registry.entries = [replace(entry("a"), status="paused", version=2)]
        await seen(registry, "+a@127.0.0.1:1")

    await watched(registry, scene)


async def test_a_pipeline_without_an_address_is_waited_for(watched: Any) -> None:
    registry = Registry(entry("a", ""))

    async def scene(roster: Roster) -> None:
        await seen(registry)
        registry.entries = [entry("a")]
        await seen(registry, "+a@127.0.0.1:1")

    await watched(registry, scene)


async def test_a_registry_that_cannot_be_read_ends_no_stream(watched: Any) -> None:
    registry = Registry(entry("a"))

    async def scene(roster: Roster) -> None:
        await seen(registry, "+a@127.0.0.1:1")
        registry.fails = True
        await seen(registry, "+a@127.0.0.1:1")

    await watched(registry, scene)


async def test_a_broken_stream_has_the_registry_read_sooner(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(entry("a"))

    async def scene(roster: Roster) -> None:
        async with asyncio.timeout(60):
            while not registry.log:  # noqa: ASYNC110  reads run on a thread
                await asyncio.sleep(0.001)
            before = registry.reads
            registry.lost[0]()
            while registry.reads == before:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    monkeypatch.setattr("pipo_checker.roster.READ_EVERY_S", 3600)
    await watched(registry, scene)
