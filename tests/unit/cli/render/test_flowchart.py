"""Mermaid and Graphviz: whatever an author writes stands inside a quoted text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from pipo.lang.model import Pipeline
from pipo.lang.steps import Steps
from pipo_cli.render.flowchart import dot, mermaid
from tests.unit.cli.render.test_lanes import ORDERS
from tests.unit.lang.drawn import pipelines
from tests.unit.lang.reading import model


def test_a_mermaid_flowchart() -> None:
    drawn = mermaid(model(ORDERS))
    assert drawn[0] == "flowchart TD"
    for line in (
        '  s0(["shop<br/>input: http /orders"])',
        '  s3["clean<br/>transform: map  (Tidy up)"]',
        '  s4{"sort<br/>route"}',
        '  s8[("output<br/>output: file ./o.jsonl")]',
        '  delivered{{"delivered<br/>file_exists, within 5s, else dead_letter"}}',
        '  s4 -->|"vip"| s5',
        '  nobody7("ends as filtered")',
        '  s4 -.->|"odd"| nobody7',
        '  s6 -. "at most 3 times" .-> s6',
        "  s8 --> delivered",
    ):
        assert line in drawn


def test_a_graphviz_graph() -> None:
    drawn = dot(model(ORDERS))
    assert (drawn[0], drawn[-1]) == ('digraph "tried" {', "}")
    for line in (
        '  "shop" [shape="oval", style="", label="shop\\ninput: http /orders"];',
        '  "sort" -> "greet" [label="vip"];',
        '  "sort" -> "nobody 7" [label="odd", style="dashed"];',
        '  "output" -> "delivered check";',
        '  "price" -> "price" [style="dashed", constraint="false", label="at most 3 times"];',
    ):
        assert line in drawn


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_a_mermaid_text_ends_only_at_its_quote(pipeline: Pipeline) -> None:
    drawn = "\n".join(mermaid(pipeline))
    bare = re.sub(r'"[^"]*"', "", drawn)
    assert re.fullmatch(r"[\w\s()\[\]{}|<>.-]*", bare)
    assert not re.search(r"%|`|\\", drawn)
    texts = re.sub(r"#(\d+);", lambda code: chr(int(code[1])), drawn)
    for step in Steps.of(pipeline).ordered:
        assert f'"{step.id}<br/>{step.kind}' in texts
        for branch in step.branches:
            assert f'|"{branch}"|' in texts


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_a_graphviz_text_ends_only_at_its_quote(pipeline: Pipeline) -> None:
    drawn = "\n".join(dot(pipeline))
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "T", drawn)
    for line in bare.splitlines()[1:-1]:
        assert re.fullmatch(r"  (node|T|T -> T)( \[\w+=T(, \w+=T)*\])?;", line)
    texts = re.sub(r"\\(.)", r"\1", drawn).replace("&amp;", "&")
    for step in Steps.of(pipeline).ordered:
        assert f'label="{step.id}n{step.kind}' in texts
        for branch in step.branches:
            assert f'[label="{branch}"' in texts
