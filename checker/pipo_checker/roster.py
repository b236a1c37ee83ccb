"""Which pipelines run: the registry, read again and again, and a follower for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from pipo.errors import PipoError
from pipo.home.registry import Entry
from pipo.telemetry.logs import logger
from pipo_checker.follower import Follower
from pipo_checker.meters import Meters

# The registry is read this often, and sooner after a stream broke, but never without a pause.
READ_EVERY_S = 0.5
READ_PAUSE_S = 0.1

_log = logger("checker.roster")


@dataclass(frozen=True, slots=True)
class _Followed:
    entry: Entry
    follower: Follower
    task: asyncio.Task[NoReturn]


class Roster:
    """A follower for every pipeline process in the registry.

    `entries` reads the registry (on a thread: the home may lie on a slow volume);
    `follow` makes a follower that has not started.
    """

    def __init__(
        self,
        entries: Callable[[], list[Entry]],
        follow: Callable[[Entry, Callable[[], None]], Follower],
    ) -> None:
        self._entries = entries
        self._follow = follow
        self._followed: dict[str, _Followed] = {}
        self._again = asyncio.Event()
        self._unreadable = False

    def meters(self) -> dict[str, Meters]:
        """The counts of each pipeline that is followed, by name."""
        return {name: f.follower.meters for name, f in sorted(self._followed.items())}

    async def run(self) -> NoReturn:
        """Follows until it is cancelled; then every stream ends with it."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._keep(await self._read(), group)
                await asyncio.sleep(READ_PAUSE_S)
                await self._pause()

    async def _read(self) -> list[Entry]:
        """The entries to follow; those of the last time when they cannot be read."""
        try:
            found = await asyncio.to_thread(self._entries)
        except PipoError as error:
            if not self._unreadable:
                _log.warning(error.message, action="registry.read")
            self._unreadable = True
            return [f.entry for f in self._followed.values()]
        self._unreadable = False
        return [entry for entry in found if entry.address]

    def _keep(self, entries: list[Entry], group: asyncio.TaskGroup) -> None:
        """Ends the followers of what is gone or was replaced, and starts those of what is new."""
        wanted = {entry.pipeline: entry for entry in entries}
        for name, followed in list(self._followed.items()):
            if name not in wanted or _process(followed.entry) != _process(wanted[name]):
                followed.task.cancel()
                del self._followed[name]
        for name, entry in wanted.items():
            if name not in self._followed:
                follower = self._follow(entry, self._again.set)
                task = group.create_task(follower.run(), name=f"follow {name}")
                self._followed[name] = _Followed(entry, follower, task)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(READ_EVERY_S - READ_PAUSE_S):
                await self._again.wait()
        except TimeoutError:
            pass
        self._again.clear()


def _process(entry: Entry) -> tuple[str, str, int, int]:
    """What tells one process of a pipeline from the next."""
    return (entry.address, entry.host, entry.pid, entry.started_at)
