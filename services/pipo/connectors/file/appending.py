"""One file that records are appended to: a group is one append, synced before it counts.

A key is looked up only for a unit whose write may have happened already:

    first       not at all
    recovered   where a record of ours can stand that the journal does not know: between
                the size that it noted last and the size at which we found the file, in
                the latest appends, and where one failed that could not be cut back
    repeated    in the whole file, whose keys are then kept while it is as we left it

All methods run on the file's own thread. The file is compared with the open one
before each use: a replaced or deleted file is noticed and opened anew.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipo.connectors.contract import Repeat
from pipo.connectors.destination import Identity, cannot_write, make_folder, sync_folder
from pipo.connectors.file import lookup
from pipo.connectors.file.lookup import Place

# The journal may be this many appends behind; a repeated write is looked for in them.
APPENDS_LOOKED_AT = 256


@dataclass(frozen=True, slots=True)
class Record:
    """One record to append; `text` ends with a line break."""

    key: str
    text: bytes
    repeat: Repeat


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the file, from one offset up to another."""

    start: int
    end: int


class AppendedFile:
    """A file by its path; it is opened when it is first used.

    `mark` is its size as the journal noted it last.
    """

    def __init__(self, path: str, mark: int) -> None:
        self._path = path
        self._mark = mark
        self._handle: int | None = None
        self._identity: Identity | None = None
        self._unknown: list[Span] = []
        self._latest: deque[int] = deque(maxlen=APPENDS_LOOKED_AT)
        self._size = 0
        self._ends_line = True
        self._keys: dict[str, Place] | None = None
        self._keys_time_ns = 0

    @property
    def size(self) -> int:
        """The size after the last append."""
        return self._size

    def append(self, records: Sequence[Record]) -> list[Mapping[str, Any]]:
        """Per record, in order, where it went, or that it was there already.

        Durable: on return all of them survive a power cut.
        Raises: WriteFailed; the file is then as it was, or the place is noted as unknown.
        """
        try:
            self._connect()
            found = self._look_up(records)
            fresh: dict[str, Record] = {}
            for record in records:
                if record.key not in found:
                    fresh.setdefault(record.key, record)
            made = self._places(fresh.values())
            self._extend([record.text for record in fresh.values()])
            self._keep(made)
        except OSError as error:
            self.close()
            raise cannot_write(self._path, error) from error
        return [self._result(record, found, made) for record in records]

    def close(self) -> None:
        handle, self._handle = self._handle, None
        self._keys = None
        if handle is not None:
            with suppress(OSError):
                os.close(handle)

    # ── opening ──────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        found = _stat(self._path)
        if found is None or self._handle is None or _identity(found) != self._identity:
            self.close()
            found = self._open(is_new=found is None)
        if found.st_size < self._size:
            self._forget(0, found.st_size)
        if found.st_size != self._size:
            self._size = found.st_size
            self._ends_line = self._size == 0 or os.pread(self._fd, 1, self._size - 1) == b"\n"
            self._keys = None
        elif found.st_mtime_ns != self._keys_time_ns:
            self._keys = None

    def _open(self, *, is_new: bool) -> os.stat_result:
        make_folder(self._path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._handle = os.open(self._path, flags, 0o666)
        found = os.fstat(self._handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a plain file", self._path)
        if is_new:
            sync_folder(Path(self._path).parent)
        if self._identity is None and self._mark <= found.st_size:
            self._forget(self._mark, found.st_size)
        elif _identity(found) != self._identity or found.st_size < self._size:
            self._forget(0, found.st_size)
        self._identity = _identity(found)
        self._size, self._ends_line = 0, True
        return found

    def _forget(self, start: int, end: int) -> None:
        """What stands in a part of the file is anybody's guess; elsewhere we know."""
        self._unknown = [Span(start, end)]
        self._latest.clear()

    @property
    def _fd(self) -> int:
        assert self._handle is not None, "a file is used before it is open"
        return self._handle

    # ── looking up ───────────────────────────────────────────────────────────

    def _look_up(self, records: Sequence[Record]) -> dict[str, Place]:
        anywhere = {record.key for record in records if record.repeat == "repeated"}
        recently = {record.key for record in records if record.repeat == "recovered"}
        found: dict[str, Place] = {}
        if anywhere:
            found |= self._look_anywhere(anywhere)
        if recently:
            latest = Span(self._latest[0] if self._latest else self._size, self._size)
            for span in (*self._unknown, latest):
                found |= lookup.find(self._fd, recently, span.start, span.end)
        return found

    def _look_anywhere(self, keys: set[str]) -> dict[str, Place]:
        if self._keys is None:
            self._keys = lookup.index(self._fd)
            self._keys_time_ns = os.fstat(self._fd).st_mtime_ns
        if self._keys is None:
            return lookup.find(self._fd, keys, 0, self._size)
        return {key: self._keys[key] for key in keys if key in self._keys}

    # ── appending ────────────────────────────────────────────────────────────

    def _places(self, fresh: Iterable[Record]) -> dict[str, Place]:
        offset = self._size if self._ends_line else self._size + 1
        places = {}
        for record in fresh:
            places[record.key] = Place(offset, len(record.text) - 1)
            offset += len(record.text)
        return places

    def _extend(self, texts: Sequence[bytes]) -> None:
        if not texts:
            return
        data = b"".join(texts if self._ends_line else [b"\n", *texts])
        view = memoryview(data)
        added = 0
        try:
            while added < len(data):
                added += os.write(self._fd, view[added:])
            os.fdatasync(self._fd)
        except OSError:
            self._cut_back(added)
            raise
        self._latest.append(self._size)
        self._size += len(data)
        self._ends_line = True

    def _cut_back(self, added: int) -> None:
        """Back to the size before the append, unless somebody else appended meanwhile.

        After a failed sync nobody knows what is on disk; what cannot be cut off is noted.
        """
        end = self._size + added
        try:
            found = os.fstat(self._fd).st_size
            if found == end:
                os.ftruncate(self._fd, self._size)
                return
            end = max(found, end)
        except OSError:
            pass
        self._unknown.append(Span(self._size, end))

    def _keep(self, made: Mapping[str, Place]) -> None:
        if self._keys is None or not made:
            return
        self._keys.update(made)
        self._keys_time_ns = os.fstat(self._fd).st_mtime_ns
        if len(self._keys) > lookup.KEYS_KEPT_MAX:
            self._keys = None

    def _result(
        self, record: Record, found: dict[str, Place], made: Mapping[str, Place]
    ) -> Mapping[str, Any]:
        """A second record of one key in a group was not written either."""
        done = "skipped" if record.key in found else "written"
        place = found.get(record.key) or made[record.key]
        found[record.key] = place
        return {"path": self._path, done: True, "offset": place.offset, "length": place.length}


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
