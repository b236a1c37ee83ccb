"""Start and stop, through the runner hosts of the home."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pipo.errors import Unavailable
from pipo.home import Home, desired, registry
from pipo.home.registry import ServiceEntry
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipo_pb2
from pipo.rpc.stubs.runner_pb2_grpc import RunnerStub

if TYPE_CHECKING:
    from pipo.rpc.stubs.runner_pb2_grpc import RunnerAsyncStub

# What a host may need on top of the pipeline's own time to start.
MARGIN_S = 5.0
STOP_TIMEOUT_S = 20.0
# A host answers after a minute, whether the drain is over or not.
RESTART_TIMEOUT_S = 75.0


class Hosts:
    """The runner hosts that are alive now."""

    def __init__(self, home: Home, token: str, start_timeout_s: float) -> None:
        self._home = home
        self._token = token
        self._start_timeout_s = start_timeout_s

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        """Starts a pipeline on the host that has the fewest.

        Raises: Unavailable, if no host runs; whatever the host refuses with.
        """
        host = self._least_busy()
        channel = dial(host.address, self._token)
        try:
            with calling(f"runner host {host.id!r}"):
                timeout_s = self._start_timeout_s + MARGIN_S
                info: pipo_pb2.PipelineInfo = await _stub(channel).Start(request, timeout=timeout_s)
                return info
        finally:
            await channel.close()

    async def restart(self, request: pipo_pb2.RestartRequest, runner: str) -> pipo_pb2.PipelineInfo:
        """Restarts a pipeline on the host that supervises it, or on the least busy one.

        Raises: Unavailable, if no host runs; whatever the host refuses with.
        """
        alive = {host.id: host for host in self._alive()}
        host = alive.get(runner) or self._least_busy()
        channel = dial(host.address, self._token)
        try:
            with calling(f"runner host {host.id!r}"):
                info: pipo_pb2.PipelineInfo = await _stub(channel).Restart(
                    request, timeout=RESTART_TIMEOUT_S
                )
                return info
        finally:
            await channel.close()

    async def stop(self, request: pipo_pb2.StopRequest, runner: str) -> pipo_pb2.StopReply | None:
        """Stops a pipeline through the host that supervises it, or any other; None without one."""
        alive = {host.id: host for host in self._alive()}
        host = alive.get(runner) or next(iter(alive.values()), None)
        if host is None:
            return None
        channel = dial(host.address, self._token)
        try:
            with calling(f"runner host {host.id!r}"):
                reply: pipo_pb2.StopReply = await _stub(channel).Stop(
                    request, timeout=STOP_TIMEOUT_S
                )
                return reply
        finally:
            await channel.close()

    def want_stopped(self, name: str) -> None:
        """Notes that `name` should not run, where no host is there to do it."""
        pipeline = self._home.pipeline(name)
        wanted = desired.read(pipeline)
        if wanted is not None and wanted.desired != "stopped":
            desired.write(pipeline, replace(wanted, desired="stopped"))

    def _alive(self) -> list[ServiceEntry]:
        """The hosts that take calls; one that stops has no address any more."""
        return [host for host in registry.services(self._home, "runner") if host.address]

    def _least_busy(self) -> ServiceEntry:
        alive = self._alive()
        if not alive:
            raise Unavailable(
                "no runner host is running",
                hint="pipo run PATH… or pipo engine start brings one up; in containers, start the runner service",
            )
        load = Counter(entry.runner for entry in registry.entries(self._home))
        return min(alive, key=lambda host: (load[host.id], host.id))


def _stub(channel: object) -> RunnerAsyncStub:
    return RunnerStub(channel)  # type: ignore[return-value]
