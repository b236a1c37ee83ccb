"""Failures of the transport itself, as the caller hears of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from pipo.errors import Internal
from pipo.rpc.channels import Channel, dial
from pipo.rpc.errors import Unanswered, calling, from_rpc
from pipo.rpc.stubs import pipeline_pb2, pipeline_pb2_grpc


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.CANCELLED, "locally cancelled"),
        # A killed process tears its calls: that is no bug of anybody's.
        (grpc.StatusCode.INTERNAL, "Internal error from Core"),
    ],
)
def test_a_call_that_the_other_side_ended(code: grpc.StatusCode, details: str) -> None:
    told = from_rpc(failed(code, details), "pipeline 'x'")
    assert isinstance(told, Unanswered)
    assert told.message == "pipeline 'x' ended the call"


def test_any_other_internal_error_is_a_bug() -> None:
    told = from_rpc(failed(grpc.StatusCode.INTERNAL, "odd"), "pipeline 'x'")
    assert isinstance(told, Internal)
    assert "this is a bug in Pipo" in told.message


class Asked:
    """One call of a server that says nothing; `channel` is closed by the test."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.task = asyncio.create_task(self.ask(), name="ask")

    async def ask(self) -> None:
        stub = pipeline_pb2_grpc.PipelineStub(self.channel)
        with calling("pipeline 'x'"):
            await stub.Hello(pipeline_pb2.HelloRequest(), timeout=60)


@pytest_asyncio.fixture
async def asked() -> AsyncIterator[Asked]:
    """A call that is under way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        channel = dial(f"127.0.0.1:{listener.getsockname()[1]}", "")
        made = Asked(channel)
        async with asyncio.timeout(60):
            silent, _ = await asyncio.get_running_loop().sock_accept(listener)
        with silent:
            yield made
            await channel.close()


async def test_a_call_whose_channel_is_closed_is_unanswered(asked: Asked) -> None:
    await asked.channel.close()
    with pytest.raises(Unanswered, match="pipeline 'x' ended the call"):
        await asked.task


async def test_a_closed_channel_answers_nobody(asked: Asked) -> None:
    await asked.channel.close()
    with pytest.raises(Unanswered, match="pipeline 'x' does not answer"):
        await asked.ask()
    with pytest.raises(Unanswered):
        await asked.task


async def test_a_caller_that_is_cancelled_stays_so(asked: Asked) -> None:
    asked.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked.task
