"""The gRPC service on a real server: it translates, delegates, and survives its callers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from pipo.errors import BadRequest, NotFound, Unavailable
from pipo.journal import reads
from pipo.journal.changes import DeadLettered, PacketError, Started, Stopped
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.rpc.channels import Channel, dial
from pipo.rpc.errors import calling
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import checker_pb2, pipeline_pb2, pipeline_pb2_grpc, pipo_pb2
from pipo_runner.pipeline.delivery.acks import Acks
from pipo_runner.pipeline.delivery.downstream import Downstream
from pipo_runner.pipeline.delivery.offers import Offers
from pipo_runner.pipeline.intake.handing import HandOvers
from pipo_runner.pipeline.intake.http_door import HttpDoor
from pipo_runner.pipeline.intake.pushing import Pushes
from pipo_runner.pipeline.operations import Operations
from pipo_runner.pipeline.orders.applying import Applied, Applying, FileWarning
from pipo_runner.pipeline.servicer import PAGE_MAX, PipelineServicer, limit_of
from tests.stack import soon
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import AT, accepted, packet_id, version
from tests.unit.runner.pipeline.delivery.test_verification import CHECKED
from tests.unit.runner.pipeline.intake.test_http_door import Target, head
from tests.unit.runner.pipeline.rig import PLAIN, Rig

TOKEN = "the-home-token"


@dataclass
class FakeProcess:
    """A process whose parts are a rig's and whose journal is a real one."""

    rig: Rig
    source: SqliteJournal
    target: Target = field(default_factory=Target)
    name: str = "people"
    version: int = 4
    status: str = "active"
    stops: list[bool] = field(default_factory=list)
    pauses: list[str] = field(default_factory=list)
    drains: list[bool] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    applied: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def offers(self) -> Offers:
        return self.rig.parts.offers

    @property
    def pushes(self) -> Pushes:
        return self.rig.parts.pushes

    @property
    def hand_overs(self) -> HandOvers:
        return self.rig.parts.hand_overs

    @property
    def downstream(self) -> Downstream:
        return self.rig.parts.downstream

    @property
    def acks(self) -> Acks:
        return self.rig.parts.acks

    @property
    def operations(self) -> Operations:
        return self.rig.operations

    @property
    def applying(self) -> Applying:
        return cast(Applying, self)

    async def apply(self, source: str, files: Any, *, by: str, reason: str) -> Applied:
        self.applied.append((source, files, by, reason))
        return Applied(5, 4, True, 2, [FileWarning("file_changed", "./a", 1, "r", None, "h")])

    async def rollback(self, version: str, *, by: str) -> Applied:
        self.applied.append((version, by))
        return Applied(5, 4, True, 2, [], rolled_back_to=1)

    def masked(self, text: str) -> str:
        return text.replace("s3cr3t", "***")

    def masked_data(self, value: Any) -> Any:
        return {"masked": value}

    @property
    def journal(self) -> reads.Source:
        return self.source

    def door(self, peer: str) -> HttpDoor:
        self.peers.append(peer)
        return HttpDoor(
            self.target,
            packet_limit=1024,
            budget=self.rig.budget,
            timers=self.rig.timers,
            name=peer,
            on_error=self.errors.append,
        )

    async def info(self) -> pipo_pb2.PipelineInfo:
        return pipo_pb2.PipelineInfo(name=self.name, version=self.version)

    def metrics(self) -> list[pipeline_pb2.MetricSeries]:
        return [pipeline_pb2.MetricSeries(name="pipo_checkers_attached", value=2)]

    def ask_to_drain(self, *, restart: bool) -> pipo_pb2.DrainReply:
        self.drains.append(restart)
        return pipo_pb2.DrainReply(pipeline=self.name, state="draining")

    async def pause(self, reason: str) -> pipo_pb2.PauseReply:
        self.pauses.append(reason)
        return pipo_pb2.PauseReply(pipeline=self.name, state="paused")

    async def resume(self) -> pipo_pb2.ResumeReply:
        return pipo_pb2.ResumeReply(pipeline=self.name, state="active", already=True)

    def ask_to_stop(self, *, now: bool) -> pipo_pb2.StopReply:
        self.stops.append(now)
        return pipo_pb2.StopReply(pipeline=self.name, state="stopping" if now else "draining")


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[FakeProcess]:
    journal = open_quick(tmp_path / "journal")
    await journal.commit(version(), Started(1, 0, AT), accepted(1), accepted(2), accepted(3))
    made = FakeProcess(Rig(CHECKED, auto=True), journal)
    yield made
    await made.rig.timers.close(0.0)
    await journal.close(clean=True)
    assert made.rig.timers.crashes == []
    assert made.errors == []


