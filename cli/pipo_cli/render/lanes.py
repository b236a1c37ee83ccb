"""`pipo graph`: a pipeline drawn in text, one row per step, one lane per step still to come.

Time runs downwards. A lane is a column that leads to one step: whoever passes packets to
that step joins its lane, so a fan-in is one line and never a crossing of its own. What
leaves a step is drawn below it, an edge a row, with the branch and the target in words:
the picture can be read without following a single line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipo import durations
from pipo.errors import BadRequest
from pipo.lang.graph import Edge
from pipo.lang.model import Delivered, Loop, Pipeline
from pipo.lang.steps import Step, Steps
from pipo_cli.render.tables import one_line, pad, width

WIDTH: Final = 100
"""Columns that a row keeps to, unless its lanes and names alone need more."""

LANES_MAX: Final = 200
"""Lanes side by side that can still be called a picture."""

_DETAIL_MIN: Final = 24
_NAMES_MAX: Final = 28
_UNTIL_MAX: Final = 40
_NOBODY: Final = "nobody takes it, its packets end as filtered"
# What is drawn, and what stands for it where only ASCII can be shown.
_ASCII: Final = str.maketrans(
    {"│": "|", "─": "-", "├": "+", "┤": "+", "┼": "+", "╮": ".", "╭": ".", "╰": "'", "╯": "'"}
    | {"╴": "-", "○": "o", "●": "*", "◆": "?", "◎": "@", "✓": "="}
)
_MARKS: Final = {"input": "○", "route": "◆", "output": "◎"}


@dataclass(frozen=True, slots=True)
class _Row:
    """Lanes, and beside them the columns of a step, or a note."""

    cells: str
    columns: tuple[str, str, str] | None = None
    note: str = ""


def lines(pipeline: Pipeline, *, ascii_only: bool = False) -> list[str]:
    """The whole drawing; with `ascii_only` its own signs are ASCII, the author's words as they are.

    Raises: BadRequest, when it would be wider than LANES_MAX lanes.
    """
    steps = Steps.of(pipeline)
    drawing = _Drawing(steps, arrow="->" if ascii_only else "→")
    rows = [row for step in steps.ordered for row in drawing.step(step)]
    rows.append(_Row(drawing.marked("│")))
    rows.append(_Row(drawing.marked("✓"), ("delivered", "check", check_words(pipeline.delivered))))
    shown = _laid_out([_in_ascii(row) for row in rows] if ascii_only else rows)
    title = f"{pipeline.name}: {pipeline.description}" if pipeline.description else pipeline.name
    return [_cut(one_line(title), WIDTH), "", *shown]


class _Drawing:
    """The lanes while the steps pass; `None` is a free one."""

    def __init__(self, steps: Steps, *, arrow: str) -> None:
        self._lanes: list[str | None] = []
        self._own = 0
        self._arrow = arrow
        self._edges: dict[str, list[Edge]] = defaultdict(list)
        for edge in steps.edges():
            self._edges[edge.source].append(edge)

    def step(self, step: Step) -> list[_Row]:
        """The rows of the next step: itself, its loop, and what leaves it."""
        self._own = self._lane_of(step.id)
        self._lanes[self._own] = step.id
        mark = _MARKS.get(step.kind, "●")
        rows = [_Row(self.marked(mark), (step.id, step.kind, detail(step)))]
        if step.loop:
            rows.append(_Row(self.marked("│"), note=_loop(step.loop)))
        edges = self._edges[step.id]
        rows += [self._edge(e, edges, last=i == len(edges)) for i, e in enumerate(edges, 1)]
        if len(edges) > 1:
            rows.append(_Row(self._cells({})))
        return rows

    def marked(self, mark: str) -> str:
        """All lanes going down, with a mark on the step's own."""
        return self._cells({self._own: mark})

    def _edge(self, edge: Edge, among: Sequence[Edge], *, last: bool) -> _Row:
        """One edge; the last one goes on in the step's own lane, unless its target has one."""
        label = f"{edge.branch} " if edge.branch else ""
        if not edge.target:
            return self._end(f"{label}{self._arrow} {_NOBODY}", last=last)
        known = edge.target in self._lanes
        if last and not known:
            self._lanes[self._own] = edge.target
            straight = self.marked("│")
            note = f"{label}{self._arrow} {edge.target}"
            return _Row(straight, note=note if label or len(among) > 1 else "")
        to = self._lane_of(edge.target)
        cells = self._across(to, new=not known, ends=last)
        self._lanes[to] = edge.target
        if last:
            self._lanes[self._own] = None
        return _Row(cells, note=f"{label}{self._arrow} {edge.target}")

    def _end(self, note: str, *, last: bool) -> _Row:
        cells = self.marked("╰" if last else "├")
        cells = f"{cells[: 2 * self._own + 1]}╴{cells[2 * self._own + 2 :]}"
        if last:
            self._lanes[self._own] = None
        return _Row(cells, note=note)

    def _lane_of(self, step: str) -> int:
        """The lane that leads to a step, or a free one, best to the right of the step at hand."""
        if step in self._lanes:
            return self._lanes.index(step)
        free = [i for i, taken in enumerate(self._lanes) if taken is None]
        if len(self._lanes) == LANES_MAX and not free:
            raise BadRequest(
                f"over {LANES_MAX} lines run side by side: too wide to be drawn in text",
                hint="`--format dot` or `--format mermaid` draws it",
            )
        if not free:
            self._lanes.append(None)
            return len(self._lanes) - 1
        return min(free, key=lambda i: (i < self._own, abs(i - self._own)))

    def _across(self, to: int, *, new: bool, ends: bool) -> str:
        """The row of an edge from the step's own lane into another one."""
        right = to > self._own
        own = ("╰├" if right else "╯┤")[not ends]
        target = ("┤╮" if right else "├╭")[new]
        between = (min(to, self._own), max(to, self._own))
        return self._cells({self._own: own, to: target}, between)

    def _cells(self, marks: dict[int, str], between: tuple[int, int] = (0, 0)) -> str:
        first, last = between
        drawn = ""
        for index, lane in enumerate(self._lanes):
            over = first < index < last
            passing = ("┼" if over else "│") if lane else ("─" if over else " ")
            drawn += marks.get(index, passing) + ("─" if first <= index < last else " ")
        return drawn


