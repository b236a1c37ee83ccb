"""The pipeline processes of a home as `pipo runners` lists them, and the taking over of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from pipo.access.hosts import Hosts
from pipo.access.routing import Routing
from pipo.clock import Clock
from pipo.home import Home, desired, leases, registry
from pipo.home.directory import REREAD_S, Directory
from pipo.home.registry import ServiceEntry
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2

State = Literal["attached", "detached", "stale", "unreachable"]
# How many pipelines are asked at once for a listing.
PARALLEL_MAX = 32
# Beyond the wait before a host takes over what was another one's.
ATTACH_WAIT_S = 15.0
ANSWER_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands in the home about one pipeline.

    `alive` when a process holds its lease, `supervised` when a runner host holds its claim,
    `detached` when it was started so, `known` when a registry entry stands, `over` when it ended
    for good.
    """

    alive: bool
    supervised: bool
    detached: bool
    known: bool
    over: bool


def state_of(seen: Seen, *, answers: bool) -> State | None:
    """How a runner is (edge 401); None where there is none.

    N1  alive, and does not answer             unreachable
    N2  alive, started to outlive its engine   detached
    N3  alive, with no host                    detached     it runs on, and nobody restarts it
    N4  alive, with a host                     attached
    N5  gone, and a host is about to act       as it was started
    N6  gone, its entry stands                 stale
    """
    if seen.alive:
        if not answers:
            return "unreachable"
        return "attached" if seen.supervised and not seen.detached else "detached"
    if seen.supervised:
        return "detached" if seen.detached else "attached"
    return "stale" if seen.known and not seen.over else None


class Runners:
    """Lists the processes of a home, and has the runner hosts take them over."""

    def __init__(
        self, directory: Directory, routing: Routing, hosts: Hosts, home: Home, clock: Clock
    ) -> None:
        self._directory = directory
        self._routing = routing
        self._hosts = hosts
        self._home = home
        self._clock = clock

    async def all(self) -> pipo_pb2.ListRunnersReply:
        """Every process that runs or should, by name."""
        return pipo_pb2.ListRunnersReply(runners=await self._asked(""))

    async def attach(self, name: str) -> pipo_pb2.AttachReply:
        """Takes over one pipeline, or all when `name` is empty; answers once hosts have them.

        Raises: NotFound; InvalidState, if the pipeline named does not run; Unavailable, without a
            runner host.
        """
        if name:
            self._routing.require(name)
        before = await self._asked(name)
        if name and not before:
            raise self._routing.absent(name)
        wanted = {one.pipeline for one in before if one.state in ("detached", "stale")}
        await self._hosts.adopt(sorted(wanted))
        deadline = self._clock.monotonic() + ATTACH_WAIT_S
        while True:
            after = await self._asked(name)
            there = {one.pipeline for one in after if one.state == "attached"}
            if wanted <= there or self._clock.monotonic() >= deadline:
                return pipo_pb2.AttachReply(attached=sorted(wanted & there), runners=after)
            await asyncio.sleep(REREAD_S)

    async def _asked(self, name: str) -> list[pipo_pb2.RunnerInfo]:
        """The runner of this pipeline, or all when it is empty."""
        supervising = self._hosts.supervisors()
        places = asyncio.Semaphore(PARALLEL_MAX)

        async def one(name: str) -> pipo_pb2.RunnerInfo | None:
            async with places:
                return await self._runner(name, supervising(name))

        names = [name] if name else self._directory.names()
        found = await asyncio.gather(*map(one, names))
        return [info for info in found if info is not None]

    async def _runner(self, name: str, host: ServiceEntry | None) -> pipo_pb2.RunnerInfo | None:
        seen = look(self._home, name, supervised=host is not None)
        state = state_of(seen, answers=seen.alive and await self._answers(name))
        return None if state is None else info(self._home, name, state, host)

    async def _answers(self, name: str) -> bool:
        """Whether its process says a word now; one that was greeted may be frozen since."""
        hello = pipeline_pb2.HelloRequest()
        said = await self._routing.try_ask(
            name, lambda peer: peer.stub.Hello(hello, timeout=ANSWER_TIMEOUT_S)
        )
        return said is not None


def look(home: Home, name: str, *, supervised: bool) -> Seen:
    """One pipeline as it stands. Raises: PipoError, if a file of it cannot be read."""
    files = home.pipeline(name)
    wanted = desired.read(files)
    return Seen(
        alive=leases.holder(files.lease) is not None,
        supervised=supervised,
        detached=wanted is not None and wanted.detached,
        known=registry.read(home, name) is not None,
        over=wanted is not None and wanted.state in desired.ENDED,
    )


def info(home: Home, name: str, state: State, host: ServiceEntry | None) -> pipo_pb2.RunnerInfo:
    """A runner as a message, with what to do about it."""
    made = pipo_pb2.RunnerInfo(pipeline=name, state=state, hint=hint(name, state))
    if host is not None:
        made.host_id = host.id
    held = leases.holder(home.pipeline(name).lease)
    entry = registry.read(home, name)
    if held is not None and held.pid:
        made.pid, made.host = held.pid, held.host
    elif entry is not None and state == "stale":
        made.pid, made.host = entry.pid, entry.host
    if entry is not None:
        made.started_at = entry.started_at
    return made


def hint(name: str, state: State) -> str:
    """What to do about a runner in that state; empty where nothing is."""
    if state == "stale":
        return (
            f"its process is gone: `pipo attach {name}` brings it up again; in containers, start "
            "the runner service"
        )
    if state == "unreachable":
        return f"it runs and does not answer; `pipo attach {name}` looks again"
    return ""
