"""SIGKILL around the effect of a step that reaches outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import inspect
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

TEXT = """pipo: 1
name: taps
input: { via: http, with: { path: /in } }
nodes:
  shape: { from: input, transform: map, with: { data: { n: "${data.n}" } } }
  kept: { from: shape, tap: file, with: { path: ./kept.jsonl } }
  last: { from: kept, filter: "true" }
output:
  from: last
  to: sqlite
  with: { path: ./taps.db, table: t, create: true }
"""
# Each point, with the nodes that are done on disk there, and how often the tap has run in the end.
POINTS = {
    "step.before_effect": (["shape"], 1),
    "step.after_effect": (["shape"], 2),
    "step.after_commit": (["shape", "kept"], 1),
}
COVERED = frozenset(POINTS)
DONE = "SELECT node FROM events WHERE type = 'node.done' ORDER BY seq"


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    made = Stack(
        tmp_path,
        env={"PIPO_CRASH_AT": request.param, "PIPO_CRASH_ONCE": str(tmp_path / "sprung")},
        config="engine:\n  restart: { backoff: 2s }\n",
    )
    made.write("taps.pipo", TEXT)
    try:
        yield made.start()
    finally:
        made.kill_all()


@pytest.mark.seed("R058", "O080")
@pytest.mark.parametrize(
    ("stack", "point"), [(point, point) for point in POINTS], indirect=["stack"], ids=list(POINTS)
)
def test_a_commit_stands_before_and_after_the_effect(
    stack: Stack, point: str, tmp_path: Path
) -> None:
    done, runs = POINTS[point]
    first = stack.pipeline_pid("taps")
    status, _, answer = stack.request("/in/taps/in", b'{"n": 7}')
    # The crash may overtake the answer, never the commit.
    assert status in (202, 502), answer
    wait_for((tmp_path / "sprung").exists, what="the trap springs")
    assert [node for (node,) in query(journal_of(stack.home, "taps"), DONE)] == done
    wait_for(lambda: stack.pipeline_pid("taps") not in (None, first), what="a restart")
    stats = stack.settle("taps")
    assert (stats["accepted"], stats["delivered"]) == (1, 1)
    ((id, n),) = query(stack.workspace / "taps.db", "SELECT packet_id, n FROM t")
    assert n == 7
    kept = lines(stack.workspace / "kept.jsonl")
    assert kept == [{"packet_id": id, "data": {"n": 7}}] * runs
    nodes = [e["node"] for e in inspect(stack, "taps", id)["events"] if e["type"] == "node.done"]
    assert nodes == ["shape", "kept", "last"]
