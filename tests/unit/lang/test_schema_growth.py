"""Schemas that would take for ever are known before a value comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipo.lang.json_schema import BadSchema, JsonSchema
from pipo.lang.schema_growth import SIZE_LIMIT, Growth, TooMuch, growth

INTEGER = {"type": "integer"}
ITSELF = {"$ref": "#"}


def doubling(levels: int, around: Any = None) -> dict[str, Any]:
    """Definitions that each name the next one twice."""
    wrapped = around or (lambda schema: schema)
    defs: dict[str, Any] = {
        f"d{n}": {"allOf": [wrapped({"$ref": f"#/$defs/d{n + 1}"})] * 2} for n in range(levels)
    }
    return {"$defs": {**defs, f"d{levels}": INTEGER}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "grown"),
    [
        (True, Growth(1, 0)),
        ({}, Growth(1, 0)),
        ({"properties": {"a": INTEGER, "b": INTEGER}}, Growth(3, 0)),
        ({"$defs": {"unused": INTEGER}}, Growth(1, 0)),
        ({"anyOf": [INTEGER, INTEGER]}, Growth(5, 0)),
        ({"items": ITSELF}, Growth(2, 1)),
        ({"properties": {"left": ITSELF, "right": ITSELF}}, Growth(3, 1)),
        ({"allOf": [{"properties": {"a": ITSELF}}] * 2}, Growth(5, 6)),
        ({"items": ITSELF, "contains": ITSELF}, Growth(3, 4)),
        ({"properties": {"a/b": {"$ref": "#/properties/a~1b/items"}}}, None),
        ({"$defs": {"a": {"$anchor": "x", "items": {"$ref": "#x"}}}, "$ref": "#x"}, Growth(3, 1)),
        (
            {"$defs": {"a": {"$id": "http://h/b", "$defs": {"c": INTEGER}, "$ref": "#/$defs/c"}}}
            | {"$ref": "http://h/b"},
            Growth(3, 0),
        ),
        ({"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}, Growth(2, 3)),
    ],
)
def test_what_a_schema_grows_to(schema: Any, grown: Growth | None) -> None:
    if grown is None:
        with pytest.raises(TooMuch, match="not in the file"):
            growth(schema)
    else:
        assert growth(schema) == grown


@pytest.mark.timeout(60)
@pytest.mark.parametrize("around", [None, lambda schema: {"properties": {"a": schema}}])
def test_references_that_fan_out_are_refused_beyond_a_size(around: Any) -> None:
    assert growth(doubling(5, around)).size < SIZE_LIMIT
    with pytest.raises(TooMuch, match="more than 100000 schemas"):
        growth(doubling(40, around))


@pytest.mark.parametrize(
    "schema",
    [
        ITSELF,
        {"anyOf": [INTEGER, ITSELF]},
        {"not": {"allOf": [ITSELF]}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_circle_that_goes_no_deeper_is_refused(schema: Any) -> None:
    with pytest.raises(TooMuch, match="without going a level deeper"):
        growth(schema)


@pytest.mark.parametrize(
    "reference", ["https://json-schema.org/draft/2020-12/schema", "#/$defs/gone", "#gone", "b.json"]
)
def test_a_reference_that_leads_out_of_the_file_is_refused(reference: str) -> None:
    with pytest.raises(TooMuch, match="which is not in the file"):
        growth({"$ref": reference})


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def branching(*required: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": ITSELF}, "required": list(required)}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [branching("y"), branching("z")]},
        {"oneOf": [branching("y"), branching("z")]},
        {"allOf": [branching("a"), branching("a")]},
        {"if": branching("a"), "then": branching("a"), "else": False},
        {"not": {"not": {"anyOf": [branching("y"), branching("z")]}}},
        {"$dynamicAnchor": "n", "anyOf": [{"required": ["q"]}] * 2}
        | {"properties": {"a": {"$dynamicRef": "#n"}}},
        {"unevaluatedProperties": ITSELF, "anyOf": [branching("y"), {"required": ["z"]}]},
    ],
)
def test_values_of_any_depth_are_judged_at_once(schema: dict[str, Any]) -> None:
    """Looking for the words alone would take 4 to the power of the depth."""
    judge = JsonSchema(json.dumps(schema))
    fault = judge.fault(nested(500))
    assert fault is not None
    assert judge.fault(nested(1)) is not None


@pytest.mark.timeout(60)
def test_one_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(BadSchema, match=r"nested too deeply|recursion"):
        JsonSchema('{"items":' * 3000 + "{}" + "}" * 3000)
