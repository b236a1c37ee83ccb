"""The elements of an array, whatever piece of it arrives when, and where it was cut."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipo.connectors.file import elements, plain
from pipo.connectors.file.elements import Elements, NotAnArray, Shape

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def read(raw: bytes, chunk: int = 7) -> tuple[list[bytes], list[int], Shape]:
    handle = os.memfd_create("array")
    try:
        os.write(handle, raw)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain, "CHUNK_BYTES", chunk)
            found = Elements(handle, len(raw), "/x.json")
            made = list(found.read())
    finally:
        os.close(handle)
    for place, text in made:
        assert raw[place.offset : place.end] == text
    return [text for _, text in made], [place.offset for place, _ in made], found.shape


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(VALUES, max_size=4), st.sampled_from([None, 1, 2]), st.integers(1, 9))
def test_every_array_falls_into_its_elements(
    values: list[Any], indent: int | None, chunk: int
) -> None:
    raw = json.dumps(values, indent=indent, ensure_ascii=chunk % 2 == 0).encode()
    texts, _, shape = read(raw, chunk)
    assert [json.loads(text) for text in texts] == values
    assert (shape.is_empty, shape.is_torn) == (not values, False)
    assert raw[shape.end :].strip() == b"]"


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(VALUES, max_size=2), min_size=1, max_size=3), st.integers(1, 9))
def test_a_cut_array_keeps_its_whole_elements(values: list[Any], chunk: int) -> None:
    raw = json.dumps(values).encode()
    for cut in range(1, len(raw)):
        texts, _, shape = read(raw[:cut], chunk)
        assert shape.is_torn
        assert [json.loads(text) for text in texts] == values[: len(texts)]
        closed = raw[: shape.end] + b"]"
        assert json.loads(closed) == values[: len(texts)]
        assert len(texts) >= len(values) - 1 or cut < len(raw) - 1


@pytest.mark.parametrize(
    "raw", [b"{}", b"x", b"[1,]", b"[,]", b"[1 2]", b"[1]]", b"[1]x", b"[}", b"[tru]", b'["a" "b"]']
)
def test_what_is_no_array_is_told_with_its_place(raw: bytes) -> None:
    for chunk in (1, 100):
        with pytest.raises(NotAnArray, match=r"^/x\.json is no JSON array \(at byte \d+\)$"):
            read(raw, chunk)


@pytest.mark.parametrize("raw", [b"", b" \n\t", b"\n" * 50])
def test_a_blank_file_has_no_elements_and_no_bracket(raw: bytes) -> None:
    assert read(raw) == ([], [], Shape(0, is_empty=True, is_torn=True))


def test_an_element_beyond_all_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "ELEMENT_BYTES_MAX", 50)
    with pytest.raises(NotAnArray):
        read(b'["' + b"x" * 100 + b'"]')


def test_memory_stays_that_of_one_element(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "a.json", os.O_RDWR | os.O_CREAT)
    try:
        size = os.write(handle, b"[" + b'{"packet_id":"x"},' * 1000 + b"1]")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain, "CHUNK_BYTES", 64)
            found = Elements(handle, size, "/x.json")
            assert sum(1 for _ in found.read() if len(found._held) < 200) == 1001
    finally:
        os.close(handle)
