"""A pipeline process as the gateway sees it: a real gRPC server with a servicer of plain code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pipo.clock import SystemClock
from pipo.errors import PipoError
from pipo.home import Home, registry, tokens
from pipo.home.leases import Lease
from pipo.home.registry import Entry
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import packet_pb2, pipeline_pb2, pipeline_pb2_grpc, pipo_pb2

ACCEPTED = b'{"packet_id":"01J","state":"accepted"}'


class Request:
    """One ingest request, put together."""

    def __init__(self, head: pipeline_pb2.IngestHead) -> None:
        self.head = head
        self.body = b""
        self.parts = 0

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(h.name, h.value) for h in self.head.headers]


Answering = Callable[[Request], Awaitable[pipeline_pb2.IngestAnswer | None]]


async def accept(request: Request) -> pipeline_pb2.IngestAnswer:
    return pipeline_pb2.IngestAnswer(status=202, body=ACCEPTED)


class FakePipeline(pipeline_pb2_grpc.PipelineServicer):
    """Answers as the test says, and remembers what came."""

    def __init__(self, name: str = "signups") -> None:
        self.name = name
        self.via = "http"
        self.answering: Answering = accept
        self.early: Callable[[Request], pipeline_pb2.IngestAnswer | None] = lambda request: None
        self.requests: list[Request] = []
        self.messages: list[int] = []
        self.cancelled: list[int] = []
        self.streams = 0
        self.pushed: list[pipo_pb2.PushStreamRequest] = []
        self.raises: PipoError | None = None
        self.asked: list[Any] = []
        self.arrived = asyncio.Event()
        self.cancelled_event = asyncio.Event()
        self._server: RunningServer | None = None
        self._lease: Lease | None = None
        self._home: Home | None = None

    # ── life ─────────────────────────────────────────────────────────────────

    async def start(self, home: Home, *, pid: int | None = None) -> FakePipeline:
        pipeline = home.pipeline(self.name)
        pipeline.ensure()
        self._home = home
        self._lease = Lease.acquire(pipeline.lease, clock=SystemClock())
        self._server = await serve(
            self, bind="127.0.0.1", port=0, internal_token=tokens.internal_token(home)
        )
        registry.write(home, self.entry(pid or os.getpid()))
        return self

    def entry(self, pid: int) -> Entry:
        assert self._server is not None
        return Entry(
            pipeline=self.name,
            version=1,
            pid=pid,
            host="here",
            address=f"127.0.0.1:{self._server.port}",
            listen=None,
            ttl=None,
            state="running",
            status="active",
            started_at=self._server.port,
            runner="one",
            file=f"/work/{self.name}.pipo",
            restarts=0,
        )

    async def die(self) -> None:
        """As a kill: the entry stays behind."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
        if self._lease is not None:
            self._lease.release()

    async def stop(self) -> None:
        """Cleanly: the entry goes."""
        await self.die()
        assert self._home is not None
        registry.remove(self._home, self.name)

    # ── the service ──────────────────────────────────────────────────────────

    async def Hello(self, request: Any, context: Any) -> pipeline_pb2.HelloReply:
        return pipeline_pb2.HelloReply(pipeline=self.name)

    async def Status(self, request: Any, context: Any) -> pipo_pb2.PipelineInfo:
        return pipo_pb2.PipelineInfo(
            name=self.name,
            state="running",
            status="active",
            inputs=[pipo_pb2.InputInfo(name="input", via=self.via)],
            stats=pipo_pb2.Stats(accepted=len(self.requests)),
            last_seq=3,
            runner="one",
        )

    async def Metrics(self, request: Any, context: Any) -> pipeline_pb2.MetricsReply:
        histogram = pipeline_pb2.MetricHistogram(bounds=[0.1], counts=[1], count=2, sum=0.3)
        return pipeline_pb2.MetricsReply(
            series=[
                pipeline_pb2.MetricSeries(
                    name="pipo_pipeline_state", labels={"state": "active"}, value=1
                ),
                pipeline_pb2.MetricSeries(
                    name="pipo_step_duration_seconds", labels={"node": 'a"\n'}, histogram=histogram
                ),
            ]
        )

    async def Ingest(  # type: ignore[override]
        self, requests: AsyncIterator[pipeline_pb2.IngestRequest], context: Any
    ) -> None:
        self.streams += 1
        turn = asyncio.Lock()
        open_requests: dict[int, Request] = {}

        async def answer(request_id: int, request: Request) -> None:
            made = await self.answering(request)
            if made is not None:
                made.request_id = request_id
                async with turn:
                    await context.write(pipeline_pb2.IngestReply(answers=[made]))

        async with asyncio.TaskGroup() as group:
            async for message in requests:
                self.messages.append(len(message.parts))
                assert message.ByteSize() < 1024 * 1024
                for part in message.parts:
                    self._part(part, open_requests, lambda i, r: group.create_task(answer(i, r)))

    def _part(
        self,
        part: pipeline_pb2.IngestPart,
        open_requests: dict[int, Request],
        begin: Callable[[int, Request], Any],
    ) -> None:
        if part.cancelled:
            self.cancelled.append(part.request_id)
            open_requests.pop(part.request_id, None)
            self.cancelled_event.set()
            return
        if part.HasField("head"):
            open_requests[part.request_id] = Request(part.head)
        request = open_requests.get(part.request_id)
        if request is None:
            return
        request.body += part.body
        request.parts += 1
        if request.parts == 1 and not part.last and (early := self.early(request)) is not None:
            del open_requests[part.request_id]

            async def refuse(_: Request) -> pipeline_pb2.IngestAnswer | None:
                return early

            self.answering = refuse
            begin(part.request_id, request)
        elif part.last:
            self.requests.append(open_requests.pop(part.request_id))
            self.arrived.set()
            begin(part.request_id, request)

    async def Drain(self, request: Any, context: Any) -> pipo_pb2.DrainReply:
        self._act(request)
        return pipo_pb2.DrainReply(pipeline=self.name, state="draining")

    async def Pause(self, request: Any, context: Any) -> pipo_pb2.PauseReply:
        self._act(request)
        return pipo_pb2.PauseReply(pipeline=self.name, state="paused")

    async def Resume(self, request: Any, context: Any) -> pipo_pb2.ResumeReply:
        self._act(request)
        return pipo_pb2.ResumeReply(pipeline=self.name, state="active", already=True)

    async def Ack(self, request: Any, context: Any) -> pipo_pb2.AckReply:
        self._act(request)
        return pipo_pb2.AckReply(packet_id=request.packet_id, state="verifying", acked=True)

    async def ListDeadLetters(self, request: Any, context: Any) -> pipo_pb2.ListPacketsReply:
        self._act(request)
        row = packet_pb2.PacketRow(packet_id="01P", state="dead_lettered", node="output")
        return pipo_pb2.ListPacketsReply(packets=[row], total=1, source="runner")

    async def Replay(self, request: Any, context: Any) -> pipo_pb2.ReplayReply:
        self._act(request)
        unit = pipo_pb2.ReplayedUnit(id="01P", node="$output")
        packet = pipo_pb2.ReplayedPacket(packet_id="01P", units=[unit])
        return pipo_pb2.ReplayReply(replayed=1, packets=[packet])

    async def Purge(self, request: Any, context: Any) -> pipo_pb2.PurgeReply:
        self._act(request)
        return pipo_pb2.PurgeReply(purged=1, packet_ids=["01P"])

    async def Rerun(self, request: Any, context: Any) -> pipo_pb2.RerunReply:
        self._act(request)
        return pipo_pb2.RerunReply(
            dry=request.dry,
            rerun=1,
            packets=[
                pipo_pb2.RerunPacket(
                    packet_id="01P",
                    version=2,
                    units=[pipo_pb2.ReplayedUnit(id="01P", node="shape")],
                )
            ],
            skipped=[pipo_pb2.SkippedPacket(packet_id="01Q", reason="it never reached 'shape'")],
            skipped_count=1,
            path=[
                pipo_pb2.RerunStep(step="shape", kind="transform: map"),
                pipo_pb2.RerunStep(step="output", kind="output: sqlite", effect="write"),
            ],
            **{"from": getattr(request, "from")},
        )

    async def Resolve(self, request: Any, context: Any) -> pipo_pb2.ResolveReply:
        self._act(request)
        unit = pipo_pb2.ResolvedUnit(packet_id="01P", state="processing", node="shape")
        return pipo_pb2.ResolveReply(action=request.action, resolved=[unit])

    async def ListVersions(self, request: Any, context: Any) -> pipo_pb2.ListVersionsReply:
        self._act(request)
        one = pipo_pb2.Version(version=1, hash="h1", author="ada", files={"./a.py": "d1"})
        return pipo_pb2.ListVersionsReply(versions=[one], current=1, latest=1, source="runner")

    async def GetVersion(self, request: Any, context: Any) -> pipo_pb2.VersionText:
        self._act(request)
        one = pipo_pb2.Version(version=1, hash="h1")
        return pipo_pb2.VersionText(
            version=one, text="pipo: 1\n", texts={"./a.py": "x\n"}, source="runner"
        )

    async def Diff(self, request: Any, context: Any) -> pipo_pb2.DiffReply:
        self._act(request)
        ends: dict[str, Any] = {"from": 1, "to": 2}
        return pipo_pb2.DiffReply(**ends, diff="-a\n", removed=1)

    async def Rollback(self, request: Any, context: Any) -> pipo_pb2.RollbackReply:
        self._act(request)
        return pipo_pb2.RollbackReply(version=3, previous=2, changed=True, rolled_back_to=1)

    async def Apply(self, request: Any, context: Any) -> pipo_pb2.ApplyReply:
        self._act(request)
        return pipo_pb2.ApplyReply(version=2, previous=1, changed=True, pending_older=7)

    async def Push(self, request: Any, context: Any) -> pipo_pb2.PushReply:
        self._act(request)
        return pipo_pb2.PushReply(packet_id="01P", pipeline=self.name, state="accepted")

    async def PushStream(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        async for request in requests:
            assert request.ByteSize() < 1024 * 1024
            self.pushed.append(request)
            results = [
                pipo_pb2.PushResult(request_id=item.request_id, packet_id=f"01P{item.request_id}")
                for item in request.items
                if not item.more
            ]
            if results:
                await context.write(pipo_pb2.PushStreamReply(results=results))
        if self.raises is not None:
            raise self.raises

    async def Stop(self, request: Any, context: Any) -> pipo_pb2.StopReply:
        self._act(request)
        return pipo_pb2.StopReply(pipeline=self.name, state="draining")

    async def ListPackets(self, request: Any, context: Any) -> pipo_pb2.ListPacketsReply:
        self._act(request)
        row = packet_pb2.PacketRow(packet_id="01P", state="delivered", received_at=2**53 + 1)
        return pipo_pb2.ListPacketsReply(packets=[row], total=1, source="runner")

    async def Inspect(self, request: Any, context: Any) -> packet_pb2.Trace:
        self._act(request)
        packet = packet_pb2.Packet(packet_id=request.packet_id, data=b'{"n":12345678901234567890}')
        return packet_pb2.Trace(packet=packet, source="runner")

    async def ListEvents(self, request: Any, context: Any) -> pipo_pb2.ListEventsReply:
        self._act(request)
        events = [
            packet_pb2.Event(seq=n, at=n * 10, pipeline=self.name, type="log")
            for n in range(request.after_seq + 1, 4)
        ][: request.limit or 100]
        last = events[-1].seq if events else request.after_seq
        return pipo_pb2.ListEventsReply(
            events=events, last_seq=last, more=last < 3, source="runner"
        )

    async def WatchEvents(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield await self.ListEvents(request, context)
        await asyncio.Event().wait()

    async def Verifications(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        return
        yield

    async def Deliver(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        return
        yield

    async def DownstreamState(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        return
        yield

    def _act(self, request: Any) -> None:
        self.asked.append(request)
        if self.raises is not None:
            raise self.raises
