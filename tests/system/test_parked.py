"""Ten thousand packets that wait for an ack: no work while they wait, and a quick restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.load import grpc_pushes
from tests.stack import Stack, journal_of, query, wait_for
from tests.system.test_pipeline_process import cpu_s

COUNT = 10_000
# A process that only waits; what is left is what an idle one uses too.
CPU_SHARE_MAX = 0.02
WATCHED_S = 4.0
# What each of them may add to the memory of the process.
BYTES_EACH_MAX = 4096
RESTART_S_MAX = 10.0
PARKED = """pipo: 1
name: parked
concurrency: 1
buffer: { max: 20000 }
input: { via: push }
output: { from: input, to: file, with: { path: ./parked.jsonl } }
delivered: { check: external, within: 1h }
"""


def parked(stack: Stack) -> int:
    """How many wait; 0 while the pipeline cannot be asked."""
    try:
        runner = stack.get("/api/pipelines/parked")["runner"] or {}
    except (OSError, ValueError):
        return 0
    found: int = runner.get("awaiting_ack", 0)
    return found


def private_bytes(pid: int | None) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    lines = (line.split() for line in text.splitlines() if line.startswith("Private_"))
    return sum(int(words[1]) * 1024 for words in lines)


@pytest.mark.slow
@pytest.mark.alone
def test_ten_thousand_parked_packets_cost_nothing_while_they_wait(stack: Stack) -> None:
    stack.write("parked.pipo", PARKED)
    stack.start()
    pid = stack.pipeline_pid("parked")
    before = private_bytes(pid)
    asyncio.run(grpc_pushes.push(COUNT, port=stack.port + 1, pipeline="parked"))
    wait_for(lambda: parked(stack) == COUNT, deadline_s=90, what=lambda: str(stack.stats("parked")))
    at_rest(pid)
    assert (private_bytes(pid) - before) / COUNT < BYTES_EACH_MAX

    journal = journal_of(stack.home, "parked")
    (events,) = query(journal, "SELECT count(*) FROM events WHERE unit IS NOT NULL")
    assert pid is not None
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stack.pipeline_pid("parked") not in (None, pid), what="a restart")
    wait_for(lambda: parked(stack) == COUNT, what=stack.output)
    assert time.monotonic() - began < RESTART_S_MAX
    # Nothing was journaled of any of them, and they cost as little as before.
    assert [events] == query(journal, "SELECT count(*) FROM events WHERE unit IS NOT NULL")
    at_rest(stack.pipeline_pid("parked"))

    (last,) = query(journal, "SELECT max(id) FROM units")
    body = json.dumps({"packet_id": last[0]}).encode()
    assert stack.request("/api/pipelines/parked/ack", body)[0] == 200
    assert parked(stack) == COUNT - 1
    # A drain would wait for every one of them (edge 225).
    assert stack.pipo("stop", "parked", "--now").returncode == 0


def at_rest(pid: int | None) -> None:
    """The process comes to rest: what it did to get there is over some day."""
    wait_for(
        lambda: cpu_s(pid, WATCHED_S) <= WATCHED_S * CPU_SHARE_MAX,
        deadline_s=120,
        what="it comes to rest",
    )
