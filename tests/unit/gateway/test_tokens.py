"""Bound elsewhere: every control call needs a token, over HTTP and gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pipo.errors import Forbidden
from pipo.home import Home, tokens
from pipo.home.config import Config, TokenSetting
from pipo.rpc.channels import Channel, dial
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from pipo_gateway.gateway import Gateway
from tests.unit.gateway.fake_pipeline import FakePipeline


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("READER", "reader-token")
    limited = TokenSetting("reader", "env:READER", "read", ("signups",))
    return Config(bind="0.0.0.0", tokens=(limited,), workspace=tmp_path)


@pytest_asyncio.fixture
async def other(home: Home) -> AsyncIterator[FakePipeline]:
    made = await FakePipeline("other").start(home)
    yield made
    await made.die()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_http(
    home: Home,
    client: aiohttp.ClientSession,
    pipeline: FakePipeline,
    other: FakePipeline,
) -> None:
    for path in ("/api/pipelines", "/metrics", "/api/nothing"):
        async with client.get(path) as got:
            assert got.status == 401
            assert got.headers["WWW-Authenticate"] == "Bearer"
            assert "routes" not in await got.json()
    admin = bearer(tokens.admin_token(home))
    async with client.get("/api/pipelines", headers=admin) as got:
        assert {p["name"] for p in (await got.json())["pipelines"]} == {"other", "signups"}
    reader = bearer("reader-token")
    async with client.get("/api/pipelines", headers=reader) as got:
        assert {p["name"] for p in (await got.json())["pipelines"]} == {"signups"}
    async with client.get("/metrics", headers=reader) as got:
        assert got.status == 200
        assert 'pipeline="other"' not in await got.text()
    async with client.get("/api/pipelines/other", headers=reader) as got:
        assert got.status == 403
    async with client.post("/api/pipelines/signups/stop", json={}, headers=reader) as got:
        assert got.status == 403
    async with client.post("/in/signups/new") as got:
        assert got.status == 202


async def test_grpc(
    home: Home, gateway: Gateway, pipeline: FakePipeline, other: FakePipeline
) -> None:
    async def ask(token: str, pipeline: str) -> str:
        channel = dial(gateway.address, token)
        try:
            with calling("the gateway"):
                stub = pipo_pb2_grpc.PipoStub(channel)
                info = await stub.GetPipeline(pipo_pb2.GetPipelineRequest(pipeline=pipeline))
                return str(info.name)
        finally:
            await channel.close()

    assert await ask("reader-token", "signups") == "signups"
    assert await ask(tokens.admin_token(home), "other") == "other"
    for token, name in (("", "signups"), ("nope", "signups"), ("reader-token", "other")):
        with pytest.raises(Forbidden):
            await ask(token, name)


async def test_grpc_scopes_of_a_limited_reader(gateway: Gateway, pipeline: FakePipeline) -> None:
    channel: Channel = dial(gateway.address, "reader-token")
    stub: Any = pipo_pb2_grpc.PipoStub(channel)
    refused: list[Callable[[], Any]] = [
        lambda: stub.Push(pipo_pb2.PushRequest(pipeline="signups", data=b"1")),
        lambda: stub.Stop(pipo_pb2.StopRequest(pipeline="signups")),
        lambda: stub.Start(pipo_pb2.StartRequest(target="signups")),
        lambda: stub.Replay(pipo_pb2.ReplayRequest(pipeline="signups", all=True)),
        lambda: stub.Purge(pipo_pb2.PurgeRequest(pipeline="signups", all=True)),
    ]
    try:
        for call in refused:
            with pytest.raises(Forbidden, match="needs operate"), calling("the gateway"):
                await call()
        stream = stub.PushStream()
        await stream.write(pipo_pb2.PushStreamRequest(pipeline="signups"))
        with pytest.raises(Forbidden, match="needs operate"), calling("the gateway"):
            await stream.read()
        listed = await stub.ListPipelines(pipo_pb2.ListPipelinesRequest())
        assert [p.name for p in listed.pipelines] == ["signups"]
    finally:
        await channel.close()


async def test_health_needs_no_token(gateway: Gateway) -> None:
    channel = dial(gateway.address, "")
    try:
        request = health_pb2.HealthCheckRequest(service="pipo.v1.Pipo")
        answer = await health_pb2_grpc.HealthStub(channel).Check(request)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        await channel.close()
