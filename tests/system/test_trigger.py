"""A row that vanishes after its insert: seen by a check, not by `ack` (issue 2, show 4)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import Stack, query

PIPELINE = """pipo: 1
name: {name}
input: {{ via: push }}
output: {{ from: input, to: sqlite, with: {{ path: ./{name}.db, table: t }} }}
"""
CHECKED = """delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  within: 1s
"""


def table_that_forgets(path: Path) -> None:
    """A table whose trigger deletes each row after its insert."""
    statements = (
        "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER);"
        "CREATE TRIGGER forget AFTER INSERT ON t BEGIN DELETE FROM t; END;"
    )
    program = "import sqlite3,sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])"
    subprocess.run([sys.executable, "-c", program, str(path), statements], check=True)


@pytest.mark.slow
@pytest.mark.seed("D002", "D006", "D018", "D027", "D075")
def test_a_row_deleted_by_a_trigger(stack: Stack) -> None:
    for name, check in (("trusting", ""), ("looking", CHECKED)):
        stack.write(f"{name}.pipo", PIPELINE.format(name=name) + check)
        table_that_forgets(stack.workspace / f"{name}.db")
    stack.start()
    sent = {}
    for name in ("trusting", "looking"):
        done = stack.pipo("push", name, "--data", '{"n": 1}', "--json")
        assert done.returncode == 0, done.stderr
        sent[name] = json.loads(done.stdout)["packet_id"]
        stack.settle(name)
        assert query(stack.workspace / f"{name}.db", "SELECT * FROM t") == []
    assert stack.stats("trusting")["delivered"] == 1
    assert stack.stats("looking")["dead_lettered"] == 1
    shown = stack.get(f"/api/pipelines/looking/packets/{sent['looking']}")["packet"]
    assert shown["state"] == "dead_lettered"
    assert shown["error"]["code"] == "delivery.unverified"
    assert shown["error"]["node"] == "delivered"
    # One at once, one at the end, and what a busy machine has time for between.
    assert shown["error"]["attempts"] >= 2
    waited_ms = shown["updated_at"] - shown["received_at"]
    assert 1_000 <= waited_ms <= 30_000
