"""Reads a file's text into its source tree: values from the parser's events, comments from the gaps.

The gaps are what lies between the texts of two values: comments, dashes, and the
anchors and tags of maps and lists. A text must be one that `load` takes, its lines
ended by `\\n` (`with_newlines`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from pipo.lang.source_tree import (
    Block,
    Comment,
    Entry,
    Flow,
    Text,
    Tree,
    Value,
    column,
    is_block_text,
    walk,
)

# A break that stays one inside a text; the others are the same as `\n` (YAML 1.1 §5.4).
_BREAK: Final = re.compile("[\n\u2028\u2029]")
_OTHER_BREAK: Final = re.compile("\r\n|[\r\x85]")
_BYTE_ORDER_MARK: Final = "\ufeff"
_PROPERTY: Final = re.compile(r"&[\w-]+|!(?:<[^>]*>|[^\s,\[\]{}]*)")
_COMMENT: Final = re.compile("#[^\n\u2028\u2029]*")
_SKIPPED: Final = re.compile("(?:[ \t\n\u2028\u2029]|#[^\n\u2028\u2029]*)*")
_MARK: Final = re.compile(f"({_COMMENT.pattern})|({_PROPERTY.pattern})|[-?]")


def with_newlines(text: str) -> str:
    """The text with `\\n` for every break that YAML reads as one, without a byte order mark."""
    return _OTHER_BREAK.sub("\n", text.removeprefix(_BYTE_ORDER_MARK))


def read(source: str) -> Tree:
    """The tree of a text that `load` takes."""
    builder = _Builder(source)
    builder.build()
    _Comments(builder).attach()
    return builder.tree


def comments(source: str) -> list[str]:
    """Every comment of the text, in its order; those beside `|` and `>` are part of a value."""
    builder = _Builder(source)
    builder.build()
    before = [match[0] for match in _COMMENT.finditer(builder.tree.prefix)]
    return before + [comment.text for comment in builder.comments]


@dataclass(slots=True)
class _Open:
    node: Flow | Block
    key: Text | None = None


class _Builder:
    """Events into the tree, then gaps into marks."""

    def __init__(self, source: str) -> None:
        self.tree = Tree(source)
        self.comments: list[Comment] = []
        self.dashes: list[int] = []
        self._source = source
        self._spans: list[tuple[int, int]] = []
        self._open: list[_Open] = []

    def build(self) -> None:
        first, last = 0, len(self._source)
        for event in yaml.parse(self._source, Loader=yaml.CLoader):
            match event:
                case yaml.DocumentStartEvent():
                    first = _index(event.end_mark) if event.explicit else 0
                case yaml.DocumentEndEvent():
                    last = _index(event.start_mark) if event.explicit else last
                case yaml.ScalarEvent() | yaml.AliasEvent():
                    self._take(self._text(event))
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end(event)
        self.tree.start = first
        self.tree.prefix = self._source[:first].strip("\n")
        self.tree.suffix = self._source[last:].strip("\n")
        self._read_gaps(first, last)
        self._mark_collections()

    # ── values ──

    def _text(self, event: Any) -> Text:
        if isinstance(event, yaml.AliasEvent):
            start, end = _index(event.start_mark), _index(event.end_mark)
            self._spans.append((start, end))
            return Text(start, start, end, [], "", "", alias=event.anchor)
        properties, start = self._properties(event)
        end = max(start, event.end_mark.index)
        outer, style = event.start_mark.index, event.style or ""
        text = Text(outer, start, end, properties, style, event.value, anchor=event.anchor)
        if is_block_text(text):
            self._measure(text)
        self._spans.append((text.start, text.end))
        return text

    def _properties(self, event: Any) -> tuple[list[str], int]:
        """The anchor and tag of a value, and where the value itself starts."""
        found: list[str] = []
        at = end = event.start_mark.index
        for _ in range(bool(event.anchor) + bool(event.tag)):
            if match := _PROPERTY.match(self._source, at):
                found.append(match[0])
                end = match.end()
                at = self._skipped(end)
        empty = isinstance(event, yaml.ScalarEvent) and not event.style and not event.value
        return found, end if empty else at

    def _skipped(self, at: int) -> int:
        match = _SKIPPED.match(self._source, at)
        return match.end() if match else at

    def _measure(self, text: Text) -> None:
        """Finds a block text's margin, and its end: blank lines below it count only behind `+`."""
        header, *lines = _BREAK.split(self._source[text.start : text.end])
        outer = next((o.node.column for o in reversed(self._open) if isinstance(o.node, Block)), -1)
        indicators = header.partition("#")[0]
        digit = next((int(c) for c in indicators if c.isdigit()), 0)
        text.margin = max(outer, 0) + digit if digit else max(outer + 1, 1, _margin(lines))
        raw = self._source[text.start : text.end]
        text.keeps = "+" in indicators
        if text.keeps:
            text.end -= raw.endswith("\n")
        elif blank := re.search(rf"(?:\n {{0,{text.margin}}})+\Z", raw):
            text.end = text.start + blank.start()

    def _begin(self, event: Any) -> None:
        properties, start = self._properties(event)
        is_map = isinstance(event, yaml.MappingStartEvent)
        outer = event.start_mark.index
        node: Flow | Block
        if event.flow_style:
            node = Flow(outer, start, start, properties, is_map, event.anchor)
        else:
            at = column(self._source, start)
            node = Block(outer, start, start, properties, is_map, at, event.anchor)
        self._open.append(_Open(node))

    def _end(self, event: Any) -> None:
        node = self._open.pop().node
        node.arranged = list(node.entries)
        if isinstance(node, Flow) and not node.is_pair(self._source):
            node.end = event.end_mark.index
        elif node.entries:
            node.end = node.entries[-1].value.end
        self._take(node)

    def _take(self, node: Value) -> None:
        if not self._open:
            self.tree.root = node
            return
        parent = self._open[-1]
        if parent.node.is_map and parent.key is None:
            # Keys are texts: `load` refuses all others.
            parent.key = node if isinstance(node, Text) else None
            return
        key, parent.key = parent.key, None
        parent.node.entries.append(Entry((key or node).outer, key, node))

    # ── gaps ──

    def _read_gaps(self, first: int, last: int) -> None:
        at = first
        for start, end in [*sorted(self._spans), (last, last)]:
            for match in _MARK.finditer(self._source, at, max(at, start)):
                if match[1]:
                    self.comments.append(Comment(match.start(), match[1].rstrip()))
                elif match[0] == "-":
                    self.dashes.append(match.start())
                elif match[0] == "?":
                    self.tree.has_question = True
            at = max(at, end)

    def _mark_collections(self) -> None:
        starts = [comment.start for comment in self.comments]
        for value in walk(self.tree.root):
            if isinstance(value, Flow):
                value.has_comments = bisect_left(starts, value.start) < bisect_left(
                    starts, value.end
                )
        self._place(self.tree.root, iter(self.dashes))

    def _place(self, value: Value | None, dashes: Iterator[int]) -> None:
        """Moves the start of each item of a list to its dash."""
        if not isinstance(value, Block):
            return
        for entry in value.entries:
            if not value.is_map:
                entry.start = next(dashes)
            self._place(entry.value, dashes)


