"""A pipeline's steps as whoever draws or lists them wants them: inputs, nodes, the output.

What a step is called, which kind it is, where its packets come from, in the order
that packets pass.

Source: facts §2.1, §2.2, §2.5; doors, GET /graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipo.lang.graph import Edge, Graph
from pipo.lang.model import Input, Loop, Node, Output, Pipeline

OUTPUT: Final = "output"
"""The output's id; no node and no input can have it (P015, P061)."""

# Settings that say in a word what a connector works on; never one that may hold a secret.
_TELLING: Final = ("method", "path", "every", "cron", "table")


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `sources` is its `from`, `label` what a person calls it.

    `uses` is a connector's name, `fn.<name>` or a filter's expression, and empty for a
    route; `about` what the connector works on, such as a path.
    """

    id: str
    kind: str
    label: str
    uses: str
    about: str = ""
    sources: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    loop: Loop | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps in an order in which each stands behind those it takes packets from."""

    ordered: tuple[Step, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Steps:
        """The steps of a pipeline that passed its check; the order is the file's where it can be."""
        made = [
            *map(_of_input, pipeline.inputs),
            *map(_of_node, pipeline.nodes),
            _of_output(pipeline.output),
        ]
        return cls(tuple(_sorted(made)))

    def edges(self) -> Iterator[Edge]:
        """Who passes packets to whom; a branch that nobody takes is an edge to no target."""
        graph = Graph(
            Edge(*source.partition(".")[::2], step.id)
            for step in self.ordered
            for source in step.sources
        )
        for step in self.ordered:
            for branch in step.branches or ("",):
                targets = graph.takers(step.id, branch) or ([""] if branch else [])
                yield from (Edge(step.id, branch, target) for target in targets)


def _sorted(steps: Sequence[Step]) -> Iterator[Step]:
    """Each step behind its sources; of those that may come next, the first in the file."""
    place = {step.id: index for index, step in enumerate(steps)}
    waits = {s.id: {source.partition(".")[0] for source in s.sources} for s in steps}
    feeds: dict[str, list[str]] = {step.id: [] for step in steps}
    for taker, sources in waits.items():
        for source in sources:
            feeds[source].append(taker)
    ready = [place[name] for name, sources in waits.items() if not sources]
    while ready:
        step = steps[heapq.heappop(ready)]
        yield step
        for taker in feeds[step.id]:
            waits[taker].discard(step.id)
            if not waits[taker]:
                heapq.heappush(ready, place[taker])


def _of_input(given: Input) -> Step:
    return Step(given.name, "input", given.name, given.via, _about(given.settings))


def _of_node(node: Node) -> Step:
    return Step(
        id=node.id,
        kind=node.kind,
        label=node.label or node.id,
        uses=node.uses,
        sources=node.sources,
        branches=tuple(branch for branch, _ in node.routes),
        loop=node.loop,
    )


def _of_output(output: Output) -> Step:
    about = _about(output.settings)
    return Step(OUTPUT, "output", OUTPUT, output.to, about, sources=output.sources)


def _about(settings: Mapping[str, Any]) -> str:
    return " ".join(
        value for key in _TELLING if isinstance(value := settings.get(key), str) and value
    )
