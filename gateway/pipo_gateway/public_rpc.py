"""The public gRPC service: each call is a right to check, and one operation of Access."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from pipo.access import Access
from pipo.errors import Forbidden, PipoError
from pipo.rpc.interceptors import OPEN_SERVICES, Continuation, Handler, refusal
from pipo.rpc.stubs import packet_pb2, pipo_pb2, pipo_pb2_grpc
from pipo_gateway.doors import Doors, Principal
from pipo_gateway.engine import Engine
from pipo_gateway.push_relay import first_of, relay


class TokenDoor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses strangers before anything of their call is read; health stays open."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        if not handler_call_details.method.startswith(OPEN_SERVICES):
            try:
                self._doors.admit_call(handler_call_details.invocation_metadata)
            except PipoError as error:
                return refusal(error)
        return await continuation(handler_call_details)


class PipoServicer(pipo_pb2_grpc.PipoServicer):
    """Service `Pipo` of proto/pipo/v1/pipo.proto."""

    def __init__(self, access: Access, engine: Engine, doors: Doors) -> None:
        self._access = access
        self._engine = engine
        self._doors = doors

    async def GetEngine(
        self, request: pipo_pb2.GetEngineRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.Engine:
        self._who(context).require("read")
        return await self._engine.message()

    async def StopEngine(
        self, request: pipo_pb2.StopEngineRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.StopEngineReply:
        who = self._who(context)
        who.require("operate")
        who.require_all()
        return await self._engine.stop()

    async def ListPipelines(
        self, request: pipo_pb2.ListPipelinesRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListPipelinesReply:
        who = self._who(context)
        reply = await self._access.list_pipelines()
        shown = [info for info in reply.pipelines if who.sees(info.name)]
        return pipo_pb2.ListPipelinesReply(pipelines=shown)

    async def ListRunners(
        self, request: pipo_pb2.ListRunnersRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListRunnersReply:
        who = self._who(context)
        reply = await self._access.list_runners()
        shown = [info for info in reply.runners if who.sees(info.pipeline)]
        return pipo_pb2.ListRunnersReply(runners=shown)

    async def Attach(
        self, request: pipo_pb2.AttachRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.AttachReply:
        who = self._who(context)
        who.require("operate", request.pipeline or None)
        if not request.pipeline:
            who.require_all()
        return await self._access.attach(request)

    async def GetPipeline(
        self, request: pipo_pb2.GetPipelineRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PipelineInfo:
        self._who(context).require("read", request.pipeline)
        return await self._access.get_pipeline(request.pipeline)

    async def Start(
        self, request: pipo_pb2.StartRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PipelineInfo:
        who = self._who(context)
        who.require("operate")
        if request.source:
            # Whoever sends a text decides what runs, as with an apply.
            who.require("edit", request.name)
        elif not who.sees(request.target):
            raise Forbidden(
                f"token {who.name!r} may not start {request.target!r}",
                hint="it is for named pipelines: start one of those by its name",
            )
        return await self._access.start(request)

    async def Stop(
        self, request: pipo_pb2.StopRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.StopReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.stop(request)

    async def Drain(
        self, request: pipo_pb2.DrainRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.DrainReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.drain(request)

    async def Restart(
        self, request: pipo_pb2.RestartRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PipelineInfo:
        self._who(context).require("operate", request.pipeline)
        return await self._access.restart(request)

    async def Pause(
        self, request: pipo_pb2.PauseRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PauseReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.pause(request)

    async def Resume(
        self, request: pipo_pb2.ResumeRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ResumeReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.resume(request)

    async def Push(
        self, request: pipo_pb2.PushRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PushReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.push(request)

    async def PushStream(  # type: ignore[override]
        self,
        request_iterator: AsyncIterator[pipo_pb2.PushStreamRequest],
        context: grpc.aio.ServicerContext,
    ) -> None:
        first = await first_of(request_iterator)
        if first is None:
            return
        self._who(context).require("operate", first.pipeline)
        peer = await self._access.peer(first.pipeline)
        await relay(first, request_iterator, context.write, peer)

    async def Ack(
        self, request: pipo_pb2.AckRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.AckReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.ack(request)

    async def ListDeadLetters(
        self, request: pipo_pb2.ListDeadLettersRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListPacketsReply:
        self._who(context).require("read", request.pipeline)
        return await self._access.list_dead_letters(request)

    async def Replay(
        self, request: pipo_pb2.ReplayRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ReplayReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.replay(request)

    async def Purge(
        self, request: pipo_pb2.PurgeRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PurgeReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.purge(request)

    async def Rerun(
        self, request: pipo_pb2.RerunRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.RerunReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.rerun(request)

    async def Resolve(
        self, request: pipo_pb2.ResolveRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ResolveReply:
        self._who(context).require("operate", request.pipeline)
        return await self._access.resolve(request)

    async def ListVersions(
        self, request: pipo_pb2.ListVersionsRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListVersionsReply:
        self._who(context).require("read", request.pipeline)
        return await self._access.list_versions(request)

    async def GetVersion(
        self, request: pipo_pb2.GetVersionRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.VersionText:
        self._who(context).require("read", request.pipeline)
        return await self._access.get_version(request)

    async def Diff(
        self, request: pipo_pb2.DiffRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.DiffReply:
        self._who(context).require("read", request.pipeline)
        return await self._access.diff(request)

    async def Rollback(
        self, request: pipo_pb2.RollbackRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.RollbackReply:
        self._who(context).require("edit", request.pipeline)
        return await self._access.rollback(request)

    async def Apply(
        self, request: pipo_pb2.ApplyRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ApplyReply:
        self._who(context).require("edit", request.pipeline)
        return await self._access.apply(request)

    async def ListPackets(
        self, request: pipo_pb2.ListPacketsRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListPacketsReply:
        self._who(context).require("read", request.pipeline)
        return await self._access.list_packets(request)

    async def Inspect(
        self, request: pipo_pb2.InspectRequest, context: grpc.aio.ServicerContext
    ) -> packet_pb2.Trace:
        self._who(context).require("read", request.pipeline)
        return await self._access.inspect(request)

    async def ListEvents(
        self, request: pipo_pb2.ListEventsRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListEventsReply:
        self._who(context).require("read", request.pipeline)
        return await self._access.list_events(request)

    async def WatchEvents(
        self, request: pipo_pb2.ListEventsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pipo_pb2.ListEventsReply]:
        self._who(context).require("read", request.pipeline)
        async for page in self._access.watch_events(request):
            yield page

    async def Logs(
        self, request: pipo_pb2.LogsRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.LogsReply:
        self._who(context).require("read", request.pipeline)
        return await self._access.logs(request)

    async def Check(
        self, request: pipo_pb2.CheckRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.CheckReply:
        self._who(context).require("read")
        return await self._access.check(request)

    def _who(self, context: grpc.aio.ServicerContext) -> Principal:
        """Who calls; the call counts as under way until it ends."""
        attention = self._engine.attention
        attention.begin()
        context.add_done_callback(lambda _: attention.end())
        return self._doors.admit_call(context.invocation_metadata() or ())
