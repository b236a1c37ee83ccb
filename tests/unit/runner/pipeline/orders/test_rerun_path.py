"""The steps that run again, and what each means outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipo.connectors import registry
from pipo.lang.model import Node, Pipeline
from pipo_runner.pipeline.orders.rerun_path import RerunStep, path
from tests.unit.runner.pipeline.rig import TABLE, pipeline_of

KINDS = (
    "input: { via: push }\nnodes:\n"
    "  pick: { from: input, filter: 'true' }\n"
    "  way: { from: pick, route: { big: 'data.n > 5', small: else } }\n"
    "  shape: { from: way.big, transform: map, with: { data: { n: 1 } } }\n"
    "  run: { from: shape, transform: exec, with: { command: cat } }\n"
    "  call: { from: way.small, transform: http, with: { url: 'http://127.0.0.1:1/' } }\n"
    "  tell: { from: call, tap: http, with: { url: 'http://127.0.0.1:1/' } }\n"
    "  note: { from: tell, tap: file, with: { path: ./note.txt } }\n"
    f"output: {{ from: [run, note], {TABLE} }}\n"
)
LOOP = (
    "input: { via: push }\nnodes:\n"
    "  head: { from: input, transform: map, with: { data: { n: 1 } } }\n"
    "  back: { from: head, transform: map, with: { data: { n: 1 } } }\n"
    "  again:\n    from: back\n    transform: map\n    with: { data: { n: 1 } }\n"
    "    loop: { back_to: back, until: 'true', max: 3 }\n"
    f"output: {{ from: again, {TABLE} }}\n"
)
WRITE = RerunStep("output", "output: sqlite", "write")


def steps(pipeline: Pipeline, start: str) -> list[RerunStep]:
    return path([pipeline], start, registry.manifests())


@pytest.mark.seed("R033")
def test_each_kind_has_its_effect() -> None:
    assert steps(pipeline_of(KINDS), "pick") == [
        RerunStep("pick", "filter", None),
        RerunStep("way", "route", None),
        RerunStep("shape", "transform: map", None),
        RerunStep("run", "transform: exec", "external"),
        RerunStep("call", "transform: http", "external"),
        RerunStep("tell", "tap: http", "external"),
        RerunStep("note", "tap: file", "write"),
        WRITE,
    ]


@pytest.mark.seed("R033")
def test_an_agent_spends_and_a_function_is_pure_as_far_as_anybody_knows() -> None:
    plain = pipeline_of(KINDS)
    ask = Node("ask", ("input",), "agent", "claude_api")
    own = Node("own", ("ask",), "transform", "fn.shape")
    made = replace(plain, nodes=(ask, own), output=replace(plain.output, sources=("own",)))
    assert steps(made, "ask") == [
        RerunStep("ask", "agent: claude_api", "spend"),
        RerunStep("own", "transform: fn.shape", None),
        WRITE,
    ]


def test_only_what_follows_runs_again() -> None:
    assert [one.step for one in steps(pipeline_of(KINDS), "call")] == [
        "call",
        "tell",
        "note",
        "output",
    ]
    assert steps(pipeline_of(KINDS), "output") == [WRITE]


def test_a_loop_sends_back() -> None:
    assert [one.step for one in steps(pipeline_of(LOOP), "again")] == ["back", "again", "output"]
