"""`pipo run` in a home that a power cut left behind."""

from __future__ import annotations

import json

from tests.stack import Stack, lines, wait_for

TO_FILE = """pipo: 1
name: {name}
input: {{ via: http, with: {{ path: /x }} }}
output: {{ from: input, to: file, with: {{ path: ./{name}.jsonl }} }}
"""
NAMES = ("one", "two", "three")


def test_a_run_takes_up_what_the_host_resumed_before_it(stack: Stack) -> None:
    """The host brings back what should run, and often before `pipo run` asks for it."""
    for name in NAMES:
        stack.write(f"{name}.pipo", TO_FILE.format(name=name))
    stack.start()
    for name in NAMES:
        assert stack.request(f"/in/{name}/x", json.dumps({"run": 1}).encode())[0] == 202
    stack.kill_all()

    stack.start()
    wait_for(lambda: stack.output().count("Pipo is running") == 2, what="the second run is up")
    for name in NAMES:
        assert stack.request(f"/in/{name}/x", json.dumps({"run": 2}).encode())[0] == 202
        stack.settle(name)
    assert stack.stop() == 0
    for name in NAMES:
        assert [one["data"]["run"] for one in lines(stack.workspace / f"{name}.jsonl")] == [1, 2]
