"""Prints and `logging` of the author's code, on their way into the pipeline's log.

Descriptors 1 and 2 are one pipe that the pipeline reads, so what a C library or a program
started by the code writes arrives too. A record of `logging` is one line, its level in front.
"""

from __future__ import annotations

import io
import logging
import os
import sys

from pipo.functions.helper.wire import LEVEL_END, LEVEL_MARK, LINE_BREAK

_KEPT_CHARS = 32_000


def lead(level: int) -> None:
    """What is printed or logged at `level` and above goes into the pipe from now on."""
    root = logging.getLogger()
    root.addHandler(_Lines())
    root.setLevel(level)
    global _pipe
    _pipe = _file_of(1)
    restore()


def restore() -> None:
    """Standard output and error are ours again, whatever the code made of them."""
    global _out
    if _out is None or _out.closed:
        raw = io.FileIO(1, "w", closefd=False)
        _out = io.TextIOWrapper(
            io.BufferedWriter(raw), "utf-8", errors="backslashreplace", line_buffering=True
        )
    sys.stdout = sys.stderr = _out


def flush() -> bool:
    """What was printed so far is in the pipe; False when the code has closed it for good."""
    for stream in {sys.stdout, sys.stderr, _out}:
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            # The code closed it: there is nowhere to print.
            continue
    return _file_of(1) == _file_of(2) == _pipe


def _file_of(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_out: io.TextIOWrapper | None = None
_pipe: tuple[int, int] | None = None


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)[:_KEPT_CHARS].replace("\n", LINE_BREAK)
            print(f"{LEVEL_MARK}{record.levelname.lower()}{LEVEL_END}{text}", file=_out)
        except Exception:
            self.handleError(record)
