"""A failing disk and a second writer: nothing more is acknowledged, by either."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from pipo.errors import Unavailable
from pipo.journal import statements
from pipo.journal.sqlite_journal import Fenced, JournalFailed
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.file_layer import FailAt, layer
from tests.unit.journal.packets import accepted, packet_id, version


@pytest.mark.parametrize(
    ("kind", "error"),
    [("sync", apsw.IOError), ("write", apsw.IOError), ("write", apsw.FullError)],
)
async def test_a_failing_disk_stops_acknowledgement(
    tmp_path: Path, kind: str, error: type[apsw.Error]
) -> None:
    fail = FailAt(kind, "-wal", 1, error)
    with layer(fail) as vfs:
        journal = open_quick(tmp_path, vfs=vfs, synchronous="FULL")
        await journal.commit(version(), accepted(1))
        fail.armed = True
        told: list[BaseException | None] = []
        journal.stage(accepted(2), done=told.append)
        with pytest.raises(JournalFailed, match="failed"):
            await journal.commit(accepted(3))
        assert isinstance(await asyncio.wait_for(journal.failed, 60), error)
        assert isinstance(told[0], JournalFailed)
        assert fail.fired == 1
        # A failed fsync is not tried again, even though it would work now.
        with pytest.raises(JournalFailed):
            await journal.commit(accepted(4))
        with pytest.raises(JournalFailed):
            journal.stage(accepted(5))
        assert journal.counters["all.accepted"] == 1
        await journal.close(clean=True)
    journal = open_quick(tmp_path)
    found = [unit.id for unit in (await journal.recover()).units]
    assert found[0] == packet_id(1)
    assert not set(found) & {packet_id(4), packet_id(5)}
    await journal.close(clean=True)


async def test_waiters_end_when_the_journal_fails(tmp_path: Path) -> None:
    fail = FailAt("sync", "-wal", 1, apsw.IOError)
    with layer(fail) as vfs:
        journal = open_quick(tmp_path, vfs=vfs, synchronous="FULL")
        await journal.commit(version())
        waiting = asyncio.ensure_future(journal.wait_beyond(journal.last_seq, 60.0))
        await asyncio.sleep(0)
        fail.armed = True
        with pytest.raises(JournalFailed):
            await journal.commit(accepted(1))
        assert await asyncio.wait_for(waiting, 60) == journal.last_seq
        await journal.close(clean=False)


async def test_a_writer_that_was_replaced_is_fenced(tmp_path: Path) -> None:
    frozen = open_quick(tmp_path)
    await frozen.commit(version(), accepted(1))
    second = open_quick(tmp_path)
    with pytest.raises(JournalFailed, match="took the journal") as caught:
        await frozen.commit(accepted(2))
    assert isinstance(caught.value, Unavailable)
    assert isinstance(await frozen.failed, Fenced)
    await second.commit(accepted(3))
    found = [unit.id for unit in (await second.recover()).units]
    assert found == [packet_id(1), packet_id(3)]
    await frozen.close(clean=True)
    await second.commit(accepted(4))
    await second.close(clean=True)


async def answers_after_being_replaced(folder: Path) -> bool:
    """Whether a writer that was frozen and replaced still calls a packet accepted."""
    frozen = open_quick(folder)
    await frozen.commit(version())
    second = open_quick(folder)
    try:
        await frozen.commit(accepted(1))
        return True
    except JournalFailed:
        return False
    finally:
        await frozen.close(clean=False)
        await second.close(clean=False)


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_epoch_is_the_guard_of_every_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """And the negative control: without it, the writer answers for what its successor never saw."""
    if not guarded:
        unfenced = tuple(
            one.replace(f"{statements._FENCE.strip()};", "") for one in statements.PROGRAMS
        )
        assert unfenced != statements.PROGRAMS
        monkeypatch.setattr(statements, "PROGRAMS", unfenced)
    assert await answers_after_being_replaced(tmp_path) is not guarded


def test_no_program_is_without_the_guard() -> None:
    programs = [one for one in statements.PROGRAMS if "TRIGGER" in one]
    assert programs
    assert all(statements._FENCE.strip() in one for one in programs)


async def test_a_fenced_writer_does_not_call_the_run_orderly(tmp_path: Path) -> None:
    frozen = open_quick(tmp_path)
    await frozen.commit(version())
    second = open_quick(tmp_path)
    with pytest.raises(JournalFailed):
        await frozen.commit(accepted(1))
    await frozen.close(clean=True)
    assert '"clean":false' in (tmp_path / "tip").read_text()
    assert (tmp_path / "journal.db-wal").exists()
    await second.close(clean=True)
