"""A pipeline file is changed while packets of the older version are on their way."""

from __future__ import annotations

import json

from tests.stack import Stack, lines, query

TO_FILE = """pipo: 1
name: one
input: { via: http, with: { path: /x } }
output:
  from: input
  to: file
  with: { path: ./out }
  on_error: { retry: 1000, delay: 100ms }
delivered:
  check: line_contains
  with: { value: "${meta.packet_id}" }
"""
TO_TABLE = """pipo: 1
name: one
input: { via: http, with: { path: /new } }
output: { from: input, to: sqlite, with: { path: ./out.db, table: t, create: true } }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
"""


def test_packets_go_where_their_own_version_says(stack: Stack) -> None:
    blocked = stack.workspace / "out"
    blocked.mkdir()
    file = stack.write("one.pipo", TO_FILE)
    stack.start()
    for n in range(6):
        assert stack.request("/in/one/x", json.dumps({"n": n}).encode())[0] == 202
    assert stack.pipo("stop", "one", "--now").returncode == 0
    file.write_text(TO_TABLE)
    assert stack.pipo("start", "one").returncode == 0
    assert stack.request("/in/one/new", b'{"n":6}')[0] == 202
    blocked.rmdir()
    stats = stack.settle("one")
    assert (stats["delivered"], stats["dead_lettered"]) == (7, 0)
    assert sorted(one["data"]["n"] for one in lines(blocked)) == [0, 1, 2, 3, 4, 5]
    assert query(stack.workspace / "out.db", "SELECT n FROM t") == [[6]]
    assert stack.stop() == 0
