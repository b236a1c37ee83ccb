"""A runner host dies with all that it ran, under load: the others take its pipelines over.

The ledger outside Pipo is the judge, as in test_kills.py: what was answered 202 is one row, and
no row is there that nobody sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load.careful_posts import Ledger, Tally, faults, send
from tests.several_hosts import SeveralHosts
from tests.stack import query, wait_for

# A dead host's pipelines have another one by then (design §7).
CLAIMED_WITHIN_S = 10.0
# One that nobody looks at for so long is a hang, however busy the machine is.
ANSWER_WITHIN_S = 60.0
NAMES = [f"signups-{number}" for number in range(6)]
COUNT = 400
TEXT = """pipo: 1
name: {name}
concurrency: 8
input: {{ via: http, with: {{ path: /signups }} }}
output:
  from: input
  to: sqlite
  with: {{ path: ./{name}.db, table: signups, create: true }}
delivered:
  check: record_exists
  with: {{ where: {{ packet_id: "${{meta.packet_id}}" }} }}
  within: 5m
"""

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[SeveralHosts]:
    made = SeveralHosts(tmp_path)
    for name in NAMES:
        made.write(f"{name}.pipo", TEXT.format(name=name))
    try:
        yield made
    finally:
        made.kill_all()


def rows(hosts: SeveralHosts, name: str) -> dict[str, int]:
    """How often each key stands at the destination."""
    found = query(hosts.workspace / f"{name}.db", "SELECT email FROM signups")
    return Counter(str(row[0]) for row in found)


@pytest.mark.seed("R001", "R058", "R059")
async def test_the_pipelines_of_a_dead_host_move_and_nothing_is_lost_or_doubled(
    hosts: SeveralHosts, tmp_path: Path
) -> None:
    hosts.serve("a", "b", "c")
    for name in NAMES:
        await asyncio.to_thread(hosts.begin, name)
    before = hosts.placed(*NAMES)
    assert Counter(before.values()) == {"a": 2, "b": 2, "c": 2}
    dead = [name for name, host in before.items() if host == "a"]
    left = [name for name, host in before.items() if host == "b"]
    ledgers = {name: Ledger(tmp_path / f"ledger-{name}") for name in (*dead, left[0])}
    # The survivors hold what they had: their processes are the same ones at the end.
    pids = {name: hosts.pipeline_pid(name) for name in NAMES if name not in dead}

    async def load(name: str) -> Tally:
        return await send(
            (f"{name}-{number:04}@example.org" for number in range(COUNT)),
            port=hosts.port,
            path=f"/in/{name}/signups",
            connections=4,
            ledger=ledgers[name],
            limit_s=600,
        )

    async def die() -> float:
        await asyncio.gather(*(ledgers[name].reached(COUNT // 5) for name in dead))
        await asyncio.to_thread(hosts.runner("a").kill_with_pipelines)
        began = time.monotonic()
        await asyncio.to_thread(wait_for, lambda: None not in hosts.placed(*dead).values())
        return time.monotonic() - began

    async with asyncio.TaskGroup() as group:
        loads = {name: group.create_task(load(name)) for name in ledgers}
        died = group.create_task(die())
    tallies = {name: task.result() for name, task in loads.items()}
    assert died.result() < CLAIMED_WITHIN_S
    # Not all by one.
    assert set(hosts.placed(*dead).values()) == {"b", "c"}
    assert {name: hosts.pipeline_pid(name) for name in pids} == pids
    for name, tally in tallies.items():
        ledgers[name].close()
        stats = await asyncio.to_thread(hosts.settle, name, deadline_s=300.0)
        acknowledged = set(ledgers[name].read())
        assert faults(acknowledged, tally.unknown, rows(hosts, name)) == []
        assert len(acknowledged | tally.unknown) == COUNT
        assert stats["delivered"] == stats["accepted"] == len(rows(hosts, name))
        assert tally.without_retry_after == 0
        assert tally.slowest_s < ANSWER_WITHIN_S, "a client was left to hang"
    assert all(tallies[name].refused for name in dead), "the death was not noticed"
    assert not tallies[left[0]].unknown, "another host's pipeline was disturbed"