def _laid_out(rows: Sequence[_Row]) -> list[str]:
    """The rows as lines: the steps' columns stand below each other, notes beside their lanes."""
    columns = [row.columns for row in rows if row.columns]
    lanes = max(len(row.cells) for row in rows if row.columns)
    names = min(max(width(c[0]) for c in columns), _NAMES_MAX)
    kinds = max(width(c[1]) for c in columns)
    shown: list[str] = []
    for row in rows:
        if row.columns:
            name, kind, detail = row.columns
            head = f"  {pad(row.cells, lanes)} {pad(name, names)}  {pad(kind, kinds)}  "
            shown.append(head + _cut(detail, WIDTH - width(head)))
        else:
            shown.append(f"  {row.cells.rstrip()} {one_line(row.note)}")
    return [line.rstrip() for line in shown]


def _in_ascii(row: _Row) -> _Row:
    return _Row(row.cells.translate(_ASCII), row.columns, row.note)


def _cut(text: str, size: int) -> str:
    """The text in at most `size` columns, though never in fewer than a few words take."""
    size = max(size, _DETAIL_MIN)
    if width(text) <= size:
        return text
    while width(text) > size - 3:
        text = text[: min(len(text) - 1, size - 3)]
    return text.rstrip() + "..."


def detail(step: Step) -> str:
    """What a step uses and on what, and the author's label if it has one."""
    said = one_line(" ".join(part for part in (step.uses, step.about) if part))
    if step.label == step.id:
        return said
    return f"{said}  ({one_line(step.label)})" if said else f"({one_line(step.label)})"


def _loop(loop: Loop) -> str:
    until = _cut(one_line(loop.until), _UNTIL_MAX)
    return f"back to {loop.back_to} until {until}, at most {loop.max} times, then {loop.then}"


def check_words(delivered: Delivered) -> str:
    """The check in words; what needs no look at the destination has no time to look."""
    if delivered.check in ("ack", "none"):
        return delivered.check
    within = durations.show(delivered.within_ms)
    return f"{delivered.check}, within {within}, else {delivered.on_fail.then}"
