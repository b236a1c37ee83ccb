"""A log file that turns over by size, and takes standard output and error with it."""

from __future__ import annotations

import io
import logging.handlers
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

SIZE_LIMIT = 16 * 1024 * 1024
KEPT = 3


class Discreet(logging.StreamHandler[Any]):
    """A handler that says of a line which it cannot write only why, once until one can be.

    The standard library's prints the record as it was before anything was masked, and a traceback
    for each line: a full disk would show the secrets of a line on a terminal.
    """

    _said = _failed = False

    def emit(self, record: logging.LogRecord) -> None:
        self._said, self._failed = self._failed, False
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        self._failed = True
        if self._said:
            return
        error = sys.exception()
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        with suppress(OSError):
            os.write(2, f"lines of the log are lost until it can be written: {why}\n".encode())


class RotatingFile(Discreet, logging.handlers.RotatingFileHandler):
    """`name.log`, and `name.log.1` to `.3` behind it.

    With `with_stdio`, descriptors 1 and 2 follow the file through each turn, so that
    what C code or a crash prints lands there, and `sys.stdout` and `sys.stderr`
    are counted.
    """

    def __init__(self, path: Path, *, stdio: bool, size_limit: int = SIZE_LIMIT) -> None:
        self._stdio = stdio
        super().__init__(
            path, maxBytes=size_limit, backupCount=KEPT, encoding="utf-8", errors="backslashreplace"
        )

    @classmethod
    def with_stdio(cls, path: Path, *, size_limit: int = SIZE_LIMIT) -> RotatingFile:
        """The handler, with this process's standard output and error led into the file."""
        handler = cls(path, stdio=True, size_limit=size_limit)
        sys.stdout = _Led(handler)
        sys.stderr = _Led(handler)
        return handler

    def _open(self) -> Any:
        stream = super()._open()
        _end_line(stream.fileno(), self.baseFilename)
        if self._stdio:
            for fd in (1, 2):
                os.dup2(stream.fileno(), fd)
        return stream

    def close(self) -> None:
        # What a full disk did not take is lost; who closes has other things to do.
        with suppress(OSError):
            super().close()

    def write_raw(self, text: str) -> None:
        """`text` as it is, in order with the log lines."""
        self.acquire()
        try:
            if self.stream is None:
                self.stream = self._open()
            self.stream.write(text)
            self.stream.flush()
            if text.endswith("\n") and self.stream.tell() >= self.maxBytes:
                self.doRollover()
        finally:
            self.release()


def _end_line(fd: int, path: str) -> None:
    """Ends the last line of a file that a full disk or a kill cut."""
    with suppress(OSError):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            whole = file.read(1) == b"\n"
        if not whole:
            os.write(fd, b"\n")


class _Led(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a process that logs to a file."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, handler: RotatingFile) -> None:
        self._handler = handler

    def write(self, text: str) -> int:
        self._handler.write_raw(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1
