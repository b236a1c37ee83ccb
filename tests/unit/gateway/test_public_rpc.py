"""Service Pipo over a real channel, and its push stream to a real pipeline server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pipo.errors import BadRequest, InvalidState, NotFound, Unavailable
from pipo.home import Home
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from pipo_gateway.gateway import Gateway
from pipo_gateway.push_relay import pieces
from tests.unit.gateway.fake_pipeline import FakePipeline


@pytest_asyncio.fixture
async def stub(gateway: Gateway) -> AsyncIterator[pipo_pb2_grpc.PipoStub]:
    channel = dial(gateway.address, "")
    yield pipo_pb2_grpc.PipoStub(channel)
    await channel.close()


def item(number: int, data: bytes = b"1") -> pipo_pb2.PushItem:
    return pipo_pb2.PushItem(request_id=number, data=data)


async def test_each_operation_answers(
    stub: pipo_pb2_grpc.PipoStub, pipeline: FakePipeline, home: Home
) -> None:
    pipeline_of: dict[str, Any] = {"pipeline": "signups"}
    assert (await stub.GetEngine(pipo_pb2.GetEngineRequest())).pipelines == 1
    assert len((await stub.ListPipelines(pipo_pb2.ListPipelinesRequest())).pipelines) == 1
    info = await stub.GetPipeline(pipo_pb2.GetPipelineRequest(**pipeline_of))
    assert info.status == "active"
    pushed = await stub.Push(pipo_pb2.PushRequest(data=b"1", **pipeline_of))
    assert pushed.packet_id == "01P"
    assert (await stub.ListPackets(pipo_pb2.ListPacketsRequest(**pipeline_of))).total == 1
    trace = await stub.Inspect(pipo_pb2.InspectRequest(packet_id="01P", **pipeline_of))
    assert trace.source == "runner"
    assert (await stub.ListEvents(pipo_pb2.ListEventsRequest(**pipeline_of))).last_seq == 3
    home.pipeline("signups").log.write_text("a line\n")
    assert (await stub.Logs(pipo_pb2.LogsRequest(**pipeline_of))).lines == ["a line"]
    acked = await stub.Ack(pipo_pb2.AckRequest(**pipeline_of, packet_id="01P"))
    assert (acked.packet_id, acked.acked) == ("01P", True)
    dead = await stub.ListDeadLetters(pipo_pb2.ListDeadLettersRequest(**pipeline_of))
    assert [one.state for one in dead.packets] == ["dead_lettered"]
    history = await stub.ListVersions(pipo_pb2.ListVersionsRequest(**pipeline_of))
    assert dict(history.versions[0].files) == {"./a.py": "d1"}
    asked = pipo_pb2.GetVersionRequest(**pipeline_of, version="v1")
    assert (await stub.GetVersion(asked)).text == "pipo: 1\n"
    wanted = pipo_pb2.DiffRequest(**pipeline_of, **{"from": "1", "to": "2"})
    assert (await stub.Diff(wanted)).diff == "-a\n"
    back = pipo_pb2.RollbackRequest(**pipeline_of, version="1")
    assert (await stub.Rollback(back)).rolled_back_to == 1
    text = pipo_pb2.ApplyRequest(**pipeline_of, source="pipo: 1", files={"./a.py": "x"})
    assert (await stub.Apply(text)).version == 2
    replayed = await stub.Replay(pipo_pb2.ReplayRequest(**pipeline_of, ids=["01P"], by="Ada"))
    assert replayed.packets[0].units[0].node == "$output"
    assert (await stub.Purge(pipo_pb2.PurgeRequest(**pipeline_of, all=True))).purged == 1
    from_: dict[str, Any] = {"from": "shape"}
    again = pipo_pb2.RerunRequest(**pipeline_of, **from_, all=True)
    assert (await stub.Rerun(again)).packets[0].units[0].node == "shape"
    decided = pipo_pb2.ResolveRequest(**pipeline_of, packet_id="01P", action="retry")
    assert (await stub.Resolve(decided)).resolved[0].node == "shape"
    assert (await stub.Pause(pipo_pb2.PauseRequest(**pipeline_of))).state == "paused"
    assert (await stub.Resume(pipo_pb2.ResumeRequest(**pipeline_of))).already is True
    assert (await stub.Drain(pipo_pb2.DrainRequest(**pipeline_of))).state == "draining"
    stopped = await stub.Stop(pipo_pb2.StopRequest(**pipeline_of))
    assert stopped.state == "draining"


async def test_watching_events_goes_on_live(
    stub: pipo_pb2_grpc.PipoStub, pipeline: FakePipeline
) -> None:
    call = stub.WatchEvents(pipo_pb2.ListEventsRequest(pipeline="signups", after_seq=1))
    async with asyncio.timeout(60):
        page = await call.read()
    assert [event.seq for event in page.events] == [2, 3]
    call.cancel()


async def test_a_push_stream_in_small_messages_reaches_the_pipeline_in_groups(
    stub: pipo_pb2_grpc.PipoStub, pipeline: FakePipeline
) -> None:
    call = stub.PushStream()
    await call.write(pipo_pb2.PushStreamRequest(pipeline="signups"))
    for number in range(300):
        await call.write(pipo_pb2.PushStreamRequest(items=[item(number)]))
    await call.done_writing()
    answered = [r.request_id async for reply in call for r in reply.results]
    assert sorted(answered) == list(range(300))
    assert len(pipeline.pushed) < 301
    assert [m.pipeline for m in pipeline.pushed if m.pipeline] == ["signups"]
    assert pipeline.pushed[0].pipeline == "signups"


async def test_one_large_message_is_cut(
    stub: pipo_pb2_grpc.PipoStub, pipeline: FakePipeline
) -> None:
    sizes = [60_000] * 40 + [5_000_000, 0, 3]
    items = [item(n, b"x" * size) for n, size in enumerate(sizes)]
    call = stub.PushStream()
    await call.write(pipo_pb2.PushStreamRequest(pipeline="signups", items=items))
    await call.done_writing()
    answered = [r.request_id async for reply in call for r in reply.results]
    assert sorted(answered) == list(range(43))
    got: dict[int, int] = {}
    for message in pipeline.pushed:
        for one in message.items:
            got[one.request_id] = got.get(one.request_id, 0) + len(one.data)
    assert [got[n] for n in range(43)] == sizes


def test_pieces_keep_items_and_their_order() -> None:
    request = pipo_pb2.PushStreamRequest(
        pipeline="p", items=[item(1, b"a" * 300_000), item(2), item(3, b"")]
    )
    made = list(pieces(request))
    assert [m.pipeline for m in made] == ["p", "", "", ""]
    flat = [(m.items[0].request_id, len(m.items[0].data), m.items[0].more) for m in made]
    assert flat == [(1, 262_144, True), (1, 37_856, False), (2, 1, False), (3, 0, False)]


async def test_a_push_stream_needs_its_pipeline(
    stub: pipo_pb2_grpc.PipoStub, pipeline: FakePipeline, home: Home
) -> None:
    home.pipeline("old").ensure()
    for name, kind in (("", BadRequest), ("nobody", NotFound), ("old", InvalidState)):
        call = stub.PushStream()
        await call.write(pipo_pb2.PushStreamRequest(pipeline=name, items=[item(1)]))
        with pytest.raises(kind), calling("the gateway"):
            await call.read()


async def test_a_push_stream_ends_with_its_pipeline(
    stub: pipo_pb2_grpc.PipoStub, pipeline: FakePipeline
) -> None:
    call = stub.PushStream()
    await call.write(pipo_pb2.PushStreamRequest(pipeline="signups", items=[item(1)]))
    assert (await call.read()).results[0].packet_id == "01P1"
    await pipeline.die()
    with pytest.raises(Unavailable) as gone, calling("the gateway"):
        await call.read()
    assert "may have been accepted" in gone.value.hint


async def test_an_error_of_the_pipeline_ends_the_stream_as_it_is(
    stub: pipo_pb2_grpc.PipoStub, pipeline: FakePipeline
) -> None:
    pipeline.raises = InvalidState("paused")
    call = stub.PushStream()
    await call.write(pipo_pb2.PushStreamRequest(pipeline="signups", items=[item(1)]))
    await call.read()
    await call.done_writing()
    with pytest.raises(InvalidState, match="paused"), calling("the gateway"):
        await call.read()
