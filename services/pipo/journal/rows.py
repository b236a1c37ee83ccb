"""Reading a journal: the one Protocol that every read stands on, and its apsw side.

`readonly.py` has the other side, for processes that write no journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw

from pipo.errors import Unavailable
from pipo.journal.connection import open_reader, run

Row = tuple[Any, ...]
Query = tuple[str, Sequence[Any]]
T = TypeVar("T")


class Unreadable(Unavailable):
    """A read of the journal failed; nothing is wrong with the journal's writer."""


class Rows(Protocol):
    """Rows of a journal, as committed."""

    async def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """All rows of one SELECT. Raises: Unreadable."""

    async def together(self, *queries: Query) -> list[list[Row]]:
        """The rows of several SELECTs on one state of the journal. Raises: Unreadable."""


class ApswRows:
    """Reads in the process that writes the journal: its own connection, its own thread."""

    def __init__(self, path: Path, *, vfs: str | None) -> None:
        self._path = path
        self._vfs = vfs
        self._db: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal reader")
        self._closed = False

    async def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        return await self._call(lambda db: run(db, sql, params))

    async def together(self, *queries: Query) -> list[list[Row]]:
        def read(db: apsw.Connection) -> list[list[Row]]:
            run(db, "BEGIN")
            try:
                return [run(db, sql, params) for sql, params in queries]
            finally:
                run(db, "COMMIT")

        return await self._call(read)

    async def close(self) -> None:
        """Lets the connection go; safe twice."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _call(self, read: Callable[[apsw.Connection], T]) -> T:
        if self._closed:
            raise Unreadable(f"{self._path} is closed", hint="the pipeline has stopped")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, read)

    def _read(self, read: Callable[[apsw.Connection], T]) -> T:
        try:
            if self._db is None:
                self._db = open_reader(self._path, vfs=self._vfs)
            return read(self._db)
        except apsw.Error as error:
            raise Unreadable(
                f"{self._path} cannot be read: {error}", hint="try again; look at the disk"
            ) from error

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
