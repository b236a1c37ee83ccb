"""The gRPC service of one pipeline process: it translates and delegates."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc

from pipo.errors import BadRequest, NotFound
from pipo.journal import reads, versions
from pipo.journal.changes import DEAD_LETTERED
from pipo.journal.endings import ENDINGS
from pipo.lang.text_diff import diff
from pipo.rpc import payloads, to_proto
from pipo.rpc.stubs import checker_pb2, packet_pb2, pipeline_pb2, pipeline_pb2_grpc, pipo_pb2
from pipo_runner.pipeline.delivery.acks import Acks
from pipo_runner.pipeline.delivery.downstream import Downstream
from pipo_runner.pipeline.delivery.offers import Offers
from pipo_runner.pipeline.intake.handing import HandOvers
from pipo_runner.pipeline.intake.http_door import HttpDoor
from pipo_runner.pipeline.intake.pushing import Pushes
from pipo_runner.pipeline.operations import Operations
from pipo_runner.pipeline.orders.applying import Applying
from pipo_runner.pipeline.orders.reruns import Wanted, since_of

RUNNER = "runner"
WATCH_TIMEOUT_S = 10.0
PAGE_DEFAULT = 50
EVENTS_DEFAULT = 100
PAGE_MAX = 1000


class Process(Protocol):
    """What the servicer needs of its process."""

    name: str

    @property
    def offers(self) -> Offers: ...

    @property
    def pushes(self) -> Pushes: ...

    @property
    def hand_overs(self) -> HandOvers: ...

    @property
    def downstream(self) -> Downstream: ...

    @property
    def acks(self) -> Acks: ...

    @property
    def operations(self) -> Operations: ...

    @property
    def applying(self) -> Applying: ...

    @property
    def journal(self) -> reads.Source: ...

    @property
    def version(self) -> int: ...

    @property
    def status(self) -> str: ...

    def door(self, peer: str) -> HttpDoor: ...

    def masked(self, text: str) -> str: ...

    def masked_data(self, value: Any) -> Any: ...

    async def info(self) -> pipo_pb2.PipelineInfo: ...

    def metrics(self) -> list[pipeline_pb2.MetricSeries]: ...

    async def pause(self, reason: str) -> pipo_pb2.PauseReply: ...

    async def resume(self) -> pipo_pb2.ResumeReply: ...

    def ask_to_stop(self, *, now: bool) -> pipo_pb2.StopReply: ...

    def ask_to_drain(self, *, restart: bool) -> pipo_pb2.DrainReply: ...


class PipelineServicer(pipeline_pb2_grpc.PipelineServicer):
    """Service `Pipeline` of proto/pipo/v1/pipeline.proto."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def Hello(
        self, request: pipeline_pb2.HelloRequest, context: grpc.aio.ServicerContext
    ) -> pipeline_pb2.HelloReply:
        process = self._process
        return pipeline_pb2.HelloReply(
            pipeline=process.name,
            version=process.version,
            pid=os.getpid(),
            host=socket.gethostname(),
            status=process.status,
        )

    async def Status(
        self, request: pipeline_pb2.StatusRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PipelineInfo:
        return await self._process.info()

    async def Metrics(
        self, request: pipeline_pb2.MetricsRequest, context: grpc.aio.ServicerContext
    ) -> pipeline_pb2.MetricsReply:
        return pipeline_pb2.MetricsReply(series=self._process.metrics())

    async def Ingest(
        self,
        request_iterator: AsyncIterator[pipeline_pb2.IngestRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pipeline_pb2.IngestReply]:
        async for reply in self._process.door(context.peer()).serve(request_iterator):
            yield reply

    async def Push(
        self, request: pipo_pb2.PushRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PushReply:
        return await self._process.pushes.push(request)

    async def PushStream(
        self,
        request_iterator: AsyncIterator[pipo_pb2.PushStreamRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pipo_pb2.PushStreamReply]:
        async for reply in self._process.pushes.stream(request_iterator):
            yield reply

    async def Deliver(
        self,
        request_iterator: AsyncIterator[pipeline_pb2.DeliverRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pipeline_pb2.DeliverReply]:
        async for reply in self._process.hand_overs.stream(request_iterator):
            yield reply

    async def DownstreamState(
        self,
        request_iterator: AsyncIterator[pipeline_pb2.DownstreamStateRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pipeline_pb2.DownstreamStateReply]:
        async for reply in self._process.downstream.stream(request_iterator):
            yield reply

    async def Stop(
        self, request: pipo_pb2.StopRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.StopReply:
        return self._process.ask_to_stop(now=request.now)

    async def Drain(
        self, request: pipo_pb2.DrainRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.DrainReply:
        return self._process.ask_to_drain(restart=request.restart)

    async def Pause(
        self, request: pipo_pb2.PauseRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PauseReply:
        return await self._process.pause(request.reason)

    async def Resume(
        self, request: pipo_pb2.ResumeRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ResumeReply:
        return await self._process.resume()

    async def Ack(
        self, request: pipo_pb2.AckRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.AckReply:
        done = await self._process.acks.ack(request.packet_id, request.by)
        return to_proto.acknowledged(done, request.packet_id)

    async def ListDeadLetters(
        self, request: pipo_pb2.ListDeadLettersRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListPacketsReply:
        page = await reads.packets(
            self._process.journal.rows,
            state=DEAD_LETTERED,
            limit=limit_of(request.limit, PAGE_DEFAULT),
            after=request.after or None,
        )
        return to_proto.packet_page(page, source=RUNNER)

    async def Replay(
        self, request: pipo_pb2.ReplayRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ReplayReply:
        done = await self._process.operations.dead_letters.replay(
            request.ids, every=request.all, by=request.by
        )
        return to_proto.message(pipo_pb2.ReplayReply, done)

    async def Purge(
        self, request: pipo_pb2.PurgeRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.PurgeReply:
        done = await self._process.operations.dead_letters.purge(
            request.ids, every=request.all, by=request.by
        )
        return to_proto.message(pipo_pb2.PurgeReply, done)

    async def Rerun(
        self, request: pipo_pb2.RerunRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.RerunReply:
        from_ = getattr(request, "from")
        wanted = Wanted(
            from_,
            list(request.ids),
            request.last or None,
            since_of(request.since),
            request.current,
            request.by,
        )
        done = await self._process.operations.reruns.rerun(wanted, dry=request.dry)
        return to_proto.message(pipo_pb2.RerunReply, done, **{"from": from_})

    async def Resolve(
        self, request: pipo_pb2.ResolveRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ResolveReply:
        done = await self._process.operations.resolutions.resolve(
            request.ids or [request.packet_id],
            action=request.action,
            by=request.by,
            by_kind=request.by_kind,
            reason=request.reason,
        )
        return to_proto.message(pipo_pb2.ResolveReply, done)

    async def ListVersions(
        self, request: pipo_pb2.ListVersionsRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListVersionsReply:
        process = self._process
        found = await versions.history(process.journal.rows)
        return to_proto.history(found, RUNNER, process.version, process.masked)

    async def GetVersion(
        self, request: pipo_pb2.GetVersionRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.VersionText:
        process, rows = self._process, self._process.journal.rows
        found = await versions.find(rows, process.name, request.version)
        pending = await versions.pending_of(rows, found.version)
        return to_proto.version_text(found, pending, RUNNER, process.masked)

    async def Diff(
        self, request: pipo_pb2.DiffRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.DiffReply:
        process = self._process
        old, new = await versions.compared(
            process.journal.rows, process.name, getattr(request, "from"), request.to
        )
        made = diff(
            process.name, (old.version, old.texts), (new.version, new.texts), process.masked
        )
        return to_proto.text_diff(made, old.version, new.version, RUNNER)

    async def Rollback(
        self, request: pipo_pb2.RollbackRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.RollbackReply:
        done = await self._process.applying.rollback(request.version, by=request.by)
        return to_proto.message(pipo_pb2.RollbackReply, done)

    async def Apply(
        self, request: pipo_pb2.ApplyRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ApplyReply:
        done = await self._process.applying.apply(
            request.source, dict(request.files), by=request.by, reason=request.reason
        )
        return to_proto.message(pipo_pb2.ApplyReply, done)

    async def ListPackets(
        self, request: pipo_pb2.ListPacketsRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListPacketsReply:
        page = await reads.packets(
            self._process.journal.rows,
            state=request.state or None,
            limit=limit_of(request.limit, PAGE_DEFAULT),
            after=request.after or None,
        )
        return to_proto.packet_page(page, source=RUNNER)

    async def Inspect(
        self, request: pipo_pb2.InspectRequest, context: grpc.aio.ServicerContext
    ) -> packet_pb2.Trace:
        trace = await reads.trace(self._process.journal.rows, request.packet_id)
        if trace is None:
            raise NotFound(
                f"pipeline {self._process.name!r} has no packet {request.packet_id!r}",
                hint=f"pipo packets {self._process.name} lists the newest; retention removes old ones",
            )
        made = to_proto.trace(trace, source=RUNNER, pipeline=self._process.name)
        payloads.mask(made, self._process.masked_data)
        return made

    async def ListEvents(
        self, request: pipo_pb2.ListEventsRequest, context: grpc.aio.ServicerContext
    ) -> pipo_pb2.ListEventsReply:
        return await self._events(request.after_seq, request.limit)

    async def WatchEvents(
        self, request: pipo_pb2.ListEventsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pipo_pb2.ListEventsReply]:
        after = request.after_seq
        while not context.done():
            page = await self._events(after, request.limit)
            if page.events:
                after = page.last_seq
                yield page
                if self._process.status == "stopping" and page.events[-1].type in ENDINGS:
                    return
            else:
                await self._process.journal.wait_beyond(after, WATCH_TIMEOUT_S)

    async def _events(self, after_seq: int, limit: int) -> pipo_pb2.ListEventsReply:
        if after_seq < 0:
            raise BadRequest(f"after_seq is {after_seq}", hint="a whole number, 0 or more")
        page = await reads.events(
            self._process.journal.rows, after_seq, limit_of(limit, EVENTS_DEFAULT)
        )
        return to_proto.event_page(page, pipeline=self._process.name, source=RUNNER)

    async def Verifications(
        self,
        request_iterator: AsyncIterator[checker_pb2.VerificationsRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[checker_pb2.VerificationsReply]:
        first = await anext(aiter(request_iterator), None)
        if first is None or not first.HasField("hello"):
            raise BadRequest("the first message of a checker says who it is", hint="send `hello`")
        offers = self._process.offers
        checker = offers.attach(first.hello.checker_id, first.hello.capacity)
        reader = offers.listen(checker, request_iterator)
        try:
            async for reply in offers.replies(checker):
                yield reply
        finally:
            reader.cancel()
            offers.detach(checker)


def limit_of(asked: int, default: int) -> int:
    """A page size: the default for 0. Raises: BadRequest beyond 1 to 1000."""
    if asked == 0:
        return default
    if not 1 <= asked <= PAGE_MAX:
        raise BadRequest(f"limit is {asked}", hint=f"1 to {PAGE_MAX}")
    return asked
