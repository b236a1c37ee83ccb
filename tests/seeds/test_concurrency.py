"""Concurrency, the buffer and the ends of a pipeline, against a real stack (lifetime).

A packet without a `word` fails at its first step and holds its worker for the back-off
(edge 106): that is the slow step of these tests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from tests.packets import inspect, packet, push, running, settled
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow


def slow(
    name: str, *, wait: str = "1500ms", more: str = "", inputs: str = "hand: { via: push }"
) -> str:
    sources = ", ".join(line.split(":")[0].strip() for line in inputs.splitlines())
    return (
        f"{more}inputs:\n"
        + "".join(f"  {line}\n" for line in inputs.splitlines())
        + f"""\
nodes:
  work:
    from: [{sources}]
    transform: map
    with: {{ data: {{ n: "${{data.n}}", word: "${{lower(data.word)}}" }} }}
    on_error: {{ retry: 1, delay: {wait} }}
output: {{ from: work, to: file, with: {{ path: ./out/{name}.jsonl }} }}
"""
    )


AT_ONCE = """\
input: { via: push }
nodes:
  first: { from: input, transform: map, with: { data: { n: "${data.n + 1}" } } }
  second:
    from: first
    transform: map
    with: { data: "${lower(data.word)}" }
    on_error: { retry: 1, delay: 4s }
