"""Schemas of strangers: nothing is fetched, and no pattern takes more than linear time."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from pipo.lang.json_schema import compiled

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


@pytest.mark.timeout(5)
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
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).startswith("jsonschema_rs.")
        and ast.unparse(call.func).partition(".")[2].endswith((*BUILDERS, "Validator"))
    }
    assert found == {"services/pipo/lang/json_schema.py"}
