"""A log file that turns over by size, and takes standard output and error with it."""

from __future__ import annotations

import io
import logging.handlers
import os
import sys
from pathlib import Path
from typing import Any

SIZE_LIMIT = 16 * 1024 * 1024
KEPT = 3


class RotatingFile(logging.handlers.RotatingFileHandler):
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
        if self._stdio:
            for fd in (1, 2):
                os.dup2(stream.fileno(), fd)
        return stream

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
