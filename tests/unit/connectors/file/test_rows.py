"""Rows of a CSV file: quoting as RFC 4180 has it, columns as the first line names them."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipo.connectors.contract import WriteFailed
from pipo.connectors.csv_format import first_row
from pipo.connectors.file.rows import Rows, row

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
TRICKY = st.text(st.sampled_from(list("a,\"\r\n\ufeff '")), max_size=6)


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (["a", "b"], b"a,b\n"),
        (['say "hi"', "a,b"], b'"say ""hi""","a,b"\n'),
        (["two\nlines", "car\rriage"], b'"two\nlines","car\rriage"\n'),
        (["", ""], b",\n"),
        ([""], b'""\n'),
        (["\ufeffa", "b\ufeff"], '"\ufeffa",b\ufeff\n'.encode()),
        ([" a ", "'"], b" a ,'\n"),
    ],
)
def test_what_needs_quotes_gets_them(cells: list[str], line: bytes) -> None:
    assert row(cells) == line


@given(st.lists(st.lists(CELLS | TRICKY, min_size=2, max_size=2), min_size=1, max_size=4))
def test_what_is_written_is_what_a_reader_reads(rows: list[list[str]]) -> None:
    text = b"".join(map(row, rows)).decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == rows


@given(st.lists(CELLS | TRICKY, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n", ""]))
def test_a_header_reads_back_whatever_its_names(names: list[str], end: str) -> None:
    text = row(names, end).decode()
    if end:
        assert first_row(text + "more,rows") == (names, len(text))
    assert first_row(text)[0] == names
    assert first_row("\ufeff" + text)[0] == names


def test_a_row_lies_under_the_columns_that_stand_there() -> None:
    rows = Rows("/x.csv")
    assert rows.begin(b"b,a\r\n1,2\r\n", {"a": "", "b": ""}) == b""
    assert rows.text({"a": "x", "c": "dropped"}) == b",x\r\n"
    assert rows.begin(b"b,a\r\n", {}) == b""
    assert rows.begin(b"a\n", {}) == b""
    assert rows.text({"a": "x"}) == b"x\n"
    assert rows.begin(b"", {"n": "1"}) == b"n\n"
    assert rows.text({"n": "1", "a": "x"}) == b"1\n"


def test_a_header_without_an_end_is_read_again() -> None:
    """It may be the front of another one by then."""
    rows = Rows("/x.csv")
    rows.begin(b"a,b", {})
    rows.begin(b"a,bc,d\n", {})
    assert rows.text({"b": "1", "d": "2"}) == b",,2\n"


def test_data_that_is_no_object_needs_its_column() -> None:
    rows = Rows("/x.csv")
    rows.begin(b"value,a\n", {})
    assert rows.text({"value": "x"}) == b"x,\n"
    rows.begin(b"a\n", {})
    assert rows.text({"value": "x", "b": "y"}) == b'""\n'
    with pytest.raises(WriteFailed, match=r"/x\.csv has no column 'value'"):
        rows.text({"value": "x"})
