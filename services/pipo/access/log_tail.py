"""Lines of a log file: the last ones, or those after a byte offset."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LINES_MAX = 1000
READ_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogPage:
    """Whole lines. `next` is the offset behind the last one; `reset`: the file began anew."""

    lines: list[str]
    next: int
    reset: bool


def tail(path: Path, lines: int) -> LogPage:
    """The last `lines` whole lines, from at most the last MiB; none when there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size - READ_BYTES_MAX)
            file.seek(begin)
            block = file.read(size - begin)
    except FileNotFoundError:
        return LogPage([], 0, False)
    whole, _, rest = block.rpartition(b"\n")
    found = _decoded(whole)
    if begin and found:
        # The first one was cut by the block's edge.
        del found[0]
    return LogPage(found[-lines:], size - len(rest), False)


def follow(path: Path, after: int) -> LogPage:
    """The lines after an offset, at most 1000; from the head when the file is shorter than that."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            reset = after > size
            begin = 0 if reset else after
            file.seek(begin)
            block = file.read(READ_BYTES_MAX)
    except FileNotFoundError:
        return LogPage([], 0, after > 0)
    if len(block) == READ_BYTES_MAX and b"\n" not in block:
        return LogPage([block.decode(errors="replace")], begin + len(block), reset)
    taken = block[: block.rfind(b"\n") + 1].splitlines(keepends=True)[:LINES_MAX]
    lines = [line.rstrip(b"\r\n").decode(errors="replace") for line in taken]
    return LogPage(lines, begin + sum(map(len, taken)), reset)


def _decoded(block: bytes) -> list[str]:
    return [line.decode(errors="replace") for line in block.split(b"\n")] if block else []
