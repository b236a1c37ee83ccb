"""Opening a journal for its one writer: look, decide, make or upgrade, take the epoch.

The look is read-only and comes before anything is touched, so a refused journal
stays as it is. Taking the epoch is the first commit of a run: from then on a writer
that was frozen and replaced finds a higher epoch than its own, and commits nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import apsw

from pipo.clock import Clock
from pipo.errors import Conflict, PipoError, Unavailable
from pipo.home import permissions
from pipo.journal import migrate, statements, tip
from pipo.journal.connection import CHECKPOINT_PAGES, open_reader, open_writer, run
from pipo.journal.library import refuse_network
from pipo.journal.tip import JournalDamaged, Tip

FILE = "journal.db"


class JournalInUse(Conflict):
    """Another process keeps the journal locked."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A journal that is ours to write, and what the writer keeps in memory of it."""

    db: apsw.Connection
    epoch: int
    journal_id: str
    last_seq: int
    counters: dict[str, int]
    facts: dict[str, str]
    versions: set[int]


def open_journal(
    folder: Path,
    *,
    pipeline: str,
    clock: Clock,
    vfs: str | None,
    synchronous: str,
    checkpoint_pages: int = CHECKPOINT_PAGES,
) -> Opened:
    """The pipeline's journal, made, upgraded and fenced.

    Raises: UnsafeStorage, JournalDamaged, JournalTooNew, JournalInUse; Unavailable or
        Forbidden, if the disk or the permissions do not let it; apsw.Error else.
    """
    refuse_network(folder)
    path = folder / FILE
    known = tip.read(folder)
    try:
        fresh = _decide(folder, known, pipeline, vfs)
        db = open_writer(path, vfs=vfs, synchronous=synchronous, checkpoint_pages=checkpoint_pages)
        try:
            opened = _take(db, fresh=fresh, pipeline=pipeline, at=clock.now_ms())
        except BaseException:
            db.close()
            raise
    except apsw.BusyError as error:
        raise JournalInUse(
            f"{path} is locked by another process",
            hint="stop what else has it open for writing, then start again",
        ) from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise JournalDamaged(
            f"{path} is not a whole SQLite database: {error}",
            hint="put the journal back from a backup",
        ) from error
    except (apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
        raise _unusable(path, error) from error
    tip.write(folder, Tip(opened.journal_id, opened.last_seq, clean=False, at=clock.now_ms()))
    return opened


def _unusable(path: Path, error: apsw.Error) -> PipoError:
    place = path if path.exists() else path.parent
    if not os.access(place, os.W_OK):
        return permissions.unusable(place, doing="write")
    room = os.statvfs(path.parent)
    free_mb = room.f_bavail * room.f_frsize // 1_000_000
    return Unavailable(
        f"{path} cannot be written: {error}",
        hint=f"look at the disk: it has {free_mb} MB free",
    )


def _decide(folder: Path, known: Tip | None, pipeline: str, vfs: str | None) -> bool:
    """Whether the journal is to be made. Raises: JournalDamaged, for a journal to refuse."""
    path = folder / FILE
    exists = path.exists() and path.stat().st_size > 0
    wal = Path(f"{path}-wal").exists()
    clean = known is not None and known.clean
    plain = tip.Findings(exists, wal, known is not None, clean, True, False)
    row = tip.decide(plain)
    if row.action == tip.REFUSE:
        raise tip.damaged(folder, row, "")
    if row.action == tip.CREATE:
        return True
    journal_id, owner, last_seq = _look(path, vfs)
    if not owner:
        # A run that died between making the file and its first commit left no journal yet.
        return True
    if owner != pipeline:
        raise JournalDamaged(
            f"{path} is the journal of pipeline {owner!r}, not of {pipeline!r}",
            hint="put the right journal back",
        )
    if known is not None:
        same = journal_id == known.journal_id
        row = tip.decide(
            tip.Findings(exists, wal, True, clean, same, same and last_seq < known.seq)
        )
        if row.action == tip.REFUSE:
            found = f" (it ends at event {last_seq}, the tip says {known.seq})" if same else ""
            raise tip.damaged(folder, row, found)
    return False


def _look(path: Path, vfs: str | None) -> tuple[str, str, int]:
    """Id, pipeline and last sequence number of a journal; empty texts when it has no schema."""
    db = open_reader(path, vfs=vfs)
    try:
        ours = run(db, "PRAGMA application_id")[0][0] == migrate.APPLICATION_ID
        tables = run(db, "SELECT count(*) FROM sqlite_schema")[0][0]
        if not ours and not tables:
            return "", "", 0
        if not ours:
            raise JournalDamaged(
                f"{path} is a database, but no journal", hint="move it away, then start again"
            )
        facts = dict(run(db, "SELECT key, value FROM meta"))
        last_seq = run(db, "SELECT coalesce(max(seq), 0) FROM events")[0][0]
        return facts["journal_id"], facts["pipeline"], last_seq
    finally:
        db.close()


def _take(db: apsw.Connection, *, fresh: bool, pipeline: str, at: int) -> Opened:
    run(db, statements.BEGIN)
    if fresh:
        facts = {"journal_id": os.urandom(16).hex(), "pipeline": pipeline, "created_at": str(at)}
        migrate.create(db, facts)
    else:
        migrate.upgrade(db)
    epoch = run(db, statements.RAISE_EPOCH)[0][0]
    run(db, statements.COMMIT)
    facts = dict(run(db, "SELECT key, value FROM meta"))
    return Opened(
        db=db,
        epoch=epoch,
        journal_id=facts["journal_id"],
        last_seq=run(db, "SELECT coalesce(max(seq), 0) FROM events")[0][0],
        counters=dict(run(db, "SELECT name, value FROM counters")),
        facts=facts,
        versions={row[0] for row in run(db, "SELECT version FROM versions")},
    )