output: { from: second, to: stdout }
"""
PIPELINES = {
    "unset": slow("unset"),
    "two": slow("two", more="concurrency: 2\n"),
    "eight": slow("eight", more="concurrency: 8\n"),
    "in-turn": slow("in-turn", wait="400ms", more="concurrency: 1\n"),
    "roomy": slow("roomy", wait="1m", more="concurrency: 1\n"),
    "narrow": slow(
        "narrow",
        wait="2s",
        more="concurrency: 1\nbuffer: { max: 2 }\n",
        inputs="hand: { via: push }\nother: { via: push }\nweb: { via: http, with: { path: /web } }",
    ),
    "drained": slow("drained"),
    "at-once": AT_ONCE,
    "idle": slow("idle"),
}
SLOW, FAST = {"n": 1}, {"n": 2, "word": "A"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("concurrency"), PIPELINES) as made:
        yield made


def at(stack: Stack, name: str, id: str, type_: str) -> int:
    """When an event of a packet happened."""
    return int(next(e["at"] for e in inspect(stack, name, id)["events"] if e["type"] == type_))


def tried(stack: Stack, name: str, id: str) -> bool:
    return bool(packet(stack, name, id)["attempt"])


@pytest.mark.seed("L027", "L028", "L030")
@pytest.mark.parametrize(("name", "workers"), [("unset", 4), ("two", 2), ("eight", 8)])
def test_so_many_packets_at_once(stack: Stack, name: str, workers: int) -> None:
    held = [push(stack, name, SLOW) for _ in range(workers - 1)]
    wait_for(lambda: all(tried(stack, name, id) for id in held))
    passing = settled(stack, name, push(stack, name, FAST))
    assert passing["state"] == "delivered"
    held.append(push(stack, name, SLOW))
    wait_for(lambda: tried(stack, name, held[-1]))
    waiting = push(stack, name, FAST)
    settled(stack, name, waiting)
    ends = []
    for id in held:
        assert settled(stack, name, id)["state"] == "dead_lettered"
        ends.append(at(stack, name, id, "packet.dead_lettered"))
    # One worker was free for the first fast packet, none for the second.
    assert at(stack, name, passing["packet_id"], "packet.delivered") < min(ends)
    assert at(stack, name, waiting, "packet.delivered") >= min(ends)


@pytest.mark.seed("L029")
def test_one_worker_is_first_in_first_out(stack: Stack) -> None:
    sent = [
        push(stack, "in-turn", {"n": n, "word": "A"} | ({} if n % 2 else {"word": 7}))
        for n in range(6)
    ]
    ends = [settled(stack, "in-turn", id)["updated_at"] for id in sent]
    assert ends == sorted(ends)
    written = [line["packet_id"] for line in lines(stack.workspace / "out/in-turn.jsonl")]
    assert written == sent[1::2]
    events = query(
        journal_of(stack.home, "in-turn"),
        "SELECT unit FROM events WHERE type IN ('packet.delivered', 'packet.dead_lettered') ORDER BY seq",
    )
    assert [row[0] for row in events] == sent


def refusal(stack: Stack, name: str, data: Any, *words: str) -> str:
    done = stack.pipo("push", name, "--data", json.dumps(data), *words)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.seed("L036")
def test_all_inputs_share_one_buffer(stack: Stack) -> None:
    sent = [push(stack, "narrow", SLOW, input="hand") for _ in range(2)]
    status, headers, answer = stack.request("/in/narrow/web", b"{}")
    assert (status, headers["Retry-After"]) == (503, "5")
    assert b"buffer full (2 packets pending)" in answer
    for name in ("other", "hand"):
        body = json.dumps({"data": FAST, "input": name}).encode()
        status, _, answer = stack.request("/api/pipelines/narrow/push", body)
        assert status == 503
        assert b"buffer full (2 packets pending)" in answer
    settled(stack, "narrow", sent[0])
    assert stack.request("/in/narrow/web", b'{"word": "A"}')[0] == 202
    assert stack.stats("narrow")["accepted"] == 3


async def filled(port: int, pipeline: str, count: int) -> list[str]:
    """The errors of `count` packets pushed on one stream; empty for the accepted ones."""
    channel = dial(f"127.0.0.1:{port}", "")

    async def requests() -> Any:
        for first in range(0, count, 500):
            items = [
                pipo_pb2.PushItem(request_id=n, data=b'{"n":1}')
                for n in range(first, min(first + 500, count))
            ]
            yield pipo_pb2.PushStreamRequest(pipeline=pipeline, items=items)

    errors: dict[int, str] = {}
    try:
        async with asyncio.timeout(60):
            async for reply in pipo_pb2_grpc.PipoStub(channel).PushStream(requests()):
                for result in reply.results:
                    errors[result.request_id] = result.error.message
                if len(errors) == count:
                    break
    finally:
        await channel.close()
    return [errors[n] for n in range(count)]


@pytest.mark.seed("L033")
def test_the_buffer_holds_ten_thousand(stack: Stack) -> None:
    errors = asyncio.run(filled(stack.port + 1, "roomy", 10_003))
    assert errors.count("") == 10_000
    refused = {error for error in errors if error}
    assert len(refused) == 1
    assert "buffer full (10000 packets pending)" in refused.pop()
    assert "buffer full (10000 packets pending)" in refusal(stack, "roomy", FAST)
    assert stack.stats("roomy")["accepted"] == stack.stats("roomy")["pending"] == 10_000
    assert stack.pipo("stop", "roomy", "--now").returncode == 0


def stopped(stack: Stack, name: str) -> bool:
    return bool(stack.get(f"/api/pipelines/{name}")["state"] == "stopped")


@pytest.mark.seed("L042")
def test_a_stop_drains(stack: Stack) -> None:
    id = push(stack, "drained", SLOW)
    wait_for(lambda: tried(stack, "drained", id))
    pid = stack.pipeline_pid("drained")
    assert stack.pipo("stop", "drained").returncode == 0
    told = refusal(stack, "drained", FAST)
    assert "pipeline is draining" in told or "pipo start drained" in told
    wait_for(lambda: stopped(stack, "drained"))
    found = json.loads(stack.pipo("inspect", "drained", id, "--json").stdout)
    assert found["source"] == "journal"
    assert (found["packet"]["state"], found["packet"]["error"]["attempts"]) == ("dead_lettered", 2)
    assert stack.pipeline_pid("drained") != pid


@pytest.mark.seed("L043")
def test_a_stop_now_leaves_what_is_in_flight(stack: Stack) -> None:
    id = push(stack, "at-once", SLOW)
    wait_for(lambda: tried(stack, "at-once", id))
    assert stack.pipo("stop", "at-once", "--now").returncode == 0
    wait_for(lambda: stopped(stack, "at-once"))
    left = f"SELECT state, cursor, attempt FROM units WHERE id = '{id}'"
    assert query(journal_of(stack.home, "at-once"), left) == [["processing", "second", 1]]
    assert stack.pipo("start", "at-once.pipo").returncode == 0
    wait_for(lambda: stack.stats("at-once"))
    end = settled(stack, "at-once", id)
    assert (end["state"], end["data"], end["error"]["attempts"]) == ("dead_lettered", {"n": 2}, 2)
    types = [event["type"] for event in inspect(stack, "at-once", id)["events"]]
    assert types == ["packet.accepted", "node.done", "step.retry", "packet.dead_lettered"]


@pytest.mark.seed("L002")
def test_a_pipeline_runs_until_it_is_stopped(stack: Stack) -> None:
    """The last test of this file: the idle pipeline has seen nothing all the while."""
    wait_for(lambda: stack.get("/api/pipelines/idle")["stats"]["uptime"] >= 5)
    found = stack.get("/api/pipelines/idle")
    assert (found["state"], found["stats"]["accepted"]) == ("running", 0)
    assert stack.pipo("stop", "idle").returncode == 0
    wait_for(lambda: stopped(stack, "idle"))
