"""Pipelines drawn at random, and what becomes of a packet in one, worked out by walking it.

The walk knows nothing of queues, commits or copies in memory: it follows a packet through the
graph as the language describes it (facts §2.2, §2.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.unit.runner.pipeline.rig import TABLE

# Data is a number below this, under `n`.
NUMBERS = 12
OUTPUT = "output"
LIMIT = 80


class TooLarge(Exception):
    """A packet with more copies than a test wants."""


@dataclass(frozen=True)
class Drawn:
    """One node. `what` is its kind and a number that says what it does."""

    id: str
    sources: tuple[str, ...]
    kind: str
    number: int
    back_to: str | None = None

    @property
    def branches(self) -> tuple[str, ...]:
        return ("one", "two", "rest") if self.kind == "route" else ()

    @property
    def text(self) -> str:
        n = self.number
        does = {
            "filter": f'filter: "data.n % {n + 2} != 0"',
            "breaks": f"filter: \"data.n == {n} ? upper(data) == '' : true\"",
            "map": f'transform: map, with: {{ data: {{ n: "${{(data.n * 3 + {n}) % {NUMBERS}}}" }} }}',
            "route": f'route: {{ one: "data.n % 3 == {n % 3}", two: "data.n > {n}", rest: "data.n < 9" }}',
            "tap": "tap: log, with: { message: x }",
            "outside": "tap: file, with: { path: ./kept.jsonl }",
        }[self.kind]
        loop = f", loop: {{ back_to: {self.back_to}, until: 'data.n > 5', max: 2 }}"
        return f"  {self.id}: {{ from: [{', '.join(self.sources)}], {does}{loop if self.back_to else ''} }}\n"


class End(NamedTuple):
    """How a unit that did not split has ended, with its data."""

    state: str
    n: int


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Drawn, ...]
    to_output: tuple[str, ...]
    refused: int
    concurrency: int
    takers: dict[str, list[str]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        takers: dict[str, list[str]] = {}
        for node in self.nodes:
            for source in node.sources:
                takers.setdefault(source, []).append(node.id)
        for source in self.to_output:
            takers.setdefault(source, []).append(OUTPUT)
        object.__setattr__(self, "takers", takers)

    @property
    def text(self) -> str:
        nodes = "".join(node.text for node in self.nodes)
        return (
            f"concurrency: {self.concurrency}\ninput: {{ via: push }}\nnodes:\n{nodes}"
            f"output: {{ from: [{', '.join(self.to_output)}], {TABLE} }}\n"
        )

    def ends(self, packet: str, n: int) -> dict[str, End]:
        """Every unit that does not split, with its end."""
        made = dict(self._on("input", packet, n, 0))
        if len(made) > LIMIT:
            raise TooLarge
        return made

    def _on(self, source: str, unit: str, n: int, iteration: int) -> Iterator[tuple[str, End]]:
        takers = self.takers.get(source, [])
        if not takers:
            yield unit, End("filtered", n)
        elif len(takers) == 1:
            yield from self._at(takers[0], unit, n, iteration)
        else:
            if len(unit) > LIMIT:
                raise TooLarge
            for taker in takers:
                copy = f"{unit}/{taker}" if ":" in unit else f"{unit}:{taker}"
                yield from self._at(taker, copy, n, iteration)

    def _at(self, step: str, unit: str, n: int, iteration: int) -> Iterator[tuple[str, End]]:
        if step == OUTPUT:
            yield unit, End("dead_lettered" if n == self.refused else "delivered", n)
            return
        (node,) = (one for one in self.nodes if one.id == step)
        came, source = n, node.id
        match node.kind:
            case "filter" if n % (node.number + 2) == 0:
                yield unit, End("filtered", n)
                return
            case "breaks" if n == node.number:
                yield unit, End("dead_lettered", n)
                return
            case "map":
                n = (n * 3 + node.number) % NUMBERS
            case "route":
                holds = (n % 3 == node.number % 3, n > node.number, n < 9)
                if not any(holds):
                    yield unit, End("filtered", n)
                    return
                source = f"{node.id}.{node.branches[holds.index(True)]}"
            case _:
                pass
        if node.kind == "route" and not self.takers.get(source):
            yield unit, End("filtered", n)
        elif node.back_to is None or n > 5:
            yield from self._on(source, unit, n, iteration)
        elif iteration >= 2:
            yield unit, End("dead_lettered", came)
        else:
            yield from self._at(node.back_to, unit, n, iteration + 1)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs in which every node leads to the output; a branch may lead nowhere."""
    nodes: list[Drawn] = []
    sources = ["input"]
    for index in range(draw(st.integers(1, 5))):
        taken = draw(st.lists(st.sampled_from(sources), min_size=1, max_size=3, unique=True))
        kind = draw(st.sampled_from(["filter", "breaks", "map", "map", "route", "tap", "outside"]))
        upstream = [*sorted(_upstream(nodes, taken)), f"n{index}"]
        loops = draw(st.sampled_from([False, False, True]))
        back_to = draw(st.sampled_from(upstream)) if loops else None
        node = Drawn(f"n{index}", tuple(taken), kind, draw(st.integers(0, NUMBERS - 1)), back_to)
        nodes.append(node)
        sources += [f"{node.id}.{b}" for b in node.branches] or [node.id]
    taken_from = {source for node in nodes for source in node.sources}
    to_output = [
        source
        for source in sources
        if (source not in taken_from and (not source.endswith(".two") or draw(st.booleans())))
        or draw(st.sampled_from([False, False, True]))
    ]
    return Graph(
        tuple(nodes),
        tuple(to_output),
        refused=draw(st.integers(0, NUMBERS - 1)),
        concurrency=draw(st.sampled_from([1, 2, 4])),
    )


def _upstream(nodes: list[Drawn], sources: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = [source.partition(".")[0] for source in sources]
    while waiting:
        step = waiting.pop()
        if step != "input" and step not in found:
            found.add(step)
            waiting += [
                source.partition(".")[0] for n in nodes if n.id == step for source in n.sources
            ]
    return found


def verdict(ends: dict[str, End], packet: str) -> str:
    """What a packet becomes (edge 114)."""
    if packet in ends:
        return ends[packet].state
    states = {end.state for end in ends.values()}
    for state in ("dead_lettered", "delivered"):
        if state in states:
            return state
    return "filtered"


def is_refused(graph: Graph, data: Any) -> bool:
    return bool(data["n"] == graph.refused)
