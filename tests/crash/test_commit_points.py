"""SIGKILL at every named point: one row, delivered, after the restart (issue 2, show 3)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import (
    test_acks,
    test_batches,
    test_dead_letters,
    test_outside_steps,
    test_pauses,
    test_splits,
)
from tests.stack import Stack, query, wait_for

SOURCES = Path(__file__).resolve().parents[2]
# Points where a crash leaves the sender without an answer: it sends again, as a client would.
BEFORE_THE_ANSWER = {"accepted.before_commit", "accepted.after_commit"}
COVERED = (
    "accepted.before_commit",
    "accepted.after_commit",
    "output.before_write",
    "output.after_write",
    "written.after_commit",
    "verdict.before_commit",
    "delivered.before_commit",
    "delivered.after_commit",
)
PIPELINE = """pipo: 1
name: points
input: {{ via: http, with: {{ path: /in }} }}
nodes:
  shape: {{ from: input, transform: map, with: {{ data: {{ n: "${{data.n}}" }} }} }}
output:
  from: shape
  to: {to}
delivered:
  {check}
  within: 30s
"""
KINDS = {
    "sqlite": (
        "sqlite\n  with: { path: ./points.db, table: t, create: true }",
        'check: record_exists\n  with: { where: { packet_id: "${meta.packet_id}" } }',
    ),
    "file": (
        "file\n  with: { path: ./points.jsonl, format: jsonl }",
        'check: line_contains\n  with: { value: "${meta.packet_id}" }',
    ),
    "upsert": (
        "sqlite\n  with: { path: ./points.db, table: t, create: true, mode: upsert, key: n,"
        ' columns: { n: "${data.n}", id: "${meta.packet_id}" } }',
        'check: record_exists\n  with: { where: { n: "${data.n}" } }',
    ),
}


def named_points() -> set[str]:
    """Every point in the product's code."""
    found: set[str] = set()
    for package in ("services", "runner", "gateway", "checker", "cli"):
        for path in (SOURCES / package).rglob("*.py"):
            found |= set(re.findall(r"\breach\(\s*\"([^\"]+)\"", path.read_text()))
    return found


def test_every_named_point_is_in_a_crash_test() -> None:
    assert named_points() == {
        *COVERED,
        *test_batches.COVERED,
        *test_acks.COVERED,
        *test_dead_letters.COVERED,
        *test_outside_steps.COVERED,
        *test_pauses.COVERED,
        *test_splits.COVERED,
    }


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    kind, point = request.param
    to, check = KINDS[kind]
    made = Stack(
        tmp_path,
        env={"PIPO_CRASH_AT": point, "PIPO_CRASH_ONCE": str(tmp_path / "sprung")},
        config="engine:\n  restart: { backoff: 200ms }\n",
    )
    made.write("points.pipo", PIPELINE.format(to=to, check=check))
    try:
        yield made.start()
    finally:
        made.kill_all()


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.seed("O005", "O029", "R058", "R061")
@pytest.mark.parametrize(
    ("stack", "kind", "point"),
    [((kind, point), kind, point) for kind in KINDS for point in COVERED],
    indirect=["stack"],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_crash_at_a_point_ends_in_one_record(
    stack: Stack, tmp_path: Path, kind: str, point: str
) -> None:
    sent = 0
    first = stack.pipeline_pid("points")

    def accepted() -> bool:
        nonlocal sent
        try:
            status, _, _ = stack.request("/in/points/in", b'{"n": 7}', timeout_s=10)
        except OSError:
            status = 0
        sent += 1
        return status == 202

    wait_for(accepted, deadline_s=30, what=stack.output())
    wait_for((tmp_path / "sprung").exists, what=f"the point {point} was never reached")
    wait_for(
        lambda: stack.pipeline_pid("points") not in (None, first),
        deadline_s=30,
        what="a restart",
    )
    stats = stack.settle("points")
    assert stats["dead_lettered"] == 0
    records = found(stack, kind)
    # A packet whose answer was lost in the crash may be there beside the one sent again.
    wanted = 1 if kind == "upsert" else stats["accepted"]
    assert len(records) == wanted, records
    assert stats["delivered"] == stats["accepted"] <= (2 if point in BEFORE_THE_ANSWER else sent)


def found(stack: Stack, kind: str) -> list[str]:
    """The keys at the destination."""
    if kind == "file":
        text = (stack.workspace / "points.jsonl").read_text()
        return [json.loads(line)["packet_id"] for line in text.splitlines()]
    column = "n" if kind == "upsert" else "packet_id"
    return [row[0] for row in query(stack.workspace / "points.db", f"SELECT {column} FROM t")]
