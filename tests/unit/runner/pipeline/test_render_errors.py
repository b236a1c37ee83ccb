"""A `with:` that cannot be rendered for a packet is a failed run of its step: it is tried again."""

from __future__ import annotations

import pytest

from pipo.journal.changes import DeadLettered, Dropped, Retried
from tests.unit.runner.pipeline.rig import Rig

POLICY = "on_error: { retry: 2, delay: 100ms, backoff: exponential, THEN }"
AT_NODE = f"""
input: {{ via: push }}
nodes:
  kept: {{ from: input, tap: file, with: {{ path: "./out/${{data.day}}.jsonl" }}, {POLICY} }}
output: {{ from: kept, to: file, with: {{ path: ./out.jsonl }} }}
"""
AT_OUTPUT = f"""
input: {{ via: push }}
output: {{ from: input, to: file, with: {{ path: "./out/${{data.day}}.jsonl" }}, {POLICY} }}
"""
NEEDS = "the path './out/${data.day}.jsonl' needs a value that the packet does not have"


@pytest.mark.parametrize(
    ("body", "step", "code"),
    [(AT_NODE, "kept", "node.failed"), (AT_OUTPUT, "output", "output.failed")],
    ids=["node", "output"],
)
async def test_it_is_retried_and_then_ends_as_the_policy_says(
    body: str, step: str, code: str
) -> None:
    rig = Rig(body.replace("THEN", "then: dead_letter"), auto=True, outside=("file",))
    await rig.accept({"n": 1})
    await rig.settle()
    assert rig.timers.waits_s == [0.1]
    await rig.timers.elapse(0.1)
    assert rig.timers.waits_s == [0.2]
    await rig.timers.elapse(0.2)
    assert [(one.attempt, one.wait_ms, one.error) for one in rig.journal.of(Retried)] == [
        (1, 100.0, NEEDS),
        (2, 200.0, NEEDS),
    ]
    (dead,) = rig.journal.of(DeadLettered)
    assert (dead.error.code, dead.error.node, dead.error.attempts) == (code, step, 3)
    assert dead.error.message == NEEDS
    assert rig.ran == []
    assert rig.output.writes == []
    assert rig.parts.executor.in_hand == 0


async def test_one_at_a_tap_may_be_dropped_or_passed_by() -> None:
    rig = Rig(AT_NODE.replace("THEN", "then: drop"), auto=True, outside=("file",))
    await rig.accept({"n": 1})
    await rig.timers.elapse(0.3)
    (dropped,) = rig.journal.of(Dropped)
    assert dropped.error.message == NEEDS
    rig = Rig(AT_NODE.replace("THEN", "then: continue"), auto=True, outside=("file",))
    (packet,) = await rig.accept({"n": 1})
    await rig.timers.elapse(0.3)
    assert rig.output.written == [packet]