@pytest.fixture
async def server(process: FakeProcess) -> AsyncIterator[RunningServer]:
    made = await serve(PipelineServicer(process), bind="127.0.0.1", port=0, internal_token=TOKEN)
    yield made
    await made.stop(0)


@pytest.fixture
async def channel(server: RunningServer) -> AsyncIterator[Channel]:
    made = dial(f"127.0.0.1:{server.port}", TOKEN)
    yield made
    await made.close()


@pytest.fixture
def stub(channel: Channel) -> Any:
    return pipeline_pb2_grpc.PipelineStub(channel)


async def test_versions_are_told_masked(stub: Any, process: FakeProcess) -> None:
    """Edge 354, 357, 361."""
    await process.source.commit(
        version(2, source="pipo: s3cr3t\n", reason="a s3cr3t", files={"./a": "s3cr3t"})
    )
    found = await stub.ListVersions(pipo_pb2.ListVersionsRequest())
    assert (found.current, found.latest, found.source) == (4, 2, "runner")
    assert [(one.version, one.pending) for one in found.versions] == [(2, 0), (1, 3)]
    assert found.versions[0].reason == "a ***"
    one = await stub.GetVersion(pipo_pb2.GetVersionRequest(version="v2"))
    assert (one.text, dict(one.texts), one.source) == ("pipo: ***\n", {"./a": "***"}, "runner")
    asked = pipo_pb2.DiffRequest(**{"from": "v1", "to": "2"})
    told = await stub.Diff(asked)
    assert (getattr(told, "from"), told.to, told.identical, told.source) == (1, 2, False, "runner")
    assert "+pipo: ***" in told.diff
    assert "s3cr3t" not in told.diff
    with pytest.raises(NotFound), calling("it"):
        await stub.GetVersion(pipo_pb2.GetVersionRequest(version="v9"))


async def test_an_apply_and_a_rollback_are_passed_on(stub: Any, process: FakeProcess) -> None:
    done = await stub.Apply(
        pipo_pb2.ApplyRequest(source="pipo: 1", files={"./a": "x"}, by="ada", reason="why")
    )
    assert (done.version, done.previous, done.changed, done.pending_older) == (5, 4, True, 2)
    (warning,) = done.warnings
    assert (warning.path, warning.HasField("current")) == ("./a", False)
    back = await stub.Rollback(pipo_pb2.RollbackRequest(version="v1", by="ada"))
    assert (back.version, back.rolled_back_to) == (5, 1)
    assert process.applied == [("pipo: 1", {"./a": "x"}, "ada", "why"), ("v1", "ada")]


async def test_hello_says_who_answers(stub: Any) -> None:
    reply = await stub.Hello(pipeline_pb2.HelloRequest())
    assert (reply.pipeline, reply.version, reply.status) == ("people", 4, "active")
    assert reply.pid == os.getpid()


async def test_pause_resume_and_drain_are_the_processes(stub: Any, process: FakeProcess) -> None:
    paused = await stub.Pause(pipo_pb2.PauseRequest(pipeline="people", reason="agent"))
    assert (paused.state, paused.already, process.pauses) == ("paused", False, ["agent"])
    for restart in (False, True):
        drain = pipo_pb2.DrainRequest(pipeline="people", restart=restart)
        assert (await stub.Drain(drain)).state == "draining"
    assert process.drains == [False, True]
    resumed = await stub.Resume(pipo_pb2.ResumeRequest(pipeline="people"))
    assert (resumed.state, resumed.already) == ("active", True)


async def test_status_metrics_and_stop_are_the_processes(stub: Any, process: FakeProcess) -> None:
    assert (await stub.Status(pipeline_pb2.StatusRequest())).name == "people"
    metrics = await stub.Metrics(pipeline_pb2.MetricsRequest())
    assert [(one.name, one.value) for one in metrics.series] == [("pipo_checkers_attached", 2)]
    reply = await stub.Stop(pipo_pb2.StopRequest(now=True))
    assert (reply.state, process.stops) == ("stopping", [True])


async def test_a_push_and_its_refusal(stub: Any, process: FakeProcess) -> None:
    reply = await stub.Push(pipo_pb2.PushRequest(data=b'{"name":"Ada"}'))
    assert reply.packet_id == process.rig.output.written[0]
    with pytest.raises(BadRequest, match="data is missing"), calling("people"):
        await stub.Push(pipo_pb2.PushRequest())


