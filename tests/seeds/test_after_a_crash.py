"""A packet goes on where it was, on its own version, when its pipeline comes back (recovering-packets)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import inspect, packet, push, settled
from tests.stack import Stack, lines, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.crash]

TEXT = """\
pipo: 1
name: resumes
input: {{ via: push }}
nodes:
  first: {{ from: input, transform: map, with: {{ data: {{ n: "${{data.n + 1}}", word: "${{data.word}}", by: v{version} }} }} }}
  second:
    from: first
    transform: map
    with: {{ data: {{ n: "${{data.n}}", by: "${{data.by}}", then: v{version}, word: "${{lower(data.word)}}" }} }}
    on_error: {{ retry: 1, delay: 4s, then: drop }}
output: {{ from: second, to: file, with: {{ path: ./out/resumes.jsonl }} }}
delivered: {{ check: line_contains, with: {{ value: "${{meta.packet_id}}" }} }}
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path)
    made.write("resumes.pipo", TEXT.format(version=1))
    try:
        yield made.start()
        assert made.stop() == 0
    finally:
        made.kill_all()


@pytest.mark.seed("R058", "R059")
def test_a_killed_pipeline_goes_on_at_the_next_step_of_its_version(stack: Stack) -> None:
    pid = stack.pipeline_pid("resumes")
    assert pid is not None
    id = push(stack, "resumes", {"n": 1, "word": 7})
    wait_for(lambda: packet(stack, "resumes", id)["attempt"] == 1)
    stack.write("resumes.pipo", TEXT.format(version=2))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stack.pipeline_pid("resumes") not in (None, pid), what="the restart")
    wait_for(lambda: stack.stats("resumes"))
    later = settled(stack, "resumes", push(stack, "resumes", {"n": 5, "word": "A"}))
    end = settled(stack, "resumes", id)
    assert (end["state"], end["version"]) == ("filtered", 1)
    assert end["data"] == {"n": 2, "word": 7, "by": "v1"}
    types = [event["type"] for event in inspect(stack, "resumes", id)["events"]]
    assert types.count("node.done") == 1
    assert types[:3] == ["packet.accepted", "node.done", "step.retry"]
    # What runs after the crash is the file as it stands: a crash restart takes it, too.
    assert later["state"] == "delivered"
    [written] = lines(stack.workspace / "out/resumes.jsonl")
    version = later["version"]
    assert written["data"] == {"n": 6, "by": f"v{version}", "then": f"v{version}", "word": "a"}
