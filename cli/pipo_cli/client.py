"""Reaching Pipo: through a gateway, or without one straight to pipelines and journals.

Both ways answer the same messages. Found in this order: `--no-engine` asks nobody
else; `--url` names a gateway, which must answer; else a gateway that is alive in the
home; else the home itself, and the answer ends with `engine: down` (edge 380).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from pipo.errors import Unavailable
from pipo.rpc.errors import calling
from pipo.rpc.stubs import packet_pb2, pipo_pb2, pipo_pb2_grpc
from pipo_cli import gateway as gateways
from pipo_cli.gateway import Gateway
from pipo_cli.settings import Settings

# Longer than a pipeline may take to start (engine.start_timeout) or a journal to be read.
CALL_TIMEOUT_S = 90.0
WHOM = "the gateway"

M = TypeVar("M")


class Operations(Protocol):
    """What the commands ask, of a gateway or of the home."""

    async def list_pipelines(self) -> pipo_pb2.ListPipelinesReply: ...

    async def get_pipeline(self, name: str) -> pipo_pb2.PipelineInfo: ...

    async def list_runners(self) -> pipo_pb2.ListRunnersReply: ...

    async def attach(self, request: pipo_pb2.AttachRequest) -> pipo_pb2.AttachReply: ...

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo: ...

    async def stop(self, request: pipo_pb2.StopRequest) -> pipo_pb2.StopReply: ...

    async def restart(self, request: pipo_pb2.RestartRequest) -> pipo_pb2.PipelineInfo: ...

    async def pause(self, request: pipo_pb2.PauseRequest) -> pipo_pb2.PauseReply: ...

    async def resume(self, request: pipo_pb2.ResumeRequest) -> pipo_pb2.ResumeReply: ...

    async def push(self, request: pipo_pb2.PushRequest) -> pipo_pb2.PushReply: ...

    async def ack(self, request: pipo_pb2.AckRequest) -> pipo_pb2.AckReply: ...

    async def list_packets(
        self, request: pipo_pb2.ListPacketsRequest
    ) -> pipo_pb2.ListPacketsReply: ...

    async def list_dead_letters(
        self, request: pipo_pb2.ListDeadLettersRequest
    ) -> pipo_pb2.ListPacketsReply: ...

    async def replay(self, request: pipo_pb2.ReplayRequest) -> pipo_pb2.ReplayReply: ...

    async def purge(self, request: pipo_pb2.PurgeRequest) -> pipo_pb2.PurgeReply: ...

    async def rerun(self, request: pipo_pb2.RerunRequest) -> pipo_pb2.RerunReply: ...

    async def resolve(self, request: pipo_pb2.ResolveRequest) -> pipo_pb2.ResolveReply: ...

    async def list_versions(
        self, request: pipo_pb2.ListVersionsRequest
    ) -> pipo_pb2.ListVersionsReply: ...

    async def diff(self, request: pipo_pb2.DiffRequest) -> pipo_pb2.DiffReply: ...

    async def rollback(self, request: pipo_pb2.RollbackRequest) -> pipo_pb2.RollbackReply: ...

    async def apply(self, request: pipo_pb2.ApplyRequest) -> pipo_pb2.ApplyReply: ...

    async def inspect(self, request: pipo_pb2.InspectRequest) -> packet_pb2.Trace: ...

    async def list_events(
        self, request: pipo_pb2.ListEventsRequest
    ) -> pipo_pb2.ListEventsReply: ...

    def watch_events(
        self, request: pipo_pb2.ListEventsRequest
    ) -> AsyncIterator[pipo_pb2.ListEventsReply]: ...

    async def logs(self, request: pipo_pb2.LogsRequest) -> pipo_pb2.LogsReply: ...


@dataclass(frozen=True, slots=True)
class Connection:
    """An open way to Pipo, and whether a gateway stands behind it."""

    operations: Operations
    engine: Literal["up", "down"]


class GatewayOperations:
    """The public gRPC service of one gateway."""

    def __init__(self, channel: Any) -> None:
        # The generated type wants grpc's own channel class; ours adds token and deadline.
        self._stub: Any = pipo_pb2_grpc.PipoStub(channel)

    async def get_engine(self) -> pipo_pb2.Engine:
        return await _asked(self._stub.GetEngine(pipo_pb2.GetEngineRequest()))

    async def stop_engine(self) -> pipo_pb2.StopEngineReply:
        return await _asked(self._stub.StopEngine(pipo_pb2.StopEngineRequest()))

    async def list_runners(self) -> pipo_pb2.ListRunnersReply:
        return await _asked(self._stub.ListRunners(pipo_pb2.ListRunnersRequest()))

    async def attach(self, request: pipo_pb2.AttachRequest) -> pipo_pb2.AttachReply:
        return await _asked(self._stub.Attach(request))

    async def list_pipelines(self) -> pipo_pb2.ListPipelinesReply:
        return await _asked(self._stub.ListPipelines(pipo_pb2.ListPipelinesRequest()))

    async def get_pipeline(self, name: str) -> pipo_pb2.PipelineInfo:
        return await _asked(self._stub.GetPipeline(pipo_pb2.GetPipelineRequest(pipeline=name)))

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        return await _asked(self._stub.Start(request))

    async def stop(self, request: pipo_pb2.StopRequest) -> pipo_pb2.StopReply:
        return await _asked(self._stub.Stop(request))

    async def restart(self, request: pipo_pb2.RestartRequest) -> pipo_pb2.PipelineInfo:
        return await _asked(self._stub.Restart(request))

    async def pause(self, request: pipo_pb2.PauseRequest) -> pipo_pb2.PauseReply:
        return await _asked(self._stub.Pause(request))

    async def resume(self, request: pipo_pb2.ResumeRequest) -> pipo_pb2.ResumeReply:
        return await _asked(self._stub.Resume(request))

    async def push(self, request: pipo_pb2.PushRequest) -> pipo_pb2.PushReply:
        return await _asked(self._stub.Push(request))

    async def ack(self, request: pipo_pb2.AckRequest) -> pipo_pb2.AckReply:
        return await _asked(self._stub.Ack(request))

    async def list_packets(self, request: pipo_pb2.ListPacketsRequest) -> pipo_pb2.ListPacketsReply:
        return await _asked(self._stub.ListPackets(request))

    async def list_dead_letters(
        self, request: pipo_pb2.ListDeadLettersRequest
    ) -> pipo_pb2.ListPacketsReply:
        return await _asked(self._stub.ListDeadLetters(request))

    async def replay(self, request: pipo_pb2.ReplayRequest) -> pipo_pb2.ReplayReply:
        return await _asked(self._stub.Replay(request))

    async def purge(self, request: pipo_pb2.PurgeRequest) -> pipo_pb2.PurgeReply:
        return await _asked(self._stub.Purge(request))

    async def rerun(self, request: pipo_pb2.RerunRequest) -> pipo_pb2.RerunReply:
        return await _asked(self._stub.Rerun(request))

    async def resolve(self, request: pipo_pb2.ResolveRequest) -> pipo_pb2.ResolveReply:
        return await _asked(self._stub.Resolve(request))

    async def list_versions(
        self, request: pipo_pb2.ListVersionsRequest
    ) -> pipo_pb2.ListVersionsReply:
        return await _asked(self._stub.ListVersions(request))

    async def diff(self, request: pipo_pb2.DiffRequest) -> pipo_pb2.DiffReply:
        return await _asked(self._stub.Diff(request))

    async def rollback(self, request: pipo_pb2.RollbackRequest) -> pipo_pb2.RollbackReply:
        return await _asked(self._stub.Rollback(request))

    async def apply(self, request: pipo_pb2.ApplyRequest) -> pipo_pb2.ApplyReply:
        return await _asked(self._stub.Apply(request))

    async def inspect(self, request: pipo_pb2.InspectRequest) -> packet_pb2.Trace:
        return await _asked(self._stub.Inspect(request))

    async def list_events(self, request: pipo_pb2.ListEventsRequest) -> pipo_pb2.ListEventsReply:
        return await _asked(self._stub.ListEvents(request))

    async def watch_events(
        self, request: pipo_pb2.ListEventsRequest
    ) -> AsyncIterator[pipo_pb2.ListEventsReply]:
        with calling(WHOM):
            async for reply in self._stub.WatchEvents(request):
                yield reply

    async def logs(self, request: pipo_pb2.LogsRequest) -> pipo_pb2.LogsReply:
        return await _asked(self._stub.Logs(request))


async def _asked(call: Awaitable[M]) -> M:
    """The answer of a call. Raises: PipoError in place of gRPC's own."""
    with calling(WHOM):
        return await call


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Connection]:
    """A way to Pipo for as long as the context lasts.

    Raises: Unavailable, if the gateway of `--url` does not answer.
    """
    found = find_gateway(settings)
    if found is None:
        from pipo.access import Access

        # Looking makes no home: a mistyped one would stay behind.
        if settings.home.pipelines.exists():
            settings.home.ensure()
        access = Access(settings.home, settings.config)
        try:
            yield Connection(access, "down")
        finally:
            await access.close()
        return
    from pipo.rpc.channels import dial

    channel = dial(grpc_address(*found), found[0].token, timeout_s=CALL_TIMEOUT_S)
    try:
        yield Connection(GatewayOperations(channel), "up")
    finally:
        await channel.close()


def find_gateway(settings: Settings) -> tuple[Gateway, dict[str, Any]] | None:
    """The gateway to ask with its health answer, or None to do without one.

    Raises: Unavailable, if `--url` names one that does not answer.
    """
    if settings.no_engine:
        return None
    if settings.url is not None:
        token = gateways.token_for(settings.home, settings.token_file)
        asked = gateways.at(settings.url, token)
        health = asked.health()
        if health is None:
            raise Unavailable(
                f"no gateway answers at {asked.url}",
                hint="check the address, or leave --url out to use this machine's home",
            )
        return asked, dict(health)
    token = gateways.token_for(settings.home, settings.token_file)
    for candidate in gateways.registered(settings.home, token):
        health = candidate.health()
        # One that is stopping says so, and takes nothing new.
        if health is not None and health.get("ok", True):
            return candidate, dict(health)
    return None


def grpc_address(gateway: Gateway, health: dict[str, Any]) -> str:
    """Where the gateway's gRPC side listens: the port it names, else the next one."""
    parts = urlsplit(gateway.url)
    port = health.get("grpc_port") or (parts.port or 80) + 1
    host = parts.hostname or "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
