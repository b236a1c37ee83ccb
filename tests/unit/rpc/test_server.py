"""A real server on port 0 and a real channel: the wire is the feature."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc._cython.cygrpc import ExecuteBatchError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from pipo import errors
from pipo.rpc.channels import Channel, dial
from pipo.rpc.errors import calling, error_of, from_rpc, info_of
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipeline_pb2, pipeline_pb2_grpc, pipo_pb2

TOKEN = "the-home-token"


class Fake(pipeline_pb2_grpc.PipelineServicer):
    """Raises what the test asks for; echoes otherwise."""

    raises: Exception | None = None

    def _act(self) -> None:
        if self.raises is not None:
            raise self.raises

    async def Hello(self, request: Any, context: Any) -> pipeline_pb2.HelloReply:
        self._act()
        return pipeline_pb2.HelloReply(pipeline="signups")

    async def Push(self, request: Any, context: Any) -> pipo_pb2.PushReply:
        return pipo_pb2.PushReply(packet_id=str(len(request.data)))

    async def WatchEvents(
        self, request: Any, context: Any
    ) -> AsyncIterator[pipo_pb2.ListEventsReply]:
        yield pipo_pb2.ListEventsReply(last_seq=1)
        self._act()
        yield pipo_pb2.ListEventsReply(last_seq=2)

    async def PushStream(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        async for request in requests:
            await context.write(
                pipo_pb2.PushStreamReply(
                    results=[pipo_pb2.PushResult(request_id=i.request_id) for i in request.items]
                )
            )
        self._act()


@pytest_asyncio.fixture
async def running() -> AsyncIterator[tuple[Fake, RunningServer]]:
    fake = Fake()  # type: ignore[abstract]
    server = await serve(
        fake,
        bind="127.0.0.1",
        port=0,
        internal_token=TOKEN,
        redact=lambda text: text.replace("s3cr3t", "***"),
    )
    yield fake, server
    await server.stop(0)


@pytest_asyncio.fixture
async def channel(running: tuple[Fake, RunningServer]) -> AsyncIterator[Channel]:
    made = dial(f"127.0.0.1:{running[1].port}", TOKEN)
    yield made
    await made.close()


ALL_ERRORS = [
    errors.BadRequest("the field 'x' is unknown", hint="fields are a, b"),
    errors.NotFound("no pipeline named 'x'"),
    errors.InvalidState("it is stopped", hint="pipo start x"),
    errors.InvalidPipeline(
        "1 finding", findings=[errors.Finding("P001", "error", "m", "h", 1, 2, "a")]
    ),
    errors.Rejected("too young", packet_id="01J", hint="h"),
    errors.Unavailable("full"),
    errors.Conflict("taken"),
    errors.Forbidden("no"),
    errors.Internal("ours"),
]


@pytest.mark.parametrize("error", ALL_ERRORS, ids=lambda e: e.code)
async def test_an_error_crosses_the_wire_whole(
    running: tuple[Fake, RunningServer], channel: Channel, error: errors.PipoError
) -> None:
    running[0].raises = error
    with pytest.raises(type(error)) as caught, calling("the pipeline"):
        await pipeline_pb2_grpc.PipelineStub(channel).Hello(pipeline_pb2.HelloRequest())
    assert info_of(caught.value) == info_of(error)


@pytest.mark.parametrize("error", ALL_ERRORS, ids=lambda e: e.code)
def test_info_stands_for_the_same_error(error: errors.PipoError) -> None:
    again = error_of(info_of(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)


async def test_a_bug_is_internal_and_says_nothing_of_its_text(
    running: tuple[Fake, RunningServer], channel: Channel
) -> None:
    running[0].raises = KeyError("s3cr3t")
    with (
        capture_logs() as lines,
        pytest.raises(errors.Internal) as caught,
        calling("the pipeline"),
    ):
        await pipeline_pb2_grpc.PipelineStub(channel).Hello(pipeline_pb2.HelloRequest())
    assert caught.value.message == "KeyError in /pipo.v1.Pipeline/Hello: this is a bug in Pipo"
    assert [line["action"] for line in lines] == ["rpc.bug"]


async def test_messages_and_hints_are_masked(
    running: tuple[Fake, RunningServer], channel: Channel
) -> None:
    running[0].raises = errors.BadRequest("got s3cr3t", hint="not s3cr3t")
    with pytest.raises(errors.BadRequest) as caught, calling("x"):
        await pipeline_pb2_grpc.PipelineStub(channel).Hello(pipeline_pb2.HelloRequest())
    assert (caught.value.message, caught.value.hint) == ("got ***", "not ***")


async def test_a_stream_ends_with_the_error_after_what_it_sent(
    running: tuple[Fake, RunningServer], channel: Channel
) -> None:
    running[0].raises = errors.NotFound("gone")
    call = pipeline_pb2_grpc.PipelineStub(channel).WatchEvents(pipo_pb2.ListEventsRequest())
    assert (await call.read()).last_seq == 1
    with pytest.raises(errors.NotFound, match="gone"), calling("x"):
        await call.read()


async def test_a_stream_of_both_sides_answers_and_ends(
    running: tuple[Fake, RunningServer], channel: Channel
) -> None:
    call = pipeline_pb2_grpc.PipelineStub(channel).PushStream()
    await call.write(pipo_pb2.PushStreamRequest(items=[pipo_pb2.PushItem(request_id=7)]))
    assert (await call.read()).results[0].request_id == 7
    running[0].raises = errors.Unavailable("over")
    await call.done_writing()
    with pytest.raises(errors.Unavailable, match="over"), calling("x"):
        await call.read()


@pytest.mark.parametrize("token", ["", "wrong", "the-home-token "])
async def test_another_token_is_forbidden_and_health_is_open(
    running: tuple[Fake, RunningServer], token: str
) -> None:
    channel = dial(f"127.0.0.1:{running[1].port}", token)
    try:
        with pytest.raises(errors.Forbidden), calling("x"):
            await pipeline_pb2_grpc.PipelineStub(channel).Hello(pipeline_pb2.HelloRequest())
        with pytest.raises(errors.Forbidden), calling("x"):
            await pipeline_pb2_grpc.PipelineStub(channel).PushStream().read()
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="pipo.v1.Pipeline")
        )
        assert health.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        await channel.close()


async def test_reflection_lists_the_services(channel: Channel) -> None:
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    await call.done_writing()
    names = {s.name for s in answer.list_services_response.service}
    assert {"pipo.v1.Pipeline", "grpc.health.v1.Health"} <= names


async def test_messages_over_four_mib_pass(channel: Channel) -> None:
    reply = await pipeline_pb2_grpc.PipelineStub(channel).Push(
        pipo_pb2.PushRequest(data=b"x" * 5_000_000)
    )
    assert reply.packet_id == "5000000"


async def test_many_findings_reach_our_client_whole_and_a_stranger_shortened(
    running: tuple[Fake, RunningServer], channel: Channel
) -> None:
    findings = [errors.Finding("P001", "error", "m" * 100, "h", n, 1) for n in range(500)]
    running[0].raises = errors.InvalidPipeline("500 findings", findings=findings)
    with pytest.raises(errors.InvalidPipeline) as caught, calling("x"):
        await pipeline_pb2_grpc.PipelineStub(channel).Hello(pipeline_pb2.HelloRequest())
    assert len(caught.value.findings) == 500
    stranger = grpc.aio.insecure_channel(f"127.0.0.1:{running[1].port}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await pipeline_pb2_grpc.PipelineStub(stranger).Hello(
            pipeline_pb2.HelloRequest(), metadata=(("authorization", f"Bearer {TOKEN}"),)
        )
    await stranger.close()
    told = from_rpc(refused.value)
    assert isinstance(told, errors.InvalidPipeline)
    assert len(told.findings) + int(told.hint.split()[0]) == 500


async def test_a_taken_port_is_a_conflict(running: tuple[Fake, RunningServer]) -> None:
    with pytest.raises(errors.Conflict, match=f"gRPC port {running[1].port} on 127.0.0.1"):
        await serve(running[0], bind="127.0.0.1", port=running[1].port, internal_token=None)


async def test_stop_is_safe_twice_and_calls_then_fail_as_unavailable(
    running: tuple[Fake, RunningServer], channel: Channel
) -> None:
    await running[1].stop(0)
    await running[1].stop(0)
    with (
        pytest.raises(errors.Unavailable, match="the pipeline 'x' does not answer"),
        calling("the pipeline 'x'"),
    ):
        await pipeline_pb2_grpc.PipelineStub(channel).Hello(pipeline_pb2.HelloRequest())


@pytest.mark.parametrize("method", ["Push", "WatchEvents"])
async def test_garbage_is_a_bad_request_and_no_bug(channel: Channel, method: str) -> None:
    whole = f"/pipo.v1.Pipeline/{method}"
    call = channel.unary_stream(whole)(b"\xff" * 100)
    told = f"bytes sent to {whole} are no"
    with capture_logs() as logged, pytest.raises(errors.BadRequest, match=told), calling("x"):
        await call.read()
    assert not logged


async def test_garbage_in_a_stream_is_a_bad_request(channel: Channel) -> None:
    call = channel.stream_stream("/pipo.v1.Pipeline/PushStream")()
    with capture_logs() as logged:
        await call.write(b"\xff" * 100)
        with pytest.raises(errors.BadRequest, match="PushStream are no message"), calling("x"):
            await call.read()
    assert not logged


async def test_an_unknown_operation_is_named(channel: Channel) -> None:
    with pytest.raises(errors.BadRequest, match="does not know this operation"), calling("x"):
        await channel.unary_unary("/pipo.v1.Pipeline/Nope")(b"")


def test_a_call_that_its_client_reset_leaves_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("grpc._cython.cygrpc")
    for error in (ExecuteBatchError("Failed to send: 4"), RuntimeError("a bug")):
        try:
            raise error
        except Exception:
            log.exception("unexpected")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [RuntimeError]
