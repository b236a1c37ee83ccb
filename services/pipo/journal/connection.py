"""Connections to a journal through apsw: how each is opened, and the one way to run SQL.

One writing and checkpointing connection per file; readers open it read-only. The
database is born with incremental auto-vacuum and never memory-mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from pipo.journal.library import refuse_affected

# A WAL of this many pages is folded into the database by the commit that fills it.
CHECKPOINT_PAGES = 10_000
# A longer WAL is cut to this once it has been folded.
WAL_BYTES_LIMIT = 64 * 1024 * 1024
# A locked journal is waited for this long (edge 368).
BUSY_TIMEOUT_MS = 5_000


def open_writer(
    path: Path, *, vfs: str | None, synchronous: str, checkpoint_pages: int = CHECKPOINT_PAGES
) -> apsw.Connection:
    """The writing connection of a journal; the file is made when it is missing.

    Raises: UnsafeStorage; apsw.Error, for what SQLite says.
    """
    refuse_affected(apsw.sqlite_lib_version(), "apsw")
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    db = apsw.Connection(str(path), flags=flags, vfs=vfs)
    try:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        run(db, "PRAGMA auto_vacuum = INCREMENTAL")
        mode = run(db, "PRAGMA journal_mode = WAL")
        assert mode == [("wal",)], f"journal_mode is {mode}"
        run(db, f"PRAGMA synchronous = {synchronous}")
        run(db, "PRAGMA foreign_keys = ON")
        run(db, "PRAGMA mmap_size = 0")
        run(db, "PRAGMA temp_store = MEMORY")
        run(db, f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
        run(db, f"PRAGMA journal_size_limit = {WAL_BYTES_LIMIT}")
    except BaseException:
        db.close()
        raise
    return db


def open_reader(path: Path, *, vfs: str | None) -> apsw.Connection:
    """A read-only connection in the process that writes the journal."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    return db


def fold(path: Path, vfs: str | None) -> bool:
    """Folds a journal's WAL into it without holding its writer up; whether all of it went.

    What a reader needs and what is written meanwhile stays.
    """
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        run(db, "PRAGMA synchronous = FULL")
        _, frames, folded = run(db, "PRAGMA wal_checkpoint(PASSIVE)")[0]
        return bool(frames == folded)
    finally:
        db.close()


def run(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of one statement, run to its end."""
    return db.execute(sql, values).fetchall()
