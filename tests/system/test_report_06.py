"""R06: integers of any size keep every digit, through a map, into lines and rows and out again."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest

from tests.packets import running
from tests.receiver import Receiver
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
CELLS = HEAD + "output: { from: same, to: file, with: { path: ./out/big.csv, format: csv } }\n"
SENDS = HEAD + 'output: { from: same, to: http, with: { url: "http://127.0.0.1:PORT/x" } }\n'
SENT = {
    8202522731445525542: ("8202522731445525542", "integer"),
    18446744073709551615: ("x", "text"),
    -9223372036854775808: ("y", "integer"),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    pipelines = {"big": ROWS, "big-lines": LINES, "big-cells": CELLS}
    pipelines["big-sends"] = SENDS.replace("PORT", str(receiver.port))
    with running(tmp_path_factory.mktemp("big"), pipelines) as made:
        for name in pipelines:
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


def test_cells_and_a_request_s_body(big: Stack, receiver: Receiver) -> None:
    assert big.settle("big-cells")["delivered"] == 3
    with (big.workspace / "out/big.csv").open(newline="") as file:
        rows = [(row["id"], row["s"]) for row in csv.DictReader(file)]
    assert sorted(rows) == sorted((str(number), text) for number, (text, _) in SENT.items())
    assert big.settle("big-sends")["delivered"] == 3
    bodies = {f'{{"id":{number},"s":"{text}"}}'.encode() for number, (text, _) in SENT.items()}
    assert set(receiver.kept.values()) == bodies
