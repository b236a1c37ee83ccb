"""The defaults that the schema states are those that the model applies, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest

from pipo.lang import model, schema
from pipo.lang.model import Pipeline, build

Block = dict[str, Any]

# Every block that may be there, empty where it may be.
WHOLE: Block = {
    "pipo": 1,
    "name": "trial",
    "buffer": {},
    "errors": {},
    "input": {"via": "http", "on_invalid": {}},
    "nodes": {
        "a": {
            "from": "input",
            "tap": "log",
            "on_error": {},
            "loop": {"back_to": "a", "until": "data", "max": 1},
        }
    },
    "output": {
        "from": "a",
        "to": "sqlite",
        "batch": {"size": 2},
        "on_invalid": {},
        "on_error": {},
    },
    "delivered": {"on_fail": {}, "stall": {"after": "1m"}},
    "lifetime": {},
    "agent": {},
    "agent_budget": {},
    "retention": {},
}


def stated(block: Mapping[str, Any], data: Block, path: tuple[str, ...] = ()) -> Iterator[Any]:
    """Every default of the schema, with the path to its key."""
    for key, made in block.get("properties", {}).items():
        if "default" in made:
            yield (*path, key), made["default"]
        elif isinstance(inner := data.get(key), dict):
            yield from stated(made, inner, (*path, key))
            for name, entry in inner.items():
                if isinstance(made.get("additionalProperties"), dict) and isinstance(entry, dict):
                    yield from stated(made["additionalProperties"], entry, (*path, key, name))


STATED = list(stated(schema.FILE, WHOLE))


def applied(data: Block) -> Pipeline:
    """The model, without the one place that keeps what was written."""
    made = build(data)
    return replace(made, output=replace(made.output, raw={}))


@pytest.mark.parametrize(("path", "default"), STATED, ids=lambda value: str(value))
def test_a_key_set_to_its_stated_default_changes_nothing(
    path: tuple[str, ...], default: Any
) -> None:
    data = deepcopy(WHOLE)
    block = data
    for key in path[:-1]:
        block = block[key]
    block[path[-1]] = default
    assert applied(data) == applied(WHOLE)


BLOCKS = {
    model.ErrorPolicy: schema.FILE["properties"]["errors"],
    model.OnInvalid: schema.ON_INVALID,
    model.Input: schema.INPUT,
    model.Loop: schema.LOOP,
    model.Node: schema.NODE,
    model.Batch: schema.OUTPUT["properties"]["batch"],
    model.Output: schema.OUTPUT,
    model.Stall: schema.DELIVERED["properties"]["stall"],
    model.Delivered: schema.DELIVERED,
    model.Lifetime: schema.LIFETIME,
    model.AgentPolicy: schema.AGENT,
    model.AgentBudget: schema.AGENT_BUDGET,
    model.Retention: schema.RETENTION,
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_a_default_of_the_model_is_stated(block: type[Any]) -> None:
    with_default = {
        one.name
        for one in fields(block)
        if isinstance(one.default, str | int | float) and one.default != ""
    }
    keys = {name for name, made in BLOCKS[block]["properties"].items() if "default" in made}
    assert {_key(name) for name in with_default} <= keys


def _key(field: str) -> str:
    """A field of the model as a key of the file; units are the model's."""
    return field.removesuffix("_ms")


def test_the_pipelines_own_defaults_are_stated() -> None:
    of_pipeline = {".".join(path) for path, _ in STATED if len(path) <= 2}
    assert {"concurrency", "buffer.max"} <= of_pipeline
    assert len(STATED) > 30
