"""The steps that run again in a rerun, and what running them again means (R033).

Pure: from the model and the manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipo.connectors.contract import Manifest
from pipo.lang.model import Node, Pipeline
from pipo.lang.rules.names import FUNCTION

OUTPUT: Final = "output"


@dataclass(frozen=True, slots=True)
class RerunStep:
    """A step; `kind` is such as `transform: map`, `effect` None for one that changes nothing
    outside."""

    step: str
    kind: str
    effect: str | None


def path(
    pipelines: Iterable[Pipeline], start: str, manifests: Mapping[str, Manifest]
) -> list[RerunStep]:
    """The steps from `start` on, in the order of the file, the output last.

    Of several versions each step once; one that differs between them once for each kind.
    """
    nodes: dict[RerunStep, None] = {}
    outputs: dict[RerunStep, None] = {}
    for pipeline in pipelines:
        reached = _reached(pipeline, start)
        for node in pipeline.nodes:
            if node.id in reached:
                nodes[_step(node, manifests)] = None
        if OUTPUT in reached:
            outputs[_output(pipeline, manifests)] = None
    return [*nodes, *outputs]


def _reached(pipeline: Pipeline, start: str) -> set[str]:
    """What a packet may come to from a step on; a loop sends it back, too."""
    ids = {node.id for node in pipeline.nodes}
    ways: dict[str, set[str]] = {id_: set() for id_ in ids}
    takers = [*((node.id, node.sources) for node in pipeline.nodes)]
    for taker, sources in [*takers, (OUTPUT, pipeline.output.sources)]:
        for source in sources:
            # `route.branch` is a branch of a route.
            from_ = source if source in ids else source.rpartition(".")[0]
            if from_ in ids:
                ways[from_].add(taker)
    for node in pipeline.nodes:
        if node.loop is not None:
            ways[node.id].add(node.loop.back_to)
    found: set[str] = set()
    ahead = [start]
    while ahead:
        step = ahead.pop()
        if step not in found:
            found.add(step)
            ahead += ways.get(step, ())
    return found


def _step(node: Node, manifests: Mapping[str, Manifest]) -> RerunStep:
    if node.kind in ("filter", "route"):
        return RerunStep(node.id, node.kind, None)
    kind = f"{node.kind}: {node.uses}"
    if FUNCTION.fullmatch(node.uses):
        # What the author's code does besides, nobody knows.
        return RerunStep(node.id, kind, None)
    manifest = manifests[node.uses]
    role = {"tap": manifest.tap, "transform": manifest.transform}.get(node.kind, manifest.agent)
    return RerunStep(node.id, kind, None if role is None else role.effect)


def _output(pipeline: Pipeline, manifests: Mapping[str, Manifest]) -> RerunStep:
    role = manifests[pipeline.output.to].output
    kind = f"output: {pipeline.output.to}"
    return RerunStep(OUTPUT, kind, None if role is None else role.effect)
