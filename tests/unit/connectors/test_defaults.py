"""A default that a connector's module applies is the one that its manifest states."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import pipo.connectors
from pipo.connectors import registry

_FOLDER = Path(pipo.connectors.__file__).parent
_LATER = object()
"""What is known only when a packet is there."""


def applied() -> Iterator[tuple[str, str, Any]]:
    """Every `settings.get("key", default)` below a connector: its name, the key, the default."""
    for name in registry.manifests():
        for path in sorted((_FOLDER / name).glob("*.py")):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and len(call.args) == 2 and _reads_settings(call):
                    key, default = call.args
                    module = f"pipo.connectors.{name}.{path.stem}"
                    if isinstance(key, ast.Constant):
                        yield name, str(key.value), _value(default, module)


def _reads_settings(call: ast.Call) -> bool:
    read = call.func
    if not (isinstance(read, ast.Attribute) and read.attr == "get"):
        return False
    of = read.value
    return (of.id if isinstance(of, ast.Name) else getattr(of, "attr", "")).endswith("settings")


def _value(node: ast.expr, module: str) -> Any:
    if isinstance(node, ast.Name):
        return getattr(import_module(module), node.id, _LATER)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _LATER


def stated(name: str) -> Iterator[tuple[str, Any]]:
    """Every default in a connector's manifest, whatever its role."""
    for schema in _schemas(name):
        yield from _defaults(schema)


def _schemas(name: str) -> Iterator[Mapping[str, Any]]:
    manifest = registry.manifests()[name]
    roles = [manifest.input, manifest.tap, manifest.transform, manifest.output, manifest.agent]
    return (role.schema for role in [*roles, *manifest.checks.values()] if role is not None)


def _defaults(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, made in schema.get("properties", {}).items():
        if "default" in made:
            yield key, made["default"]
        yield from _defaults(made)


def _is_required(name: str, key: str) -> bool:
    return any(key in schema.get("required", ()) for schema in _schemas(name))


APPLIED = [
    (name, key, default)
    for name, key, default in applied()
    if default is not _LATER and not _is_required(name, key)
]


@pytest.mark.parametrize(("name", "key", "default"), APPLIED)
def test_a_default_is_the_stated_one(name: str, key: str, default: Any) -> None:
    # A constant is a tuple where the schema has a list.
    wanted = list(default) if isinstance(default, tuple) else default
    assert (key, wanted) in list(stated(name))


def test_defaults_were_found() -> None:
    assert {("stdout", "format"), ("sqlite", "mode"), ("http", "method")} <= {
        (name, key) for name, key, _ in APPLIED
    }
