"""R47: one packet limit everywhere; no message limit of the transport below it shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from tests.packets import inspect, packet, running, settled
from tests.stack import Stack, lines
from tests.system.test_bad_input import peak_mb

pytestmark = pytest.mark.slow

LIMIT = 6 * 1024 * 1024
BIG = """\
input: { via: http, with: { path: /big } }
nodes:
  same: { from: input, transform: map, with: { data: "${data}" } }
output: { from: same, to: file, with: { path: ./out/big.jsonl, format: jsonl } }
delivered:
  check: line_contains
  with: { value: "${data.p ?? meta.packet_id}" }
"""
DEAD = """\
input: { via: push }
output: { from: input, to: sqlite, with: { path: ./none/no.db, table: t } }
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    config = f"engine: {{ packet_limit: {LIMIT} }}\n"
    folder = tmp_path_factory.mktemp("big")
    with running(folder, {"big": BIG, "dead": DEAD}, config=config) as made:
        yield made


def body(size: int) -> bytes:
    """JSON of exactly `size` bytes."""
    return b'{"p":"' + b"x" * (size - 8) + b'"}'


def test_five_megabytes_through_every_door(stack: Stack) -> None:
    sent = body(5_000_000)
    (stack.workspace / "big.json").write_bytes(sent)
    pushed = stack.pipo("push", "big", "--file", "big.json", "--json")
    assert pushed.returncode == 0, pushed.stderr
    status, _, answer = stack.request("/in/big/big", sent)
    assert status == 202
    status, _, by_rest = stack.request("/api/pipelines/big/push", b'{"data":%b}' % sent)
    assert status == 200
    ids = [json.loads(text)["packet_id"] for text in (pushed.stdout, answer, by_rest)]
    for id in ids:
        assert settled(stack, "big", id)["state"] == "delivered"
        assert packet(stack, "big", id)["data"] == json.loads(sent)
    written = {line["packet_id"]: line["data"] for line in lines(stack.workspace / "out/big.jsonl")}
    assert [written[id] for id in ids] == [json.loads(sent)] * 3
    shown = stack.pipo("inspect", "big", ids[0], "--json")
    assert json.loads(shown.stdout)["packet"]["data"] == json.loads(sent)
    assert stack.pipo("inspect", "big", ids[0]).returncode == 0
    assert stack.pipo("packets", "big").returncode == 0


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1], ids=["at the limit", "one more"])
def test_the_limit_is_the_same_number_at_each_door(stack: Stack, size: int) -> None:
    fits = size <= LIMIT
    before = stack.stats("big")["accepted"]
    status, _, answer = stack.request("/in/big/big", body(size))
    assert status == (202 if fits else 413)
    (stack.workspace / "limit.json").write_bytes(body(size))
    done = stack.pipo("push", "big", "--file", "limit.json")
    assert done.returncode == (0 if fits else 1), done.stderr
    if not fits:
        said = json.loads(answer)
        assert "packet_limit" in f"{said['error']} {said['hint']}"
        assert len(done.stderr.splitlines()) <= 2
        for text in (f"{said['error']} {said['hint']}", done.stderr):
            assert "6 MiB" in text or str(LIMIT) in text or f"{LIMIT:,}" in text
            assert "4194304" not in text
    stack.settle("big")
    assert stack.stats("big")["accepted"] == before + 2 * fits


async def pushed_by_grpc(
    port: int, pipeline: str, bodies: list[bytes]
) -> list[pipo_pb2.PushResult]:
    """The answers of one stream that carries every body in one message, or as few as fit."""
    channel = dial(f"127.0.0.1:{port}", "")

    async def requests() -> AsyncIterator[pipo_pb2.PushStreamRequest]:
        for first in range(0, len(bodies), 50):
            items = [
                pipo_pb2.PushItem(request_id=first + n, data=one)
                for n, one in enumerate(bodies[first : first + 50])
            ]
            yield pipo_pb2.PushStreamRequest(pipeline=pipeline, items=items)

    found: list[pipo_pb2.PushResult] = []
    try:
        async with asyncio.timeout(60):
            async for reply in pipo_pb2_grpc.PipoStub(channel).PushStream(requests()):
                found += reply.results
                if len(found) == len(bodies):
                    break
    finally:
        await channel.close()
    return sorted(found, key=lambda result: result.request_id)


def test_a_stream_and_the_listings_after_it(stack: Stack) -> None:
    """200 packets of 60 kB in four messages of 3 MB each; then every listing of them."""
    bodies = [body(60_000) for _ in range(200)]
    results = asyncio.run(pushed_by_grpc(stack.port + 1, "dead", bodies))
    assert [result.error.code for result in results] == [""] * 200
    assert stack.settle("dead")["dead_lettered"] == 200
    for words in (("packets", "dead", "--limit", "1000"), ("events", "dead")):
        done = stack.pipo(*words)
        assert done.returncode == 0, done.stderr
    listed = json.loads(stack.pipo("packets", "dead", "--limit", "1000", "--json").stdout)
    assert len(listed["packets"]) == 200
    assert (
        len(inspect(stack, "dead", listed["packets"][0]["packet_id"])["packet"]["data"]["p"])
        > 50_000
    )


def test_grpc_says_what_is_too_large(stack: Stack) -> None:
    before = stack.stats("big")["accepted"]

    async def push() -> tuple[grpc.StatusCode, str]:
        channel = dial(f"127.0.0.1:{stack.port + 1}", "")
        try:
            request = pipo_pb2.PushRequest(pipeline="big", data=body(LIMIT + 1))
            await pipo_pb2_grpc.PipoStub(channel).Push(request, timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code(), str(error.details())
        finally:
            await channel.close()
        raise AssertionError("it was taken")

    code, details = asyncio.run(push())
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert str(LIMIT) in details
    assert str(LIMIT + 1) in details
    assert "4194304" not in details
    assert stack.stats("big")["accepted"] == before


def test_twenty_at_once_keep_memory_bounded(stack: Stack) -> None:
    pids = [stack.pipeline_pid("big"), stack.service_pid("gateway")]
    before = [peak_mb(pid) for pid in pids]
    sent = body(5_000_000)
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda _: stack.request("/in/big/big", sent, timeout_s=60)[0], range(20))
        )
    # What does not fit into the budget of bodies in flight is asked to come again.
    assert set(answers) <= {202, 503}
    assert answers.count(202) >= 8
    stack.settle("big", deadline_s=90)
    for pid, mb in zip(pids, before, strict=True):
        assert peak_mb(pid) < mb + 20 * LIMIT / 1024 / 1024 * 2
