"""The file checks against the contract, and what is their own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import CheckContext, CheckError, Passed, Pending, Target
from pipo.connectors.file import looking
from tests.contract.connectors import contract
from tests.contract.connectors.contract import CheckCase, OutputCase, judged, write
from tests.contract.connectors.files import (
    LOGGED,
    content,
    counted,
    file_case,
    put,
    settings,
    side_file,
)

OUTPUT = OutputCase(name="file", settings=lambda folder: {}, keys=lambda where: [])


def path_of(folder: Path) -> str:
    return str(folder / "a.jsonl")


def target(folder: Path, check: str, result: Any = None, **settings: Any) -> Target:
    return Target(check, settings, result, {"path": path_of(folder), "format": "jsonl"})


def line(folder: Path, value: Any, result: Any = None, **more: Any) -> Target:
    return target(folder, "line_contains", result, value=value, **more)


def open_paths(folder: Path) -> list[str]:
    """The files of a folder that this process holds open."""
    paths = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in paths if path.startswith(str(folder))]


def put_at(folder: Path, text: bytes, name: str = "a.jsonl") -> str:
    path = folder / name
    path.write_bytes(text)
    return str(path)


def add(folder: Path, text: bytes) -> None:
    with open(path_of(folder), "ab") as file:
        file.write(text)


async def fill(folder: Path) -> None:
    output = OUTPUT.build(folder)
    await write(output, {"path": path_of(folder)}, ("a", {"n": 1}), ("b", {"n": 2}))
    await output.close()
    (folder / "folder").mkdir()


LINE_CONTAINS = CheckCase(
    output="file",
    fill=fill,
    present=lambda folder: line(folder, '"b"'),
    absent=lambda folder: line(folder, '"c"'),
    broken=lambda folder: line(folder, ""),
    never=lambda folder: line(folder, "a\nb"),
)


def elsewhere(check: str, **settings: Any) -> CheckCase:
    def aim(name: str) -> Callable[[Path], Target]:
        return lambda folder: target(folder, check, path=str(folder / name), **settings)

    return CheckCase(
        output="file", fill=fill, present=aim("a.jsonl"), absent=aim("none"), broken=aim("folder")
    )


LINES = b'{"packet_id":"a","data":{"n":1}}\n{"packet_id":"b","data":{"n":2}}\n'
CASES = {
    "line_contains": LINE_CONTAINS,
    "file_exists": elsewhere("file_exists"),
    "file_nonempty": elsewhere("file_nonempty"),
    "checksum": elsewhere("checksum", sha256=hashlib.sha256(LINES).hexdigest().upper()),
}


@pytest.mark.parametrize("behaviour", contract.EVERY_CHECK, ids=lambda made: made.__name__)
@pytest.mark.parametrize("name", CASES)
async def test_contract(
    name: str, behaviour: Callable[[CheckCase, Path], Awaitable[None]], tmp_path: Path
) -> None:
    await behaviour(CASES[name], tmp_path)


async def test_a_line_break_is_never_in_a_line(tmp_path: Path) -> None:
    await contract.what_can_never_be_is_impossible(LINE_CONTAINS, tmp_path)


async def test_a_text_at_the_very_beginning_is_found(tmp_path: Path) -> None:
    """Offset 0 is an offset."""
    put_at(tmp_path, b'{"packet_id":"a"}\n')
    checks = LINE_CONTAINS.build()
    [found] = await judged(checks, line(tmp_path, '{"packet_id'))
    await checks.close()
    assert isinstance(found, Passed)


async def test_it_looks_first_where_the_write_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a big file nothing is read but the record."""
    read: list[int] = []
    pread = os.pread

    def counted(handle: int, length: int, offset: int) -> bytes:
        made = pread(handle, length, offset)
        read.append(len(made))
        return made

    put_at(tmp_path, b'{"x":"y"}\n' * 100_000)
    output = OUTPUT.build(tmp_path)
    flush = await write(output, {"path": path_of(tmp_path)}, ("a", 1), ("b", 2))
    await output.close()
    monkeypatch.setattr(os, "pread", counted)
    checks = LINE_CONTAINS.build()
    (verdict,) = await judged(checks, line(tmp_path, '"b"', flush.results[1]))
    await checks.close()
    assert isinstance(verdict, Passed)
    assert read == [len('{"packet_id":"b","data":2}')]
    assert verdict.evidence["offset"] == 1_000_000 + 27 + len('{"packet_id":')


