"""Where a character of a scalar's value stands in the file.

A value is not its source text: quotes, escapes, folded lines and indentation lie
between. The walkers here go through both side by side until they reach the
wanted character.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pipo.lang.document import Place, Scalar

_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_FOLD = re.compile(r"[ \t]*(?:\r\n|[\n\r\x85\u2028\u2029])[ \t\n\r\x85\u2028\u2029]*")
_PROPERTIES = re.compile(r"(?:[!&][^\s]*\s+(?:#[^\n\r]*\s+)*)+")
_HEADER = re.compile(r"[|>][^\n\r]*(?:\r\n|[\n\r]|\Z)")
_ESCAPE = re.compile(r"\\(?:x..|u.{4}|U.{8}|(?:\r\n|[\n\r])[ \t]*|.)", re.DOTALL)


def place_of(scalar: Scalar, offset: int) -> Place:
    """The place of the character `offset` of a text; the scalar's own when it cannot be told."""
    span = scalar.span
    if span is None or not isinstance(scalar.value, str):
        return scalar.place
    properties = _PROPERTIES.match(span.source, span.start, span.end)
    start = properties.end() if properties else span.start
    raw = span.source[start : span.end]
    index = _WALKERS.get(span.style or "", _plain)(raw, scalar.value, offset)
    before = span.source[span.start : start + index]
    breaks = list(_BREAK.finditer(before))
    if not breaks:
        return Place(scalar.place.line, scalar.place.col + len(before))
    return Place(scalar.place.line + len(breaks), len(before) - breaks[-1].end() + 1)


def _plain(raw: str, value: str, offset: int) -> int:
    return _flow(raw, offset, 0, lambda at: (1, 1))


def _single(raw: str, value: str, offset: int) -> int:
    return _flow(raw, offset, 1, lambda at: (2, 1) if raw.startswith("''", at) else (1, 1))


def _double(raw: str, value: str, offset: int) -> int:
    def step(at: int) -> tuple[int, int]:
        escape = _ESCAPE.match(raw, at)
        if escape is None:
            return 1, 1
        return len(escape[0]), 0 if escape[0][1] in "\r\n" else 1

    return _flow(raw, offset, 1, step)


def _flow(raw: str, offset: int, start: int, step: Callable[[int], tuple[int, int]]) -> int:
    """Walks a flow scalar; `step` says how much source one unit takes and how much value it makes."""
    at, made = start, 0
    while at < len(raw):
        fold = _FOLD.match(raw, at)
        # One line break is a blank; of several, the first one vanishes.
        taken = len(fold[0]) if fold else 0
        width = max(1, len(_BREAK.findall(fold[0])) - 1) if fold else 0
        if not fold:
            taken, width = step(at)
        if made + width > offset:
            return at
        at, made = at + taken, made + width
    return len(raw)


def _block(raw: str, value: str, offset: int) -> int:
    """Walks a literal or folded block: line by line, behind its indentation."""
    header = _HEADER.match(raw)
    assert header is not None
    at, made = header.end(), 0
    indent = _indent(raw, at, value)
    while at < len(raw):
        end = _line_end(raw, at)
        content = raw[min(at + indent, end) : end]
        if made + len(content) > offset:
            return min(at + indent, end) + offset - made
        made += len(content)
        line_break = _BREAK.match(raw, end)
        at = line_break.end() if line_break else len(raw)
        if made < len(value) and value[made] in " \n":
            if made == offset:
                return end
            made += 1
    return len(raw)


def _indent(raw: str, start: int, value: str) -> int:
    """How far the content is indented: by what its first line with text has lost."""
    written = _margin(raw[start:])
    return max(0, written - _margin(value))


def _margin(text: str) -> int:
    """The blanks before the first line that has any text."""
    line = next((line for line in _BREAK.split(text) if line.strip(" ")), "")
    return len(line) - len(line.lstrip(" "))


def _line_end(raw: str, at: int) -> int:
    found = _BREAK.search(raw, at)
    return found.start() if found else len(raw)


_WALKERS: dict[str, Callable[[str, str, int], int]] = {
    "": _plain,
    "'": _single,
    '"': _double,
    "|": _block,
    ">": _block,
}
