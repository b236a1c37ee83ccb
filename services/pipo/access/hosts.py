"""Start, restart and stop, through the runner hosts of the home.

A start goes to the least loaded host that answers. What a host holds already (its claim says
so) stays with it: a restart and a stop go there, wherever its process was born.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipo.errors import PipoError, Unavailable
from pipo.home import Home, desired, leases, registry
from pipo.home.registry import ServiceEntry
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipo_pb2, runner_pb2
from pipo.rpc.stubs.runner_pb2_grpc import RunnerStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pipo.rpc.stubs.runner_pb2_grpc import RunnerAsyncStub

# What a host may need on top of the pipeline's own time to start.
MARGIN_S = 5.0
STOP_TIMEOUT_S = 20.0
# A host answers after a minute, whether the drain is over or not.
RESTART_TIMEOUT_S = 75.0
# One that has not said by then what it supervises is passed over: it is frozen, or as good as.
LOOK_TIMEOUT_S = 3.0
# Where there is no other to turn to, it may just be busy.
LONE_LOOK_TIMEOUT_S = 10.0
STARTING = "starting"


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """How much a host has to do; the smallest one gets the next start.

    `pipelines` are those that it supervises or is about to, in whatever state; among equals
    the one where fewer are `starting`, which costs most; among those the first by id.
    """

    pipelines: int
    starting: int
    id: str


def load_of(id: str, states: list[str], sent: int) -> Load:
    """The load of a host by the states of its pipelines and the starts that are on their way.

    A start that was sent and one that the host tells of may be the same: the larger number counts.
    """
    told = states.count(STARTING)
    starting = max(told, sent)
    return Load(len(states) - told + starting, starting, id)


class Hosts:
    """The runner hosts that are alive now. Use it on one event loop."""

    def __init__(self, home: Home, token: str, start_timeout_s: float) -> None:
        self._home = home
        self._token = token
        self._start_timeout_s = start_timeout_s
        # Starts that were sent and not answered yet, by host.
        self._sent: Counter[str] = Counter()

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        """Starts a pipeline on the least loaded host; one that does not answer is passed over.

        Raises: Unavailable, if no host answers; whatever the host refuses with.
        """
        host = await self._least_loaded()
        self._sent[host.id] += 1
        try:
            async with self._calling(host) as stub:
                timeout_s = self._start_timeout_s + MARGIN_S
                info: pipo_pb2.PipelineInfo = await stub.Start(request, timeout=timeout_s)
                return info
        finally:
            self._sent[host.id] -= 1

    async def restart(self, request: pipo_pb2.RestartRequest) -> pipo_pb2.PipelineInfo:
        """Restarts a pipeline on the host that supervises it, or starts it on the least loaded.

        Raises: Unavailable, if no host answers, or not the one; whatever the host refuses with.
        """
        host = self.supervising(request.pipeline)
        if host is None:
            host = await self._least_loaded()
        elif await self._states(host) is None:
            raise Unavailable(
                f"runner host {host.id!r} supervises {request.pipeline!r} and does not answer",
                hint="try again; if it stays so, restart that runner service",
            )
        async with self._calling(host) as stub:
            info: pipo_pb2.PipelineInfo = await stub.Restart(request, timeout=RESTART_TIMEOUT_S)
            return info

    async def stop(self, request: pipo_pb2.StopRequest) -> pipo_pb2.StopReply | None:
        """Stops a pipeline through the host that supervises it, or any other that answers.

        None without one: then nobody was asked.
        """
        holder = self.supervising(request.pipeline)
        host = holder if holder is not None and await self._states(holder) is not None else None
        if host is None:
            host = next(iter(await self._answering()), None)
        if host is None:
            return None
        async with self._calling(host) as stub:
            reply: pipo_pb2.StopReply = await stub.Stop(request, timeout=STOP_TIMEOUT_S)
            return reply

    async def adopt(self, detached_no_more: Sequence[str]) -> None:
        """Has the hosts look for what they can take over, and attach the pipelines named.

        All are asked at once, and one that does not answer is passed over: what it supervises
        stays with it, and anything else is any other's to take.
        Raises: Unavailable, if no host answers; whatever one refuses with.
        """
        request = runner_pb2.AdoptRequest(attach=detached_no_more)
        hosts = await self._some_answering()
        told = await asyncio.gather(*(self._adopt(host, request) for host in hosts))
        silent = [error for error in told if error is not None]
        if len(silent) == len(told):
            raise silent[0]

    def supervising(self, name: str) -> ServiceEntry | None:
        """The host that holds the claim of a pipeline, whoever started its process."""
        return self.supervisors()(name)

    def supervisors(self) -> Callable[[str], ServiceEntry | None]:
        """`supervising` for many names: the hosts are read once."""
        alive = {(host.host, host.pid): host for host in self._alive()}

        def of(name: str) -> ServiceEntry | None:
            claimed = leases.holder(self._home.pipeline(name).claim)
            return None if claimed is None else alive.get((claimed.host, claimed.pid))

        return of

    def want_stopped(self, name: str) -> None:
        """Notes that `name` should not run, where no host is there to do it."""
        pipeline = self._home.pipeline(name)
        wanted = desired.read(pipeline)
        if wanted is not None and wanted.desired != "stopped":
            lives = leases.holder(pipeline.lease) is not None
            state = "stopping" if lives else "stopped"
            desired.write(pipeline, replace(wanted, desired="stopped", state=state))

    def _alive(self) -> list[ServiceEntry]:
        """The hosts that take calls; one that stops has no address any more."""
        return [host for host in registry.services(self._home, "runner") if host.address]

    async def _adopt(
        self, host: ServiceEntry, request: runner_pb2.AdoptRequest
    ) -> Unavailable | None:
        """What kept a host that is gone or frozen by now from answering.

        Raises: PipoError, what it refuses with.
        """
        try:
            async with self._calling(host) as stub:
                await stub.Adopt(request, timeout=self._start_timeout_s + MARGIN_S)
        except Unavailable as error:
            return error
        return None

    async def _least_loaded(self) -> ServiceEntry:
        answered = await self._some_answering()
        loads = {
            host.id: load_of(host.id, states, self._sent[host.id])
            for host, states in answered.items()
        }
        return min(answered, key=lambda host: loads[host.id])

    async def _some_answering(self) -> dict[ServiceEntry, list[str]]:
        """`_answering`, at least one. Raises: Unavailable, without any."""
        alive = self._alive()
        if not alive:
            raise no_host()
        answered = await self._answering()
        if not answered:
            ids = ", ".join(host.id for host in alive)
            raise Unavailable(
                f"no runner host answers ({ids})",
                hint="try again; if it stays so, restart the runner service",
            )
        return answered

    async def _answering(self) -> dict[ServiceEntry, list[str]]:
        """The hosts that say within their time what they supervise: the pipelines' states."""
        alive = self._alive()
        found = await asyncio.gather(*map(self._states, alive))
        return {h: states for h, states in zip(alive, found, strict=True) if states is not None}

    async def _states(self, host: ServiceEntry) -> list[str] | None:
        timeout_s = LOOK_TIMEOUT_S if len(self._alive()) > 1 else LONE_LOOK_TIMEOUT_S
        try:
            async with self._calling(host) as stub:
                listed = await stub.List(runner_pb2.ListRequest(), timeout=timeout_s)
        except PipoError:
            return None
        return [one.state for one in listed.pipelines]

    @asynccontextmanager
    async def _calling(self, host: ServiceEntry) -> AsyncIterator[RunnerAsyncStub]:
        channel = dial(host.address, self._token)
        try:
            with calling(f"runner host {host.id!r}"):
                yield RunnerStub(channel)  # type: ignore[misc]
        finally:
            await channel.close()


def no_host() -> Unavailable:
    """Nobody is there to supervise anything."""
    return Unavailable(
        "no runner host is running",
        hint="pipo run PATH… or pipo engine start brings one up; in containers, start the runner service",
    )
