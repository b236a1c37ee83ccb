"""Every public operation, over the messages of pipo.proto.

`routing` finds who answers: the pipeline's own process, or for reads its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from pipo.access import log_tail, requests, stopped, stopped_versions
from pipo.access.checking import check_text
from pipo.access.hosts import Hosts
from pipo.access.listing import STATUS_TIMEOUT_S, Listing
from pipo.access.routing import STOPPING, Routing
from pipo.access.runners import Runners
from pipo.clock import Clock, SystemClock
from pipo.home import Home, room, tokens
from pipo.home.config import Config
from pipo.home.directory import REREAD_S, Directory
from pipo.home.registry import Entry
from pipo.journal.states import DEAD_LETTERED
from pipo.rpc.connections import Connections, Peer
from pipo.rpc.errors import Unanswered, calling
from pipo.rpc.stubs import packet_pb2, pipeline_pb2, pipo_pb2

READ_TIMEOUT_S = 10.0
PUSH_TIMEOUT_S = 30.0
# A queue may hold many thousands; less than a command waits for its answer.
ALL_TIMEOUT_S = 80.0
# Longer than the steps of a version may take to open.
APPLY_TIMEOUT_S = 45.0


class Access:
    """The operations of one home. Use it on one event loop; `close` it at the end."""

    def __init__(self, home: Home, config: Config, clock: Clock | None = None) -> None:
        self.home = home
        self._config = config
        self._clock = clock or SystemClock()
        self.directory = Directory(home, self._clock)
        # Where nothing ever ran nobody is there to ask, and looking makes no home.
        token = tokens.internal_token(home) if home.run.exists() else ""
        self._connections = Connections(token)
        self._routing = Routing(self.directory, self._connections)
        self._hosts = Hosts(home, token, config.start_timeout_s)
        self._listing = Listing(self.directory, self._routing, self._hosts, home, self._clock)
        self._runners = Runners(self.directory, self._routing, self._hosts, home, self._clock)

    async def close(self) -> None:
        """Ends every channel; calls under way end as unanswered. Safe twice."""
        await self._connections.close()

    # ── the pipelines ────────────────────────────────────────────────────────

    async def list_pipelines(self) -> pipo_pb2.ListPipelinesReply:
        """Every pipeline that the home knows, by name, running or not."""
        return pipo_pb2.ListPipelinesReply(pipelines=await self._listing.all())

    async def get_pipeline(self, name: str) -> pipo_pb2.PipelineInfo:
        """Raises: NotFound."""
        self._routing.require(name)
        return await self._listing.one(name)

    async def list_runners(self) -> pipo_pb2.ListRunnersReply:
        """Every pipeline process that runs or should, by name."""
        return await self._runners.all()

    async def attach(self, request: pipo_pb2.AttachRequest) -> pipo_pb2.AttachReply:
        """Takes over what is detached or stale. Raises: as `Runners.attach`."""
        return await self._runners.attach(request.pipeline)

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        """Answers once the pipeline serves.

        Raises: Unavailable, without a runner host; the host's reason, when it cannot start.
        """
        requests.check_start(request)
        started = await self._hosts.start(request)
        self._routing.forget(started.name)
        whole = await self._listing.one(started.name)
        return whole if whole.status else started

    async def start_known(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        """Starts a pipeline that the home knows by its name. Raises: NotFound; as `start`."""
        self._routing.require(request.target)
        return await self.start(request)

    async def stop(self, request: pipo_pb2.StopRequest) -> pipo_pb2.StopReply:
        """Begins a drain, or stops at once with `now`. Raises: NotFound."""
        name = request.pipeline
        self._routing.require(name)
        wanted = self.directory.desired(name)
        if not self.directory.alive(name) and (wanted is None or wanted.desired == "stopped"):
            return pipo_pb2.StopReply(pipeline=name, state="stopped", already=True)
        reply = await self._hosts.stop(request)
        if reply is not None:
            return reply
        self._hosts.want_stopped(name)
        if not self.directory.alive(name):
            return pipo_pb2.StopReply(pipeline=name, state="stopped")
        return await self._routing.ask(
            name, lambda peer: peer.stub.Stop(request, timeout=READ_TIMEOUT_S)
        )

    async def drain(self, request: pipo_pb2.DrainRequest) -> pipo_pb2.DrainReply:
        """Begins a drain. Raises: NotFound."""
        reply = await self.stop(pipo_pb2.StopRequest(pipeline=request.pipeline))
        return pipo_pb2.DrainReply(
            pipeline=reply.pipeline, state=reply.state, already=reply.already
        )

    async def restart(self, request: pipo_pb2.RestartRequest) -> pipo_pb2.PipelineInfo:
        """Drains a pipeline and starts it again; a long drain is still under way on return.

        Raises: NotFound; Unavailable, without a runner host; the host's reason.
        """
        requests.check_restart(request)
        name = request.pipeline
        self._routing.require(name)
        started = await self._hosts.restart(request)
        self._routing.forget(name)
        whole = await self._listing.one(name)
        if not whole.status:
            return started
        if started.state == STOPPING:
            # The run that answers is the one that drains: only its host knows what comes after.
            whole.state = STOPPING
        return whole

    async def pause(self, request: pipo_pb2.PauseRequest) -> pipo_pb2.PauseReply:
        """Answers once the pause is journaled. Raises: NotFound, InvalidState, Unavailable."""
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Pause(request, timeout=READ_TIMEOUT_S)
        )

    async def resume(self, request: pipo_pb2.ResumeRequest) -> pipo_pb2.ResumeReply:
        """Answers once the end of the pause is journaled. Raises: as `pause`."""
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Resume(request, timeout=READ_TIMEOUT_S)
        )

    # ── packets ──────────────────────────────────────────────────────────────

    async def push(self, request: pipo_pb2.PushRequest) -> pipo_pb2.PushReply:
        """Answers once the packet is journaled. Raises: Rejected, InvalidState, Unavailable."""
        requests.check_push(request, self._config.packet_limit_bytes)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Push(request, timeout=PUSH_TIMEOUT_S)
        )

    async def ack(self, request: pipo_pb2.AckRequest) -> pipo_pb2.AckReply:
        """Answers once the ack is journaled. Raises: NotFound, InvalidState, Unavailable."""
        requests.check_ack(request)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Ack(request, timeout=READ_TIMEOUT_S)
        )

    async def list_packets(self, request: pipo_pb2.ListPacketsRequest) -> pipo_pb2.ListPacketsReply:
        """One page, newest first."""
        requests.check_list_packets(request)
        limit = request.limit or requests.PACKETS_DEFAULT
        return await self._routing.read(
            request.pipeline,
            lambda peer: peer.stub.ListPackets(request, timeout=READ_TIMEOUT_S),
            lambda: stopped.packets(self.home.pipeline(request.pipeline), request, limit),
        )

    async def list_dead_letters(
        self, request: pipo_pb2.ListDeadLettersRequest
    ) -> pipo_pb2.ListPacketsReply:
        """One page of the dead-letter queue, newest first."""
        requests.check_list_dead_letters(request)
        listing = pipo_pb2.ListPacketsRequest(
            pipeline=request.pipeline,
            state=DEAD_LETTERED,
            limit=request.limit or requests.PACKETS_DEFAULT,
            after=request.after,
        )
        return await self._routing.read(
            request.pipeline,
            lambda peer: peer.stub.ListDeadLetters(request, timeout=READ_TIMEOUT_S),
            lambda: stopped.packets(self.home.pipeline(request.pipeline), listing, listing.limit),
        )

    async def replay(self, request: pipo_pb2.ReplayRequest) -> pipo_pb2.ReplayReply:
        """Answers once the replay is journaled. Raises: NotFound, InvalidState, Unavailable."""
        requests.check_selection(request)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Replay(request, timeout=ALL_TIMEOUT_S)
        )

    async def purge(self, request: pipo_pb2.PurgeRequest) -> pipo_pb2.PurgeReply:
        """Answers once the purge is journaled. Raises: as `replay`."""
        requests.check_selection(request)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Purge(request, timeout=ALL_TIMEOUT_S)
        )

    async def rerun(self, request: pipo_pb2.RerunRequest) -> pipo_pb2.RerunReply:
        """Answers once the rerun is journaled, or with the plan. Raises: as `replay`."""
        requests.check_rerun(request)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Rerun(request, timeout=ALL_TIMEOUT_S)
        )

    async def resolve(self, request: pipo_pb2.ResolveRequest) -> pipo_pb2.ResolveReply:
        """Answers once the resolution is journaled. Raises: as `replay`."""
        requests.check_resolve(request)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Resolve(request, timeout=PUSH_TIMEOUT_S)
        )

    # ── versions ─────────────────────────────────────────────────────────────

    async def list_versions(
        self, request: pipo_pb2.ListVersionsRequest
    ) -> pipo_pb2.ListVersionsReply:
        """Every version, newest first."""
        requests.check_list_versions(request)
        return await self._routing.read(
            request.pipeline,
            lambda peer: peer.stub.ListVersions(request, timeout=READ_TIMEOUT_S),
            lambda: stopped_versions.history(self.home.pipeline(request.pipeline)),
        )

    async def get_version(self, request: pipo_pb2.GetVersionRequest) -> pipo_pb2.VersionText:
        """One version with its texts. Raises: NotFound."""
        requests.check_get_version(request)
        return await self._routing.read(
            request.pipeline,
            lambda peer: peer.stub.GetVersion(request, timeout=READ_TIMEOUT_S),
            lambda: stopped_versions.one(self.home.pipeline(request.pipeline), request.version),
        )

    async def diff(self, request: pipo_pb2.DiffRequest) -> pipo_pb2.DiffReply:
        """What differs between two versions. Raises: NotFound."""
        requests.check_diff(request)
        return await self._routing.read(
            request.pipeline,
            lambda peer: peer.stub.Diff(request, timeout=READ_TIMEOUT_S),
            lambda: stopped_versions.diff(
                self.home.pipeline(request.pipeline), getattr(request, "from"), request.to
            ),
        )

    async def rollback(self, request: pipo_pb2.RollbackRequest) -> pipo_pb2.RollbackReply:
        """Answers once it is journaled. Raises: NotFound, InvalidState, Unavailable."""
        requests.check_get_version(request)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Rollback(request, timeout=APPLY_TIMEOUT_S)
        )

    async def apply(self, request: pipo_pb2.ApplyRequest) -> pipo_pb2.ApplyReply:
        """Answers once it is journaled. Raises: InvalidPipeline, InvalidState, Unavailable."""
        requests.check_apply(request)
        return await self._routing.ask(
            request.pipeline, lambda peer: peer.stub.Apply(request, timeout=APPLY_TIMEOUT_S)
        )

    # ── one packet ───────────────────────────────────────────────────────────

    async def inspect(self, request: pipo_pb2.InspectRequest) -> packet_pb2.Trace:
        """A packet's full trace. Raises: NotFound."""
        requests.check_inspect(request)
        return await self._routing.read(
            request.pipeline,
            lambda peer: peer.stub.Inspect(request, timeout=READ_TIMEOUT_S),
            lambda: stopped.trace(self.home.pipeline(request.pipeline), request.packet_id),
        )

    # ── events and logs ──────────────────────────────────────────────────────

    async def list_events(self, request: pipo_pb2.ListEventsRequest) -> pipo_pb2.ListEventsReply:
        """One page of journal events, oldest first."""
        requests.check_list_events(request)
        return await self._list_events(request)

    async def watch_events(
        self, request: pipo_pb2.ListEventsRequest
    ) -> AsyncGenerator[pipo_pb2.ListEventsReply, None]:
        """Journal events after a sequence number, then live, across restarts of the pipeline.

        Ends only when its reader does. Nothing is repeated and nothing left out.
        """
        requests.check_list_events(request)
        self._routing.require(request.pipeline)
        following = pipo_pb2.ListEventsRequest()
        following.CopyFrom(request)
        while True:
            try:
                async for page in self._stream(following):
                    following.after_seq = page.last_seq
                    yield page
            except Unanswered:
                self._routing.forget(request.pipeline)
            page = await self._list_events(following)
            if page.events:
                following.after_seq = page.last_seq
                yield page
            else:
                await asyncio.sleep(REREAD_S)

    async def logs(self, request: pipo_pb2.LogsRequest) -> pipo_pb2.LogsReply:
        """The end of the pipeline's log, or what follows an offset."""
        requests.check_logs(request)
        self._routing.require(request.pipeline)
        path = self.home.pipeline(request.pipeline).log
        if request.HasField("after"):
            page = await asyncio.to_thread(log_tail.follow, path, request.after)
        else:
            lines = request.tail or requests.LOG_LINES_DEFAULT
            page = await asyncio.to_thread(log_tail.tail, path, lines)
        return pipo_pb2.LogsReply(lines=page.lines, next=page.next, reset=page.reset)

    async def check(self, request: pipo_pb2.CheckRequest) -> pipo_pb2.CheckReply:
        """The findings of a text; a text with faults is an answer, not an error."""
        return await check_text(request, self.home)

    # ── for the gateway's own streams and numbers ────────────────────────────

    def entry(self, name: str) -> Entry | None:
        """Where a pipeline runs, as the registry says it; quick enough for every request."""
        return self.directory.entry(name)

    def forget(self, name: str) -> None:
        """A call to `name` has failed: the registry is read again."""
        self._routing.forget(name)

    async def peer(self, name: str) -> Peer:
        """The process of a pipeline that must run. Raises: as `Routing.peer`."""
        return await self._routing.peer(name)

    async def metrics(self, name: str) -> pipeline_pb2.MetricsReply | None:
        """The series of a running pipeline, within 2 s; None when it does not answer."""
        request = pipeline_pb2.MetricsRequest()
        return await self._routing.try_ask(
            name, lambda peer: peer.stub.Metrics(request, timeout=STATUS_TIMEOUT_S)
        )

    async def numbers(self, name: str) -> stopped.Numbers:
        """The journal's numbers, running or not."""
        return await stopped.numbers(self.home.pipeline(name))

    def room_left(self) -> int:
        """The bytes that may still be written to the home. Raises: OSError."""
        return room.left(self.home)

    async def silent_state(self, name: str) -> str:
        """The state of a pipeline that does not answer; `pipo status` says the same.

        Raises: PipoError, for a journal that cannot be read.
        """
        return await self._listing.silent(name)

    # ── parts ────────────────────────────────────────────────────────────────

    async def _list_events(self, request: pipo_pb2.ListEventsRequest) -> pipo_pb2.ListEventsReply:
        limit = request.limit or requests.EVENTS_DEFAULT
        return await self._routing.read(
            request.pipeline,
            lambda peer: peer.stub.ListEvents(request, timeout=READ_TIMEOUT_S),
            lambda: stopped.events(self.home.pipeline(request.pipeline), request.after_seq, limit),
        )

    async def _stream(
        self, request: pipo_pb2.ListEventsRequest
    ) -> AsyncIterator[pipo_pb2.ListEventsReply]:
        """The live pages of a process that runs; ends at once without one."""
        peer = await self._routing.running(request.pipeline)
        if peer is not None:
            with calling(peer.whom):
                async for page in peer.stub.WatchEvents(request):
                    yield page
