"""What is opened, and what is refused before anything is touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from pipo.errors import Unavailable
from pipo.journal import opening, tip
from pipo.journal.connection import run
from pipo.journal.library import UnsafeStorage
from pipo.journal.opening import FILE, JournalInUse
from pipo.journal.tip import JournalDamaged
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.file_layer import FailAt, layer
from tests.unit.journal.packets import accepted, version


async def used(folder: Path, *, clean: bool) -> None:
    """A journal with a version and a packet, as a run leaves it."""
    journal = open_quick(folder)
    await journal.commit(version(), accepted(1))
    await journal.close(clean=clean)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


async def test_each_opening_takes_a_higher_epoch(tmp_path: Path) -> None:
    for _ in range(3):
        await open_quick(tmp_path).close(clean=True)
    db = apsw.Connection(str(tmp_path / FILE))
    assert run(db, "SELECT value FROM meta WHERE key = 'epoch'") == [("3",)]
    db.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_journal_opens_as_the_last_run_left_it(tmp_path: Path, clean: bool) -> None:
    await used(tmp_path, clean=clean)
    assert (tmp_path / f"{FILE}-wal").exists() is not clean
    journal = open_quick(tmp_path)
    assert len((await journal.recover()).units) == 1
    await journal.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restored_journal_is_refused_and_left_alone(tmp_path: Path, clean: bool) -> None:
    old = tmp_path / "old"
    await used(old, clean=True)
    shutil.copytree(old, tmp_path / "kept")
    journal = open_quick(old)
    await journal.commit(accepted(2))
    await journal.close(clean=clean)
    if not clean:
        tip.write(old, tip.Tip(journal._writer.last_tip[0], 2, clean=False, at=1))
    shutil.copy(tmp_path / "kept" / FILE, old / FILE)
    (old / f"{FILE}-wal").unlink(missing_ok=True)
    (old / f"{FILE}-shm").unlink(missing_ok=True)
    before = contents(old)
    with pytest.raises(JournalDamaged, match="R6" if clean else "R5") as caught:
        open_quick(old)
    assert str(old / "tip") in caught.value.hint
    after = contents(old)
    assert {name: after[name] for name in before} == before


async def test_a_wal_that_is_gone_after_a_crash_is_refused(tmp_path: Path) -> None:
    await used(tmp_path, clean=False)
    (tmp_path / f"{FILE}-wal").unlink()
    (tmp_path / f"{FILE}-shm").unlink()
    before = contents(tmp_path)
    with pytest.raises(JournalDamaged, match="write-ahead log"):
        open_quick(tmp_path)
    with pytest.raises(JournalDamaged, match="write-ahead log"):
        open_quick(tmp_path)
    assert contents(tmp_path) == before
    (tmp_path / "tip").unlink()
    await open_quick(tmp_path).close(clean=True)


async def test_a_journal_that_is_gone_is_refused(tmp_path: Path) -> None:
    await used(tmp_path, clean=True)
    (tmp_path / FILE).unlink()
    with pytest.raises(JournalDamaged, match="its file is gone"):
        open_quick(tmp_path)
    assert not (tmp_path / FILE).exists()


async def test_another_journal_in_its_place_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        await used(tmp_path / name, clean=True)
    shutil.copy(tmp_path / "two" / FILE, tmp_path / "one" / FILE)
    with pytest.raises(JournalDamaged, match="another journal"):
        open_quick(tmp_path / "one")


async def test_another_pipelines_journal_is_refused(tmp_path: Path) -> None:
    await used(tmp_path, clean=True)
    with pytest.raises(JournalDamaged, match="journal of pipeline 'people', not of 'orders'"):
        open_quick(tmp_path, pipeline="orders")


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(JournalDamaged, match="not a whole SQLite database"):
        open_quick(tmp_path)
    (tmp_path / FILE).unlink()
    db = apsw.Connection(str(tmp_path / FILE))
    run(db, "CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(JournalDamaged, match="a database, but no journal"):
        open_quick(tmp_path)


async def test_a_run_that_died_while_making_its_journal_left_none(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    await open_quick(tmp_path).close(clean=True)
    other = tmp_path / "half"
    other.mkdir()
    db = apsw.Connection(str(other / FILE))
    run(db, "PRAGMA journal_mode = WAL")
    db.close()
    await open_quick(other).close(clean=True)


def test_a_locked_journal_is_named_after_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo.journal.connection.BUSY_TIMEOUT_MS", 30)
    db = apsw.Connection(str(tmp_path / FILE))
    run(db, "PRAGMA locking_mode = EXCLUSIVE")
    run(db, "CREATE TABLE t (x)")
    with pytest.raises(JournalInUse, match="locked by another process"):
        open_quick(tmp_path)
    db.close()


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise UnsafeStorage(f"{folder} is on a network file system")

    monkeypatch.setattr(opening, "refuse_network", refuse)
    with pytest.raises(UnsafeStorage):
        open_quick(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_affected_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    with pytest.raises(UnsafeStorage, match=r"3\.40\.1"):
        open_quick(tmp_path)


@pytest.mark.parametrize(
    ("file", "error"),
    [(FILE, apsw.FullError), (f"{FILE}-wal", apsw.FullError), (FILE, apsw.IOError)],
)
def test_a_disk_that_cannot_take_it_is_named(
    tmp_path: Path, file: str, error: type[apsw.Error]
) -> None:
    fail = FailAt("write", file, 1, error)
    fail.armed = True
    told = pytest.raises(Unavailable, match=f"{FILE} cannot be written: ")
    with layer(fail) as vfs, told as caught:
        open_quick(tmp_path, vfs=vfs)
    assert "MB free" in caught.value.hint