async def test_dead_letters_are_listed_replayed_and_purged(stub: Any, process: FakeProcess) -> None:
    failed = PacketError("output.failed", "it broke", None, "output", 2)
    dead = [packet_id(n) for n in (1, 2)]
    await process.source.commit(
        *(DeadLettered(unit=id, error=failed, node="$output", at=AT, ms=1.0) for id in dead)
    )
    listing = await stub.ListDeadLetters(pipo_pb2.ListDeadLettersRequest(limit=1))
    assert [one.packet_id for one in listing.packets] == [dead[1]]
    assert (listing.total, listing.next, listing.source) == (2, dead[1], "runner")
    with pytest.raises(BadRequest, match="limit is 1001"), calling("people"):
        await stub.ListDeadLetters(pipo_pb2.ListDeadLettersRequest(limit=1001))
    queue = Rig(PLAIN, journal=process.source, opened=False)
    process.rig.operations = queue.operations
    replayed = await stub.Replay(pipo_pb2.ReplayRequest(ids=[dead[0]], by="ada"))
    assert (replayed.replayed, replayed.packets[0].units[0].node) == (1, "$output")
    purged = await stub.Purge(pipo_pb2.PurgeRequest(all=True))
    assert (purged.purged, purged.packet_ids) == (1, [dead[1]])
    assert queue.parts.pending.find(dead[0]) is not None


async def test_a_push_stream_answers_each_item(stub: Any) -> None:
    items = [pipo_pb2.PushItem(request_id=n, data=b"1") for n in range(3)]
    call = stub.PushStream(iter([pipo_pb2.PushStreamRequest(items=items)]))
    results = [result async for reply in call for result in reply.results]
    assert {result.request_id for result in results} == {0, 1, 2}
    assert all(result.packet_id for result in results)


async def test_requests_are_answered_on_their_stream(stub: Any, process: FakeProcess) -> None:
    call = stub.Ingest(
        iter([pipeline_pb2.IngestRequest(parts=[head(7, "/plain", b"x", last=True)])])
    )
    answers = [answer async for reply in call for answer in reply.answers]
    assert [(answer.request_id, answer.body) for answer in answers] == [(7, b"x")]
    assert process.peers[0].startswith("ipv4:127.0.0.1")


async def test_packets_are_listed_page_by_page(stub: Any) -> None:
    page = await stub.ListPackets(pipo_pb2.ListPacketsRequest(limit=2))
    assert [one.packet_id for one in page.packets] == [packet_id(3), packet_id(2)]
    rest = await stub.ListPackets(pipo_pb2.ListPacketsRequest(limit=2, after=packet_id(2)))
    assert [one.packet_id for one in rest.packets] == [packet_id(1)]


async def test_a_packet_is_inspected_or_not_found(stub: Any) -> None:
    trace = await stub.Inspect(pipo_pb2.InspectRequest(packet_id=packet_id(1)))
    assert trace.packet.packet_id == packet_id(1)
    assert trace.packet.data.startswith(b'{"masked":')
    with pytest.raises(NotFound, match="'people' has no packet 'nope'"), calling("people"):
        await stub.Inspect(pipo_pb2.InspectRequest(packet_id="nope"))


async def test_events_are_listed_and_bad_positions_refused(stub: Any) -> None:
    page = await stub.ListEvents(pipo_pb2.ListEventsRequest(limit=2))
    assert [event.type for event in page.events] == ["pipeline.started", "packet.accepted"]
    assert [event.seq for event in page.events] == [1, 2]
    with pytest.raises(BadRequest, match="after_seq is -1"), calling("people"):
        await stub.ListEvents(pipo_pb2.ListEventsRequest(after_seq=-1))
    with pytest.raises(BadRequest, match="limit is 1001"), calling("people"):
        await stub.ListEvents(pipo_pb2.ListEventsRequest(limit=1001))


async def test_a_watch_goes_on_where_it_was_and_ends_with_the_last_word(
    stub: Any, process: FakeProcess
) -> None:
    pages = aiter(stub.WatchEvents(pipo_pb2.ListEventsRequest(after_seq=3)))
    first = await anext(pages)
    assert [event.seq for event in first.events] == [4]
    # A write in hand may still be committed while the process stops.
    process.status = "stopping"
    await process.source.commit(accepted(4))
    second = await anext(pages)
    assert [event.type for event in second.events] == ["packet.accepted"]
    await process.source.commit(Stopped("stop", AT))
    third = await anext(pages)
    assert [event.type for event in third.events] == ["pipeline.stopped"]
    with pytest.raises(StopAsyncIteration):
        await anext(pages)


# ── checkers ─────────────────────────────────────────────────────────────────


class Stream:
    """A checker's end, on the wire."""

    def __init__(self, stub: Any) -> None:
        self._sent: asyncio.Queue[checker_pb2.VerificationsRequest | None] = asyncio.Queue(100)
        self.call = stub.Verifications(self._requests())
        self.replies = aiter(self.call)

    async def _requests(self) -> AsyncIterator[checker_pb2.VerificationsRequest]:
        while (sent := await self._sent.get()) is not None:
            yield sent

    async def say(self, **words: Any) -> None:
        await self._sent.put(checker_pb2.VerificationsRequest(**words))

    async def hello(self) -> None:
        await self.say(hello=checker_pb2.CheckerHello(checker_id="c1", capacity=10))

    async def end(self) -> None:
        await self._sent.put(None)


