"""What each input does while its pipeline is paused: it takes packets until the buffer is full."""

from __future__ import annotations

import json
import time

import pytest

from tests.packets import packet
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

PIPELINE = """pipo: 1
name: {name}
buffer: {{ max: 2 }}
input: {{ {input} }}
output: {{ from: input, to: file, with: {{ path: ./out/{name}.jsonl }} }}
"""
INPUTS = {
    "web": "via: http, with: { path: /rows }",
    "waited": "via: http, with: { path: /rows, respond: delivered, timeout: 300ms }",
    "ticks": "via: schedule, with: { every: 200ms }",
}


@pytest.fixture
def paused(stack: Stack) -> Stack:
    """A stack whose pipelines are all paused."""
    for name, given in INPUTS.items():
        stack.write(f"{name}.pipo", PIPELINE.format(name=name, input=given))
    stack.start()
    for name in INPUTS:
        assert stack.pipo("pause", name).returncode == 0
    return stack


def stats(stack: Stack, name: str) -> tuple[int, int]:
    found = stack.stats(name)
    return found["accepted"], found["delivered"]


def test_inputs_take_packets_until_the_buffer_is_full(paused: Stack) -> None:
    for _ in range(2):
        assert paused.request("/in/web/rows", b"1")[0] == 202
    status, headers, body = paused.request("/in/web/rows", b"1")
    assert (status, headers["Retry-After"]) == (503, "5")
    assert "buffer full (2 packets pending)" in json.loads(body)["error"]
    # Who waits for the delivery hears at its timeout that the packet is there (edge 32).
    began = time.monotonic()
    status, _, body = paused.request("/in/waited/rows", b"1")
    told = json.loads(body)
    assert (status, told["state"]) == (202, "accepted")
    assert time.monotonic() - began >= 0.3
    assert packet(paused, "waited", told["packet_id"])["state"] == "accepted"
    # A schedule goes on ticking into the journal, and skips ticks once it is full (edge 49).
    wait_for(lambda: paused.stats("ticks")["pending"] == 2)
    before = paused.stats("ticks")["delivered"]
    log = paused.home / "logs/ticks.log"
    wait_for(lambda: "buffer full" in log.read_text(), what=log.read_text)
    assert paused.stats("ticks")["delivered"] == before
    for name in INPUTS:
        assert paused.pipo("resume", name).returncode == 0
    wait_for(lambda: stats(paused, "web") == (2, 2))
    wait_for(lambda: stats(paused, "waited") == (1, 1))
    wait_for(lambda: paused.stats("ticks")["delivered"] >= before + 3)
    assert paused.request("/in/web/rows", b"1")[0] == 202
