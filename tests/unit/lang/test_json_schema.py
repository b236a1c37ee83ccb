"""Schemas of strangers: nothing is fetched, and no pattern takes more than linear time."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipo.lang.json_schema import BadSchema, JsonSchema, compiled

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("services/pipo", "runner", "gateway", "checker", "cli")
BUILDERS = ("validator_for", "is_valid", "validate", "iter_errors", "evaluate", "bundle")


@pytest.mark.parametrize("fetched", ["http://127.0.0.1:1/s.json", "file:///etc/hostname"])
def test_nothing_is_fetched(fetched: str) -> None:
    with pytest.raises(ValueError, match="Retrieval is disabled"):
        compiled({"$ref": fetched})


@pytest.mark.parametrize("pattern", ["^(?=a)b", "(?<!a)b", r"(a)\1", "(?>a)b"])
def test_a_pattern_that_may_take_exponential_time_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regex"):
        compiled({"pattern": pattern})


@pytest.mark.timeout(60)
def test_a_nested_repeat_takes_linear_time() -> None:
    assert not compiled({"pattern": "^(a+)+$"}).is_valid("a" * 200_000 + "b")


@pytest.mark.parametrize(
    "named", ["http://json-schema.org/draft-04/schema#", "http://127.0.0.1:1/own", 5]
)
def test_a_schema_is_2020_12_whatever_it_says(named: Any) -> None:
    assert not compiled({"$schema": named, "exclusiveMinimum": 5}).is_valid(5)


def test_a_boolean_is_a_schema() -> None:
    assert compiled(True).is_valid(1)
    assert not compiled(False).is_valid(1)


def test_validators_are_built_in_one_place() -> None:
    found = {
        str(path.relative_to(ROOT))
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        if "jsonschema_rs" in (text := path.read_text(encoding="utf-8"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).startswith("jsonschema_rs.")
        and ast.unparse(call.func).partition(".")[2].endswith((*BUILDERS, "Validator"))
    }
    assert found == {"services/pipo/lang/json_schema.py"}


def fault(schema: Any, value: Any) -> str | None:
    return JsonSchema(json.dumps(schema)).fault(value)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "object"}, {"a": 1}, None),
        ({"required": ["a"]}, {}, 'data: "a" is a required property'),
        (
            {"properties": {"age": {"type": "integer"}}},
            {"age": "x"},
            'data.age: "x" is not of type "integer"',
        ),
        (
            {"additionalProperties": False, "properties": {}},
            {"b": 1},
            "data: Additional properties are not allowed ('b' was unexpected)",
        ),
        (
            {"properties": {"a-b": {"items": {"minimum": 3}}}},
            {"a-b": [3, 1]},
            'data["a-b"][1]: 1 is less than the minimum of 3',
        ),
        (False, 1, "data: False schema does not allow 1"),
        ({"type": "integer", "multipleOf": 10}, 10**40, None),
        ({"maximum": 10}, 10**30, f"data: {10**30} is greater than the maximum of 10"),
        ({"const": 9007199254740993}, 9007199254740992, "data: 9007199254740993 was expected"),
    ],
)
def test_a_fault_says_where_and_why(schema: Any, value: Any, expected: str | None) -> None:
    assert fault(schema, value) == expected


def test_what_is_long_is_told_in_other_words_and_not_cut() -> None:
    """Half a secret is one too."""
    long = "x" * 5000
    assert fault({"type": "integer"}, long) == "data: the value breaks `type`"
    assert fault(False, long) == "data: the value is not allowed"
    told = fault({"additionalProperties": {"type": "integer"}}, {long: "a"})
    assert told == 'somewhere in the data: "a" is not of type "integer"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "it must be an object or a boolean"),
        ('{"maximum": NaN}', "NaN is no JSON"),
        ("\ufeff{", "Expecting"),
        ('{"type": 5}', "5 is not valid"),
        ('{"pattern": "(?=a)"}', "no look-around and no back-reference"),
        ('{"pattern": "((a{1,500}){1,500}){1,500}"}', "regex"),
        ('{"$ref": "#"}', "without going a level deeper"),
        ('{"$ref": "http://127.0.0.1:1/s.json"}', "127.0.0.1:1"),
    ],
)
def test_what_is_no_schema_for_others(text: str, message: str) -> None:
    with pytest.raises(BadSchema, match=re.escape(message)):
        JsonSchema(text)


def test_a_schema_file_may_begin_with_a_mark() -> None:
    assert JsonSchema("\ufeff{}").fault(1) is None
