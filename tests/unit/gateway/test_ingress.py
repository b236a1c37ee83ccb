"""`/in` over real HTTP to a real gRPC pipeline server."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest

from pipo.home import Home, desired
from pipo.home.desired import Desired
from pipo.rpc.stubs import pipeline_pb2
from pipo_gateway.gateway import Gateway
from tests.unit.gateway.conftest import LIMIT
from tests.unit.gateway.fake_pipeline import ACCEPTED, FakePipeline, Request

PATH = "/in/signups/new"


async def exchange(gateway: Gateway, raw: bytes, *, until: bytes = b"") -> bytes:
    """What comes back for raw bytes, up to `until` or the end of the connection."""
    host, _, port = gateway.http_address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(raw)
        async with asyncio.timeout(60):
            return await (reader.readuntil(until) if until else reader.read())
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_request_reaches_the_pipeline_as_it_came(
    pipeline: FakePipeline, gateway: Gateway
) -> None:
    body = b'{"raw" : "\xff\x00bytes"}'
    raw = (
        b"POST /in/signups/a%%20b/%%E2%%82%%AC?x=1&y=%%2F HTTP/1.1\r\nHost: example.org\r\n"
        b"x-Signature: sha256=AbC\r\nX-Twice: 1\r\nContent-Type: text/plain\r\nX-Twice: \xe9\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    ) + body
    answer = await exchange(gateway, raw)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 202 Accepted\r\n")
    assert content == ACCEPTED
    (request,) = pipeline.requests
    assert request.body == body
    assert (request.head.method, request.head.path) == ("POST", "/a b/€")
    assert request.head.query == "x=1&y=%2F"
    assert request.head.peer == "127.0.0.1"
    assert request.head.content_length == len(body)
    assert request.headers == [
        ("Host", "example.org"),
        ("x-Signature", "sha256=AbC"),
        ("X-Twice", "1"),
        ("Content-Type", "text/plain"),
        ("X-Twice", "\xe9"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Host", "example.org"),
        ("X-Forwarded-Proto", "http"),
    ]


async def test_what_a_proxy_in_front_forwarded_is_kept(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    headers = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Host": "pipo.example",
        "X-Forwarded-Proto": "https",
    }
    await client.post(PATH, headers=headers)
    found = pipeline.requests[0].headers
    assert [v for n, v in found if n == "X-Forwarded-For"] == ["203.0.113.9", "127.0.0.1"]
    assert [v for n, v in found if n == "X-Forwarded-Host"] == ["pipo.example"]
    assert [v for n, v in found if n == "X-Forwarded-Proto"] == ["https"]


async def test_the_answer_passes_through_untouched(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    async def answer(request: Request) -> pipeline_pb2.IngestAnswer:
        return pipeline_pb2.IngestAnswer(
            status=405,
            headers=[
                pipeline_pb2.Header(name="Allow", value="POST"),
                pipeline_pb2.Header(name="X-Odd", value="a\r\nX-Forged: 1"),
                pipeline_pb2.Header(name="Content-Type", value="application/problem+json"),
            ],
            body=b'{"error": "GET is not for /new"}',
        )

    pipeline.answering = answer
    async with client.get(PATH) as got:
        assert got.status == 405
        assert got.headers["Allow"] == "POST"
        assert got.headers["X-Odd"] == "a  X-Forged: 1"
        assert got.headers.getall("Content-Type") == ["application/problem+json"]
        assert await got.read() == b'{"error": "GET is not for /new"}'


async def test_head_and_bodiless_answers_have_no_body(
    pipeline: FakePipeline, gateway: Gateway
) -> None:
    raw = b"HEAD /in/signups/new HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer = await exchange(gateway, raw)
    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % len(ACCEPTED) in answer


async def test_many_requests_at_once_share_messages_and_are_answered_in_any_order(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    everybody = asyncio.Event()

    async def answer(request: Request) -> pipeline_pb2.IngestAnswer:
        if len(pipeline.requests) == 60:
            everybody.set()
        await everybody.wait()
        return pipeline_pb2.IngestAnswer(status=202, body=request.body)

    pipeline.answering = answer

    async def post(number: int) -> int:
        async with client.post(PATH, data=str(number)) as got:
            return int(await got.read())

    # aiohttp's client keeps 100 connections at most.
    assert await asyncio.gather(*map(post, range(60))) == list(range(60))
    assert len(pipeline.messages) < 60
    assert pipeline.streams == 1


async def test_large_bodies_travel_in_pieces_beside_small_ones(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    large = bytes(range(256)) * 8192
    sent = [client.post(PATH, data=io.BytesIO(large)), client.post(PATH, data=b"{}")]
    for got in await asyncio.gather(*sent):
        assert got.status == 202
    bodies = {len(r.body): r for r in pipeline.requests}
    assert bodies[len(large)].body == large
    assert bodies[len(large)].parts >= 8
    assert bodies[2].parts == 1


async def test_a_chunked_body_is_put_together(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    async def chunks() -> Any:
        for _ in range(5):
            yield b"x" * 100_000

    async with client.post(PATH, data=chunks()) as got:
        assert got.status == 202
    assert pipeline.requests[0].body == b"x" * 500_000
    assert not pipeline.requests[0].head.HasField("content_length")


async def test_a_compressed_body_stays_raw(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    await client.post(PATH, data=b"\x1f\x8bnot unpacked", headers={"Content-Encoding": "gzip"})
    assert pipeline.requests[0].body == b"\x1f\x8bnot unpacked"


async def test_a_declared_length_over_the_limit_is_413_before_the_body(
    pipeline: FakePipeline, gateway: Gateway
) -> None:
    raw = b"POST /in/signups/new HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 1)
    answer = await exchange(gateway, raw, until=b"}")
    assert answer.startswith(b"HTTP/1.1 413 ")
    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert told["error"] == "the body is larger than 4 MiB"
    assert "engine.packet_limit" in told["hint"]
    assert not pipeline.requests


async def test_a_body_that_grows_over_the_limit_is_413_and_withdrawn(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    async def chunks() -> Any:
        for _ in range(LIMIT // 65536 + 2):
            yield b"x" * 65536

    async with client.post(PATH, data=chunks()) as got:
        assert got.status == 413
    async with asyncio.timeout(60):
        await pipeline.cancelled_event.wait()
    assert not pipeline.requests


async def test_a_body_of_exactly_the_limit_passes(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    async with client.post(PATH, data=io.BytesIO(b"x" * LIMIT)) as got:
        assert got.status == 202


async def test_a_client_that_waits_to_be_asked_is_asked(
    pipeline: FakePipeline, gateway: Gateway
) -> None:
    host, _, port = gateway.http_address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /in/signups/new HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
        b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(60):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.read()).startswith(b"HTTP/1.1 202 ")
    writer.close()
    await writer.wait_closed()


async def test_the_pipeline_can_refuse_a_large_body_before_it_has_come(
    pipeline: FakePipeline, gateway: Gateway
) -> None:
    pipeline.early = lambda request: pipeline_pb2.IngestAnswer(status=401, body=b"{}")
    host, _, port = gateway.http_address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /in/signups/new HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n"
        + b"x" * 1_000_000
    )
    async with asyncio.timeout(60):
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 401 ")
    writer.close()
    await writer.wait_closed()
    assert not pipeline.requests


async def test_too_many_bodies_in_flight_are_503(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    release = asyncio.Event()

    async def answer(request: Request) -> pipeline_pb2.IngestAnswer:
        await release.wait()
        return pipeline_pb2.IngestAnswer(status=202, body=ACCEPTED)

    pipeline.answering = answer
    loop = asyncio.get_running_loop()
    held = [
        loop.create_task(client.post(PATH, data=io.BytesIO(b"x" * LIMIT)).__aenter__())
        for _ in range(8)
    ]
    async with asyncio.timeout(60):
        while len(pipeline.requests) < 8:
            pipeline.arrived.clear()
            await pipeline.arrived.wait()
        async with client.post(PATH, data=b"x") as got:
            assert got.status == 503
            assert got.headers["Retry-After"] == "1"
        release.set()
        assert {got.status for got in await asyncio.gather(*held)} == {202}
        async with client.post(PATH, data=b"x") as got:
            assert got.status == 202


@pytest.mark.parametrize("path", ["/in/nobody/new", "/in//new", "/in/UPPER/x", "/in/a%2Fb", "/in/"])
async def test_an_unknown_pipeline_is_404(
    pipeline: FakePipeline, client: aiohttp.ClientSession, path: str
) -> None:
    async with client.post(path) as got:
        assert got.status == 404
        told = await got.json()
    assert told["code"] == "not_found"
    assert "signups" not in json.dumps(told)


async def test_a_pipeline_without_an_http_input_is_404(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    pipeline.via = "push"
    for _ in range(2):
        async with client.post(PATH) as got:
            assert got.status == 404
            assert "no http input" in (await got.json())["error"]
    assert pipeline.streams == 0


async def test_a_stopped_pipeline_is_503_and_says_how_to_start_it(
    home: Home, client: aiohttp.ClientSession
) -> None:
    desired.write(home.pipeline("signups"), Desired("stopped", "/w/signups.pipo", state="stopped"))
    async with client.post(PATH) as got:
        assert got.status == 503
        assert got.headers["Retry-After"] == "1"
        assert "pipo start signups" in (await got.json())["hint"]


@pytest.mark.parametrize("state", ["starting", "backoff"])
async def test_a_pipeline_that_is_coming_is_503(
    home: Home, client: aiohttp.ClientSession, state: str
) -> None:
    desired.write(home.pipeline("signups"), Desired("running", "/w/signups.pipo", state=state))
    async with client.post(PATH) as got:
        assert got.status == 503
        assert got.headers["Retry-After"] == "1"


async def test_a_pipeline_that_goes_away_with_requests_open_is_502_then_503(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    async def never(request: Request) -> None:
        await asyncio.Event().wait()

    pipeline.answering = never
    asked = asyncio.get_running_loop().create_task(client.post(PATH, data=b"{}").__aenter__())
    async with asyncio.timeout(60):
        await pipeline.arrived.wait()
        await pipeline.die()
        got = await asked
    assert got.status == 502
    assert "may have been accepted" in (await got.json())["hint"]
    assert len(pipeline.requests) == 1
    async with client.post(PATH, data=b"{}") as again:
        assert again.status == 503
        assert again.headers["Retry-After"] == "1"
    assert len(pipeline.requests) == 1


async def test_the_gateway_follows_a_pipeline_to_its_new_port(
    home: Home, pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    async with client.post(PATH) as got:
        assert got.status == 202
    await pipeline.die()
    second = await FakePipeline().start(home, pid=999_999)
    try:
        async with asyncio.timeout(60):
            while True:
                async with client.post(PATH) as got:
                    if got.status == 202:
                        break
                    assert got.status in (502, 503)
                await asyncio.sleep(0.02)
        assert second.requests
    finally:
        await second.die()


async def test_a_pipeline_under_another_name_on_a_reused_port_gets_nothing(
    home: Home, pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    pipeline.name = "other"
    async with client.post(PATH) as got:
        assert got.status == 503
    assert not pipeline.requests


async def test_a_client_that_leaves_is_told_to_the_pipeline(
    pipeline: FakePipeline, gateway: Gateway
) -> None:
    async def never(request: Request) -> None:
        await asyncio.Event().wait()

    pipeline.answering = never
    host, _, port = gateway.http_address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /in/signups/new HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
    async with asyncio.timeout(60):
        await pipeline.arrived.wait()
        writer.close()
        await writer.wait_closed()
        await pipeline.cancelled_event.wait()


async def test_a_head_that_is_too_long_is_431(
    pipeline: FakePipeline, client: aiohttp.ClientSession
) -> None:
    headers = {f"X-{number}": "x" * 15_000 for number in range(6)}
    async with client.post(PATH, headers=headers) as got:
        assert got.status == 431
    headers = {f"X-{number}": "x" * 15_000 for number in range(4)}
    async with client.post(PATH, headers=headers) as got:
        assert got.status == 202


async def test_an_absolute_target_is_taken_too(pipeline: FakePipeline, gateway: Gateway) -> None:
    raw = (
        b"POST http://pipo.example/in/signups/a?b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    assert (await exchange(gateway, raw)).startswith(b"HTTP/1.1 202 ")
    assert (pipeline.requests[0].head.path, pipeline.requests[0].head.query) == ("/a", "b")


async def test_header_bytes_that_are_not_utf_8_harm_nothing(
    pipeline: FakePipeline, gateway: Gateway
) -> None:
    raw = b"POST /in/signups/a\xff?\xfe HTTP/1.1\r\nHost: \xff\r\nConnection: close\r\n\r\n"
    answer = await exchange(gateway, raw)
    assert answer.startswith((b"HTTP/1.1 202 ", b"HTTP/1.1 400 "))
    raw = b"POST /in/signups/a HTTP/1.1\r\nHost: x\xff\r\nX: \xe9\r\nConnection: close\r\n\r\n"
    assert (await exchange(gateway, raw)).startswith(b"HTTP/1.1 202 ")
    assert ("X", "\xe9") in pipeline.requests[-1].headers


async def test_what_is_not_http_is_a_json_400(gateway: Gateway) -> None:
    answer = await exchange(gateway, b"NONSENSE\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "bad_request"


async def test_a_stop_answers_what_it_can_and_says_of_the_rest_that_it_may_be_in(
    home: Home, pipeline: FakePipeline, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo_gateway.gateway.GRACE_S", 0.05)

    async def never(request: Request) -> None:
        await asyncio.Event().wait()

    pipeline.answering = never
    raw = b"POST /in/signups/new HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    asked = asyncio.get_running_loop().create_task(exchange(gateway, raw))
    async with asyncio.timeout(60):
        await pipeline.arrived.wait()
        await gateway.stop()
        await gateway.stop()
        assert (await asked).startswith(b"HTTP/1.1 502 ")
