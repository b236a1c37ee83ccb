"""Readers in other processes: they see what is committed, and leave every byte as it is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipo.journal.library import UnsafeStorage
from pipo.journal.opening import FILE
from pipo.journal.rows import Unreadable
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import accepted, delivered, packet_id, version, written

READER = """
import asyncio, json, sys
from pathlib import Path
from pipo.journal import reads
from pipo.journal.readonly import open_readonly

async def main():
    rows = await open_readonly(Path(sys.argv[1]))
    page = await reads.packets(rows)
    trace = await reads.trace(rows, sys.argv[2])
    events = await reads.events(rows)
    print(json.dumps([page.total, [s.step for s in trace.steps], len(events.events)]))
    writes = []
    for sql in ("DELETE FROM units", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA user_version = 9"):
        try:
            await rows.rows(sql)
        except Exception as error:
            writes.append(type(error).__name__)
    print(json.dumps(writes))
    await rows.close()
    await rows.close()

asyncio.run(main())
"""


def read_elsewhere(folder: Path) -> tuple[list[object], list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", READER, str(folder / FILE), packet_id(1)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    first, second = done.stdout.splitlines()
    return json.loads(first), json.loads(second)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file as bytes; of the shared memory all but the marks by which readers say what
    they read (walformat.html, section 2.2: aReadMark), which are theirs to write."""
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    shared = made.get(f"{FILE}-shm")
    if shared:
        made[f"{FILE}-shm"] = shared[:100] + shared[120:]
    return made


async def fill(folder: Path, *, close: bool | None) -> object:
    journal = open_quick(folder)
    await journal.commit(version(), accepted(1), written(1), delivered(1), accepted(2))
    if close is not None:
        await journal.close(clean=close)
    return journal


@pytest.mark.slow
@pytest.mark.parametrize("state", ["running", "crashed", "stopped"])
async def test_a_reader_leaves_every_byte_as_it_is(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "p"
    journal = await fill(folder, close={"running": None, "crashed": False, "stopped": True}[state])
    before = contents(folder)
    answer, refused = read_elsewhere(folder)
    assert answer == [2, ["input", "$output", "$verify"], 4]
    assert "Unreadable" in refused
    after = contents(folder)
    assert {name: after.get(name) for name in before} == before
    assert all(after[name] == b"" for name in after.keys() - before.keys())
    if state == "running":
        assert await journal.commit(accepted(3)) is not None  # type: ignore[attr-defined]
        await journal.close(clean=True)  # type: ignore[attr-defined]
    journal = open_quick(folder)
    assert journal.counters["all.accepted"] == 2 + (state == "running")
    await journal.close(clean=True)


@pytest.mark.slow
async def test_a_reader_that_closes_last_leaves_the_log_for_the_writer(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    await fill(folder, close=False)
    size = (folder / f"{FILE}-wal").stat().st_size
    assert size > 0
    read_elsewhere(folder)
    assert (folder / f"{FILE}-wal").stat().st_size == size


async def copied(tmp_path: Path) -> Path:
    """A stopped journal whose file only the library of readers has open in this process."""
    await fill(tmp_path / "p", close=True)
    shutil.copytree(tmp_path / "p", tmp_path / "copy")
    return tmp_path / "copy" / FILE


async def test_reads_answer_alike_through_both_libraries(tmp_path: Path) -> None:
    from pipo.journal import reads
    from pipo.journal.readonly import open_readonly

    rows = await open_readonly(await copied(tmp_path))
    journal = open_quick(tmp_path / "p")
    for read in (
        lambda r: reads.packets(r, "delivered"),
        lambda r: reads.trace(r, packet_id(1)),
        lambda r: reads.counters(r),
        lambda r: reads.latency(r, ["output"]),
        lambda r: reads.latest_version(r),
        lambda r: reads.oldest_pending(r),
        lambda r: reads.events(r),
        lambda r: reads.data_of(r, packet_id(2)),
    ):
        assert await read(rows) == await read(journal.rows)
    await rows.close()
    await journal.close(clean=True)


async def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    from pipo.journal.readonly import open_readonly

    with pytest.raises(Unreadable, match="cannot be read"):
        await open_readonly(tmp_path / FILE)
    (tmp_path / FILE).write_bytes(b"nothing of SQLite's" * 300)
    rows = await open_readonly(tmp_path / FILE)
    with pytest.raises(Unreadable, match="not a database"):
        await rows.rows("SELECT 1 FROM units")
    await rows.close()
    with pytest.raises(Unreadable):
        await rows.rows("SELECT 1")


async def test_an_affected_library_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pysqlite3 import dbapi2

    from pipo.journal import readonly

    monkeypatch.setattr(dbapi2, "sqlite_version", "3.40.1")
    with pytest.raises(UnsafeStorage, match="pysqlite3 carries SQLite 3"):
        await readonly.open_readonly(tmp_path / FILE)
