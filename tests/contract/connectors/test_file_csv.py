"""csv files: columns from the first line, quoting, what does not fit (edge 180, RFC 4180)."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import WriteFailed
from tests.contract.connectors import contract
from tests.contract.connectors.contract import failed, write
from tests.contract.connectors.files import content, file_case, ids, put, settings

ODD = {
    "id": "a",
    "n": 2**64 + 1,
    "s": 'say "hi",\r\nü',
    "l": [1, {"x": None}],
    "no": None,
    "t": True,
}


def rows(where: Any) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content(where).decode(), newline="")))


async def test_a_csv_has_the_columns_of_its_first_packet(tmp_path: Path) -> None:
    where = settings(tmp_path, "csv")
    output = contract.OutputCase("file", lambda f: where, ids).build(tmp_path)
    await write(output, where, ("a", ODD), ("b", {"extra": 1, "s": "", "id": "b"}))
    reborn = contract.OutputCase("file", lambda f: where, ids).build(tmp_path)
    await write(reborn, where, ("c", {"t": False, "id": "c", "n": 1.5}))
    await output.close()
    await reborn.close()
    assert rows(where) == [
        ["id", "n", "s", "l", "no", "t"],
        ["a", str(2**64 + 1), 'say "hi",\r\nü', '[1,{"x":null}]', "", "true"],
        ["b", "", "", "", "", ""],
        ["c", "1.5", "", "", "", "false"],
    ]


async def test_what_has_no_fields_goes_to_the_column_value(tmp_path: Path) -> None:
    where = settings(tmp_path, "csv")
    output = contract.OutputCase("file", lambda f: where, ids).build(tmp_path)
    await write(output, where, ("a", "x,y"), ("b", [1]), ("c", None), ("d", 7), ("e", {}))
    await output.close()
    assert rows(where) == [["value"], ["x,y"], ["[1]"], [""], ["7"], ["{}"]]
    assert content(where).count(b"\n\n") == 0


async def test_data_without_fields_that_finds_no_column_fails_alone(tmp_path: Path) -> None:
    where = settings(tmp_path, "csv")
    output = file_case("csv").build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}), ("b", "lost"), ("c", {"n": 1}))
    with pytest.raises(WriteFailed, match="has no column 'value'") as caught:
        await write(output, where, ("d", {"n": 1}), ("e", "lost"), atomic=True)
    await output.close()
    assert [failed(result) for result in flush.results] == [False, True, False]
    assert "make an object of the data" in caught.value.hint
    assert ids(where) == ["a", "c"]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (b"n,id\n", b"1,%b\n"),
        (b"n,id\r\n", b"1,%b\r\n"),
        (b"\xef\xbb\xbfn,id\n", b"1,%b\n"),
        (b'n,id,"two\nlines ""quoted"""\n', b"1,%b,\n"),
        (b"n,id", b"1,%b\n"),
        (b"n,id\nx,y", b"1,%b\n"),
        (b"\n\nn,id\n", b"1,%b\n"),
        (b"n,\xff\xfe,id\n", b"1,,%b\n"),
    ],
)
async def test_an_existing_csv_keeps_its_columns(header: bytes, row: bytes, tmp_path: Path) -> None:
    where = settings(tmp_path, "csv")
    put(where, header)
    output = file_case("csv").build(tmp_path)
    for key in "ab":
        await write(output, where, (key, {"n": 1}))
    await output.close()
    gap = b"" if header.endswith(b"\n") else b"\n"
    assert content(where) == header + gap + row % b"a" + row % b"b"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b'n,"id\nx,y\n', "a quote is not closed"),
        (b'n,i"d\n', "a quote stands inside a plain field"),
        (b"x" * 70_000 + b"\n", "is longer than 65536 bytes"),
    ],
)
async def test_a_first_line_that_names_no_columns_is_an_error(
    header: bytes, message: str, tmp_path: Path
) -> None:
    where = settings(tmp_path, "csv")
    put(where, header)
    output = file_case("csv").build(tmp_path)
    with pytest.raises(WriteFailed, match=message) as caught:
        await write(output, where, ("a", {"n": 1}))
    await output.close()
    assert "move" in caught.value.hint
    assert content(where) == header
