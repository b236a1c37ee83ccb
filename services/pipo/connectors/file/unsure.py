"""Where a record of ours may stand that the journal does not know (decision 003)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

# The journal may be this many appends behind; a repeated write is looked for in them.
APPENDS_LOOKED_AT = 256
SPANS_MAX = 16


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the file, from one offset up to another."""

    start: int
    end: int


class Unsure:
    """The parts of one file that a recovered unit is looked for in; the latest appends are among them."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._latest: deque[int] = deque(maxlen=APPENDS_LOOKED_AT)

    def forget(self, start: int, end: int) -> None:
        """What stands in a part of the file is anybody's guess; elsewhere we know."""
        self._spans = [Span(start, end)]
        self._latest.clear()

    def add(self, start: int, end: int) -> None:
        """One part more; parts that touch, and those beyond SPANS_MAX, become one."""
        last = self._spans[-1] if self._spans else None
        if last is not None and (start <= last.end or len(self._spans) >= SPANS_MAX):
            start, end = min(start, last.start), max(end, last.end)
            self._spans.pop()
        self._spans.append(Span(start, end))

    def appended(self, start: int) -> None:
        """An append began at that size of the file."""
        self._latest.append(start)

    def spans(self, size: int) -> list[Span]:
        latest = Span(self._latest[0] if self._latest else size, size)
        return [*self._spans, latest]
