"""Record bytes: compact, exact, surrogates kept as escapes (decision 46)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipo.connectors.contract import Refused
from pipo.connectors.file.records import cells_of, json_bytes, line, pretty, text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"n": 8202522731445525542, "s": "8202522731445525542"}, None),
        ({"n": 18446744073709551615, "f": 1.0, "g": 1e300}, None),
        (["ü", "\U0001f600", "\u2028", "\x00", "a\nb"], None),
        (None, None),
        ("hi \ud83d", r'"hi \ud83d"'),
        ({"na\ud83dme": ["\udc00"]}, r'{"na\ud83dme":["\udc00"]}'),
    ],
)
def test_a_line_is_one_line_and_reads_back(data: Any, text: str | None) -> None:
    made = line("k1", data)
    assert made.count(b"\n") == 1
    assert made.endswith(b"\n")
    assert json.loads(made) == {"packet_id": "k1", "data": data}
    if text is not None:
        assert json_bytes(data) == text.encode()


@pytest.mark.parametrize("data", [object(), {"a": float("nan"), "b": "\ud83d"}])
def test_what_json_cannot_hold_is_refused(data: Any) -> None:
    with pytest.raises(Refused, match="data is not JSON"):
        line("k1", data)


@pytest.mark.parametrize("half", ["", " \ud83d"])
def test_json_on_several_lines_keeps_every_digit(half: str) -> None:
    made = pretty({"n": 18446744073709551616, "f": 1e300, "s": "ü" + half, "l": [], "o": {}})
    escaped = half.encode("utf-8", "backslashreplace")
    assert made == (
        b'{\n  "n": 18446744073709551616,\n  "f": 1e300,\n  "s": "\xc3\xbc%b",\n'
        b'  "l": [],\n  "o": {}\n}' % escaped
    ).replace(b"1e300", b"1e+300" if half else b"1e300")


@pytest.mark.parametrize(
    ("data", "made"),
    [
        ("a\nb", b"a\nb"),
        ("\ud83d", rb"\ud83d"),
        (None, b"null"),
        ({"a": 2**64}, b'{"a":%d}' % 2**64),
    ],
)
def test_text_is_itself_and_all_else_is_json(data: Any, made: bytes) -> None:
    assert text(data) == made


@pytest.mark.parametrize(
    ("data", "cells"),
    [
        ({"a": 1, "b": None, "c": [1], "d": True, "e": "x"}, ["1", "", "[1]", "true", "x"]),
        ({"a": 2**70, "b": -0.5}, [str(2**70), "-0.5"]),
    ],
)
def test_the_fields_of_an_object_are_cells(data: dict[str, Any], cells: list[str]) -> None:
    assert cells_of(data) == dict(zip(data, cells, strict=True))


@pytest.mark.parametrize("data", [[1], "x", 7, {}])
def test_what_has_no_fields_is_one_cell(data: Any) -> None:
    assert list(cells_of(data)) == ["value"]
