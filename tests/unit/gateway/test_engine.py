"""The engine as the gateway tells of it, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator

import aiohttp
import pytest

from pipo.clock import SystemClock
from pipo.errors import Forbidden, InvalidState
from pipo.home import Home, engine
from pipo.home.config import Config
from pipo.home.engine import Engine
from pipo.home.leases import Lease
from pipo.home.settings import TokenSetting
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from pipo_gateway.attention import Attention
from pipo_gateway.gateway import Gateway
from tests.unit.cli.fakes import HandClock
from tests.unit.gateway.fake_pipeline import FakePipeline

# doors.md, `GET /api/engine`.
FIELDS = {
    "engine_id",
    "home",
    "started_at",
    "listen",
    "ready",
    "stopping",
    "pipelines",
    "idle",
    "ttl_expires_at",
    "version",
}


@pytest.fixture
def supervisor(home: Home) -> Iterator[list[int]]:
    """This process is the engine; the signals that it was sent."""
    heard: list[int] = []
    before = signal.signal(engine.ASKED, lambda number, _: heard.append(number))
    lease = Lease.acquire(engine.lease(home), clock=SystemClock())
    engine.write(home, Engine(os.getpid(), socket.gethostname(), 5, 8787, ttl_expires_at=99))
    yield heard
    lease.release()
    signal.signal(engine.ASKED, before)


async def ask(
    client: aiohttp.ClientSession, method: str, path: str
) -> tuple[int, dict[str, object]]:
    async with client.request(method, path, json=None if method == "GET" else {}) as got:
        return got.status, json.loads(await got.read())


async def test_every_field_of_the_engine(client: aiohttp.ClientSession, gateway: Gateway) -> None:
    status, told = await ask(client, "GET", "/api/engine")
    assert status == 200
    assert set(told) >= FIELDS
    assert told["listen"] == int(gateway.http_address.rpartition(":")[2])
    assert (told["idle"], told["ttl_expires_at"], told["idle_s"]) == (True, None, 300.0)


async def test_a_pipeline_that_runs_is_no_idleness(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    _, told = await ask(client, "GET", "/api/engine")
    assert told["idle"] is False


async def test_an_embedded_gateway_tells_of_its_engine(
    home: Home, config: Config, supervisor: list[int]
) -> None:
    gateway = Gateway("embedded", home, config, SystemClock(), lambda port: f"127.0.0.1:{port}")
    await gateway.start(0)
    try:
        async with aiohttp.ClientSession(f"http://{gateway.http_address}") as client:
            _, told = await ask(client, "GET", "/api/engine")
            assert (told["started_at"], told["ttl_expires_at"]) == (5, 99)
            engine.write(home, Engine(os.getpid(), socket.gethostname(), 5, 8787, stopping=True))
            _, told = await ask(client, "GET", "/api/engine")
            assert (told["stopping"], told["ready"]) == (True, False)
    finally:
        await gateway.stop()


async def test_the_engine_is_asked_to_stop(
    client: aiohttp.ClientSession, home: Home, supervisor: list[int]
) -> None:
    home.pipeline("p").ensure()
    claim = Lease.acquire(home.pipeline("p").claim, clock=SystemClock())
    status, told = await ask(client, "POST", "/api/engine/stop")
    claim.release()
    assert status == 202
    assert told == {"stopped": True, "already": False, "draining": ["p"], "detached": []}
    assert supervisor == [engine.ASKED]


async def test_grpc_asks_it_too(gateway: Gateway, supervisor: list[int]) -> None:
    channel = dial(gateway.address, "")
    stub = pipo_pb2_grpc.PipoStub(channel)
    assert (await stub.StopEngine(pipo_pb2.StopEngineRequest())).stopped
    assert supervisor == [engine.ASKED]
    await channel.close()


async def test_services_without_an_engine_refuse_with_what_to_do(
    client: aiohttp.ClientSession, gateway: Gateway
) -> None:
    status, told = await ask(client, "POST", "/api/engine/stop")
    assert (status, told["code"]) == (409, "invalid_state")
    assert "docker compose stop" in str(told["hint"])
    channel = dial(gateway.address, "")
    with pytest.raises(InvalidState, match="no engine is there to stop"), calling("the gateway"):
        await pipo_pb2_grpc.PipoStub(channel).StopEngine(pipo_pb2.StopEngineRequest())
    await channel.close()


async def test_a_token_for_some_pipelines_does_not_stop_the_engine(
    home: Home, monkeypatch: pytest.MonkeyPatch, supervisor: list[int]
) -> None:
    monkeypatch.setenv("SOME", "secret-of-some")
    config = Config(tokens=(TokenSetting("some", "env:SOME", "operate", ("p",)),))
    gateway = Gateway("one", home, config, SystemClock(), lambda port: f"127.0.0.1:{port}")
    await gateway.start(0)
    try:
        channel = dial(gateway.address, "secret-of-some")
        stub = pipo_pb2_grpc.PipoStub(channel)
        with pytest.raises(Forbidden), calling("the gateway"):
            await stub.StopEngine(pipo_pb2.StopEngineRequest())
        with pytest.raises(Forbidden), calling("the gateway"):
            await stub.Attach(pipo_pb2.AttachRequest())
        assert (await stub.ListRunners(pipo_pb2.ListRunnersRequest())).runners == []
        await channel.close()
    finally:
        await gateway.stop()
    assert supervisor == []


async def test_runners_are_listed_and_wait_for_a_host(
    client: aiohttp.ClientSession, pipeline: FakePipeline
) -> None:
    status, told = await ask(client, "GET", "/api/runners")
    assert status == 200
    assert [(one["pipeline"], one["state"]) for one in told["runners"]] == [  # type: ignore[attr-defined]
        ("signups", "detached")
    ]
    status, told = await ask(client, "POST", "/api/runners/attach")
    assert (status, told["error"]) == (503, "no runner host is running")


async def test_requests_count_and_probes_do_not(
    client: aiohttp.ClientSession, gateway: Gateway
) -> None:
    """Edge 436."""
    await ask(client, "GET", "/api/pipelines")
    _, told = await ask(client, "GET", "/healthz")
    first = told["quiet_ms"]
    await asyncio.sleep(0.05)
    for path in ("/healthz", "/metrics"):
        async with client.get(path) as got:
            await got.read()
    _, told = await ask(client, "GET", "/healthz")
    assert told["quiet_ms"] >= first + 50  # type: ignore[operator]
    channel = dial(gateway.address, "")
    await pipo_pb2_grpc.PipoStub(channel).GetEngine(pipo_pb2.GetEngineRequest())
    _, after = await ask(client, "GET", "/healthz")
    assert after["quiet_ms"] < told["quiet_ms"]  # type: ignore[operator]
    await channel.close()


async def test_an_open_stream_is_attention_all_the_while(
    client: aiohttp.ClientSession, gateway: Gateway, pipeline: FakePipeline
) -> None:
    """Edge 436."""
    channel = dial(gateway.address, "")
    stub = pipo_pb2_grpc.PipoStub(channel)
    stream = stub.WatchEvents(pipo_pb2.ListEventsRequest(pipeline="signups"))
    reading = asyncio.ensure_future(stream.read())
    await asyncio.wait({reading}, timeout=60)
    await asyncio.sleep(0.02)
    _, told = await ask(client, "GET", "/healthz")
    assert told["quiet_ms"] == 0
    stream.cancel()
    for _ in range(6000):
        if (await ask(client, "GET", "/healthz"))[1]["quiet_ms"]:
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("the stream is over, and still counts")
    await channel.close()


def test_attention_measures_from_the_last_end() -> None:
    clock = HandClock()
    attention = Attention(clock)
    clock.at_s = 5
    assert attention.quiet_s == 5
    with attention.given():
        attention.begin()
        assert attention.quiet_s == 0
    clock.at_s = 6
    assert attention.quiet_s == 0
    attention.end()
    clock.at_s = 8
    assert attention.quiet_s == 2