async def test_a_record_that_moved_is_found_anyway(tmp_path: Path) -> None:
    put_at(tmp_path, b'{"packet_id":"a"}\n{"packet_id":"b"}\n')
    checks = LINE_CONTAINS.build()
    here = path_of(tmp_path)
    results: list[Any] = [
        {"path": here, "offset": 0, "length": 17},
        {"path": here, "offset": 5000, "length": 17},
        {"path": here, "offset": -1, "length": 17},
        {"path": here, "offset": "x", "length": None},
        {"path": here, "skipped": True},
        {"path": "/elsewhere", "offset": 0, "length": 17},
        None,
    ]
    verdicts = await judged(checks, *(line(tmp_path, '"b"', result) for result in results))
    await checks.close()
    assert all(isinstance(verdict, Passed) for verdict in verdicts)


async def test_a_torn_record_is_no_record(tmp_path: Path) -> None:
    put_at(tmp_path, b'{"packet_id":"a","da\n{"packet_id":"b"}\n{"packet_id":"c","d')
    checks = LINE_CONTAINS.build()
    result = {"path": path_of(tmp_path), "offset": 0, "length": 20}
    verdicts = await judged(checks, *(line(tmp_path, f'"{key}"', result) for key in "abc"))
    assert [type(verdict) for verdict in verdicts] == [Pending, Passed, Pending]
    add(tmp_path, b'ata":3}\n{"packet_id":"a"}\n')
    verdicts = await judged(checks, *(line(tmp_path, f'"{key}"', result) for key in "abc"))
    await checks.close()
    assert all(isinstance(verdict, Passed) for verdict in verdicts)


@pytest.mark.parametrize("file_format", LOGGED)
async def test_a_torn_row_is_no_record(file_format: str, tmp_path: Path) -> None:
    """What the side file does not know as whole counts as nothing, on whatever line it stands."""
    where = settings(tmp_path, file_format)
    output = file_case(file_format).build(tmp_path)
    data = {"id": "a", "s": "needle\nmore\n"}
    await write(output, where, ("a", data))
    flush = await write(output, where, ("b", {"id": "b", "s": "second\nmore\n"}))
    await output.close()
    whole, log = content(where), side_file(where).read_bytes()
    checks = registry.build_checks("file", CheckContext(SystemClock()))

    async def verdicts() -> list[type]:
        targets = [
            Target("line_contains", {"value": value}, flush.results[0], where)
            for value in ("needle", "second")
        ]
        return [type(verdict) for verdict in await judged(checks, *targets)]

    assert await verdicts() == [Passed, Passed]
    put(where, whole[:-3])
    assert await verdicts() == [Passed, Pending]
    side_file(where).write_bytes(log[: log.rindex(b'["done"')])
    assert await verdicts() == [Passed, Pending]
    put(where, whole)
    assert await verdicts() == [Passed, Passed]
    await checks.close()


async def test_a_file_is_opened_once_until_another_is_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = counted(monkeypatch, "open")
    put_at(tmp_path, b'{"x":1}\n')
    checks = LINE_CONTAINS.build()
    for _ in range(3):
        assert isinstance((await judged(checks, line(tmp_path, '"b"')))[0], Pending)
        add(tmp_path, b'{"y":1}\n')
    assert len(opened) == 1
    contract.swap_for_a_copy(path_of(tmp_path), tmp_path / "moved")
    add(tmp_path, b'{"z":"b"}\n')
    assert isinstance((await judged(checks, line(tmp_path, '"b"')))[0], Passed)
    assert len(opened) == 2
    assert open_paths(tmp_path) == [path_of(tmp_path)]
    os.unlink(path_of(tmp_path))
    assert isinstance((await judged(checks, line(tmp_path, '"b"')))[0], Pending)
    assert open_paths(tmp_path) == []
    await checks.close()


