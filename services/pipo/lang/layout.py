"""A file's tree written out in its one layout; every text is copied from the source."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Final

from pipo.lang import source_tree
from pipo.lang.source_tree import Block, Comment, Entry, Flow, Text, Tree, Value

_INDENT: Final = 2
_BREAKS: Final = "\n\u2028\u2029"
_BREAK: Final = re.compile(f"[{_BREAKS}]")
_BEFORE: Final = " \t-"
_COLON: Final = re.compile(r"\s*:")
_CHOMP: Final = re.compile(r"[+-]")


class Layout:
    """The tree as lines. `indent` is the column of the block that a value stands in."""

    def __init__(self, source: str) -> None:
        self._source = source

    def file(self, tree: Tree) -> str:
        root = tree.root
        lines = [tree.prefix] if tree.prefix else []
        lines += _below(tree.head, keeps=not lines)
        if isinstance(root, Block):
            lines += [" ".join(root.properties)] if root.properties else []
            lines += self._top(root)
        elif root is not None:
            lines += self._lines(root, -_INDENT, 0)
        keeps = root is not None and _keeps_blanks(root)
        foot = tree.foot[:-1] if tree.foot[-1:] == [""] else tree.foot
        lines += _below(foot, keeps=keeps or not lines)
        lines += [tree.suffix] if tree.suffix else []
        return "".join(f"{line}\n" for line in lines)

    def _top(self, root: Block) -> list[str]:
        """The blocks of the file; where it has blank lines between them, one at each."""
        lines = _header(root)
        spaced = any(entry.head[:1] == [""] for entry in root.entries[1:])
        written = dict(itertools.pairwise(map(id, root.entries)))
        above: Entry | None = None
        size, keeps = 0, False
        for entry in root.arranged:
            made = self._entry(entry, root, 0)
            head = entry.head[1:] if entry.head[:1] == [""] else entry.head
            large = len(made) > 1 or size > 1 or bool(head)
            stays = above is not None and written.get(id(above)) == id(entry)
            parted = (spaced and large) or (stays and head != entry.head)
            if not keeps and (parted if above else bool(lines)):
                lines.append("")
            lines += [*head, *made]
            above, size, keeps = entry, len(made), _keeps_blanks(entry.value)
        return lines + _below(root.foot, keeps=keeps)

    def _block(self, block: Block, indent: int) -> list[str]:
        lines: list[str] = []
        keeps = True
        for entry in block.arranged:
            lines += _padded(_below(entry.head, keeps=keeps), indent)
            lines += self._entry(entry, block, indent)
            keeps = _keeps_blanks(entry.value)
        return lines + _padded(_below(block.foot, keeps=keeps), indent)

    def _entry(self, entry: Entry, block: Block, indent: int) -> list[str]:
        """The lines of an entry, without its head."""
        start = " " * indent + (f"{self._key(entry.key)}:" if entry.key else "-")
        value = entry.value
        if isinstance(value, Block):
            inner = self._block(value, indent + _INDENT)
            if _fits_beside(entry, value):
                return [f"{start} {inner[0].lstrip(' ')}", *inner[1:]]
            start = " ".join([start, *value.properties])
            return [self._with(entry.eol, start), *inner]
        lines = self._lines(value, indent, indent - block.column)
        if entry.eol or entry.between:
            lines[0] = " " * (indent + _INDENT) + lines[0]
            lines = [*_padded(entry.between, indent + _INDENT), *lines]
            lines = [self._with(entry.eol, start), *lines]
        else:
            lines[0] = f"{start} {lines[0]}" if lines[0] else start
        return [*lines[:-1], self._with(entry.after, lines[-1])]

    def _with(self, comment: Comment | None, line: str) -> str:
        """The line with the comment that ends it, as far in as it was if there is room."""
        if comment is None:
            return line
        start = source_tree.line_start(self._source, comment.start)
        written = self._source[start : comment.start]
        last = line[source_tree.line_start(line, len(line)) :]
        # A dash may come to stand before the line, or have stood there.
        gap = len(written.lstrip(_BEFORE)) - len(last.lstrip(_BEFORE))
        return f"{line}{' ' * max(gap, 1)}{comment.text}"

    # ── values ──

    def _key(self, key: Text) -> str:
        """A key before its colon; an alias or a lone tag would take the colon for its own."""
        bare = key.alias is not None or (key.properties and key.start == key.end)
        return self._text(key) + (" " if bare else "")

    def _text(self, text: Text) -> str:
        return " ".join([*text.properties, self._source[text.start : text.end]]).rstrip(" ")

    def _lines(self, value: Text | Flow, indent: int, shift: int) -> list[str]:
        """A value that is no block; its first line has no indentation yet."""
        inner = max(indent + _INDENT, 0)
        if isinstance(value, Flow):
            made = " ".join([*value.properties, self._flow(value)])
            return _moved(made, lambda at: max(at + shift, inner))
        if source_tree.is_block_text(value):
            return self._block_text(value, max(indent, 0))
        return _moved(self._text(value), lambda at: inner)

    def _block_text(self, text: Text, indent: int) -> list[str]:
        """A text behind `|` or `>`, its lines moved to their new margin."""
        header, line_break, body = _parted(self._source[text.start : text.end])
        indicators, hash_, comment = header.partition("#")
        digit = next((int(c) for c in indicators if c.isdigit()), _INDENT)
        if text.value and text.value[-1] not in _BREAKS and "-" not in indicators:
            # The source ends within this line, the layout behind it.
            indicators = f"{_CHOMP.sub('', indicators).rstrip()}-{' ' if hash_ else ''}"
        start = " ".join([*text.properties, f"{indicators}{hash_}{comment}".rstrip(" ")])
        pad = " " * (indent + digit)
        margin = re.compile(rf"({_BREAK.pattern}) {{0,{text.margin}}}(?=({_BREAK.pattern}|\Z)?)")
        moved = margin.sub(lambda m: m[1] if m[2] is not None else m[1] + pad, line_break + body)
        return f"{start}{moved}".split("\n")

    def _flow(self, flow: Flow) -> str:
        if _BREAK.search(self._source, flow.start, flow.end):
            return self._flow_in_lines(flow)
        inner = ", ".join(map(self._flow_entry, flow.arranged))
        if flow.is_pair(self._source):
            return inner
        if not flow.is_map:
            return f"[{inner}]"
        return f"{{ {inner.rstrip(' ')} }}" if inner else "{}"

    def _flow_entry(self, entry: Entry) -> str:
        value = self._flow_value(entry.value)
        if entry.key is None:
            return value
        key = self._key(entry.key)
        if key and not value and not _COLON.match(self._source, entry.key.end):
            return key.rstrip(" ")
        return f"{key}: {value}"

    def _flow_value(self, value: Value) -> str:
        if isinstance(value, Text):
            bare = value.start == value.end and value.properties
            # A bracket right behind a tag would be part of it.
            return self._text(value) + (" " if bare else "")
        return " ".join([*value.properties, self._flow(_flow_of(value))])

    def _flow_in_lines(self, flow: Flow) -> str:
        """Brackets over several lines: each entry in the place of one, all else as it is."""
        made, at = "", flow.start
        for place, entry in zip(flow.entries, flow.arranged, strict=True):
            written = self._flow_entry_as_written(entry)
            if entry is not place and entry.value.end == entry.value.start:
                written += " "  # a comma right behind a colon or a tag would be part of it
            made += self._source[at : place.start] + written
            at = self._end(place)
        return made + self._source[at : flow.end]

    def _flow_entry_as_written(self, entry: Entry) -> str:
        value = entry.value
        if isinstance(value, Text):
            return self._source[entry.start : self._end(entry)]
        return self._source[entry.start : value.start] + self._flow(_flow_of(value))

    def _end(self, entry: Entry) -> int:
        """Where an entry in brackets ends; the parser puts an empty value further on."""
        value = entry.value
        if entry.key is None or value.properties or value.end > value.start:
            return value.end
        colon = _COLON.match(self._source, entry.key.end)
        return colon.end() if colon else entry.key.end


def _flow_of(value: Value) -> Flow:
    """No block stands inside brackets."""
    assert isinstance(value, Flow)
    return value


def _parted(raw: str) -> tuple[str, str, str]:
    """A text's first line, the break that ends it, and the rest."""
    found = _BREAK.search(raw)
    return (raw[: found.start()], found[0], raw[found.end() :]) if found else (raw, "", "")


