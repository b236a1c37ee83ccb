"""file against the contract, and what is its own: torn ends, lookups, failing disks."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Flush, Refused, Repeat, WriteFailed
from pipo.connectors.file import lookup
from pipo.connectors.file.output import FILES_OPEN
from tests.contract.connectors import contract
from tests.contract.connectors.contract import OutputCase, Settings, unit, write


def settings(folder: Path) -> dict[str, Any]:
    return {"path": str(folder / "a.jsonl")}


def content(where: Settings) -> bytes:
    return Path(where["path"]).read_bytes()


def put(where: Settings, text: bytes) -> None:
    Path(where["path"]).write_bytes(text)


def keys(where: Settings) -> list[str]:
    found = []
    for text in content(where).split(b"\n"):
        try:
            found.append(json.loads(text)["packet_id"])
        except (ValueError, KeyError, TypeError):
            continue
    return found


CASE = OutputCase(name="file", settings=settings, keys=keys, bad=object())


@pytest.mark.parametrize(
    "behaviour",
    [*contract.EVERY_OUTPUT, *contract.OUTPUT_WITH_A_FILE],
    ids=lambda behaviour: behaviour.__name__,
)
async def test_contract(
    behaviour: Callable[[OutputCase, Path], Awaitable[None]], tmp_path: Path
) -> None:
    await behaviour(CASE, tmp_path)


@pytest.mark.seed("D034")
async def test_a_line_holds_the_key_and_the_data(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path)
    flush = await write(output, where, ("a", {"n": 2**64, "s": "ü"}), ("b", "hi \ud83d"))
    await output.close()
    lines = [
        '{"packet_id":"a","data":{"n":18446744073709551616,"s":"ü"}}'.encode(),
        rb'{"packet_id":"b","data":"hi \ud83d"}',
    ]
    assert content(where) == b"".join(line + b"\n" for line in lines)
    assert flush.results == [
        {"path": where["path"], "written": True, "offset": 0, "length": len(lines[0])},
        {
            "path": where["path"],
            "written": True,
            "offset": len(lines[0]) + 1,
            "length": len(lines[1]),
        },
    ]
    assert flush.marks == {where["path"]: len(content(where))}


async def test_a_skipped_record_tells_where_it_stands(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path)
    first = await write(output, where, ("a", 1), ("b", 2))
    repeats: list[Repeat] = ["repeated", "recovered"]
    for repeat in repeats:
        flush = await write(output, where, ("b", 2), repeat=repeat)
        written = dict(first.results[1])  # type: ignore[arg-type]
        del written["written"]
        assert flush.results == [{**written, "skipped": True}]
    await output.close()


async def test_a_torn_end_stays_on_a_line_of_its_own(tmp_path: Path) -> None:
    where = settings(tmp_path)
    put(where, b'{"i":1}\n{"i":2')
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("c", 3))
    await output.close()
    assert content(where) == b'{"i":1}\n{"i":2\n{"packet_id":"c","data":3}\n'
    place = flush.results[0]
    assert isinstance(place, dict)
    assert content(where)[place["offset"] :][: place["length"]] == b'{"packet_id":"c","data":3}'


async def test_a_record_cut_at_any_byte_is_written_again_once(tmp_path: Path) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", 1), ("b", {"deep": [1, 2]}))
    whole = content(where)
    start = whole.index(b"\n") + 1
    for cut in range(start, len(whole) + 1):
        put(where, whole[:cut])
        await write(output, where, ("new", cut))
        await write(output, where, ("b", {"deep": [1, 2]}), repeat="repeated")
        assert content(where).startswith(whole[:start])
        assert sorted(keys(where)) == ["a", "b", "new"], cut
    await output.close()


async def test_a_recovered_unit_is_looked_up_from_the_mark_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    before = await write(output, where, ("a", "x" * 1000))
    await write(output, where, ("b", 1))
    size = len(content(where))
    await output.close()
    spans = []
    find = lookup.find

    def spied(handle: int, wanted: Any, start: int, end: int) -> Any:
        spans.append((start, end))
        return find(handle, wanted, start, end)

    monkeypatch.setattr(lookup, "find", spied)
    reborn = CASE.build(tmp_path)
    await reborn.open(contract.kept(before))
    await write(reborn, where, ("b", 1), ("c", 1), repeat="recovered")
    await write(reborn, where, ("d", 1))
    put(where, b"")  # shorter than its mark: not the file that was noted
    await write(reborn, where, ("b", 1), repeat="recovered")
    await reborn.close()
    mark = before.marks[where["path"]]
    assert spans == [(mark, size), (size, size), (0, 0), (0, 0)]


async def test_a_file_with_many_records_is_searched_without_keeping_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "KEYS_KEPT_MAX", 5)
    monkeypatch.setattr(lookup, "CHUNK_BYTES", 7)
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    names = [f"k{n}" for n in range(4)]
    await write(output, where, *((name, 1) for name in names), repeat="repeated")
    await write(output, where, *((f"more{n}", 1) for n in range(4)), repeat="repeated")
    await write(output, where, ("k0", 1), ("more3", 1), ("last", 1), repeat="repeated")
    await output.close()
    assert keys(where) == [*names, "more0", "more1", "more2", "more3", "last"]


async def test_kept_keys_follow_what_others_do_to_the_file(tmp_path: Path) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", 1), ("b", 2), repeat="repeated")
    put(where, content(where).replace(b'"b"', b'"c"'))
    await write(output, where, ("b", 2), ("c", 2), repeat="repeated")
    await output.close()
    assert keys(where) == ["a", "c", "b"]


async def test_a_line_beyond_all_bounds_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(lookup, "CHUNK_BYTES", 16)
    where = settings(tmp_path)
    put(where, b'{"packet_id":"big","data":"' + b"x" * 200 + b'"}\n{"packet_id":"a","data":1}\n')
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", 1), ("big", 1), repeat="repeated")
    await output.close()
    assert [list(result)[1] for result in flush.results] == ["skipped", "written"]  # type: ignore[arg-type]


class FailingDisk:
    """Lets a call of `os` fail once; with `half`, as a full disk does: short first, then failing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str, code: int, half: bool) -> None:
        real = getattr(os, call)
        self.left = 2 if half else 1

        def fails(handle: int, *rest: Any) -> Any:
            if self.left:
                self.left -= 1
                if self.left:
                    return real(handle, rest[0][: len(rest[0]) // 2])
                raise OSError(code, os.strerror(code))
            return real(handle, *rest)

        monkeypatch.setattr(os, call, fails)


@pytest.mark.parametrize(
    ("call", "code", "half"),
    [
        ("write", errno.ENOSPC, False),
        ("write", errno.ENOSPC, True),
        ("fdatasync", errno.EIO, False),
    ],
)
async def test_a_failed_append_is_cut_back_and_can_be_repeated(
    call: str, code: int, half: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", 1))
    before = content(where)
    FailingDisk(monkeypatch, call, code, half)
    with pytest.raises(WriteFailed, match=os.strerror(code)):
        await write(output, where, ("b", 2), ("c", 3))
    assert content(where) == before
    await write(output, where, ("b", 2), ("c", 3))
    await output.close()
    assert keys(where) == ["a", "b", "c"]


async def test_a_failed_append_cuts_nothing_off_that_somebody_else_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pipelines share a file on a disk that fills up."""
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", 1))
    real = os.write

    def full(handle: int, data: Any) -> int:
        monkeypatch.setattr(os, "write", real)
        with open(where["path"], "ab") as other:
            other.write(b'{"packet_id":"other","data":0}\n')
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WriteFailed):
        await write(output, where, ("b", "x" * 100))
    await write(output, where, ("b", "x" * 100), repeat="recovered")
    await output.close()
    assert keys(where) == ["a", "other", "b"]


async def test_an_append_that_cannot_be_cut_back_is_found_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", 1))
    FailingDisk(monkeypatch, "fdatasync", errno.EIO, half=False)
    FailingDisk(monkeypatch, "ftruncate", errno.EIO, half=False)
    with pytest.raises(WriteFailed):
        await write(output, where, ("b", 2))
    assert keys(where) == ["a", "b"]
    await write(output, where, ("b", 2), ("c", 3), repeat="recovered")
    await output.close()
    assert keys(where) == ["a", "b", "c"]


async def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    where = settings(tmp_path)
    os.mkfifo(where["path"])
    output = CASE.build(tmp_path)
    with pytest.raises(WriteFailed, match="is not a plain file"):
        await write(output, where, ("a", 1))
    await output.close()


async def test_data_that_is_not_json_is_refused(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path)
    flush: Flush = await output.write([unit("a", object(), where)], atomic=False)
    await output.close()
    assert isinstance(flush.results[0], Refused)
    assert contract.names(tmp_path) == []


async def test_a_file_that_rests_needs_no_mark(tmp_path: Path) -> None:
    """One file per packet must not leave a note per packet behind."""
    output = CASE.build(tmp_path)
    await output.open({})
    kept: dict[str, int] = {}
    for number in range(FILES_OPEN + 10):
        where = {**settings(tmp_path), "path": str(tmp_path / f"{number}.jsonl")}
        flush = await contract.write(output, where, ("a", number))
        for name, size in flush.marks.items():
            if size is None:
                del kept[name]
            else:
                kept[name] = size
    await output.close()
    assert len(kept) == FILES_OPEN
    assert str(tmp_path / "0.jsonl") not in kept
