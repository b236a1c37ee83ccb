"""A home's pipelines as `pipo status` tells of them: in their own words, or by what they left.

A process that does not answer in time holds up neither its own entry nor the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pipo.access import stopped
from pipo.access.hosts import Hosts
from pipo.access.routing import COMING, STOPPING, Routing
from pipo.access.runners import hint as gone_hint
from pipo.clock import Clock
from pipo.errors import PipoError
from pipo.home import Home, leases, room
from pipo.home.desired import Desired
from pipo.home.directory import Directory
from pipo.home.registry import ServiceEntry
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2

STATUS_TIMEOUT_S: Final = 2.0
# How many pipelines are asked at once for a listing: those that do not answer, each within its
# time, must not add up.
PARALLEL_MAX: Final = 256
# How many journals are read at once for those that did not answer; each takes a thread.
JOURNALS_MAX: Final = 16
# Not meant to be down: where the home cannot be written, that is why.
DOWN: Final = frozenset({"starting", "backoff", "crashed", "failed"})


class Listing:
    """What there is to tell of each pipeline of a home, running or not."""

    def __init__(
        self, directory: Directory, routing: Routing, hosts: Hosts, home: Home, clock: Clock
    ) -> None:
        self._directory = directory
        self._routing = routing
        self._hosts = hosts
        self._home = home
        self._clock = clock
        self._journals = asyncio.Semaphore(JOURNALS_MAX)

    async def all(self) -> list[pipo_pb2.PipelineInfo]:
        """Every pipeline that the home knows, by name."""
        places = asyncio.Semaphore(PARALLEL_MAX)
        supervisors = self._hosts.supervisors()

        async def one(name: str) -> pipo_pb2.PipelineInfo:
            async with places:
                return await self.one(name, supervisors)

        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(one(name), name=f"status of {name}")
                for name in self._directory.names()
            ]
        return [task.result() for task in asked]

    async def one(
        self, name: str, supervisors: Callable[[str], ServiceEntry | None] | None = None
    ) -> pipo_pb2.PipelineInfo:
        """A pipeline's entry, with the host that supervises it now, whoever started it."""
        host = (supervisors or self._hosts.supervising)(name)
        info = await self._told(name, supervised=host is not None)
        if host is not None:
            info.runner = host.id
        return info

    async def silent(self, name: str) -> str:
        """The state of a pipeline that does not answer; `one` says the same.

        Raises: PipoError, for a journal that cannot be read.
        """
        wanted = self._directory.desired(name)
        # The hosts are read only for those of which it matters: a page asks for every pipeline.
        open_ended = wanted is not None and wanted.state in ("running", STOPPING)
        supervised = open_ended and self._hosts.supervising(name) is not None
        return await self._silent(name, wanted, supervised=supervised)

    async def _told(self, name: str, *, supervised: bool) -> pipo_pb2.PipelineInfo:
        """A pipeline's own words, or what its files say when it does not answer in time."""
        try:
            own = await self._own_words(name)
            wanted = self._directory.desired(name)
            if own is not None:
                if wanted is not None and wanted.last_exit is not None:
                    # Of the run before this one: a process cannot know it.
                    own.last_exit = wanted.last_exit
                if own.detached:
                    # It knows how it was started; whoever attaches it afterwards tells its host.
                    own.detached = wanted is None or wanted.detached
                return own
            async with self._journals:
                made = await stopped.info(self._home.pipeline(name), wanted, self._clock.now_ms())
            made.state = await self._silent(name, wanted, supervised=supervised)
            if made.state == "unreachable":
                made.notes.append(self._mute(name))
            if made.state in DOWN and (trouble := room.trouble(self._home)):
                # A disk that is full keeps its own reason from being written down.
                made.notes.append(trouble)
            if not supervised:
                made.notes.extend(_who_goes_on(made, wanted))
            return made
        except PipoError as error:
            # One damaged journal must not hide the others.
            notes = [error.hint] if error.hint else []
            return pipo_pb2.PipelineInfo(
                name=name, state="failed", error=error.message, notes=notes
            )

    async def _silent(self, name: str, wanted: Desired | None, *, supervised: bool) -> str:
        """Its host's last word, held against what is there now."""
        state = wanted.state if wanted is not None and wanted.state else "stopped"
        if self._directory.alive(name):
            if state == STOPPING:
                return state
            return "starting" if state in COMING else "unreachable"
        if not supervised and state in ("running", STOPPING):
            # No host has seen the end: it came later than the last one's.
            async with self._journals:
                return await stopped.state_left(self._home.pipeline(name), wanted)
        return "starting" if state == "running" else state

    def _mute(self, name: str) -> str:
        """Whose answer is missing, what that may come from, and what helps."""
        held = leases.holder(self._home.pipeline(name).lease)
        who = f", pid {held.pid} on {held.host}," if held is not None and held.pid else ""
        return (
            f"its process{who} runs and does not answer: it is frozen, overloaded or cut off from "
            "the network; what it accepted is kept, and it goes on once it can"
        )

    async def _own_words(self, name: str) -> pipo_pb2.PipelineInfo | None:
        """What the process says of itself; None when none answers within STATUS_TIMEOUT_S."""
        request = pipeline_pb2.StatusRequest()
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                return await self._routing.try_ask(name, lambda peer: peer.stub.Status(request))
        except TimeoutError:
            self._routing.forget(name)
            return None


def _who_goes_on(left: pipo_pb2.PipelineInfo, wanted: Desired | None) -> list[str]:
    """What brings up again one that was to run on, and that no host supervises now."""
    if left.state == "backoff":
        return [gone_hint(left.name, "stale")]
    if wanted is not None and wanted.desired == "running" and wanted.state == "stopped":
        return ["suspended: it goes on with the next engine or runner (pipo engine start)"]
    return []