@pytest.mark.slow
async def test_a_million_lines_cost_no_more_than_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in calls and bytes, which a busy machine does not change."""
    read = counted(monkeypatch, "pread")
    costs = []
    for lines in (0, 1_000_000):
        put_at(tmp_path, b'{"packet_id":"other","data":0}\n' * lines)
        output = OUTPUT.build(tmp_path)
        flush = await write(output, {"path": path_of(tmp_path)}, ("a", {"n": 1}))
        await output.close()
        checks = LINE_CONTAINS.build()
        read.clear()
        (verdict,) = await judged(checks, line(tmp_path, '"a"', flush.results[0]))
        await checks.close()
        assert isinstance(verdict, Passed)
        costs.append((len(read), sum(length for _, length, _ in read)))
    assert costs[0] == costs[1]


@pytest.mark.seed("D033")
async def test_a_file_of_another_kind_has_lines_of_any_kind(tmp_path: Path) -> None:
    other = put_at(tmp_path, b"first\r\nneedle in a hay", "other.txt")
    checks = LINE_CONTAINS.build()
    (verdict,) = await judged(checks, line(tmp_path, "needle", path=other))
    await checks.close()
    assert isinstance(verdict, Passed)
    assert verdict.evidence["offset"] == 7


async def test_a_text_across_two_pieces_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"ab\n" * 20 + b"needle\n"
    other = put_at(tmp_path, text, "other.txt")
    for size in range(1, 12):
        monkeypatch.setattr(looking, "CHUNK_BYTES", size)
        checks = LINE_CONTAINS.build()
        (verdict,) = await judged(checks, line(tmp_path, "needle", path=other))
        await checks.close()
        assert isinstance(verdict, Passed)
        assert verdict.evidence["offset"] == 60


async def test_a_file_that_grew_is_read_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    find = looking._Reading.find

    def spied(self: Any, text: bytes, start: int) -> int | None:
        starts.append(start)
        return find(self, text, start)

    monkeypatch.setattr(looking._Reading, "find", spied)
    put_at(tmp_path, b'{"x":1}\n' * 2000)
    checks = LINE_CONTAINS.build()
    assert isinstance((await judged(checks, line(tmp_path, '"b"')))[0], Pending)
    add(tmp_path, b'{"y":1}\n')
    assert isinstance((await judged(checks, line(tmp_path, '"b"')))[0], Pending)
    assert starts[0] == 0
    assert starts[1] > 11_000
    put_at(tmp_path, b'{"packet_id":"b"}\n' + b'{"z":1}\n' * 3000)
    assert isinstance((await judged(checks, line(tmp_path, '"b"')))[0], Passed)
    assert starts[2] == 0
    await checks.close()


async def test_a_look_that_is_given_up_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    chunks = looking._Reading.chunks

    def endless(self: Any, start: int = 0) -> Iterator[bytes]:
        while True:
            yield from chunks(self, start)
            begun.set()

    monkeypatch.setattr(looking._Reading, "chunks", endless)
    put_at(tmp_path, b'{"x":1}\n')
    checks = LINE_CONTAINS.build()
    look = asyncio.ensure_future(checks.look(path_of(tmp_path), [line(tmp_path, "none")]))
    await asyncio.to_thread(begun.wait, 60)
    look.cancel()
    with pytest.raises(asyncio.CancelledError):
        await look
    await asyncio.wait_for(checks.close(), 60)


@pytest.mark.parametrize(
    ("value", "text"),
    [(4711, b'{"n":4711}'), (2.5, b'["2.5 kg"]'), (1e21, b"1e+21"), (True, b"true")],
)
async def test_a_number_is_looked_for_as_templates_print_it(
    tmp_path: Path, value: Any, text: bytes
) -> None:
    put_at(tmp_path, b"first\n" + text + b"\n")
    checks = LINE_CONTAINS.build()
    (seen,) = await judged(checks, line(tmp_path, value))
    assert isinstance(seen, Passed)
    await checks.close()


@pytest.mark.parametrize("value", ["", None, [], {"n": 1}])
async def test_what_is_no_text_is_looked_for_in_vain(tmp_path: Path, value: Any) -> None:
    put_at(tmp_path, b"null\n")
    checks = LINE_CONTAINS.build()
    (seen,) = await judged(checks, line(tmp_path, value))
    assert isinstance(seen, CheckError)
    assert seen.message == "`value` renders to no text"
    await checks.close()


@pytest.mark.seed("D031")
async def test_an_empty_file_is_not_nonempty_yet(tmp_path: Path) -> None:
    put_at(tmp_path, b"")
    checks = LINE_CONTAINS.build()
    exists, nonempty = await judged(
        checks, target(tmp_path, "file_exists"), target(tmp_path, "file_nonempty")
    )
    await checks.close()
    assert isinstance(exists, Passed)
    assert isinstance(nonempty, Pending)
    assert nonempty.why == f"{path_of(tmp_path)} is empty"


@pytest.mark.seed("D035")
async def test_a_checksum_follows_the_file(tmp_path: Path) -> None:
    checks = LINE_CONTAINS.build()
    wanted = hashlib.sha256(b"two").hexdigest()
    put_at(tmp_path, b"one")
    (before,) = await judged(checks, target(tmp_path, "checksum", sha256=wanted))
    put_at(tmp_path, b"two")
    os.utime(path_of(tmp_path), (1, 1))
    (after,) = await judged(checks, target(tmp_path, "checksum", sha256=wanted))
    (bad,) = await judged(checks, target(tmp_path, "checksum", sha256="abc"))
    await checks.close()
    assert isinstance(before, Pending)
    assert isinstance(after, Passed)
    assert isinstance(bad, CheckError)


async def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    checks = LINE_CONTAINS.build()
    (verdict,) = await judged(checks, line(tmp_path, "x", path=str(tmp_path / ("x" * 300))))
    await checks.close()
    assert isinstance(verdict, CheckError)
    assert "File name too long" in verdict.message
