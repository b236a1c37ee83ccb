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
from pipo.journal.sqlite_journal import Applied, SqliteJournal
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
    for sql in sys.argv[3:]:
        try:
            print(await rows.rows(sql))
        except Exception as error:
            print(type(error).__name__)
    await rows.close()
    await rows.close()

asyncio.run(main())
"""


def read_elsewhere(folder: Path, *statements: str) -> list[str]:
    """What a reader in another process prints."""
    done = subprocess.run(
        [sys.executable, "-c", READER, str(folder / FILE), packet_id(1), *statements],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file as bytes; of the shared memory all but the marks by which readers say what
    they read (walformat.html, section 2.2: aReadMark), which are theirs to write.

    A child copies the files: closing one here would drop this process's own locks on it.
    """
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-r", str(folder), str(copy)], timeout=60, check=True)
    made = {path.name: path.read_bytes() for path in copy.iterdir()}
    shared = made.get(f"{FILE}-shm")
    if shared:
        made[f"{FILE}-shm"] = shared[:100] + shared[120:]
    return made


async def fill(folder: Path) -> SqliteJournal:
    """A running journal of two packets."""
    journal = open_quick(folder)
    await journal.commit(version(), accepted(1), written(1), delivered(1), accepted(2))
    return journal


READ = [json.dumps([2, ["input", "$output", "$verify"], 4])]


@pytest.mark.slow
async def test_a_reader_leaves_a_running_journal_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    journal = await fill(folder)
    before = contents(folder)
    assert read_elsewhere(folder) == READ
    assert contents(folder) == before
    assert await journal.commit(accepted(3)) == [Applied()]
    await journal.close(clean=True)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [False, True])
async def test_a_reader_leaves_an_ended_journal_as_it_is(tmp_path: Path, clean: bool) -> None:
    """It may make shared memory anew, and an empty log; it deletes and folds none."""
    folder = tmp_path / "p"
    await (await fill(folder)).close(clean=clean)
    before = contents(folder)
    assert read_elsewhere(folder) == READ
    after = contents(folder)
    after.pop(f"{FILE}-shm")
    before.pop(f"{FILE}-shm", None)
    if clean:
        assert after.pop(f"{FILE}-wal") == b""
    assert after == before
    journal = open_quick(folder)
    assert journal.counters["all.accepted"] == 2
    await journal.close(clean=True)


@pytest.mark.slow
async def test_a_reader_can_neither_write_nor_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    journal = await fill(folder)
    before = contents(folder)
    said = read_elsewhere(
        folder, "DELETE FROM units", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA user_version = 9"
    )
    assert said[0] == READ[0]
    assert [said[1], said[3]] == ["Unreadable", "Unreadable"]
    after = contents(folder)
    for name in (FILE, f"{FILE}-wal"):
        assert after[name] == before[name]
    assert await journal.commit(accepted(3)) == [Applied()]
    await journal.close(clean=True)


async def copied(tmp_path: Path) -> Path:
    """A stopped journal whose file only the library of readers has open in this process."""
    await (await fill(tmp_path / "p")).close(clean=True)
    shutil.copytree(tmp_path / "p", tmp_path / "copy")
    return tmp_path / "copy" / FILE


async def test_reads_answer_alike_through_both_libraries(tmp_path: Path) -> None:
    from pipo.journal import reads, versions
    from pipo.journal.readonly import open_readonly

    rows = await open_readonly(await copied(tmp_path))
    journal = open_quick(tmp_path / "p")
    for read in (
        lambda r: reads.packets(r, "delivered"),
        lambda r: reads.trace(r, packet_id(1)),
        lambda r: reads.counters(r),
        lambda r: reads.latency(r, ["output"]),
        lambda r: versions.history(r),
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


@pytest.mark.slow
async def test_a_query_without_measure_fails_alone(tmp_path: Path) -> None:
    """A check's query may ask for more than the machine has."""
    folder = tmp_path / "p"
    journal = await fill(folder)
    greedy = "SELECT zeroblob(900000000)"
    assert read_elsewhere(folder, greedy, "SELECT 1") == [*READ, "Unreadable", "[(1,)]"]
    await journal.close(clean=True)
