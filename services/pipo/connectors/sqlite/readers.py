"""Read-only connections by path, each to the file that the path means now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pipo.connectors.contract import CheckError
from pipo.connectors.lanes import Lanes
from pipo.connectors.sqlite.standing import Standing, standing
from pipo.journal.readonly import ReadonlyRows, open_readonly

READERS_OPEN = 64
# Longer than a lock is waited for, shorter than the checker waits for a look.
QUERY_LIMIT_S = 6.0
_OPEN_ATTEMPTS = 3


@dataclass(slots=True)
class _Reader:
    rows: ReadonlyRows
    standing: Standing
    busy: bool = False


class _Watched:
    """A path that is asked on a thread of its own: a file system that hangs holds up no other."""

    def __init__(self, path: str) -> None:
        self._path = path

    def standing(self) -> Standing | None:
        return standing(self._path)

    def close(self) -> None: ...


class Readers:
    """At most `READERS_OPEN` stay open; looks at one path never overlap."""

    def __init__(self) -> None:
        self._readers: dict[str, _Reader] = {}  # the least recently used comes first
        self._paths = Lanes(_Watched, limit=READERS_OPEN)

    @asynccontextmanager
    async def reading(self, path: str) -> AsyncIterator[ReadonlyRows]:
        """Raises: CheckError, when there is no such file; Unreadable."""
        reader = await self._current(path)
        reader.busy = True
        try:
            yield reader.rows
        finally:
            reader.busy = False

    async def close(self) -> None:
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            await reader.rows.close()
        await self._paths.close()

    async def _current(self, path: str) -> _Reader:
        for _ in range(_OPEN_ATTEMPTS):
            now = await self._standing(path)
            reader = self._readers.pop(path, None)
            if reader is not None and now is not None and now.follows(reader.standing):
                reader.standing = now
                self._readers[path] = reader
                return reader
            if reader is not None:
                await reader.rows.close()
            if now is None:
                raise CheckError(f"{path} does not exist yet")
            await self._make_room()
            opened = _Reader(await open_readonly(Path(path), limit_s=QUERY_LIMIT_S), now)
            self._readers[path] = opened
        raise CheckError(f"{path} is replaced again and again")

    async def _standing(self, path: str) -> Standing | None:
        try:
            return await self._paths.run(path, _Watched.standing)
        except OSError as error:
            raise CheckError(f"{path}: {error.strerror}") from error

    async def _make_room(self) -> None:
        while len(self._readers) >= READERS_OPEN:
            resting = next((p for p, reader in self._readers.items() if not reader.busy), None)
            if resting is None:
                return
            await self._readers.pop(resting).rows.close()