def _moved(text: str, indent: Callable[[int], int]) -> list[str]:
    """The text's lines, all but the first at a new indentation; blank ones are empty."""

    def line(match: re.Match[str]) -> str:
        return match[1] if match[3] is not None else match[1] + " " * indent(len(match[2]))

    pattern = rf"({_BREAK.pattern})([ \t]*)(?=({_BREAK.pattern}|\Z)?)"
    return re.sub(pattern, line, text).split("\n")


def _padded(lines: list[str], indent: int) -> list[str]:
    return [" " * indent + line if line else "" for line in lines]


def _below(lines: list[str], *, keeps: bool) -> list[str]:
    """Comments below something that takes no blank line: a key, or a text behind `|+`."""
    return lines[1:] if keeps and lines[:1] == [""] else lines


def _header(root: Block) -> list[str]:
    """The comments above the file's first blank line, taken from the first entry.

    They are the file's, and stay at its top.
    """
    first = root.entries[0]
    lines = _below(first.head, keeps=True)
    if "" not in lines:
        first.head = lines
        return []
    last = len(lines) - 1 - lines[::-1].index("")
    first.head = lines[last + 1 :]
    return lines[:last]


def _fits_beside(entry: Entry, value: Block) -> bool:
    """Whether a block starts in the line of its dash."""
    first = value.arranged[0].head
    bare = not value.properties and entry.eol is None and not any(first)
    return entry.key is None and bare


def _keeps_blanks(value: Value) -> bool:
    """Whether blank lines below a value would become part of it."""
    while isinstance(value, Block):
        if value.foot:
            return False
        value = value.arranged[-1].value
    return isinstance(value, Text) and value.keeps
