"""Journals for processes that write none: read-only, through aiosqlite on pysqlite3.

The one place that opens them. `mode=ro` is what keeps such a reader from writing,
checkpointing or deleting a WAL; `query_only` is not enough. Never used in a pipeline
process: two SQLite libraries in one process must not open one file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiosqlite
from pysqlite3 import dbapi2 as pysqlite3

from pipo.journal.library import refuse_affected
from pipo.journal.rows import Query, Row, Unreadable

# A locked journal is waited for this long (edge 368).
BUSY_TIMEOUT_S = 5.0
_QUEUE = 64
# Enough for the largest packet several times over.
HEAP_BYTES_MAX = 512 * 1024 * 1024
_LOCKED = frozenset({pysqlite3.SQLITE_BUSY, pysqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({pysqlite3.SQLITE_CORRUPT, pysqlite3.SQLITE_NOTADB})
# What helps then. Everything that belongs together goes: a tip or log of another journal is refused.
DAMAGED = (
    "it is damaged: stop its pipeline and put a backup of its folder back, or move the folder away "
    "to start with an empty journal"
)


class Locked(Unreadable):
    """Another process kept the file for as long as a lock is waited for."""


class BadQuery(Unreadable):
    """The statement cannot run, or not in time; the file may be sound."""


class ReadonlyRows:
    """`Rows` of a journal that another process may be writing. Made by `open_readonly`."""

    def __init__(
        self, path: Path, db: aiosqlite.Connection, *, limit_s: float | None = None
    ) -> None:
        self._path = path
        self._db = db
        self._limit_s = limit_s
        # Reads of one state are a transaction; others must not fall into it.
        self._turn = asyncio.Lock()

    async def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        async with self._turn:
            return await self._read(sql, params)

    async def together(self, *queries: Query) -> list[list[Row]]:
        async with self._turn:
            await self._read("BEGIN", ())
            try:
                return [await self._read(sql, params) for sql, params in queries]
            finally:
                await self._read("COMMIT", ())

    async def close(self) -> None:
        """Lets the journal go; safe twice."""
        await self._db.close()

    async def _read(self, sql: str, params: Sequence[Any]) -> list[Row]:
        try:
            async with asyncio.timeout(self._limit_s):
                return [tuple(row) for row in await self._fetched(sql, params)]
        except TimeoutError as error:
            raise BadQuery(
                f"the query took longer than {self._limit_s:g} s on {self._path}",
                hint="ask for less, or make an index for it",
            ) from error
        except (pysqlite3.Error, pysqlite3.Warning, ValueError, MemoryError) as error:
            raise _unreadable(self._path, error) from error

    async def _fetched(self, sql: str, params: Sequence[Any]) -> Iterable[Any]:
        """Cancelled: the query is broken off, so that its thread is free for the next one."""
        try:
            return await self._db.execute_fetchall(sql, params)
        except asyncio.CancelledError:
            await self._db.interrupt()
            raise


async def open_journal_readonly(path: Path) -> ReadonlyRows:
    """The rows of the journal at `path`, for a short look; close them when done.

    A journal without a write-ahead log has no writer. Opening it the usual way would make
    an empty one, and with it hide from the next start that the real one was lost
    (decision 44); so it is read as a file that does not change.
    Raises: as `open_readonly`.
    """
    return await open_readonly(path, unchanging=_rests(path))


async def open_readonly(
    path: Path, *, unchanging: bool = False, limit_s: float | None = None
) -> ReadonlyRows:
    """The rows of the database at `path`; close them when done.

    `unchanging` takes no locks and makes no files: only where nobody writes meanwhile.
    A query that takes longer than `limit_s` is broken off (BadQuery).
    Raises: Unreadable, for a file that is missing, locked for 5 s or damaged;
        UnsafeStorage, for a library that could harm a journal.
    """
    refuse_affected(pysqlite3.sqlite_version, "pysqlite3")
    db = aiosqlite.Connection(lambda: _connect(path, unchanging), _QUEUE)
    try:
        await db
    except pysqlite3.Error as error:
        raise _unreadable(path, error) from error
    return ReadonlyRows(path, db, limit_s=limit_s)


def _rests(path: Path) -> bool:
    return not Path(f"{path}-wal").exists()


def _connect(path: Path, unchanging: bool) -> Any:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if unchanging else ''}"
    db = pysqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    # Of the whole process: a query without measure fails alone, and nobody ends with it.
    db.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES_MAX}")
    return db


def _unreadable(path: Path, error: Exception) -> Unreadable:
    if isinstance(error, MemoryError):
        return Unreadable(
            f"{path} cannot be read: that takes more than {HEAP_BYTES_MAX >> 20} MiB of memory",
            hint="ask for less at once",
        )
    if isinstance(error, (pysqlite3.ProgrammingError, pysqlite3.Warning)) or _is_plain(error):
        return BadQuery(
            f"the query cannot run on {path}: {error}",
            hint="look at its SQL, and at the tables of the file",
        )
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    kind = Locked if code in _LOCKED else Unreadable
    hint = DAMAGED if code in _DAMAGED else "try again; look at the disk"
    return kind(f"{path} cannot be read: {error}", hint=hint)


def _is_plain(error: Exception) -> bool:
    """Whether SQLite has no finer code for it: a mistake in the SQL."""
    return bool(getattr(error, "sqlite_errorcode", None) == pysqlite3.SQLITE_ERROR)
