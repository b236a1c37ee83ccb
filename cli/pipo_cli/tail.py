"""Following a log file that others write and rotate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from pipo_cli.lines import Lines

READ_BYTES = 256 * 1024


class Tail:
    """The whole lines that a file gains. Nothing blocks; the caller decides when to look.

    A file that is not there yet is waited for and read from its head. One that was
    renamed is read to its end, then the new one of that name from its head; one that
    was cut is read from its head.
    """

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._lines = Lines()
        self._open(at_end=not from_start)

    def lines(self) -> list[str]:
        """What came since the last call, at most `READ_BYTES` of it, without line ends."""
        if self._file is None:
            self._open(at_end=False)
        if self._file is None:
            return []
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._lines = Lines()
        found = self._file.read(READ_BYTES)
        if not found and self._replaced():
            self.close()
            self._open(at_end=False)
            found = self._file.read(READ_BYTES) if self._file is not None else b""
        return self._lines.feed(found)

    def close(self) -> None:
        """Lets go of the file; safe twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, *, at_end: bool) -> None:
        try:
            self._file = open(self._path, "rb")  # noqa: SIM115 - owned until close()
        except OSError:
            return
        if at_end:
            self._file.seek(0, os.SEEK_END)

    def _replaced(self) -> bool:
        assert self._file is not None
        ours = os.fstat(self._file.fileno())
        try:
            now = self._path.stat()
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino)
