"""A kill or a power cut at any moment, any byte: the file is whole again, each packet in it once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Repeat
from tests.contract.connectors import contract
from tests.contract.connectors.contract import Settings, write
from tests.contract.connectors.disk import Disk, restore
from tests.contract.connectors.files import (
    FORMATS,
    LOGGED,
    content,
    file_case,
    ids,
    logged,
    put,
    settings,
    side_file,
)

LONG = {"n": 1, "s": 'two\nlines, "quoted"', "l": [[1], {"x": "]"}]}


def sound_ids(where: Settings) -> list[str]:
    """As `ids`; a torn end may stand on a jsonl line of its own (R18)."""
    if (where["format"], where["mode"]) != ("jsonl", "append"):
        return ids(where)
    found = []
    for line in content(where).splitlines():
        try:
            found.append(json.loads(line)["packet_id"])
        except ValueError:
            continue
    return found


async def after_a_crash(
    where: Settings, folder: Path, marks: dict[str, int], *keys: str, repeat: Repeat = "recovered"
) -> list[str]:
    output = file_case(where["format"], where["mode"]).build(folder)
    await output.open(marks)
    await output.recover(where)
    await write(output, where, *((key, data_of(key)) for key in keys), repeat=repeat)
    await output.close()
    return sound_ids(where)


def data_of(key: str) -> dict[str, Any]:
    return {"id": key, **LONG}


async def interrupted(
    where: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch, *before: str
) -> tuple[Disk, dict[str, int]]:
    """Writes `before`, which the journal knows of, then `b` and `c`, of which it does not."""
    output = file_case(where["format"], where["mode"]).build(folder)
    marks: dict[str, int] = {}
    for key in before:
        marks |= contract.kept(await write(output, where, (key, data_of(key))))
    with monkeypatch.context() as patch:
        disk = Disk(patch, folder)
        await write(output, where, ("b", data_of("b")), ("c", data_of("c")))
    await output.close()
    return disk, marks


@pytest.mark.seed("O032")
@pytest.mark.slow
@pytest.mark.parametrize("before", [(), ("a",)])
@pytest.mark.parametrize("file_format", FORMATS)
async def test_a_crash_at_any_moment_of_an_append(
    file_format: str, before: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(tmp_path, file_format)
    disk, marks = await interrupted(where, tmp_path, monkeypatch, *before)
    states = disk.files()
    assert len(states) > 50
    for files in states:
        restore(tmp_path, files)
        found = await after_a_crash(where, tmp_path, marks, "b", "c", "d")
        assert sorted(found) == sorted([*before, "b", "c", "d"]), files
        left = {Path(where["path"]).name, side_file(where).name}
        assert set(contract.names(tmp_path)) <= left, files


@pytest.mark.parametrize("before", [(), ("a",)])
@pytest.mark.parametrize("file_format", FORMATS)
async def test_what_was_written_survives_a_power_cut(
    file_format: str, before: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once `write` has returned nothing is repeated."""
    where = settings(tmp_path, file_format)
    disk, marks = await interrupted(where, tmp_path, monkeypatch, *before)
    for files in disk.moments[-1].after_a_power_cut():
        restore(tmp_path, files)
        found = await after_a_crash(where, tmp_path, marks, "d", repeat="first")
        assert found == [*before, "b", "c", "d"]


