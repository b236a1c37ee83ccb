"""A file as its author wrote it: every value's own text, and every comment with what it stands at.

`load` tells what a file means; this tree tells how it looks, so that a file can be
laid out anew without writing any of its texts again. `source_reader`
reads it.

A comment belongs to
  the line it ends: the key's (`eol`), or the value's (`after`);
  the entry that it stands above (`head`), as does a blank line;
  the end of a block (`foot`), when it is indented deeper than what follows.
The lists of comments hold an empty text for each blank line.

All places are indexes into the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Comment(NamedTuple):
    """A comment and where it starts in the source."""

    start: int
    text: str


@dataclass(slots=True, eq=False)
class Text:
    """A text, number or alias, written as `source[start:end]`.

    `outer` is where its anchor or tag stands, if there is one, here and below.
    `margin` is how far the lines of a block text (`|`, `>`) are indented; `keeps`
    says that blank lines below it are part of it (`|+`).
    """

    outer: int
    start: int
    end: int
    properties: list[str]
    style: str
    value: str
    alias: str | None = None
    anchor: str | None = None
    margin: int = 0
    keeps: bool = False


@dataclass(slots=True, eq=False)
class Flow:
    """A map or list in brackets, or a lone pair in a list; a list's entries have no key.

    `entries` are in the order of the source, `arranged` in the order of the layout.
    """

    outer: int
    start: int
    end: int
    properties: list[str]
    is_map: bool
    anchor: str | None = None
    entries: list[Entry] = field(default_factory=list)
    arranged: list[Entry] = field(default_factory=list)
    has_comments: bool = False

    def is_pair(self, source: str) -> bool:
        return not source.startswith(("{", "["), self.start)


@dataclass(slots=True, eq=False)
class Block:
    """A map or list laid out in lines, at the column of its keys or dashes."""

    outer: int
    start: int
    end: int
    properties: list[str]
    is_map: bool
    column: int
    anchor: str | None = None
    entries: list[Entry] = field(default_factory=list)
    arranged: list[Entry] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)


Value = Text | Flow | Block


@dataclass(slots=True, eq=False)
class Entry:
    """A key and its value, or an item. `start` is where the key or the dash stands.

    `between` are comments in lines of their own between a key and its text.
    """

    start: int
    key: Text | None
    value: Value
    head: list[str] = field(default_factory=list)
    eol: Comment | None = None
    between: list[str] = field(default_factory=list)
    after: Comment | None = None


@dataclass(slots=True)
class Tree:
    """A whole file; `prefix` is what stands up to `---`, `suffix` from `...` on.

    `has_question` says that somewhere a key is written behind a `?`. The comments
    above a root that is a block are its first entry's.
    """

    source: str
    root: Value | None = None
    prefix: str = ""
    suffix: str = ""
    start: int = 0
    has_question: bool = False
    head: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)


def column(source: str, index: int) -> int:
    """How many characters stand before this one in its line."""
    return index - line_start(source, index)


def line_start(source: str, index: int) -> int:
    start = source.rfind("\n", 0, index) + 1
    return max(start, *(source.rfind(end, start, index) + 1 for end in "\u2028\u2029"))


def is_block_text(value: Value) -> bool:
    """Whether a value is a text behind `|` or `>`."""
    return isinstance(value, Text) and value.style in ("|", ">")


def walk(value: Value | None) -> Iterator[Value]:
    """A value and all inside, keys too, in the order of the layout."""
    if value is None:
        return
    yield value
    if not isinstance(value, Text):
        for entry in value.arranged:
            yield from walk(entry.key)
            yield from walk(entry.value)
