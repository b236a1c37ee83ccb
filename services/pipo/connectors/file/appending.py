"""One file that records are appended to: a group is one append, synced before it counts.

A key is looked up only for a unit whose write may have happened already:

    recovered   from the size that the journal noted last; nothing of ours that it
                does not know can stand before
    repeated    in the whole file, whose keys are then kept while it is as we left it
    first       not at all

An append that fails is cut back. Where even that is in doubt (a failed sync tells
nothing about what is on disk), the file is opened anew, and from there on every
unit is looked up, until an append has succeeded.

All methods run on the file's own thread. The file is compared with the open one
before each use: a replaced or deleted file is noticed and opened anew.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipo.connectors.contract import Repeat, WriteFailed
from pipo.connectors.destination import make_folder, sync_folder
from pipo.connectors.file import lookup
from pipo.connectors.file.lookup import Place

_HINTS = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some of the quota",
    errno.EACCES: "check the permissions",
    errno.EROFS: "the file system is mounted read-only",
}


@dataclass(frozen=True, slots=True)
class Record:
    """One record to append; `text` ends with a line break."""

    key: str
    text: bytes
    repeat: Repeat


@dataclass(frozen=True, slots=True)
class Notes:
    """What outlives an open file: the sizes that the journal noted, and those in doubt, by path."""

    marks: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, int] = field(default_factory=dict)


class AppendedFile:
    """A file by its path; it is opened when it is first used."""

    def __init__(self, path: str, notes: Notes) -> None:
        self._path = path
        self._notes = notes
        self._handle: int | None = None
        self._found: os.stat_result | None = None
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
        Raises: WriteFailed; the file is then as it was, or a later append finds out.
        """
        try:
            self._connect()
            places = self._look_up(records)
            there = set(places)
            fresh = []
            for record in records:
                if record.key not in places:
                    places[record.key] = Place(0, len(record.text) - 1)
                    fresh.append(record)
            self._place(fresh, places)
            self._extend([record.text for record in fresh])
        except OSError as error:
            self.close()
            raise _failure(self._path, error) from error
        self._remember(fresh, places)
        return [self._result(record, places, there) for record in records]

    def close(self) -> None:
        handle, self._handle = self._handle, None
        self._keys = None
        if handle is not None:
            with suppress(OSError):
                os.close(handle)

    # ── opening ──────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        found = _stat(self._path)
        if found is None or self._handle is None or not _same(found, self._found):
            self.close()
            found = self._open(is_new=found is None)
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
        found = self._found = os.fstat(self._handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a plain file", self._path)
        if is_new:
            sync_folder(Path(self._path).parent)
        self._size, self._ends_line = 0, True
        return found

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
            mark = self._notes.marks.get(self._path, 0)
            found |= lookup.find(self._fd, recently, self._start(mark))
        if (doubt := self._notes.doubts.get(self._path)) is not None:
            every = {record.key for record in records}
            found |= lookup.find(self._fd, every, self._start(doubt))
        return found

    def _look_anywhere(self, keys: set[str]) -> dict[str, Place]:
        if self._keys is None:
            self._keys = lookup.index(self._fd)
            self._keys_time_ns = os.fstat(self._fd).st_mtime_ns
        if self._keys is None:
            return lookup.find(self._fd, keys, 0)
        return {key: self._keys[key] for key in keys if key in self._keys}

    def _start(self, noted: int) -> int:
        """A file that is shorter than what was noted is not the one that was noted."""
        return noted if noted <= self._size else 0

    # ── appending ────────────────────────────────────────────────────────────

    def _place(self, fresh: Sequence[Record], places: dict[str, Place]) -> None:
        offset = self._size if self._ends_line else self._size + 1
        for record in fresh:
            places[record.key] = Place(offset, len(record.text) - 1)
            offset += len(record.text)

    def _extend(self, texts: Sequence[bytes]) -> None:
        if not texts:
            return
        data = b"".join(texts if self._ends_line else [b"\n", *texts])
        self._notes.doubts.setdefault(self._path, self._size)
        try:
            _write_all(self._fd, data)
            os.fdatasync(self._fd)
        except OSError:
            self._cut_back(len(data))
            raise
        del self._notes.doubts[self._path]
        self._size += len(data)
        self._ends_line = True

    def _cut_back(self, added_max: int) -> None:
        """Back to the size before the append, unless somebody else appended meanwhile."""
        with suppress(OSError):
            if os.fstat(self._fd).st_size <= self._size + added_max:
                os.ftruncate(self._fd, self._size)

    def _remember(self, fresh: Sequence[Record], places: Mapping[str, Place]) -> None:
        if self._keys is None or not fresh:
            return
        self._keys.update((record.key, places[record.key]) for record in fresh)
        self._keys_time_ns = os.fstat(self._fd).st_mtime_ns
        if len(self._keys) > lookup.KEYS_KEPT_MAX:
            self._keys = None

    def _result(
        self, record: Record, places: Mapping[str, Place], there: set[str]
    ) -> Mapping[str, Any]:
        place = places[record.key]
        done = "skipped" if record.key in there else "written"
        there.add(record.key)
        return {"path": self._path, done: True, "offset": place.offset, "length": place.length}


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _same(one: os.stat_result, other: os.stat_result | None) -> bool:
    return other is not None and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _failure(path: str, error: OSError) -> WriteFailed:
    reason = error.strerror or str(error)
    return WriteFailed(f"{error.filename or path}: {reason}", hint=_HINTS.get(error.errno or 0, ""))
