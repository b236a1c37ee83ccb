"""SIGKILL at every named point: one row, delivered, after the restart.

Here a request comes in and its sender may get no answer; `test_destinations` has every kind
of destination.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import (
    test_acks,
    test_batches,
    test_dead_letters,
    test_lifetime,
    test_outside_steps,
    test_pauses,
    test_reruns,
    test_resolutions,
    test_splits,
    test_versions,
)
from tests.crash.traps import trap, trapped
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
name: NAME
input: { via: http, with: { path: /in } }
nodes:
  shape: { from: input, transform: map, with: { data: { n: "${data.n}" } } }
output:
  from: shape
  to: sqlite
  with: { path: ./NAME.db, table: t, create: true }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  within: 5m
"""


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
        *test_lifetime.COVERED,
        *test_outside_steps.COVERED,
        *test_pauses.COVERED,
        *test_reruns.COVERED,
        *test_resolutions.COVERED,
        *test_splits.COVERED,
        *test_versions.COVERED,
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    yield from trapped(tmp_path_factory.mktemp("points"), "backoff: 200ms")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.seed("O005", "O029", "R058", "R061")
@pytest.mark.parametrize("point", COVERED)
def test_a_crash_at_a_point_ends_in_one_record(stack: Stack, point: str) -> None:
    name = f"c{COVERED.index(point)}"
    sprung = trap(stack, name, point)
    path = stack.write(f"{name}.pipo", PIPELINE.replace("NAME", name))
    assert stack.pipo("start", str(path)).returncode == 0
    sent = 0
    first = stack.pipeline_pid(name)

    def accepted() -> bool:
        nonlocal sent
        try:
            status, _, _ = stack.request(f"/in/{name}/in", b'{"n": 7}')
        except OSError:
            status = 0
        sent += 1
        return status == 202

    wait_for(accepted, deadline_s=150, what=stack.output)
    wait_for(lambda: not sprung.exists(), what=f"the point {point} was never reached")
    wait_for(
        lambda: stack.pipeline_pid(name) not in (None, first),
        deadline_s=150,
        what="a restart",
    )
    stats = stack.settle(name)
    assert stats["dead_lettered"] == 0
    # A packet whose answer was lost in the crash may be there beside the one sent again.
    rows = query(stack.workspace / f"{name}.db", "SELECT packet_id FROM t")
    assert len(rows) == stats["accepted"] == stats["delivered"], rows
    assert stats["accepted"] <= (2 if point in BEFORE_THE_ANSWER else sent)
