"""A drain with a thousand packets that wait, for a retry, in a batch, or for an ack (decision 8)."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

EACH = 334
TIMEOUT_S = 15
# A packet without a word fails at its first step, and waits for its next attempt.
WAITING = """\
pipo: 1
name: NAME
concurrency: 2000
lifetime: { LIFETIME, drain_timeout: 15s }
input: { via: push }
nodes:
  work:
    from: input
    transform: map
    with: { data: { n: "${data.n}", word: "${lower(data.word)}" } }
    on_error: { retry: 1, delay: WAIT, max_delay: 1h }
output:
  from: work
  to: file
  with: { path: ./NAME.jsonl }
  BATCH
delivered: { CHECK }
"""
PIPELINES = {
    # Retries that come to their end within the drain.
    "retries": {"WAIT": "5s", "BATCH": "", "CHECK": "check: ack"},
    # A batch that nothing but the drain would flush for an hour.
    "batched": {"WAIT": "5s", "BATCH": "batch: { size: 5000, within: 1h }", "CHECK": "check: ack"},
    # Acks, of which some come during the drain and some never.
    "parked": {"WAIT": "5s", "BATCH": "", "CHECK": "check: external, within: 1h"},
    # Acks that all come.
    "acked": {"WAIT": "5s", "BATCH": "", "CHECK": "check: external, within: 1h"},
}


def text(name: str, lifetime: str = "max_packets: 100000") -> str:
    made = WAITING
    for key, value in {"NAME": name, "LIFETIME": lifetime, **PIPELINES[name]}.items():
        made = made.replace(key, value)
    return made


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path)
    for name in PIPELINES:
        # The batch is ended by its lifetime, the others are stopped.
        lifetime = f"max_packets: {EACH}" if name == "batched" else "max_packets: 100000"
        made.write(f"{name}.pipo", text(name, lifetime))
    try:
        yield made.start()
    finally:
        made.kill_all()


async def pushed(port: int, pipeline: str, data: list[Any]) -> list[str]:
    """The ids of packets pushed on one stream."""
    channel = dial(f"127.0.0.1:{port}", "")
    ids: dict[int, str] = {}

    async def requests() -> Any:
        items = [
            pipo_pb2.PushItem(request_id=n, data=json.dumps(one).encode())
            for n, one in enumerate(data)
        ]
        yield pipo_pb2.PushStreamRequest(pipeline=pipeline, items=items)

    try:
        async with asyncio.timeout(120):
            async for reply in pipo_pb2_grpc.PipoStub(channel).PushStream(requests()):
                for result in reply.results:
                    assert not result.error.code, result.error
                    ids[result.request_id] = result.packet_id
                if len(ids) == len(data):
                    break
    finally:
        await channel.close()
    return [ids[n] for n in range(len(data))]


def states(stack: Stack, name: str) -> Counter[str]:
    rows = query(journal_of(stack.home, name), "SELECT state, count(*) FROM units GROUP BY state")
    return Counter(dict(rows))


def counted(stack: Stack, name: str, sql: str) -> int:
    ((count,),) = query(journal_of(stack.home, name), sql)
    return int(count)


@pytest.mark.seed("L007", "L042")
def test_a_drain_of_a_thousand_waiting_packets_ends_in_time_and_loses_none(stack: Stack) -> None:
    good, bad = {"n": 1, "word": "A"}, {"n": 2}
    sent = {
        "retries": asyncio.run(pushed(stack.port + 1, "retries", [bad] * EACH)),
        "batched": asyncio.run(pushed(stack.port + 1, "batched", [good] * (EACH - 1))),
        "parked": asyncio.run(pushed(stack.port + 1, "parked", [good] * EACH)),
        "acked": asyncio.run(pushed(stack.port + 1, "acked", [good] * 3)),
    }
    wait_for(lambda: states(stack, "batched")["writing"] == EACH - 1)
    wait_for(lambda: states(stack, "parked")["verifying"] == EACH)
    wait_for(lambda: states(stack, "acked")["verifying"] == 3)
    retried = "SELECT count(*) FROM events WHERE type = 'step.retry'"
    wait_for(lambda: counted(stack, "retries", retried) == EACH)
    began = time.monotonic()
    # All at once: three are asked to stop, the fourth has accepted its last packet.
    for name in ("retries", "parked", "acked"):
        assert stack.request(f"/api/pipelines/{name}/stop", b"{}")[0] == 200
    sent["batched"] += asyncio.run(pushed(stack.port + 1, "batched", [good]))
    for name, ids in (("parked", sent["parked"][:20]), ("acked", sent["acked"])):
        for id in ids:
            body = json.dumps({"packet_id": id}).encode()
            assert stack.request(f"/api/pipelines/{name}/ack", body)[0] == 200

    def ended() -> bool:
        found = stack.get("/api/pipelines")["pipelines"]
        return {one["state"] for one in found} <= {"stopped", "completed"}

    wait_for(ended, deadline_s=150, what=stack.output)
    took_s = time.monotonic() - began
    # Those that wait for an ack hold it up to the limit, and no longer by much.
    assert took_s >= TIMEOUT_S
    closing = (
        "SELECT max(at) - min(at) FROM events "
        "WHERE type IN ('pipeline.draining', 'pipeline.stopped', 'pipeline.completed')"
    )
    assert counted(stack, "parked", closing) < 1000 * (TIMEOUT_S + 15)
    # Nothing holds up the others: their retries and acks have come, and a batch is not waited for.
    for name in ("retries", "acked", "batched"):
        assert counted(stack, name, closing) < 1000 * TIMEOUT_S
    assert states(stack, "retries") == {"dead_lettered": EACH}
    assert states(stack, "batched") == {"delivered": EACH}
    assert states(stack, "acked") == {"delivered": 3}
    assert states(stack, "parked") == {"delivered": 20, "verifying": EACH - 20}
    for name in ("batched", "parked"):
        written = [one["packet_id"] for one in lines(stack.workspace / f"{name}.jsonl")]
        assert sorted(written) == sorted(sent[name])
    found = {one["name"]: one["state"] for one in stack.get("/api/pipelines")["pipelines"]}
    assert found == {
        "retries": "stopped",
        "batched": "completed",
        "parked": "stopped",
        "acked": "stopped",
    }
    # What was left goes on where it was: parked, and written no second time.
    path = str(stack.workspace / "parked.pipo")
    assert stack.request("/api/pipelines", json.dumps({"file": path}).encode())[0] == 201
    wait_for(lambda: stack.stats("parked").get("pending") == EACH - 20)
    body = json.dumps({"packet_id": sent["parked"][20]}).encode()
    assert stack.request("/api/pipelines/parked/ack", body)[0] == 200
    wait_for(lambda: states(stack, "parked")["delivered"] == 21)
    assert len(lines(stack.workspace / "parked.jsonl")) == EACH
