"""The graph of a pipeline: who takes packets from whom.

Steps are inputs, nodes and `OUTPUT`; an edge leads from a step, or from one
branch of a route, to the step that takes from it. Loops are no edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

OUTPUT: Final = "$output"
"""The output's name among the steps; no node can have it."""


class Edge(NamedTuple):
    """Packets pass from `source` (its `branch`, of a route) to `target`."""

    source: str
    branch: str
    target: str


class Ancestry(NamedTuple):
    """For each step the set of the steps upstream of it, itself included, as bits of a number."""

    bits: Mapping[str, int]
    masks: Mapping[str, int]

    def has(self, step: str, upstream: str) -> bool:
        """Whether packets pass `upstream` on their way to `step`, or it is the step itself."""
        known = self.masks.get(step, 0) & self.bits.get(upstream, 0)
        return bool(known) or step == upstream

    def has_any(self, step: str, upstream: Iterable[str]) -> bool:
        return any(self.has(step, each) for each in upstream)


class Graph:
    """Steps and edges, with the questions that rules and plans ask."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        # By step and branch, each with its place among the edges.
        self._from: dict[tuple[str, str], list[tuple[int, str]]] = {}
        self._next: dict[str, list[str]] = {}
        self._before: dict[str, list[str]] = {}
        for place, edge in enumerate(edges):
            taken = self._from.setdefault((edge.source, edge.branch), [])
            taken.append((place, edge.target))
            self._next.setdefault(edge.source, []).append(edge.target)
            self._before.setdefault(edge.target, []).append(edge.source)

    def after(self, starts: Iterable[str]) -> set[str]:
        """The steps themselves and all that packets reach from them."""
        return _closure(starts, self._next)

    def before(self, ends: Iterable[str]) -> set[str]:
        """The steps themselves and all whose packets reach them."""
        return _closure(ends, self._before)

    @cached_property
    def ancestry(self) -> Ancestry:
        """Who is upstream of whom, for many questions: one pass, then a bit each."""
        steps = list(dict.fromkeys((*self._next, *self._before)))
        bits = {step: 1 << index for index, step in enumerate(steps)}
        masks: dict[str, int] = {}
        # The components come with what they lead to first.
        for group in reversed(self.components(steps)):
            mask = 0
            for step in group:
                mask |= bits[step]
                for earlier in self._before.get(step, ()):
                    mask |= masks.get(earlier, 0)
            masks.update(dict.fromkeys(group, mask))
        return Ancestry(bits, masks)

    def takers(self, source: str, branch: str = "") -> list[str]:
        """The steps that take packets from a step, or from one branch of it."""
        found = self._from.get((source, ""), [])
        if branch:
            found = sorted((*found, *self._from.get((source, branch), ())))
        return list(dict.fromkeys(target for _, target in found))

    def circles(self, steps: Iterable[str]) -> list[list[str]]:
        """The groups of steps that feed each other, in the order given, as are their members."""
        order = {step: index for index, step in enumerate(steps)}
        groups = [
            sorted((s for s in group if s in order), key=order.__getitem__)
            for group in self.components(order)
            if len(group) > 1 or group[0] in self._next.get(group[0], ())
        ]
        return sorted((g for g in groups if g), key=lambda group: order[group[0]])

    def circuit(self, circle: Iterable[str]) -> list[str]:
        """The shortest way round that leads from a circle's first step back to it."""
        members = dict.fromkeys(circle)
        start = next(iter(members))
        came_from: dict[str, str] = {}
        waiting = [start]
        for step in waiting:
            for target in self._next.get(step, ()):
                if target in members and target not in came_from:
                    came_from[target] = step
                    waiting.append(target)
        way = [start, came_from[start]]
        while way[-1] != start:
            way.append(came_from[way[-1]])
        return way[::-1]

    def components(self, steps: Iterable[str]) -> list[list[str]]:
        """The strongly connected components, each behind those that it leads to.

        By Tarjan's algorithm, without recursion.
        """
        found: list[list[str]] = []
        index: dict[str, int] = {}
        low: dict[str, int] = {}
        stack: list[str] = []
        on_stack: set[str] = set()
        for start in steps:
            if start in index:
                continue
            work = [(start, iter(self._next.get(start, ())))]
            while work:
                step, targets = work[-1]
                if step not in index:
                    index[step] = low[step] = len(index)
                    stack.append(step)
                    on_stack.add(step)
                for target in targets:
                    if target not in index:
                        work.append((target, iter(self._next.get(target, ()))))
                        break
                    if target in on_stack:
                        low[step] = min(low[step], index[target])
                else:
                    work.pop()
                    if work:
                        parent = work[-1][0]
                        low[parent] = min(low[parent], low[step])
                    if low[step] == index[step]:
                        found.append(_cut(stack, step))
                        on_stack.difference_update(found[-1])
        return found


def _closure(starts: Iterable[str], links: Mapping[str, list[str]]) -> set[str]:
    found = set(starts)
    waiting = list(found)
    while waiting:
        for step in links.get(waiting.pop(), ()):
            if step not in found:
                found.add(step)
                waiting.append(step)
    return found


def _cut(stack: list[str], step: str) -> list[str]:
    """Takes everything from `step` on off the stack."""
    taken: list[str] = []
    while not taken or taken[-1] != step:
        taken.append(stack.pop())
    return taken
