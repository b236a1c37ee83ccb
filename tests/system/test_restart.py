"""Drain and restart through a real stack: a clean stop, a new process, and nobody else's."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from tests.packets import packet, push, settled
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

PIPELINE = """pipo: 1
name: {name}
input: {{ via: push }}
nodes:
  work:
    from: input
    transform: map
    with: {{ data: "${{lower(data.word)}}" }}
    on_error: {{ retry: 1, delay: 3s }}
output: {{ from: work, to: file, with: {{ path: ./out/{name}.jsonl }} }}
"""
SLOW = {"word": 7}


def started(stack: Stack, *names: str) -> Stack:
    for name in names:
        stack.write(f"{name}.pipo", PIPELINE.format(name=name))
    return stack.start()


def state(stack: Stack, name: str) -> tuple[str, str | None]:
    found = stack.get(f"/api/pipelines/{name}")
    return found["state"], found["status"]


def test_a_restart_is_a_clean_stop_and_a_start(stack: Stack) -> None:
    started(stack, "rows", "other")
    pid, other = stack.pipeline_pid("rows"), stack.pipeline_pid("other")
    assert stack.pipo("pause", "rows").returncode == 0
    id = push(stack, "rows", {"word": "A"})
    stack.write("rows.pipo", PIPELINE.format(name="rows") + "# changed\n")
    done = stack.pipo("restart", "rows")
    assert done.returncode == 0, done.stderr
    new = stack.pipeline_pid("rows")
    assert done.stdout == f"restarted rows (pid {new})\n"
    assert new != pid
    assert state(stack, "rows") == ("running", "active")
    # It drained: the resume, the packet and the clean end came before the start.
    assert settled(stack, "rows", id)["state"] == "delivered"
    events = stack.get("/api/pipelines/rows/events?limit=1000")["events"]
    types = [e["type"] for e in events if e["type"].startswith("pipeline.")]
    assert types == [
        "pipeline.started",
        "pipeline.paused",
        "pipeline.resumed",
        "pipeline.draining",
        "pipeline.stopped",
        "pipeline.started",
    ]
    assert stack.get("/api/pipelines/rows")["version"] == 2
    assert stack.get("/api/pipelines/rows")["restarts"] == 0
    assert stack.pipeline_pid("other") == other
    told = json.loads(stack.pipo("restart", "rows", "--json").stdout)
    assert (told["state"], told["pid"], told["engine"]) == (
        "running",
        stack.pipeline_pid("rows"),
        "up",
    )


def test_a_drain_over_rest_and_a_restart_of_what_has_stopped(stack: Stack) -> None:
    started(stack, "rows")
    status, _, body = stack.request("/api/pipelines/rows/drain", b"{}")
    assert (status, json.loads(body)) == (
        200,
        {"pipeline": "rows", "state": "draining", "already": False},
    )
    wait_for(lambda: state(stack, "rows") == ("stopped", None))
    status, _, body = stack.request("/api/pipelines/rows/restart", b"{}")
    assert (status, json.loads(body)["state"]) == (200, "running")
    assert state(stack, "rows") == ("running", "active")


def test_a_restart_of_a_broken_file_stops_nothing(stack: Stack) -> None:
    started(stack, "rows")
    pid = stack.pipeline_pid("rows")
    stack.write("rows.pipo", "pipo: 1\nname: rows\ninput: { via: nothing }\n")
    refused = stack.pipo("restart", "rows")
    assert refused.returncode == 1
    assert "rows.pipo" in refused.stderr
    assert (stack.pipeline_pid("rows"), state(stack, "rows")) == (pid, ("running", "active"))


@pytest.mark.crash
def test_a_restart_outlives_the_host_that_began_it(stack: Stack) -> None:
    stack.write("rows.pipo", PIPELINE.format(name="rows").replace("delay: 3s", "delay: 10s"))
    stack.start()
    pid = stack.pipeline_pid("rows")
    id = push(stack, "rows", SLOW)
    wait_for(lambda: packet(stack, "rows", id)["attempt"] == 1)
    asked = threading.Thread(target=stack.request, args=("/api/pipelines/rows/restart", b"{}"))
    asked.start()
    wait_for(lambda: state(stack, "rows")[1] == "draining", what=stack.output)
    host = stack.service_pid("runner")
    assert host is not None
    os.kill(host, signal.SIGKILL)
    wait_for(
        lambda: stack.pipeline_pid("rows") not in (None, pid), deadline_s=150, what=stack.output
    )
    asked.join(60)
    wait_for(lambda: state(stack, "rows") == ("running", "active"))
    assert settled(stack, "rows", id)["state"] == "dead_lettered"
