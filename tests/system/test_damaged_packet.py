"""One packet of a journal is damaged (R38 d): it fails alone and by name, the others go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.stack import Stack, journal_of, lines, query, wait_for

TO_FILE = """pipo: 1
name: one
input: { via: http, with: { path: /x } }
nodes:
  more: { from: input, transform: map, with: { data: { n: "${data.n}", more: true } } }
output:
  from: more
  to: file
  with: { path: ./out.jsonl }
  on_error: { retry: 1000, delay: 100ms }
"""
UNSEEN = """pipo: 1
name: one
input: { via: http, with: { path: /x } }
output: { from: input, to: sqlite, with: { path: ./out.db, table: t, create: true } }
delivered:
  check: record_exists
  with: { where: { packet_id: "${data.other}" } }
  within: 10m
"""
# The log stays: a connection that is closed in order would fold it in and remove it.
CHANGE = """import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for sql in sys.argv[2:]:
    assert db.execute(sql).rowcount == 1, sql
db.commit()
os._exit(0)
"""


def change(database: Path, *statements: str) -> None:
    subprocess.run([sys.executable, "-c", CHANGE, str(database), *statements], check=True)


def post(stack: Stack, body: Any) -> str:
    status, _, answer = stack.request("/in/one/x", json.dumps(body).encode())
    assert status == 202
    return str(json.loads(answer)["packet_id"])


def test_packets_before_their_write(stack: Stack) -> None:
    """Damage in what a packet was born with, and in a patch of a step."""
    blocked = stack.workspace / "out.jsonl"
    blocked.mkdir(parents=True)
    stack.write("one.pipo", TO_FILE)
    stack.start()
    # Four are on their way; the fifth waits for one of their slots.
    ids = [post(stack, {"n": n}) for n in range(5)]
    patched = "SELECT count(*) FROM events WHERE type = 'node.done'"
    wait_for(lambda: query(journal_of(stack.home, "one"), patched) == [[4]], what="4 steps")
    stack.kill_all()
    change(
        journal_of(stack.home, "one"),
        f"UPDATE units SET data = '{{not json' WHERE id = '{ids[1]}'",
        f"UPDATE events SET patch = '{{' WHERE unit = '{ids[2]}' AND patch IS NOT NULL",
    )
    blocked.rmdir()

    stack.start()
    stats = stack.settle("one")
    assert (stats["delivered"], stats["dead_lettered"]) == (3, 2)
    assert sorted(one["data"]["n"] for one in lines(blocked)) == [0, 3, 4]
    for damaged in (ids[1], ids[2]):
        shown = stack.pipo("inspect", "one", damaged)
        assert shown.returncode == 0, shown.stderr
        assert "its data in the journal is damaged" in shown.stdout
    assert stack.stop() == 0


def test_a_packet_that_waits_for_its_check(stack: Stack) -> None:
    stack.write("one.pipo", UNSEEN)
    stack.start()
    damaged = post(stack, {"other": "never", "v": 1})
    wait_for(lambda: query(stack.workspace / "out.db", "SELECT count(*) FROM t") == [[1]])
    stack.kill_all()
    change(journal_of(stack.home, "one"), f"UPDATE units SET data = '[' WHERE id = '{damaged}'")

    stack.start()
    assert stack.settle("one")["dead_lettered"] == 1
    assert "its data in the journal is damaged" in stack.pipo("inspect", "one", damaged).stdout
    assert stack.stop() == 0
