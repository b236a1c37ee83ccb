"""json files: one array, rewritten by each flush (edge 184)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.file.elements import NotAnArray
from tests.contract.connectors import contract
from tests.contract.connectors.contract import write
from tests.contract.connectors.files import content, counted, file_case, ids, put, settings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", []),
        (b" \n", []),
        (b"[]", []),
        (b" [\n]\n", []),
        (b"[1]", [1]),
        (b'[{"packet_id":"x"},{"y":[1,"]"]}] \n', [{"packet_id": "x"}, {"y": [1, "]"]}]),
        (b'["a\\"]", "b\\\\"]', ['a"]', "b\\"]),
    ],
)
async def test_an_array_that_stands_there_goes_on(
    before: bytes, after: list[Any], tmp_path: Path
) -> None:
    where = settings(tmp_path, "json")
    put(where, before)
    output = file_case("json").build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    await write(output, where, ("b", {"n": 1}))
    await output.close()
    added = [{"packet_id": key, "data": {"id": key, "n": 1}} for key in "ab"]
    assert json.loads(content(where)) == [*after, *added]
    assert content(where).startswith(before.rstrip().rstrip(b"]").rstrip())


@pytest.mark.parametrize(
    "before", [b"{}", b"text", b"[1,]", b"[1 2]", b"[1]]", b'[{"a":}]', b"[1] x", b"[}", b"[,1]"]
)
async def test_a_file_that_is_no_array_is_left_as_it_is(before: bytes, tmp_path: Path) -> None:
    where = settings(tmp_path, "json")
    put(where, before)
    output = file_case("json").build(tmp_path)
    with pytest.raises(NotAnArray, match="is no JSON array") as caught:
        await write(output, where, ("a", {"n": 1}))
    await output.close()
    assert "move the file away" in caught.value.hint
    assert content(where) == before
    assert contract.names(tmp_path) == ["a.json"]


async def test_a_flush_of_many_rewrites_the_array_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renames = counted(monkeypatch, "rename")
    where = settings(tmp_path, "json")
    output = file_case("json").build(tmp_path)
    await write(output, where, *((f"k{n}", {"n": 1}) for n in range(100)))
    await output.close()
    assert len(renames) == 1
    assert len(ids(where)) == 100
