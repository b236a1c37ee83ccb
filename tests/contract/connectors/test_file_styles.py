"""Each format and mode of `file` against the contract, and what stands in the file."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors import registry
from pipo.connectors.contract import Refused, Repeat, WriteFailed
from pipo.connectors.file import arrays, lookup
from pipo.connectors.file.appending import AppendedFile
from pipo.connectors.file.arrays import ArrayFile
from pipo.connectors.file.logged import LoggedFile
from pipo.connectors.file.records import record
from tests.contract.connectors import contract
from tests.contract.connectors.contract import OutputCase, failed, unit, write
from tests.contract.connectors.files import (
    FORMATS,
    LOGGED,
    content,
    counted,
    file_case,
    ids,
    logged,
    put,
    settings,
    side_file,
)

REPLACING = (
    contract.opens_and_closes_twice,
    contract.opening_touches_nothing,
    contract.folders_are_made,
    contract.a_deleted_file_is_made_again,
    contract.a_parent_that_is_a_file_fails_the_write,
    contract.a_folder_in_place_of_the_file_fails_the_write,
)
Behaviour = Callable[[OutputCase, Path], Awaitable[None]]


@pytest.mark.parametrize(
    "behaviour",
    [*contract.EVERY_OUTPUT, *contract.OUTPUT_WITH_A_FILE],
    ids=lambda behaviour: behaviour.__name__,
)
@pytest.mark.parametrize("file_format", FORMATS)
async def test_appending(file_format: str, behaviour: Behaviour, tmp_path: Path) -> None:
    await behaviour(file_case(file_format), tmp_path)


@pytest.mark.parametrize("behaviour", REPLACING, ids=lambda behaviour: behaviour.__name__)
@pytest.mark.parametrize("file_format", ["json", "csv", "text"])
async def test_replacing(file_format: str, behaviour: Behaviour, tmp_path: Path) -> None:
    await behaviour(file_case(file_format, "write"), tmp_path)


@pytest.mark.seed("O028")
@pytest.mark.parametrize(
    ("file_format", "mode", "text"),
    [
        (
            "jsonl",
            "append",
            '{"packet_id":"a","data":{"n":18446744073709551616,"l":[1]}}\n'
            '{"packet_id":"b","data":"ü"}\n',
        ),
        (
            "json",
            "append",
            '[\n  {\n    "packet_id": "a",\n    "data": {\n      "n": 18446744073709551616,\n'
            '      "l": [\n        1\n      ]\n    }\n  },\n'
            '  {\n    "packet_id": "b",\n    "data": "ü"\n  }\n]\n',
        ),
        ("csv", "append", "n,l\n18446744073709551616,[1]\nü,\n"),
        ("text", "append", '{"n":18446744073709551616,"l":[1]}\nü\n'),
        ("jsonl", "write", '{"packet_id":"b","data":"ü"}\n'),
        ("json", "write", '"ü"\n'),
        ("csv", "write", "value\nü\n"),
        ("text", "write", "ü\n"),
    ],
)
async def test_what_stands_in_the_file(
    file_format: str, mode: str, text: str, tmp_path: Path
) -> None:
    where = settings(tmp_path, file_format, mode)
    output = file_case(file_format, mode).build(tmp_path)
    last = {"n": "ü"} if (file_format, mode) == ("csv", "append") else "ü"
    flush = await write(output, where, ("a", {"n": 2**64, "l": [1]}), ("b", last))
    await output.close()
    assert content(where).decode() == text
    assert not any(failed(result) for result in flush.results)


@pytest.mark.seed("O033")
@pytest.mark.parametrize("file_format", FORMATS)
async def test_a_written_file_holds_the_last_of_a_group_and_nothing_else_is_left(
    file_format: str, tmp_path: Path
) -> None:
    where = settings(tmp_path, file_format, "write")
    output = file_case(file_format, "write").build(tmp_path)
    repeats: list[Repeat] = ["first", "repeated", "recovered"]
    for repeat in repeats:
        flush = await write(output, where, ("a", {"n": 1}), ("b", {"n": 1}), repeat=repeat)
        length = len(content(where)) - 1
        done = {"path": where["path"], "written": True, "offset": 0, "length": length}
        assert flush.results == [done, done]
        assert flush.marks == {}
        assert ids(where) == ["b"]
    bad = await write(output, where, ("c", {"n": 1}), ("d", object()))
    assert [failed(result) for result in bad.results] == [False, True]
    with pytest.raises(WriteFailed):
        await write(output, where, ("e", {"n": 1}), ("f", object()), atomic=True)
    await output.close()
    assert ids(where) == ["c"]
    assert contract.names(tmp_path) == [f"a.{file_format}"]


@pytest.mark.parametrize("mode", ["append", "write"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_and_mode_starts(file_format: str, mode: str, tmp_path: Path) -> None:
    registry.require_built("output", "file", settings(tmp_path, file_format, mode))


@pytest.mark.seed("O078")
@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("file_format", FORMATS)
async def test_the_last_of_a_batch_wins_as_without_batching(
    file_format: str, atomic: bool, tmp_path: Path
) -> None:
    where = settings(tmp_path, file_format, "write")
    output = file_case(file_format, "write").build(tmp_path)
    flush = await write(output, where, *((key, {"n": 1}) for key in "cab"), atomic=atomic)
    await output.close()
    assert ids(where) == ["b"]
    assert [isinstance(made, dict) and made["written"] for made in flush.results] == [True] * 3


@pytest.mark.seed("O069")
@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("file_format", ["jsonl", "csv", "text"])
async def test_a_flush_is_one_append(
    file_format: str, atomic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    appended_to: list[str] = []
    real = os.write

    def noting(handle: int, text: Any) -> int:
        appended_to.append(os.readlink(f"/proc/self/fd/{handle}"))
        return real(handle, text)

    monkeypatch.setattr(os, "write", noting)
    batch = [(f"k{number}", {"n": 1}) for number in range(100)]
    await write(output, where, *batch, *batch, atomic=atomic)
    await output.close()
    assert appended_to.count(where["path"]) == 1
    assert ids(where) == ["a", *(key for key, _ in batch)]


async def test_a_replaced_file_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "target"
    target.write_text("old")
    target.chmod(0o604)
    for mode, file_format in (("write", "text"), ("append", "json")):
        target.write_text("[]")
        where = settings(tmp_path, file_format, mode)
        os.symlink(target, where["path"])
        output = file_case(file_format, mode).build(tmp_path)
        await write(output, where, ("a", {"n": 1}))
        await output.close()
        assert os.readlink(where["path"]) == str(target)
        assert ids(where) == ["a"]
        assert stat.S_IMODE(target.stat().st_mode) == 0o604
        assert contract.names(tmp_path / "real") == ["target"]


async def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    where = settings(tmp_path, "json", "write")
    before = os.umask(0o027)
    try:
        output = file_case("json", "write").build(tmp_path)
        await write(output, where, ("a", {"n": 1}))
        await output.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(where["path"]).st_mode) == 0o640


@pytest.mark.seed("O030")
@pytest.mark.parametrize("file_format", ["jsonl", "json"])
async def test_json_needs_no_side_file(file_format: str, tmp_path: Path) -> None:
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", {"n": 1}), ("b", {"n": 1}))
    await output.close()
    assert ids(where) == ["a", "b"]
    assert contract.names(tmp_path) == [f"a.{file_format}"]


@pytest.mark.seed("O031")
@pytest.mark.parametrize("file_format", LOGGED)
async def test_the_side_file_logs_each_append(file_format: str, tmp_path: Path) -> None:
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    sizes = []
    for group in (["a"], ["b", "c"]):
        flush = await write(output, where, *((key, {"n": 1}) for key in group))
        sizes.append(len(content(where)))
        assert flush.marks == {str(side_file(where)): side_file(where).stat().st_size}
    await output.close()
    (first, done, group, group_done) = logged(where)
    assert first[:4] == ["begin", "a", 0, sizes[0]]
    assert done == ["done", "a"]
    assert group[:4] == ["begin", ["b", "c"], sizes[0], sizes[1] - sizes[0]]
    assert group_done == ["done", ["b", "c"]]


@pytest.mark.parametrize("file_format", FORMATS)
async def test_a_result_says_where_the_record_stands(file_format: str, tmp_path: Path) -> None:
    where = settings(tmp_path, file_format)
    put(where, {"json": b"[ 1 ]", "csv": b"id,n"}.get(file_format, b"torn"))
    output = file_case(file_format).build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}), ("b", {"n": 1}))
    skipped = await write(output, where, ("b", {"n": 1}), repeat="repeated")
    await output.close()
    raw = content(where)
    for key, result in zip("ab", flush.results, strict=True):
        assert isinstance(result, dict)
        record = raw[result["offset"] :][: result["length"]]
        assert key.encode() in record
        assert not record.endswith(b"\n")
        assert record.count(b'"id"') == (file_format != "csv")
    (skip,) = skipped.results
    assert isinstance(skip, dict)
    assert skip["skipped"] is True
    assert b"b" in raw[skip["offset"] :][: skip["length"]]


@pytest.mark.parametrize("file_format", FORMATS)
async def test_a_first_write_looks_nothing_up(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    await output.close()
    read = counted(monkeypatch, "pread")
    monkeypatch.setattr(lookup, "lines", None)
    monkeypatch.setattr(lookup, "key_of", None)
    monkeypatch.setattr(arrays, "Elements", None)
    output = file_case(file_format).build(tmp_path)
    for number in range(50):
        await write(output, where, (f"k{number}", {"n": 1}))
    await output.close()
    assert len(ids(where)) == 51
    assert len(read) < 130


@pytest.mark.parametrize("file_format", FORMATS)
async def test_many_records_are_searched_without_keeping_their_keys(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "KEYS_KEPT_MAX", 5)
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    names = [f"k{n}" for n in range(9)]
    for name in names:
        await write(output, where, (name, {"n": 1}), repeat="repeated")
    await write(output, where, *((name, {"n": 1}) for name in names), repeat="repeated")
    await write(output, where, ("k0", {"n": 1}), ("last", {"n": 1}), repeat="repeated")
    await output.close()
    assert ids(where) == [*names, "last"]


def unheard(message: str, **keys: object) -> None:
    """A log that nobody reads."""


@pytest.mark.parametrize("file_format", ["jsonl", "json", "text"])
def test_kept_keys_are_let_go_when_they_become_too_many(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "KEYS_KEPT_MAX", 5)
    path = str(tmp_path / "a")
    writer: Any = {
        "jsonl": AppendedFile(path, 0),
        "json": ArrayFile(path, warn=unheard),
        "text": LoggedFile(path, 0, rows=None, warn=unheard),
    }[file_format]
    kept = []
    for number in range(8):
        repeat: Repeat = "repeated" if number == 1 else "first"
        made = record(unit(f"k{number}", 1, {}, repeat), file_format, "append")
        writer.write([made], atomic=False)
        kept.append(writer._keys and len(writer._keys))
    writer.close()
    assert kept == [None, 2, 3, 4, 5, None, None, None]


@pytest.mark.parametrize("file_format", FORMATS)
async def test_two_outputs_share_a_file(file_format: str, tmp_path: Path) -> None:
    where = settings(tmp_path, file_format)
    one, two = file_case(file_format).build(tmp_path), file_case(file_format).build(tmp_path)
    for number in range(5):
        await write(one, where, (f"one{number}", {"n": 1}))
        await write(two, where, (f"two{number}", {"n": 1}), (f"and{number}", {"n": 1}))
    await write(one, where, ("two3", {"n": 1}), repeat="repeated")
    await one.close()
    await two.close()
    assert len(ids(where)) == len(set(ids(where))) == 15


@pytest.mark.parametrize("file_format", LOGGED)
async def test_a_deleted_file_is_written_again_though_its_side_file_stays(
    file_format: str, tmp_path: Path
) -> None:
    """A `done` whose bytes are gone counts as not written, also when the file has grown since."""
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", {"n": 1}), ("b", {"n": 1}), repeat="repeated")
    os.unlink(where["path"])
    for number in range(5):
        await write(output, where, (f"new{number}", {"n": 1}))
    await write(output, where, ("a", {"n": 1}), repeat="repeated")
    await output.close()
    reborn = file_case(file_format).build(tmp_path)
    await write(reborn, where, ("b", {"n": 1}), ("new1", {"n": 1}), repeat="repeated")
    await reborn.close()
    assert ids(where) == [*(f"new{number}" for number in range(5)), "a", "b"]


async def test_versions_may_write_to_one_path_in_two_ways(tmp_path: Path) -> None:
    where = settings(tmp_path, "jsonl")
    output = file_case("jsonl").build(tmp_path)
    units = [
        unit("a", "x", where),
        unit("b", "y", {**where, "format": "text"}),
        unit("c", object(), {**where, "format": "csv"}),
        unit("d", "z", where),
    ]
    flush = await output.write(units, atomic=False)
    await output.close()
    assert [failed(result) for result in flush.results] == [False, False, True, False]
    assert content(where) == b'{"packet_id":"a","data":"x"}\ny\n{"packet_id":"d","data":"z"}\n'


async def test_half_a_surrogate_pair_stays_an_escape_in_every_format(tmp_path: Path) -> None:
    for file_format in FORMATS:
        where = settings(tmp_path, file_format)
        output = file_case(file_format).build(tmp_path)
        for key in ("a", "b"):
            flush = await write(
                output, where, (key, {"id": key, "s": "hi \ud83d"}), repeat="repeated"
            )
            assert not any(failed(result) for result in flush.results)
        await output.close()
        assert ids(where) == ["a", "b"]
        assert content(where).count(rb"hi \ud83d") == 2


async def test_an_empty_path_is_refused_before_the_write(tmp_path: Path) -> None:
    output = file_case("jsonl").build(tmp_path)
    with pytest.raises(Refused, match="the path is empty") as caught:
        output.prepare({}, {"path": ""}, "a")
    assert "template" in caught.value.hint
