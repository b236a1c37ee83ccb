"""The elements of a JSON array in a file, one after another, in the memory of one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipo.connectors.contract import WriteFailed
from pipo.connectors.file import plain
from pipo.connectors.file.lookup import Place, is_json

ELEMENT_BYTES_MAX = 256 * 1024 * 1024

_BLANKS = b" \t\r\n"
# Up to the next byte that shapes an array, over whole strings: between elements, and in one.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OUTER = re.compile(rb'(?:[^"\[\]{},]++|%b)*+[\[\]{},]' % _STRING, re.DOTALL)
_INNER = re.compile(rb'(?:[^"\[\]{}]++|%b)*+[\[\]{}]' % _STRING, re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shape:
    """How far an array goes: `end` is behind its last element; `is_torn`: the file ends before it does."""

    end: int
    is_empty: bool
    is_torn: bool


class NotAnArray(WriteFailed):
    """A file that holds something else than one JSON array."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(
            f"{path} is no JSON array (at byte {offset})",
            hint="`format: json` appends to one array; move the file away, or write to another one",
        )


class Elements:
    """Reads a file of `size` bytes once; `shape` is known when `read` has ended."""

    def __init__(self, handle: int, size: int, path: str) -> None:
        self._chunks = plain.chunks(handle, 0, size)
        self._path = path
        self._held = b""
        self._held_at = 0
        self.shape = Shape(0, is_empty=True, is_torn=True)

    def read(self) -> Iterator[tuple[Place, bytes]]:
        """Place and text of each element that is whole, without the blanks around it.

        Raises: NotAnArray.
        """
        start = self._open_bracket()
        if start is None:
            return
        self.shape = Shape(start, is_empty=True, is_torn=True)
        depth, position = 0, start - self._held_at
        begin = position
        while True:
            token = (_INNER if depth else _OUTER).match(self._held, position)
            if token is None:
                position, begin = self._drop(begin, position)
                if self._more():
                    continue
                yield from self._last(begin)
                return
            position = token.end()
            match self._held[position - 1 : position]:
                case b"[" | b"{":
                    depth += 1
                case b"]" | b"}" if depth:
                    depth -= 1
                case b",":
                    yield from self._element(begin, position - 1, is_last=False)
                    begin = position
                case b"]":
                    yield from self._element(begin, position - 1, is_last=True)
                    self._require_nothing(position)
                    return
                case b"}":
                    raise NotAnArray(self._path, self._held_at + position - 1)

    def _open_bracket(self) -> int | None:
        """Where the elements begin, or None in a file that is blank or ends before."""
        while not self._held.strip(_BLANKS):
            self._held_at += len(self._held)
            self._held = b""
            if not self._more():
                return None
        at = len(self._held) - len(self._held.lstrip(_BLANKS))
        if self._held[at : at + 1] != b"[":
            raise NotAnArray(self._path, self._held_at + at)
        return self._held_at + at + 1

    def _element(self, begin: int, end: int, *, is_last: bool) -> Iterator[tuple[Place, bytes]]:
        text = self._held[begin:end]
        blanks = len(text) - len(text.lstrip(_BLANKS))
        text = text.strip(_BLANKS)
        place = Place(self._held_at + begin + blanks, len(text))
        if not text and is_last and self.shape.is_empty:
            self.shape = Shape(self.shape.end, is_empty=True, is_torn=False)
            return
        if not is_json(text):
            raise NotAnArray(self._path, place.offset)
        self.shape = Shape(place.end, is_empty=False, is_torn=not is_last)
        yield place, text

    def _last(self, begin: int) -> Iterator[tuple[Place, bytes]]:
        """The file ended inside the array: an element with an end of its own is whole."""
        text = self._held[begin:].strip(_BLANKS)
        if text.endswith((b"}", b"]", b'"')) and is_json(text):
            yield from self._element(begin, len(self._held), is_last=False)

    def _require_nothing(self, position: int) -> None:
        while True:
            rest = self._held[position:]
            if rest.strip(_BLANKS):
                raise NotAnArray(self._path, self._held_at + position)
            self._held_at += len(self._held)
            self._held, position = b"", 0
            if not self._more():
                return

    def _drop(self, begin: int, position: int) -> tuple[int, int]:
        """Lets go of what is behind; returns the position and the element's begin anew."""
        self._held_at += begin
        self._held = self._held[begin:]
        if len(self._held) > ELEMENT_BYTES_MAX:
            raise NotAnArray(self._path, self._held_at)
        return position - begin, 0

    def _more(self) -> bool:
        chunk = next(self._chunks, b"")
        self._held += chunk
        return bool(chunk)
