"""Journals of every released schema: they open, migrate in one transaction, and go on.

Each stands in `released/` under the number of its schema, written by the last Pipo that had it:
`people` delivered Ada, filtered Bob, and gave Cyd up; a second version waits to write Dan and
Eve again. Whoever adds a migration adds the journal of the schema before it.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import apsw
import pytest

from pipo.journal import migrate, reads, versions
from pipo.journal.changes import Started
from pipo.journal.connection import run
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import AT, version
from tests.unit.journal.recount import counted, recount

FOLDER = Path(__file__).parent / "released"
RELEASED = range(1, migrate.latest())
WHOLE = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"


def placed(number: int, folder: Path) -> Path:
    folder.mkdir()
    path = folder / "journal.db"
    path.write_bytes(gzip.decompress((FOLDER / f"{number:03d}.db.gz").read_bytes()))
    return path


def schema_of(path: Path) -> int:
    db = apsw.Connection(str(path))
    try:
        return int(run(db, "SELECT value FROM meta WHERE key = 'schema'")[0][0])
    finally:
        db.close()


def test_every_schema_that_was_released_is_here() -> None:
    found = {int(path.name.split(".")[0]) for path in FOLDER.glob("*.db.gz")}
    assert found == set(RELEASED)


@pytest.mark.parametrize("number", RELEASED)
async def test_a_released_journal_opens_and_goes_on(number: int, tmp_path: Path) -> None:
    path = placed(number, tmp_path / "people")
    assert schema_of(path) == number
    journal = open_quick(path.parent)
    assert schema_of(path) == migrate.latest()
    assert counted(journal.counters) == await recount(journal.rows)
    assert {name: journal.counters[name] for name in ("all.accepted", "now.delivered")} == {
        "all.accepted": 5,
        "now.delivered": 1,
    }
    found = await journal.recover()
    assert (found.packets, [unit.version for unit in found.units]) == (2, [2, 2])
    dead = await reads.packets(journal.rows, "dead_lettered")
    assert [row.error.code for row in dead.packets if row.error] == ["output.failed"]
    trace = await reads.trace(journal.rows, dead.packets[0].packet_id)
    assert trace is not None
    assert trace.packet is not None
    assert trace.packet.data == b'{"name":"Cyd","age":101}'
    history = await versions.history(journal.rows)
    assert [(one.version, one.reason, one.folder) for one in history.versions] == [
        (2, "file changed", None),
        (1, "first start", None),
    ]
    assert (history.pending, await versions.last_start(journal.rows)) == ({2: 2}, None)

    # It is written as any other, and opens again as it is.
    before = journal.last_seq
    await journal.commit(version(3, folder="/here"), Started(3, 2, AT, file_hash="h3"))
    assert journal.last_seq == before + 1
    await journal.close(clean=True)
    again = open_quick(path.parent)
    newest = await versions.latest(again.rows)
    assert newest is not None
    assert (newest.folder, await versions.last_start(again.rows)) == ("/here", "h3")
    await again.close(clean=True)


@pytest.mark.parametrize("number", RELEASED)
async def test_a_migration_that_fails_changes_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are one transaction: a crash between them leaves the schema before."""
    path = placed(number, tmp_path / "people")
    db = apsw.Connection(str(path))
    before = run(db, WHOLE)
    db.close()
    broken = [
        *migrate.migrations(),
        (99, "099_break_off.sql", "CREATE TABLE x (y); SELECT nothing;"),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: broken)
        with pytest.raises(apsw.SQLError, match="nothing"):
            open_quick(path.parent)
    db = apsw.Connection(str(path))
    assert run(db, WHOLE) == before
    db.close()
    journal = open_quick(path.parent)
    assert schema_of(path) == migrate.latest()
    await journal.close(clean=True)


@pytest.mark.parametrize("number", RELEASED)
async def test_a_released_journal_is_read_before_any_start_has_migrated_it(
    number: int, tmp_path: Path
) -> None:
    """Decision 1: a stopped pipeline is read without being written."""
    from pipo.journal.readonly import open_journal_readonly

    path = placed(number, tmp_path / "people")
    rows = await open_journal_readonly(path)
    history = await versions.history(rows)
    assert [one.version for one in history.versions] == [2, 1]
    found = await versions.find(rows, "people", "v1")
    assert found.source.startswith("pipo: 1\nname: people\n")
    assert (await reads.packets(rows)).total == 5
    await rows.close()
    assert schema_of(path) == number


def test_the_journals_are_small() -> None:
    assert all(path.stat().st_size < 16 * 1024 for path in FOLDER.glob("*.gz"))
