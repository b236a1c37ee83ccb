"""The main job: 10,000 sign-ups over HTTP are 10,000 rows and 10,000 delivered (issue 2, show 1)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.load.http_posts import post
from tests.load.ledger import Ledger, read
from tests.stack import Stack, lines, query, wait_for

COUNT = 10_000
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIGNUPS = """pipo: 1
name: signups-to-sqlite
input:
  via: http
  with: { path: /signups }
output:
  from: input
  to: sqlite
  with:
    path: ./data/signups.db
    table: signups
    create: true
"""
CHECKED = """delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  within: 60s
"""
HEARTBEAT = """pipo: 1
name: heartbeat
input:
  via: schedule
  with: { every: 5s, payload: { status: alive } }
output:
  from: input
  to: file
  with: { path: ./out/heartbeat.jsonl, format: jsonl }
delivered:
  check: line_contains
  with: { value: "${meta.packet_id}" }
  within: 5s
  on_fail:
    then: dead_letter
    message: "No line for ${meta.packet_id} after ${error.elapsed}"
"""


@pytest.mark.slow
@pytest.mark.seed("O002", "O003", "O004", "O013", "D027")
@pytest.mark.parametrize("check", ["", CHECKED], ids=["ack", "record_exists"])
def test_ten_thousand_sign_ups(stack: Stack, tmp_path: Path, check: str) -> None:
    stack.start(stack.write("signups-to-sqlite.pipo", SIGNUPS + check))
    ledger = Ledger(tmp_path / "ledger")
    path = "/in/signups-to-sqlite/signups"
    outcome = asyncio.run(post(COUNT, port=stack.port, path=path, ledger=ledger))
    ledger.close()
    assert outcome.statuses == {202: COUNT}
    stats = stack.settle("signups-to-sqlite", deadline_s=120)
    assert (stats["accepted"], stats["delivered"], stats["dead_lettered"]) == (COUNT, COUNT, 0)
    rows = query(stack.workspace / "data/signups.db", "SELECT n, packet_id, email FROM signups")
    assert sorted(row[0] for row in rows) == list(range(COUNT))
    assert {str(row[0]) for row in rows} == set(read(tmp_path / "ledger"))
    assert len({row[1] for row in rows}) == COUNT
    assert all(row[2] == f"ada{row[0]}@example.com" for row in rows)


@pytest.mark.slow
@pytest.mark.seed("D003", "D005", "D034", "R011")
def test_the_heartbeat_of_the_seed_beats(stack: Stack) -> None:
    stack.start(stack.write("heartbeat.pipo", HEARTBEAT))
    out = stack.workspace / "out/heartbeat.jsonl"
    wait_for(lambda: out.exists() and len(lines(out)) >= 2)
    stats = stack.settle("heartbeat")
    records = lines(out)
    assert all(record["data"] == {"status": "alive"} for record in records)
    assert stats["delivered"] >= 2
    packet_id = records[0]["packet_id"]
    shown = json.loads(stack.pipo("inspect", "heartbeat", packet_id, "--json").stdout)
    assert shown["packet"]["state"] == "delivered"
    assert [event["type"] for event in shown["events"]] == [
        "packet.accepted",
        "output.written",
        "packet.delivered",
    ]
    journal = stack.home / "pipelines/heartbeat/journal.db"
    passed = query(journal, f"SELECT state FROM events WHERE unit = '{packet_id}' ORDER BY seq")
    assert passed == [["accepted"], ["verifying"], ["delivered"]]
    times = [row[0] for row in query(journal, "SELECT received_at FROM units ORDER BY id")]
    # A late tick is followed by one in time.
    assert 2_000 <= times[1] - times[0] <= 20_000


@pytest.mark.seed("D003", "O003")
def test_the_examples_are_the_seeds_files() -> None:
    """Comments aside, heartbeat and signups in examples/ are the seeds' own."""
    for name, text in (("heartbeat", HEARTBEAT), ("signups", SIGNUPS)):
        found = (EXAMPLES / f"{name}.pipo").read_text().splitlines()
        bare = [line.partition(" #")[0].rstrip() for line in found]
        assert [line for line in bare if line and not line.startswith("#")] == text.splitlines()
