"""Plain tables: a head line, two blanks between columns, nothing after the last one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

GAP = "  "
# What would move a terminal's cursor or change its colours.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head and the side its values stand on."""

    head: str
    side: Literal["left", "right"] = "left"


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The head line and one line per row."""
    cells = [[c.head for c in columns], *([one_line(v) for v in row] for row in rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(columns))]
    return [
        GAP.join(
            pad(cell, size, column.side)
            for cell, size, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in cells
    ]


def pad(text: str, size: int, side: str = "left") -> str:
    """The text filled up with blanks to `size` columns of a terminal."""
    fill = " " * (size - width(text))
    return fill + text if side == "right" else text + fill


def width(text: str) -> int:
    """Columns that a text takes on a terminal: wide East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def one_line(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would obey."""
    return printable(" ".join(text.split("\n")))


def printable(text: str) -> str:
    """The text with control characters shown as `\\x1b`; line ends and tabs stay."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text.replace("\r\n", "\n"))