@pytest.mark.parametrize("file_format", FORMATS)
async def test_a_file_that_a_killed_process_made_is_not_lost_by_a_power_cut(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it could sync the names; the next process finds the files there."""
    where = settings(tmp_path, file_format)
    put(where, b"")
    if file_format in LOGGED:
        side_file(where).write_bytes(b"")
    output = file_case(file_format).build(tmp_path)
    with monkeypatch.context() as patch:
        disk = Disk(patch, tmp_path, names_synced=False)
        await write(output, where, ("a", data_of("a")))
    await output.close()
    for files in disk.moments[-1].after_a_power_cut():
        restore(tmp_path, files)
        assert await after_a_crash(where, tmp_path, {}, "d", repeat="first") == ["a", "d"]


@pytest.mark.parametrize("file_format", LOGGED)
async def test_a_crash_at_any_moment_of_the_mending(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times: an append cut short, one that lacks its `done`, and one whose last record was cut."""
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", data_of("a")))
    await write(output, where, ("b", data_of("b")), ("c", data_of("c")))
    await output.close()
    whole, log = content(where), side_file(where).read_bytes()
    begun = log[: log.rindex(b'["done"')]
    for left, known in ((whole[:-5], begun), (whole, begun), (whole[:-5], log)):
        restore(tmp_path, {Path(where["path"]).name: left, side_file(where).name: known})
        mending = file_case(file_format).build(tmp_path)
        with monkeypatch.context() as patch:
            disk = Disk(patch, tmp_path)
            await mending.recover(where)
        await mending.close()
        for files in disk.files():
            restore(tmp_path, files)
            found = await after_a_crash(where, tmp_path, {}, "b", "c", "d")
            assert sorted(found) == list("abcd"), files


@pytest.mark.seed("O033")
@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
async def test_a_crash_at_any_moment_of_a_replacement(
    file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is the old one or the new one, whole, at each of them."""
    where = settings(tmp_path, file_format, "write")
    disk, _ = await interrupted(where, tmp_path, monkeypatch, "a")
    seen = set()
    for files in disk.files():
        restore(tmp_path, files)
        (found,) = ids(where)
        seen.add(found)
        assert await after_a_crash(where, tmp_path, {}, "c") == ["c"]
        assert contract.names(tmp_path) == [Path(where["path"]).name]
    assert seen == {"a", "c"}
    for files in disk.moments[-1].after_a_power_cut():
        restore(tmp_path, files)
        assert ids(where) == ["c"]


@pytest.mark.seed("O032")
@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
async def test_the_last_record_cut_at_any_byte(file_format: str, tmp_path: Path) -> None:
    """R18: nothing before it changes, a new packet is written once, and so is the cut one."""
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", data_of("a")))
    start = len(content(where))
    await write(output, where, ("b", data_of("b")))
    await output.close()
    whole, log = content(where), side_file(where)
    entries = log.read_bytes().splitlines(keepends=True) if file_format in LOGGED else []
    if file_format == "json":
        start -= len("\n]\n")
    for cut in range(start, len(whole) + 1):
        for known in ("done", "begun") if entries else ("",):
            put(where, whole[:cut])
            if entries:
                log.write_bytes(b"".join(entries if known == "done" else entries[:-1]))
            output = file_case(file_format).build(tmp_path)
            await write(output, where, ("new", data_of("new")))
            assert content(where).startswith(whole[:start])
            await write(output, where, ("b", data_of("b")), repeat="repeated")
            assert sorted(sound_ids(where)) == ["a", "b", "new"], (cut, known)
            await output.close()


@pytest.mark.parametrize("file_format", LOGGED)
async def test_a_finished_group_cut_at_any_byte_keeps_its_whole_records(
    file_format: str, tmp_path: Path
) -> None:
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", data_of("a")))
    flush = await write(output, where, *((key, data_of(key)) for key in "bcd"))
    await output.close()
    whole, log = content(where), side_file(where).read_bytes()
    ends = [result["offset"] + result["length"] for result in flush.results]  # type: ignore[index]
    for cut in range(ends[0], len(whole) + 1):
        put(where, whole[:cut])
        side_file(where).write_bytes(log)
        kept = list("abcd")[: 1 + sum(end < cut for end in ends)]
        assert (await after_a_crash(where, tmp_path, {}, "x"))[: len(kept)] == kept
        found = await after_a_crash(where, tmp_path, {}, *"abcdx", repeat="repeated")
        assert sorted(found) == list("abcdx"), cut


@pytest.mark.parametrize("text", [b"x,1\n", b"longer,1\n", b"y,1\nz,", b"c,2"])
async def test_an_edited_file_keeps_what_its_editor_wrote(text: bytes, tmp_path: Path) -> None:
    """The log ends within the file of now, by chance."""
    where = settings(tmp_path, "csv")
    put(where, b"id,n\n")
    output = file_case("csv").build(tmp_path)
    await write(output, where, ("a", {"n": 12345678}), ("b", {"n": 12345678}))
    put(where, b"id,n\nshort,1\n" + text)
    await write(output, where, ("c", {"n": 1}))
    await output.close()
    gap = b"" if text.endswith(b"\n") else b"\n"
    assert content(where) == b"id,n\nshort,1\n" + text + gap + b"c,1\n"


@pytest.mark.parametrize("file_format", LOGGED)
async def test_the_side_file_cut_at_any_byte(file_format: str, tmp_path: Path) -> None:
    """Its begin is cut only before the append has started, its done only after it."""
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    await write(output, where, ("a", data_of("a")))
    before = content(where), side_file(where).read_bytes()
    await write(output, where, ("b", data_of("b")), ("c", data_of("c")))
    await output.close()
    after, log = content(where), side_file(where).read_bytes()
    begun = log.index(b"\n", len(before[1])) + 1
    for cut in range(len(before[1]), len(log) + 1):
        put(where, before[0] if cut < begun else after)
        side_file(where).write_bytes(log[:cut])
        found = await after_a_crash(where, tmp_path, {}, "b", "c", "d")
        assert sorted(found) == list("abcd"), cut
        assert all(json.loads(line) for line in side_file(where).read_bytes().splitlines())


@pytest.mark.parametrize("file_format", LOGGED)
async def test_an_unfinished_begin_with_bytes_enough_counts_as_written(
    file_format: str, tmp_path: Path
) -> None:
    """Edge 182, with a side file of three fields: whoever wrote it is believed."""
    where = settings(tmp_path, file_format)
    row = {"csv": b"id,n\nx,1\n", "text": b'{"id":"x"}\n'}[file_format]
    put(where, row)
    side_file(where).write_bytes(b'["begin","x",0,%d]\n' % len(row))
    assert await after_a_crash(where, tmp_path, {}, "x", "d", repeat="repeated") == ["x", "d"]
    put(where, row[:-3])
    side_file(where).write_bytes(b'["begin",["x"],0,%d]\n' % len(row))
    assert await after_a_crash(where, tmp_path, {}, "x", "d") == ["x", "d"]
    assert logged(where)[1] == ["abort", "x"]
    put(where, b"")
    side_file(where).write_bytes(b'["begin",["x"],0,%d]\nno entry\n[1]\n' % len(row))
    assert await after_a_crash(where, tmp_path, {}, "x", "d") == ["x", "d"]


async def test_what_was_cut_off_is_told(tmp_path: Path) -> None:
    from pipo.connectors import registry

    said: list[Any] = []
    for file_format, torn in (("text", b"torn"), ("json", b'[{"packet_id":"a"},{"packet_')):
        where = settings(tmp_path, file_format)
        put(where, torn)
        side_file(where).write_bytes(b'["begin","x",0,9]\n')
        context = contract.context(tmp_path)
        object.__setattr__(context, "log", lambda *a, **k: said.append((a, k)))
        output = registry.build_output("file", context)
        await write(output, where, ("b", {"id": "b"}))
        await output.close()
    assert [(level, message) for (level, message), _ in said] == [
        ("warning", "cut off what a crash left of an append"),
        ("warning", "closed a JSON array that was cut short"),
    ]
    assert [keys["path"] for _, keys in said] == [
        str(tmp_path / "a.text"),
        str(tmp_path / "a.json"),
    ]
