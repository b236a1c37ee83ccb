"""A pipeline's steps, in the order that packets pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pipo.lang.graph import Edge
from pipo.lang.model import Pipeline
from pipo.lang.steps import OUTPUT, Steps
from tests.unit.lang.drawn import pipelines
from tests.unit.lang.reading import HEAD, PUSH, STDOUT, model

SORTED = (
    HEAD
    + """
inputs: { b: { via: http, with: { path: /b } }, a: { via: push } }
nodes:
  late: { from: [sort.x, early], tap: log }
  early: { from: [a, sort.x], tap: log, label: Look }
  sort: { from: b, route: { x: data.x, y: data.y, z: else } }
output: { from: [late, sort.z], to: stdout }
"""
)


def test_the_smallest_pipeline_has_two_steps() -> None:
    steps = Steps.of(model(PUSH + STDOUT))
    assert [(s.id, s.kind, s.uses, s.sources) for s in steps.ordered] == [
        ("input", "input", "push", ()),
        (OUTPUT, "output", "stdout", ("input",)),
    ]
    assert list(steps.edges()) == [Edge("input", "", OUTPUT)]


def test_each_step_stands_behind_its_sources() -> None:
    steps = Steps.of(model(SORTED))
    assert [step.id for step in steps.ordered] == ["b", "a", "sort", "early", "late", OUTPUT]
    assert [step.label for step in steps.ordered][3:5] == ["Look", "late"]
    assert steps.ordered[0].about == "/b"


def test_a_routes_edges_come_branch_by_branch() -> None:
    steps = Steps.of(model(SORTED))
    assert [edge for edge in steps.edges() if edge.source == "sort"] == [
        Edge("sort", "x", "early"),
        Edge("sort", "x", "late"),
        Edge("sort", "y", ""),
        Edge("sort", "z", OUTPUT),
    ]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(pipelines())
def test_every_step_and_every_from_is_there(pipeline: Pipeline) -> None:
    steps = Steps.of(pipeline)
    places = {step.id: index for index, step in enumerate(steps.ordered)}
    ids = [i.name for i in pipeline.inputs] + [n.id for n in pipeline.nodes] + [OUTPUT]
    assert sorted(places) == sorted(ids)
    edges = list(steps.edges())
    assert all(places[e.source] < places[e.target] for e in edges if e.target)
    said = [(source, step.id) for step in steps.ordered for source in step.sources]
    drawn = [(f"{e.source}.{e.branch}".removesuffix("."), e.target) for e in edges if e.target]
    assert sorted(drawn) == sorted(said)