async def test_a_checker_is_offered_units_and_its_verdict_is_committed(
    stub: Any, process: FakeProcess
) -> None:
    stream = Stream(stub)
    await stream.hello()
    (unit,) = await process.rig.accept({"name": "Ada"})
    (offer,) = (await anext(stream.replies)).verifications
    assert offer.id == f"{unit}:1:1"
    verdict = checker_pb2.Verdict(id=offer.id, outcome=checker_pb2.Verdict.OUTCOME_PASSED)
    await stream.say(verdicts=[verdict])
    await soon(lambda: len(process.rig.parts.pending) == 0)
    assert process.rig.journal.names(unit)[-1] == "Delivered"
    await stream.end()
    with pytest.raises(StopAsyncIteration):
        await anext(stream.replies)
    assert process.offers.checkers == 0


async def test_a_checker_says_who_it_is_first(stub: Any, process: FakeProcess) -> None:
    stream = Stream(stub)
    await stream.say(heartbeat=True)
    with pytest.raises(BadRequest, match="says who it is"), calling("people"):
        await anext(stream.replies)
    assert process.offers.checkers == 0


async def test_a_verdict_that_the_journal_does_not_take_stops_the_process(
    stub: Any, process: FakeProcess
) -> None:
    """Its unit has left the waiting ones; only a new run offers it again."""
    stream = Stream(stub)
    await stream.hello()
    await process.rig.accept({"name": "Ada"})
    (offer,) = (await anext(stream.replies)).verifications
    process.rig.journal.refuses = Unavailable("200001 changes wait for the journal")
    verdict = checker_pb2.Verdict(id=offer.id, outcome=checker_pb2.Verdict.OUTCOME_PASSED)
    await stream.say(verdicts=[verdict])
    await soon(lambda: process.rig.timers.crashes)
    assert [str(error) for error in process.rig.timers.crashes] == [
        "200001 changes wait for the journal"
    ]
    process.rig.timers.crashes.clear()


async def test_close_ends_a_checkers_stream_in_order(stub: Any, process: FakeProcess) -> None:
    stream = Stream(stub)
    await stream.hello()
    await soon(lambda: process.offers.checkers == 1)
    process.offers.close()
    with pytest.raises(StopAsyncIteration):
        await anext(stream.replies)


@pytest.mark.parametrize("how", ["cancel", "channel"])
async def test_callers_that_vanish_hurt_nobody(
    stub: Any, channel: Channel, process: FakeProcess, how: str
) -> None:
    """A cut connection in mid-stream is nothing that this process may stop for."""
    stream = Stream(stub)
    await stream.hello()
    pieces: asyncio.Queue[Any] = asyncio.Queue(10)

    async def requests() -> AsyncIterator[Any]:
        while True:
            yield await pieces.get()

    ingest = stub.Ingest(requests())
    await pieces.put(
        pipeline_pb2.IngestRequest(parts=[head(1, "/plain", b"x"), head(2, "/plain", last=True)])
    )
    async for _ in ingest:
        break
    pushes: asyncio.Queue[Any] = asyncio.Queue(10)

    async def pushed() -> AsyncIterator[Any]:
        while True:
            yield await pushes.get()

    push = stub.PushStream(pushed())
    piece = pipo_pb2.PushItem(request_id=1, data=b"x", more=True)
    whole = pipo_pb2.PushItem(request_id=2, data=b"1")
    await pushes.put(pipo_pb2.PushStreamRequest(items=[piece, whole]))
    async for _ in push:
        break
    await soon(lambda: process.offers.checkers == 1)
    assert not process.rig.budget.take(8 * 1024)
    if how == "channel":
        await channel.close(0)
    else:
        for call in (stream.call, ingest, push):
            call.cancel()
    await soon(lambda: process.offers.checkers == 0)

    def all_given_back() -> bool:
        return process.rig.budget.take(8 * 1024)

    await soon(all_given_back)


# ── page sizes ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("asked", "given"), [(0, 50), (1, 1), (PAGE_MAX, PAGE_MAX)])
def test_a_page_size(asked: int, given: int) -> None:
    assert limit_of(asked, 50) == given


@pytest.mark.parametrize("asked", [-1, PAGE_MAX + 1])
def test_a_page_size_out_of_range(asked: int) -> None:
    with pytest.raises(BadRequest, match=f"limit is {asked}"):
        limit_of(asked, 50)