def _index(mark: Any) -> int:
    """libyaml always says where an event stands; the types do not know it."""
    found: int = mark.index
    return found


def _margin(lines: list[str]) -> int:
    """The widest indentation up to the first line that has any text."""
    widest = 0
    for line in lines:
        widest = max(widest, len(line) - len(line.lstrip(" ")))
        if line.strip(" "):
            break
    return widest


class _Comments:
    """Gives every comment outside brackets to what it stands at, entry by entry."""

    def __init__(self, builder: _Builder) -> None:
        self._tree = builder.tree
        self._source = builder.tree.source
        self._waiting = builder.comments
        self._next = 0
        self._at = builder.tree.start

    def attach(self) -> None:
        root = self._tree.root
        if isinstance(root, Block):
            if root.properties:
                self._tree.head += self._lines_before(root.outer, [], -1)
                self._at = root.outer
            self._enter(root)
        elif root is not None:
            self._tree.head += self._lines_before(root.start, [], -1)
            self._skip(root)
        margin = root.column if isinstance(root, Block) else -1
        self._tree.foot += self._lines_before(len(self._source), _ending(root), margin)

    def _enter(self, block: Block) -> None:
        ended: list[Block] = []
        for entry in block.entries:
            entry.head += self._lines_before(entry.start, ended, block.column)
            self._entry(entry)
            ended = _ending(entry.value)

    def _entry(self, entry: Entry) -> None:
        value = entry.value
        self._at = max(entry.start + 1, entry.key.end if entry.key else 0)
        if isinstance(value, Block):
            entry.eol = self._same_line(value.entries[0].start)
            self._enter(value)
            return
        entry.eol = self._same_line(value.start)
        entry.between += [line for line in self._lines_before(value.start, [], -1) if line]
        self._skip(value)
        if not is_block_text(value):
            entry.after = self._same_line(len(self._source))

    def _skip(self, value: Value) -> None:
        """Goes past a value and the comments inside it, which stay where they are."""
        while self._next < len(self._waiting) and self._waiting[self._next].start < value.end:
            self._next += 1
        self._at = max(self._at, value.end)

    def _same_line(self, limit: int) -> Comment | None:
        """The comment that ends the line that has been read."""
        if self._next == len(self._waiting):
            return None
        comment = self._waiting[self._next]
        if comment.start >= limit or _BREAK.search(self._source, self._at, comment.start):
            return None
        self._take(comment)
        return comment

    def _take(self, comment: Comment) -> None:
        self._next += 1
        self._at = comment.start + len(comment.text)

    def _lines_before(self, limit: int, ended: list[Block], margin: int) -> list[str]:
        """The comments and blank lines before an index that no ended block keeps.

        A comment that is indented deeper than `margin` is the foot of the innermost
        ended block that begins at or left of it, or of the outermost one.
        """
        lines: list[str] = []
        while self._next < len(self._waiting) and self._waiting[self._next].start < limit:
            comment = self._waiting[self._next]
            at = column(self._source, comment.start)
            fitting = [block for block in ended if block.column <= at] or ended[:1]
            ended = [] if lines or at <= margin else fitting
            into = ended[-1].foot if ended else lines
            if self._blank_before(comment.start):
                into.append("")
            into.append(comment.text)
            self._take(comment)
        if self._blank_before(limit):
            lines.append("")
        return lines

    def _blank_before(self, index: int) -> bool:
        return len(_BREAK.findall(self._source, self._at, index)) > 1


def _ending(value: Value | None) -> list[Block]:
    """The blocks that end where a value ends, outermost first."""
    found: list[Block] = []
    while isinstance(value, Block):
        found.append(value)
        value = value.entries[-1].value
    return found
