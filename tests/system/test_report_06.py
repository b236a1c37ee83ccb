"""R06: integers of any size keep every digit, through a map, into lines and rows and out again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.packets import running
from tests.stack import Stack, query

pytestmark = pytest.mark.slow

HEAD = """\
input: { via: http, with: { path: /big } }
nodes:
  same: { from: input, transform: map, with: { data: { id: "${data.id}", s: "${data.s}" } } }
"""
ROWS = (
    HEAD
    + """\
output:
  from: same
  to: sqlite
  batch: { size: 3, within: 2s }
  with: { path: ./out/big.db, table: t, create: true }
  on_error: { retry: 1, delay: 50ms }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.key}", id: "${data.id}" } }
"""
)
LINES = HEAD + "output: { from: same, to: file, with: { path: ./out/big.jsonl, format: jsonl } }\n"
SENT = {
    8202522731445525542: ("8202522731445525542", "integer"),
    18446744073709551615: ("x", "text"),
    -9223372036854775808: ("y", "integer"),
}


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("big"), {"big": ROWS, "big-lines": LINES}) as made:
        for name in ("big", "big-lines"):
            for number, (text, _) in SENT.items():
                body = f'{{"id":{number},"s":"{text}"}}'.encode()
                assert made.request(f"/in/{name}/big", body)[0] == 202
        yield made


def test_rows(big: Stack) -> None:
    stats = big.settle("big")
    assert (stats["delivered"], stats["dead_lettered"]) == (3, 0)
    found = query(
        big.workspace / "out/big.db", "SELECT CAST(id AS TEXT), typeof(id), s, typeof(s) FROM t"
    )
    wanted = [[str(number), kind, text, "text"] for number, (text, kind) in SENT.items()]
    assert sorted(found) == sorted(wanted)


def test_lines_and_the_command_line(big: Stack) -> None:
    big.settle("big-lines")
    written = (big.workspace / "out/big.jsonl").read_text()
    for one in big.get("/api/pipelines/big-lines/packets")["packets"]:
        told = big.pipo("inspect", "big-lines", one["packet_id"]).stdout
        [number] = [n for n in SENT if f'"id":{n},"s":"{SENT[n][0]}"' in told]
        path = f"/api/pipelines/big-lines/packets/{one['packet_id']}"
        _, _, answer = big.request(path, method="GET")
        assert str(number).encode() in answer
        assert b"e+19" not in answer
    shown = big.pipo("inspect", "big-lines", one["packet_id"], "--json").stdout
    assert str(number) in shown
    for number, (text, _) in SENT.items():
        assert f'"data":{{"id":{number},"s":"{text}"}}' in written
