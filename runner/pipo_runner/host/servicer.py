"""The gRPC service `Runner`: decode, one call, encode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pipo.home import Home, registry
from pipo.home.registry import Entry
from pipo.home.sent import Sent
from pipo.rpc.from_proto import optional
from pipo.rpc.stubs import pipo_pb2, runner_pb2, runner_pb2_grpc
from pipo_runner.host.options import Asked
from pipo_runner.host.supervised import Supervised


class Pipelines(Protocol):
    """What the servicer needs of the supervisor."""

    @property
    def supervised(self) -> Sequence[Supervised]: ...

    async def start(self, target: str | Sent, asked: Asked = ...) -> Supervised: ...

    async def stop(self, name: str, *, now: bool) -> tuple[str, bool]: ...

    async def restart(self, name: str, asked: Asked = ...) -> Supervised: ...

    async def adopt(self, attach: Sequence[str] = ()) -> None: ...


class RunnerServicer(runner_pb2_grpc.RunnerServicer):
    """Starts, stops, lists and adopts for gateways and the command line."""

    def __init__(self, pipelines: Pipelines, home: Home) -> None:
        self._pipelines = pipelines
        self._home = home

    async def Start(self, request: pipo_pb2.StartRequest, context: Any) -> pipo_pb2.PipelineInfo:
        target: str | Sent = request.target
        if request.source:
            target = Sent(request.name, request.source, dict(request.files))
        return self._info(await self._pipelines.start(target, _asked(request)))

    async def Stop(self, request: pipo_pb2.StopRequest, context: Any) -> pipo_pb2.StopReply:
        state, already = await self._pipelines.stop(request.pipeline, now=request.now)
        return pipo_pb2.StopReply(pipeline=request.pipeline, state=state, already=already)

    async def Restart(
        self, request: pipo_pb2.RestartRequest, context: Any
    ) -> pipo_pb2.PipelineInfo:
        asked = Asked(ttl=optional(request, "ttl"), listen=optional(request, "listen"))
        return self._info(await self._pipelines.restart(request.pipeline, asked))

    async def List(
        self, request: runner_pb2.ListRequest, context: Any
    ) -> pipo_pb2.ListPipelinesReply:
        return self._list()

    async def Adopt(
        self, request: runner_pb2.AdoptRequest, context: Any
    ) -> pipo_pb2.ListPipelinesReply:
        await self._pipelines.adopt(request.attach)
        return self._list()

    def _list(self) -> pipo_pb2.ListPipelinesReply:
        return pipo_pb2.ListPipelinesReply(
            pipelines=[self._info(one) for one in self._pipelines.supervised]
        )

    def _info(self, one: Supervised) -> pipo_pb2.PipelineInfo:
        return info_of(one, registry.read(self._home, one.name))


def _asked(request: pipo_pb2.StartRequest) -> Asked:
    return Asked(
        ttl=optional(request, "ttl"),
        listen=optional(request, "listen"),
        detached=optional(request, "detached"),
    )


def info_of(one: Supervised, entry: Entry | None) -> pipo_pb2.PipelineInfo:
    """A supervised pipeline as a message; what only its process knows comes from its entry."""
    info = pipo_pb2.PipelineInfo(
        name=one.name,
        file=one.wish.file,
        state=one.state,
        restarts=one.restarts,
        last_exit=one.wish.last_exit,
        error=one.wish.error,
        runner=one.wish.runner,
        ttl=one.wish.options.get("ttl"),
        detached=one.wish.detached,
    )
    if entry is not None and one.runs:
        info.status = entry.status
        info.pid = entry.pid
        info.host = entry.host
        info.version = entry.version
        info.started_at = entry.started_at
        if entry.listen is not None:
            info.listen = entry.listen
    return info
