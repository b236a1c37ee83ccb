"""One file that JSON lines are appended to: a group is one append, synced before it counts.

A key is looked up only for a unit whose write may have happened already:

    first       not at all
    recovered   where a record of ours can stand that the journal does not know: between
                the size that it noted last and the size at which we found the file, in
                the latest appends, and where one failed that could not be cut back
    repeated    in the whole file, whose keys are then kept while it is as we left it

All methods run on the file's own thread. The file is compared with the open one
before each use: a replaced or deleted file is noticed and opened anew. It is locked for the
time of one append, so that two pipelines may share it: where the disk is full, the one's
record would stand behind half a record of the other's, on one line, and be lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pipo.connectors.destination import Identity, cannot_write, make_folder, sync_folder
from pipo.connectors.file import locking, lookup, plain
from pipo.connectors.file.lookup import Place, result
from pipo.connectors.file.records import Record
from pipo.connectors.file.unsure import Unsure


class AppendedFile:
    """A file by its path; it is opened when it is first used.

    `mark` is its size as the journal noted it last.
    """

    def __init__(self, path: str, mark: int) -> None:
        self._path = path
        self._mark = mark
        self._handle: int | None = None
        self._identity: Identity | None = None
        self._unsure = Unsure()
        self._size = 0
        self._ends_line = True
        self._keys: dict[str, Place] | None = None
        self._keys_time_ns = 0

    @property
    def marks(self) -> Mapping[str, int]:
        """The size after the last append."""
        return {self._path: self._size}

    def write(self, records: Sequence[Record], *, atomic: bool) -> list[Mapping[str, Any]]:
        """Per record, in order, where it went, or that it was there already.

        Durable: on return all of them survive a power cut.
        Raises: WriteFailed; the file is then as it was, or the place is noted as unknown.
        """
        try:
            with self._alone():
                found = self._look_up(records)
                fresh = lookup.fresh(records, found)
                made = self._places(fresh.values())
                self._extend([record.text for record in fresh.values()])
                self._keep(made)
        except OSError as error:
            self.close()
            raise cannot_write(self._path, error) from error
        return [result(self._path, record.key, found, made) for record in records]

    def mend(self) -> None:
        """Nothing to do: a torn end is left on a line of its own by the next append."""

    def close(self) -> None:
        handle, self._handle = self._handle, None
        self._keys = None
        plain.close_quietly(handle)

    # ── opening ──────────────────────────────────────────────────────────────

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The file as its path means it now, locked."""
        while True:
            if not plain.is_at(self._handle, self._path):
                self.close()
                self._open()
            handle = self._fd
            locking.take(handle, self._path)
            if plain.is_at(handle, self._path):
                break
            self.close()
        try:
            self._take_in(os.fstat(handle))
            yield
        finally:
            with suppress(OSError):
                locking.give_back(handle)

    def _take_in(self, found: os.stat_result) -> None:
        """What others did to the file since our last append."""
        if found.st_size < self._size:
            self._unsure.forget(0, found.st_size)
        if found.st_size != self._size:
            self._size = found.st_size
            self._ends_line = plain.ends_line(self._fd, self._size)
            self._keys = None
        elif found.st_mtime_ns != self._keys_time_ns:
            self._keys = None

    def _open(self) -> None:
        make_folder(self._path)
        self._handle = plain.open_to_append(self._path)
        found = os.fstat(self._handle)
        if not found.st_size:
            # The name is on disk before there is content, so only an empty file may lack it.
            sync_folder(Path(self._path).parent)
        if self._identity is None and self._mark <= found.st_size:
            self._unsure.forget(self._mark, found.st_size)
        elif plain.identity_of(found) != self._identity or found.st_size < self._size:
            self._unsure.forget(0, found.st_size)
        self._identity = plain.identity_of(found)
        self._size, self._ends_line = 0, True

    @property
    def _fd(self) -> int:
        assert self._handle is not None, "a file is used before it is open"
        return self._handle

    # ── looking up ───────────────────────────────────────────────────────────

    def _look_up(self, records: Sequence[Record]) -> dict[str, Place]:
        anywhere, recently = lookup.sought(records)
        found: dict[str, Place] = {}
        if anywhere:
            found |= self._look_anywhere(anywhere)
        if recently:
            for span in self._unsure.spans(self._size):
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
        try:
            plain.extend(self._fd, self._size, data)
        except OSError:
            self._note_remains(len(data))
            raise
        self._unsure.appended(self._size)
        self._size += len(data)
        self._ends_line = True

    def _note_remains(self, added: int) -> None:
        """After a failed sync nobody knows what is on disk; what was not cut off is noted."""
        try:
            end = os.fstat(self._fd).st_size
        except OSError:
            end = self._size + added
        if end > self._size:
            self._unsure.add(self._size, end)

    def _keep(self, made: Mapping[str, Place]) -> None:
        if self._keys is None or not made:
            return
        self._keys.update(made)
        self._keys_time_ns = os.fstat(self._fd).st_mtime_ns
        if len(self._keys) > lookup.KEYS_KEPT_MAX:
            self._keys = None
