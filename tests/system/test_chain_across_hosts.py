"""A chain whose two ends run on different hosts, one of which dies.

Its end moves to the host that is left, with another address. A sender finds its receiver through
the registry of the home, and each packet is handed over once.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load import careful_posts
from tests.load.careful_posts import Ledger, send
from tests.load.chain_judge import faults, read
from tests.several_hosts import SeveralHosts
from tests.stack import query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

COUNT = 400
GATE = """pipo: 1
name: gate
input: { via: http, with: { path: /people } }
output:
  from: input
  to: pipeline
  with: { pipeline: depot }
  on_error: { retry: 10000, backoff: fixed, delay: 200ms }
delivered: { check: downstream, within: 1h }
"""
DEPOT = """pipo: 1
name: depot
input: { via: pipeline, with: { from: [gate] } }
output: { from: input, to: sqlite, with: { path: ./depot.db, table: t, create: true } }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  within: 1h
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[SeveralHosts]:
    made = SeveralHosts(tmp_path)
    made.write("gate.pipo", GATE)
    made.write("depot.pipo", DEPOT)
    try:
        yield made.serve("a", "b")
    finally:
        made.kill_all()


def address(hosts: SeveralHosts, name: str) -> str:
    """Where the registry says that a pipeline is dialled."""
    return str(json.loads((hosts.home / "run" / f"{name}.json").read_text())["address"])


@pytest.mark.seed("C017", "C020", "C021", "C022")
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", ["depot", "gate"], ids=["receiver", "sender"])
def test_the_host_of_one_end_dies_and_the_hand_off_goes_on(
    hosts: SeveralHosts, tmp_path: Path, end: str
) -> None:
    for name in ("depot", "gate"):
        hosts.begin(name)
    before = hosts.placed("gate", "depot")
    assert set(before.values()) == {"a", "b"}, before
    (other,) = {"gate", "depot"} - {end}
    dies, stays = before[end], before[other]
    pid, where = hosts.pipeline_pid(other), address(hosts, end)
    ledger = Ledger(tmp_path / "ledger")

    async def post_and_kill() -> careful_posts.Tally:
        posting = asyncio.create_task(
            send(
                [f"p{n}@example.com" for n in range(COUNT)],
                port=hosts.port,
                path="/in/gate/people",
                connections=4,
                ledger=ledger,
                limit_s=300,
            )
        )
        await ledger.reached(COUNT // 4)
        assert dies is not None
        await asyncio.to_thread(hosts.runner(dies).kill_with_pipelines)
        return await posting

    tally = asyncio.run(post_and_kill())
    wait_for(lambda: hosts.host_of(end) == stays, deadline_s=180, what=hosts.output)
    for name in ("gate", "depot"):
        hosts.settle(name, deadline_s=180)
    assert address(hosts, end) != where
    # The other end went on meanwhile; nobody started it anew.
    assert (hosts.host_of(other), hosts.pipeline_pid(other)) == (stays, pid)
    found = query(hosts.workspace / "depot.db", "SELECT packet_id, email FROM t")
    answered = ledger.read()
    ledger.close()
    delivered = hosts.stats("gate")["delivered"]
    rows = [packet_id for packet_id, _ in found]
    assert faults(answered.values(), read(hosts.home, ("gate", "depot")), rows, delivered) == []
    emails = dict(Counter(email for _, email in found))
    assert careful_posts.faults(set(answered), tally.unknown, emails) == []
    assert len(answered) + len(tally.unknown) == COUNT
