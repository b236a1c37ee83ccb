"""R04: a spreadsheet's CSV with BOM, CRLF, quotes and blank lines; ragged rows are refused whole."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.packets import packet, running
from tests.stack import Stack, lines

pytestmark = pytest.mark.slow

SHEET = """\
input: { via: http, format: csv, with: { path: /sheet } }
output: { from: input, to: file, with: { path: ./out/sheet.jsonl, format: jsonl } }
"""
DOOR = "/in/sheet/sheet"
GOOD = b'\xef\xbb\xbfid,zip,name\r\n1,02134,"Ann ""A"" B"\r\n2,,"x;y"\r\n\r\n'
BAD = {
    "too many": (b"id,zip,name\r\n1,02134,Ann\r\n2,10001,Bo,extra\r\n", ("3", "4")),
    "too few": (b"id,zip,name\r\n1,02134,Ann\r\n3,94105\r\n", ("3", "2")),
    "same heading twice": (b"id,id\r\n1,2\r\n", ("1", "id")),
    "UTF-16": (b"\xff\xfei\x00d\x00\r\x00\n\x001\x00\r\x00\n\x00", ("UTF-8",)),
}


@pytest.fixture(scope="module")
def sheet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("sheet"), {"sheet": SHEET}) as made:
        yield made


def test_a_good_export_is_two_packets(sheet: Stack) -> None:
    status, _, answer = sheet.request(DOOR, GOOD, headers={"content-type": "text/csv"})
    assert status == 202
    ids = [one["packet_id"] for one in json.loads(answer)["packets"]]
    assert len(ids) == 2
    sheet.settle("sheet")
    wanted = [
        {"id": "1", "zip": "02134", "name": 'Ann "A" B'},
        {"id": "2", "zip": "", "name": "x;y"},
    ]
    assert [packet(sheet, "sheet", id)["data"] for id in ids] == wanted
    written = {
        line["packet_id"]: line["data"] for line in lines(sheet.workspace / "out/sheet.jsonl")
    }
    assert [written[id] for id in ids] == wanted


@pytest.mark.parametrize("case", BAD)
def test_a_ragged_one_is_none(sheet: Stack, case: str) -> None:
    body, words = BAD[case]
    accepted = sheet.stats("sheet")["accepted"]
    status, _, answer = sheet.request(DOOR, body, headers={"content-type": "text/csv"})
    said = json.loads(answer)
    assert status == 400, said
    assert said["hint"]
    for word in words:
        assert word in f"{said['error']} {said['hint']}", said
    assert sheet.stats("sheet")["accepted"] == accepted
    assert len(sheet.get("/api/pipelines/sheet/packets")["packets"]) == accepted
