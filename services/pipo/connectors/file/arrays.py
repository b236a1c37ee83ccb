"""One file that holds a JSON array: each flush rewrites it with its records at the end.

A rewrite costs a read and a write of the whole file, so one flush costs as much as the
file is long, however many units it holds; `jsonl` is for what grows. It is atomic: a
reader sees the array of before or of after, and a crash leaves one of them.

The array is its own index, as in `appending`: a first write looks nothing up; any
other reads the file, whose keys are then kept while it is as we left it. A file that
ends before its array does (somebody cut it) is closed behind its last whole element.
All methods run on the file's own thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipo.connectors.destination import cannot_write
from pipo.connectors.file import lookup, plain
from pipo.connectors.file.elements import Elements, Shape
from pipo.connectors.file.logged import Warn
from pipo.connectors.file.lookup import Place, result
from pipo.connectors.file.records import INDENT, Record
from pipo.connectors.file.replacing import Replacement, remove_remains

_HEAD = b"[\n  {"
_TAIL = b"\n]\n"
_MARGIN = b" " * INDENT


@dataclass(frozen=True, slots=True)
class _Left:
    """The file as our last write left it."""

    device: int
    inode: int
    size: int
    time_ns: int


class ArrayFile:
    """A file by its path; nothing of it stays open between two writes."""

    marks: Mapping[str, int] = {}

    def __init__(self, path: str, *, warn: Warn) -> None:
        self._path = path
        self._warn = warn
        self._left: _Left | None = None
        self._shape: Shape | None = None
        self._keys: dict[str, Place] | None = None

    def write(self, records: Sequence[Record], *, atomic: bool) -> list[Mapping[str, Any]]:
        """Per record, in order, where it went, or that it was there already.

        Durable: on return all of them survive a power cut.
        Raises: WriteFailed, also for a file that holds no array; the file is then as it was.
        """
        try:
            with Replacement(self._path) as new:
                old = None if new.old is None else self._open()
                try:
                    found, shape = self._look_up(records, old)
                    fresh = lookup.fresh(records, found)
                    made = self._write(new, old, shape, fresh) if fresh else {}
                finally:
                    plain.close_quietly(old)
        except OSError as error:
            self.close()
            raise cannot_write(self._path, error) from error
        return [result(self._path, record.key, found, made) for record in records]

    def mend(self) -> None:
        remove_remains(self._path)

    def close(self) -> None:
        self._left = self._shape = self._keys = None

    # ── reading ──────────────────────────────────────────────────────────────

    def _open(self) -> int:
        """The present file; what is known of it stays only if it is as we left it."""
        handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        left = _left(os.fstat(handle))
        if left != self._left:
            self.close()
        self._left = left
        return handle

    def _look_up(
        self, records: Sequence[Record], old: int | None
    ) -> tuple[dict[str, Place], Shape]:
        if old is None:
            self.close()
            return {}, Shape(0, is_empty=True, is_torn=False)
        anywhere, recently = lookup.sought(records)
        wanted = anywhere | recently
        if wanted and self._keys is not None and self._shape is not None:
            return {key: self._keys[key] for key in wanted if key in self._keys}, self._shape
        if not wanted:
            shape = self._shape or _shape_at_a_glance(old, os.fstat(old).st_size)
            if shape is not None:
                return {}, shape
        return self._read(old, wanted)

    def _read(self, old: int, wanted: set[str]) -> tuple[dict[str, Place], Shape]:
        """Reads the whole array: the wanted keys, its shape, and all keys if they are few enough."""
        found: dict[str, Place] = {}
        keys: dict[str, Place] | None = {} if wanted else None
        elements = Elements(old, os.fstat(old).st_size, self._path)
        for place, text in elements.read():
            key = lookup.key_of(text) if wanted else None
            if key is None:
                continue
            if key in wanted:
                found[key] = place
            if keys is not None:
                keys[key] = place
                if len(keys) > lookup.KEYS_KEPT_MAX:
                    keys = None
        self._shape, self._keys = elements.shape, keys
        return found, elements.shape

    # ── writing ──────────────────────────────────────────────────────────────

    def _write(
        self, new: Replacement, old: int | None, shape: Shape, fresh: Mapping[str, Record]
    ) -> dict[str, Place]:
        if shape.is_torn and shape.end:
            self._warn("closed a JSON array that was cut short", path=self._path, offset=shape.end)
        size = 0
        if old is not None and shape.end:
            for chunk in plain.chunks(old, 0, shape.end):
                plain.write_all(new.handle, chunk)
            size = shape.end
        pieces, made = _pieces(size, shape, fresh)
        plain.write_all(new.handle, b"".join([*pieces, _TAIL]))
        self._left = _left(new.commit())
        end = self._left.size - len(_TAIL)
        self._shape = Shape(end, is_empty=False, is_torn=False)
        if self._keys is not None:
            self._keys.update(made)
            if len(self._keys) > lookup.KEYS_KEPT_MAX:
                self._keys = None
        return made


def _pieces(
    size: int, shape: Shape, fresh: Mapping[str, Record]
) -> tuple[list[bytes], dict[str, Place]]:
    """What follows the first `size` bytes, up to the end of the last element."""
    separator = b"," if not shape.is_empty else b"" if size else b"["
    pieces: list[bytes] = []
    places: dict[str, Place] = {}
    for key, record in fresh.items():
        lead = separator + b"\n" + _MARGIN
        text = record.text.rstrip(b"\n").replace(b"\n", b"\n" + _MARGIN)
        places[key] = Place(size + len(lead), len(text))
        pieces += [lead, text]
        size += len(lead) + len(text)
        separator = b","
    return pieces, places


def _shape_at_a_glance(handle: int, size: int) -> Shape | None:
    """The shape of a file as we write it, told by its two ends, or None.

    A line that holds nothing but `]` at its very beginning closes an array that is
    indented, and stands in none of its strings.
    """
    tail = _MARGIN + b"}" + _TAIL
    if os.pread(handle, len(_HEAD), 0) != _HEAD:
        return None
    if os.pread(handle, len(tail), max(0, size - len(tail))) != tail:
        return None
    return Shape(size - len(_TAIL), is_empty=False, is_torn=False)


def _left(found: os.stat_result) -> _Left:
    return _Left(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
