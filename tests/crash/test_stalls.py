"""SIGKILL at the commit in which a stall hands packets over: each goes once, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import inspect, packet, push
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# Its table is never there. One packet is in the worker's hands, the others queue behind it.
STUCK = """pipo: 1
name: stuck
concurrency: 1
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: ./there/stuck.db, table: t }
  on_error: { retry: 10000, delay: 300ms }
delivered: { stall: { after: 1s } }
agent: { control: true, on_stall: handle }
"""
STALLS = {"escalated.before_commit": 1, "escalated.after_commit": 2}


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    made = Stack(
        tmp_path,
        env={"PIPO_CRASH_AT": request.param, "PIPO_CRASH_ONCE": str(tmp_path / "sprung")},
        config="engine:\n  restart: { backoff: 200ms }\n",
    )
    made.write("stuck.pipo", STUCK)
    try:
        yield made.start()
    finally:
        made.kill_all()


@pytest.mark.seed("D069", "R044")
@pytest.mark.parametrize(("stack", "point"), [(p, p) for p in STALLS], indirect=["stack"])
def test_a_crash_at_the_hand_over_of_a_stall(stack: Stack, tmp_path: Path, point: str) -> None:
    ids = [push(stack, "stuck", {"n": n}) for n in range(3)]
    wait_for((tmp_path / "sprung").exists, what=lambda: f"the trap springs\n{stack.output()}")

    def states() -> list[str]:
        try:
            return [packet(stack, "stuck", id)["state"] for id in ids]
        except (OSError, KeyError):
            return []

    wait_for(lambda: states() == ["escalated"] * 3, what=lambda: f"{states()}\n{stack.output()}")
    for id in ids:
        types = [event["type"] for event in inspect(stack, "stuck", id)["events"]]
        assert types.count("packet.escalated") == 1
    # A commit that was lost is made by the next run; one that was not leaves the marked packet,
    # which runs again and waits for a stall of its own (edge 240).
    told = query(
        journal_of(stack.home, "stuck"),
        "select detail ->> '$.escalated', detail ->> '$.marked' from events "
        "where type = 'pipeline.escalated' order by seq",
    )
    assert len(told) == STALLS[point]
    assert told[0] == [2, 1]
