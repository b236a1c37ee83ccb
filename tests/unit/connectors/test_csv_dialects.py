"""CSV as programs write it, beside an independent reader and writer (edges 88, 89; report R04)."""

from __future__ import annotations

import csv
import io
import tracemalloc
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipo.connectors.formats import parse_body
from pipo.errors import BadRequest


def rows_of(body: bytes) -> list[dict[str, str]]:
    return list(parse_body("csv", body))


WIDE = ",".join(f"c{n}" for n in range(20_000))
DIALECTS = {
    "LibreOffice, all text quoted": (
        b'"id","name"\n"1","Ann, B"\n"2",""\n',
        [{"id": "1", "name": "Ann, B"}, {"id": "2", "name": ""}],
    ),
    "Excel, CSV UTF-8": (b"\xef\xbb\xbfid,n\r\n1,0.5\r\n", [{"id": "1", "n": "0.5"}]),
    "a quoted first name behind the mark": (b'\xef\xbb\xbf"id"\r\n1\r\n', [{"id": "1"}]),
    "Excel for the old Mac, lone CR": (b"id,n\r1,a\r2,b\r", [{"id": "1", "n": "a"}, {"id": "2", "n": "b"}]),
    "a cell of several lines": (b'id,n\r\n1,"a\r\nb\rc\n"\r\n', [{"id": "1", "n": "a\r\nb\rc\n"}]),
    "semicolons and tabs in cells": (b'id,n\n1;2,"a;\tb"\n', [{"id": "1;2", "n": "a;\tb"}]),
    "a separator that is a tab": (b"id\tn\n1\t2\n", [{"id\tn": "1\t2"}]),
    "blanks around": (b" id ,n\n 1 , \n", [{" id ": " 1 ", "n": " "}]),
    "blank lines everywhere": (b"\r\n\n\rid\r\n\r\n1\n\n\n2\n\n", [{"id": "1"}, {"id": "2"}]),
    "no last line end": (b'id,n\n1,""', [{"id": "1", "n": ""}]),
    "a mark inside is a sign": ("id\n\ufeff1\n".encode(), [{"id": "\ufeff1"}]),
    "line ends of other alphabets": ("id\na\u2028b\u0085c\x0bd\x0c\n".encode(), [{"id": "a\u2028b\u0085c\x0bd\x0c"}]),
    "a formula stays a text": (b'id\n"=1+1"\n', [{"id": "=1+1"}]),
    "very many columns": (
        f"{WIDE}\n{WIDE}\n".encode(),
        [dict(zip(WIDE.split(","), WIDE.split(","), strict=True))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect(name: str) -> None:
    body, wanted = DIALECTS[name]
    assert rows_of(body) == wanted


NONE = {
    "NUL": (b"id,n\r\n1,a\r\n2,\0b\r\n", "line 3 holds a NUL"),
    "UTF-16, little end first": ("id\r\n1\r\n".encode("utf-16-le"), "line 1 holds a NUL"),
    "UTF-16, big end first": ("id\r\n1\r\n".encode("utf-16-be"), "line 1 holds a NUL"),
    "UTF-16 with its mark": ("\ufeffid\r\n1\r\n".encode("utf-16-le"), "not UTF-8 text (byte 0)"),
    "UTF-32": ("id\r\n1\r\n".encode("utf-32"), "not UTF-8 text (byte 0)"),
    "Windows-1252": ("id\r\nZoë\r\n".encode("cp1252"), "not UTF-8 text (byte 6)"),
    "an open quote at the end": (b'id,n\n1,"a""', "line 2: a quote is not closed"),
    "an open quote over lines": (b'id\n1\n"a\nb\n', "line 3: a quote is not closed"),
    "a record too short by one comma": (b"a,b,c\n1,2,3\n,\n", "line 3 has 2 values"),
    "a mark alone": (b"\xef\xbb\xbf", "the csv is empty"),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_none(name: str) -> None:
    body, words = NONE[name]
    with pytest.raises(BadRequest) as caught:
        parse_body("csv", body)
    assert words in caught.value.message
    assert caught.value.hint


CELL = st.text(st.sampled_from('ab1;"\t,\r\n é\U0001f600\ufeff'), max_size=6)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(CELL.filter(bool), min_size=1, max_size=4, unique=True).flatmap(
        lambda names: st.tuples(
            st.just(names),
            st.lists(st.lists(CELL, min_size=len(names), max_size=len(names)), min_size=1, max_size=4),
        )
    ),
    st.sampled_from(list(product(("\r\n", "\n", "\r"), (csv.QUOTE_MINIMAL, csv.QUOTE_ALL), (True, False)))),
)  # fmt: skip
def test_what_another_writer_wrote(
    table: tuple[list[str], list[list[str]]], dialect: tuple[str, int, bool]
) -> None:
    names, rows = table
    end, quoting, mark = dialect
    out = io.StringIO(newline="")
    # The csv module leaves bare what other readers take for the mark, or for a line's end.
    bare = any("\r" in cell for row in [names, *rows] for cell in row) or "\ufeff" in names[0]
    kind = csv.QUOTE_ALL if bare else quoting
    writer = csv.writer(out, lineterminator=end, quoting=kind)  # type: ignore[arg-type]
    writer.writerows([names, *rows])
    body = ("\ufeff" if mark else "") + out.getvalue()
    assert rows_of(body.encode()) == [dict(zip(names, row, strict=True)) for row in rows]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('a1,",,\r\n""'), max_size=24))
def test_what_is_taken_reads_the_same_elsewhere(text: str) -> None:
    """Whatever the bytes: a clear refusal, or what a strict reader finds too."""
    try:
        found = rows_of(text.encode())
    except BadRequest as error:
        assert error.message and error.hint  # noqa: PT017, PT018 - either end is right
        return
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    assert found == [dict(zip(header, row, strict=True)) for row in rows]


def test_a_cell_of_quotes_takes_little_memory() -> None:
    text = b'a\n"' + b'""' * 500_000 + b'"\n'
    tracemalloc.start()
    try:
        (row,) = rows_of(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(row["a"]) == 500_000
    assert most < 8 * len(text)
