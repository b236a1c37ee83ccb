"""The side file's entries, read from either end, and what they claim."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipo.connectors.file import keylog, lookup
from pipo.connectors.file.keylog import Begin, Last
from pipo.connectors.file.lookup import Place

ROW = b"12345678\n"


@contextmanager
def file(raw: bytes) -> Iterator[int]:
    handle = os.memfd_create("log")
    try:
        os.write(handle, raw)
        yield handle
    finally:
        os.close(handle)


def log(*entries: Begin | bytes) -> bytes:
    """Begins and whatever else; a begin is followed by its done."""
    return b"".join(
        entry if isinstance(entry, bytes) else entry.line() + keylog.done_line(entry)
        for entry in entries
    )


def begin(keys: str, offset: int, length: int = 9) -> Begin:
    return Begin(list(keys), Place(offset, length * len(keys)), None, [length] * len(keys))


def places(raw: bytes, size: int = 1000, start: int = 0) -> dict[str, int] | None:
    with file(raw) as handle:
        found = keylog.places(handle, start, len(raw), within=size)
    return None if found is None else {key: place.offset for key, place in found.items()}


def test_the_entries_are_arrays_one_a_line() -> None:
    one, group = Begin(["a"], Place(0, 9), 7, [9]), Begin(["b", "c"], Place(9, 20), None, [9, 11])
    assert one.line() == b'["begin","a",0,9,7]\n'
    assert group.line() == b'["begin",["b","c"],9,20,null,[9,11]]\n'
    assert keylog.done_line(group) == b'["done",["b","c"]]\n'
    assert keylog.abort_line(one) == b'["abort","a"]\n'


def test_a_group_tells_where_each_record_stands_behind_a_header() -> None:
    group = Begin(["b", "c"], Place(10, 25), None, [9, 11])
    assert group.places() == {"b": Place(15, 8), "c": Place(24, 10)}
    assert Begin(["b", "c"], Place(10, 25), None).places() == dict.fromkeys("bc", Place(10, 24))


def test_done_keys_are_found_and_aborted_ones_are_not() -> None:
    aborted = begin("x", 27).line() + keylog.abort_line(begin("x", 27))
    raw = log(begin("a", 0), begin("bc", 9), aborted, begin("d", 27), begin("e", 36).line())
    assert places(raw) == {"a": 0, "b": 9, "c": 18, "d": 27}
    assert places(raw, start=len(log(begin("a", 0)))) == {"b": 9, "c": 18, "d": 27}


def test_bytes_that_are_gone_take_their_keys_along() -> None:
    raw = log(begin("a", 0), begin("bc", 9))
    assert places(raw, size=27) == {"a": 0, "b": 9, "c": 18}
    assert places(raw, size=26) == {"a": 0, "b": 9, "c": 18}, "the last line break may be missing"
    assert places(raw, size=25) == {"a": 0, "b": 9}
    assert places(raw, size=0) == {}
    grown = log(begin("a", 0), begin("bc", 9), begin("d", 9), begin("e", 18))
    assert places(grown) == {"a": 0, "d": 9, "e": 18}


def test_a_key_that_was_written_again_stands_where_it_went_last() -> None:
    assert places(log(begin("a", 0), begin("a", 9))) == {"a": 9}


def test_what_is_no_entry_says_nothing() -> None:
    odd = b'{}\n[]\n["begin"]\n["begin","a","x",1]\n["begin",[1],0,9]\n["begin","n",-1,9]\n\xff\n[[[\n\n'
    assert places(odd + log(begin("a", 0)) + odd) == {"a": 0}
    with file(odd) as handle:
        assert keylog.last(handle) is None


def test_too_many_keys_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "KEYS_KEPT_MAX", 2)
    assert places(log(begin("ab", 0))) is not None
    assert places(log(begin("abc", 0))) is None


@pytest.mark.parametrize("tail", [1, 7, 64 * 1024])
def test_the_latest_append_is_read_from_the_end(tail: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keylog, "TAIL_BYTES", tail)
    for raw, word in (
        (log(begin("a", 0)) + begin("b", 9).line(), "begin"),
        (log(begin("a", 0), begin("b", 9)), "done"),
        (log(begin("a", 0)) + begin("b", 9).line() + keylog.abort_line(begin("b", 9)), "abort"),
        (log(begin("a", 0)) + begin("b", 9).line() + b'["done","b"', "begin"),
    ):
        with file(raw) as handle:
            found = keylog.last(handle)
            assert found is not None
            assert (list(found.begin.keys), found.word) == (["b"], word)
            assert keylog.whole_bytes(handle) == raw.rindex(b"\n") + 1


def test_a_log_without_a_whole_line_is_empty() -> None:
    with file(b'["begin","a",0') as handle:
        assert keylog.whole_bytes(handle) == 0
        assert keylog.last(handle) is None


@pytest.mark.parametrize(
    ("word", "content", "torn"),
    [
        ("begin", ROW, None),
        ("begin", ROW + ROW[:1], 9),
        ("begin", ROW + ROW + ROW[:-1], 9),
        ("begin", ROW * 3, None),
        ("abort", ROW + ROW[:3], None),
        ("done", ROW, None),
        ("done", ROW + ROW[:3], 9),
        ("done", ROW + ROW, None),
        ("done", ROW + ROW + ROW[:3], 18),
        ("done", ROW + ROW + ROW[:-1], None),
        ("done", ROW + ROW[:-1] + b"x" + ROW[:3], None),
        ("done", ROW + ROW + b'a"b\n', 18),
        ("done", ROW + ROW + b"short\n", None),
    ],
)
def test_where_the_remains_of_an_append_begin(word: str, content: bytes, torn: int | None) -> None:
    """The append is two rows behind one row; `content` is what stands there."""
    append = Begin(["b", "c"], Place(9, 18), zlib.crc32(ROW + ROW), [9, 9])
    with file(content) as handle:
        assert keylog.torn_at(Last(append, word), handle) == torn
