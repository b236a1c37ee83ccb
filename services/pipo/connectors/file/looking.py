"""One file as a check sees it. Read-only, in bounded memory, on the file's own thread."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Literal

from pipo.connectors.contract import CheckError, Seen
from pipo.connectors.destination import Identity
from pipo.connectors.file import plain
from pipo.connectors.file.keylog import torn_from
from pipo.connectors.file.lookup import is_json

Records = Literal["json lines", "logged", "any"]
"""What counts as a record: a line that is whole JSON, what its side file knows as whole, or any bytes."""

CHUNK_BYTES = 1024 * 1024
RECORD_BYTES_MAX = 256 * 1024 * 1024
TAIL_BYTES = 4096
ABSENT_KEPT_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Version:
    """A state of the file: any change of content that the system tells of makes another."""

    device: int
    inode: int
    size: int
    time_ns: int


class LookedAtFile:
    """A file by its path; it is opened once, and anew when the path means another one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._reading: _Reading | None = None
        self._absent: OrderedDict[bytes, _Absent] = OrderedDict()
        self._digest: tuple[Version, str] | None = None

    def size(self) -> Seen:
        """The size, or None when there is no file. Raises: CheckError, for a folder."""
        found = self._stat()
        size = None if found is None else found.st_size
        return Seen(size, {"path": self.path, "size": size})

    def checksum(self, stop: Event) -> Seen:
        """The SHA-256 of the whole file in hex, or None when there is no file.

        Raises: CheckError, when `stop` was set meanwhile.
        """
        found = self._stat()
        if found is None:
            return Seen(None, {"path": self.path, "size": None})
        if self._digest is None or self._digest[0] != _version(found):
            reading = self._open(found, stop)
            digest = hashlib.sha256()
            for chunk in reading.chunks():
                digest.update(chunk)
            self._digest = _version(os.fstat(reading.handle)), digest.hexdigest()
        version, text = self._digest
        return Seen(text, {"path": self.path, "size": version.size, "sha256": text})

    def find(self, text: bytes, result: Any, *, records: Records, stop: Event) -> Seen:
        """The offset of the text in a line that holds it, or None when no line does.

        A text without a line break that stands in the file stands in one line of it.
        The torn end of a record is none, where `records` can tell.
        Raises: CheckError, when `stop` was set meanwhile.
        """
        found = self._stat()
        if found is None or b"\n" in text:
            return Seen(None, {"path": self.path, "size": None if found is None else found.st_size})
        reading = self._open(found, stop)
        reading.limit = torn_from(self.path, reading.handle) if records == "logged" else None
        only_json = records == "json lines"
        offset = self._find_in_record(reading, text, result, only_json=only_json)
        if offset is None:
            offset = self._find_anywhere(reading, text, only_json=only_json)
        return Seen(offset, {"path": self.path, "size": found.st_size, "offset": offset})

    def close(self) -> None:
        self._absent.clear()
        self._digest = None
        self._let_go()

    def _open(self, found: os.stat_result, stop: Event) -> _Reading:
        if self._reading is None or self._reading.identity != plain.identity_of(found):
            self._let_go()
            self._reading = _Reading(self.path)
        self._reading.stop = stop
        return self._reading

    def _let_go(self) -> None:
        if self._reading is not None:
            plain.close_quietly(self._reading.handle)
            self._reading = None

    def _find_in_record(
        self, reading: _Reading, text: bytes, result: Any, *, only_json: bool
    ) -> int | None:
        """Looks where the write said that the record went, if it went to this file."""
        if not isinstance(result, Mapping) or result.get("path") != self.path:
            return None
        offset, length = result.get("offset"), result.get("length")
        if not isinstance(offset, int) or not isinstance(length, int):
            return None
        if offset < 0 or not 0 <= length <= RECORD_BYTES_MAX:
            return None
        record = reading.piece(offset, length)
        at = record.find(text)
        is_record = len(record) == length and (not only_json or is_json(record))
        return offset + at if at >= 0 and is_record else None

    def _find_anywhere(self, reading: _Reading, text: bytes, *, only_json: bool) -> int | None:
        """Reads the whole file, or what was appended since the text was last missing."""
        start = self._looked_up_to(reading, text)
        while (offset := reading.find(text, start)) is not None:
            if not only_json:
                return offset
            line, end = reading.line_at(offset)
            if is_json(line):
                return offset
            start = end
        size = os.fstat(reading.handle).st_size if reading.limit is None else reading.limit
        tail_start = max(0, size - TAIL_BYTES)
        tail = os.pread(reading.handle, size - tail_start, tail_start)
        self._absent[text] = _Absent(reading.identity, tail_start, tail)
        if len(self._absent) > ABSENT_KEPT_MAX:
            self._absent.popitem(last=False)
        return None

    def _looked_up_to(self, reading: _Reading, text: bytes) -> int:
        """Where to go on, if the file only grew: its end of then is where it was."""
        absent = self._absent.pop(text, None)
        if absent is None or absent.identity != reading.identity:
            return 0
        if os.pread(reading.handle, len(absent.tail), absent.tail_start) != absent.tail:
            return 0
        # The last line may have been torn then and whole now, so it is read again.
        line_start = absent.tail.rfind(b"\n") + 1
        return absent.tail_start + line_start if line_start else 0

    def _stat(self) -> os.stat_result | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            self._let_go()
            return None
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no plain file"
            raise CheckError(f"{self.path} is {kind}")
        return found


class _Reading:
    """The open file. Of each look: `stop` ends it; from `limit` on stands nothing that counts."""

    def __init__(self, path: str) -> None:
        self.handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.identity = plain.identity_of(os.fstat(self.handle))
        self.stop = Event()
        self.limit: int | None = None

    def piece(self, offset: int, length: int) -> bytes:
        if self.limit is not None:
            length = min(length, max(0, self.limit - offset))
        return os.pread(self.handle, length, offset)

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """Raises: CheckError, when the look was given up."""
        while chunk := self.piece(start, CHUNK_BYTES):
            if self.stop.is_set():
                raise CheckError("the look was given up")
            start += len(chunk)
            yield chunk

    def find(self, text: bytes, start: int) -> int | None:
        """The first offset of a text; pieces overlap by what a match can straddle."""
        held = b""
        for chunk in self.chunks(start):
            piece = held + chunk
            at = piece.find(text)
            if at >= 0:
                return start + at
            held = piece[max(0, len(piece) - len(text) + 1) :] if len(text) > 1 else b""
            start += len(piece) - len(held)
        return None

    def line_at(self, offset: int) -> tuple[bytes, int]:
        """The line that holds an offset, without its break, and where the next one begins.

        A line beyond all bounds is cut, and so is no JSON.
        """
        start = self._line_start(offset)
        pieces: list[bytes] = []
        position = start
        for chunk in self.chunks(start):
            head, ended, _ = chunk.partition(b"\n")
            position += len(head) + len(ended)
            if position - start <= RECORD_BYTES_MAX:
                pieces.append(head)
            if ended:
                break
        return b"".join(pieces), position

    def _line_start(self, offset: int) -> int:
        end = offset
        while end > 0:
            begin = max(0, end - CHUNK_BYTES)
            at = os.pread(self.handle, end - begin, begin).rfind(b"\n")
            if at >= 0:
                return begin + at + 1
            end = begin
        return 0


@dataclass(frozen=True, slots=True)
class _Absent:
    """The end of the file when a text was not in it."""

    identity: Identity
    tail_start: int
    tail: bytes


def _version(found: os.stat_result) -> Version:
    return Version(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
