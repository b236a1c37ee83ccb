"""What may change while a pipeline runs, and what is refused by its key."""

from __future__ import annotations

import pytest

from pipo_runner.pipeline.orders.live_changes import bound_keys
from tests.unit.runner.pipeline.rig import TABLE, pipeline_of

BODY = f"""
secrets: {{ token: env:TOKEN }}
concurrency: 2
agent: {{ control: true, on_stall: notify }}
input: {{ via: http, with: {{ path: /in }}, validate: ["data.n > 1"], format: json }}
nodes:
  shape: {{ from: input, transform: map, with: {{ data: "${{data.n}}" }} }}
output: {{ from: shape, {TABLE} }}
delivered: {{ check: record_exists, with: {{ where: {{ a: "1" }} }}, stall: {{ after: 1m }} }}
"""
TWO = (
    BODY.replace("input: { via", "inputs: { input: { via")
    .replace("format: json }", "format: json }, more: { via: push } }")
    .replace("from: input", "from: [input, more]")
)


def test_the_body_of_two_inputs_is_a_pipeline() -> None:
    assert [one.name for one in pipeline_of(TWO).inputs] == ["input", "more"]


@pytest.mark.seed("L032")
@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("concurrency: 2", "concurrency: 3", ["concurrency"]),
        ("env:TOKEN", "env:OTHER", ["secrets"]),
        ("concurrency: 2", "concurrency: 2\nlifetime: { ttl: 1h }", ["lifetime"]),
        ("with: { path: /in }", "with: { path: /on }", ["input.with"]),
        ("format: json", "format: text", ["input.format"]),
        ("via: http, with: { path: /in }", "via: push", ["input.via", "input.with"]),
        ('"data.n > 1"]', '"data.n > 1"], on_invalid: { respond: 400 }', ["input.on_invalid.respond"]),
        ("to: sqlite", "to: stdout", ["output.to"]),
        ("after: 1m", "after: 2m", ["delivered.stall"]),
        (", stall: { after: 1m }", "", ["delivered.stall"]),
        ("on_stall: notify", "on_stall: handle", ["agent.on_stall"]),
        # What follows may change.
        ('"data.n > 1"', '"data.n > 2"', []),
        ("data.n}", "data.m}", []),
        ("transform: map, with: { data: ", "transform: map, on_error: { retry: 2 }, with: { data: ", []),
        ("concurrency: 2", "concurrency: 2\nbuffer: { max: 3 }\nretention: { data: 1d }", []),
        ("table: people", "table: others", []),
        ('a: "1"', 'a: "2"', []),
    ],
)  # fmt: skip
def test_each_key(old: str, new: str, keys: list[str]) -> None:
    """Edge 348, 350."""
    assert old in BODY
    changed = BODY.replace(old, new).replace(TABLE, TABLE if "stdout" not in new else "")
    if new == "to: stdout":
        changed = BODY.replace(TABLE, "to: stdout").replace(
            'check: record_exists, with: { where: { a: "1" } }, ', ""
        )
    assert bound_keys(pipeline_of(BODY), pipeline_of(changed)) == keys


def test_an_input_that_comes_or_goes_is_named() -> None:
    """Edge 350."""
    one, two = pipeline_of(BODY), pipeline_of(TWO)
    assert bound_keys(one, two) == ["inputs.more"]
    assert bound_keys(two, one) == ["inputs.more"]


def test_an_input_of_several_is_named_by_its_place() -> None:
    changed = pipeline_of(TWO.replace("/in", "/on"))
    assert bound_keys(pipeline_of(TWO), changed) == ["inputs.input.with"]


def test_nothing_differs_from_itself() -> None:
    assert bound_keys(pipeline_of(TWO), pipeline_of(TWO)) == []
