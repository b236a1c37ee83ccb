"""The registry: what it finds, what it imports, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import jsonschema_rs
import pytest

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import UNIVERSAL_CHECKS, CheckContext, ConnectorError, Role
from pipo.errors import InvalidState, NotFound


def roles() -> Iterator[tuple[str, Role]]:
    for name, manifest in registry.manifests().items():
        for kind in ("input", "tap", "transform", "output", "agent"):
            role = getattr(manifest, kind)
            if role is not None:
                yield f"{name} {kind}", role
        for check, role in manifest.checks.items():
            yield f"{name} check {check}", role


def test_every_connector_of_the_language_is_known() -> None:
    made = registry.manifests()
    names = {
        kind: {name for name, m in made.items() if getattr(m, kind)}
        for kind in ("input", "tap", "transform", "output", "agent")
    }
    assert names == {
        "input": {"http", "schedule", "watch", "push", "pipeline", "system", "telegram"},
        "tap": {"log", "http", "file", "telegram", "emit", "exec"},
        "transform": {"map", "http", "exec"},
        "output": {"sqlite", "file", "http", "telegram", "pipeline", "stdout"},
        "agent": {"claude_api", "claude_code", "codex", "pi", "opencode"},
    }
    assert set(registry.agents()) == names["agent"]


def test_each_output_offers_the_checks_it_declares() -> None:
    checks = {n: m.output.checks for n, m in registry.manifests().items() if m.output}
    assert checks == {
        "sqlite": ("record_exists", "row_count", "query"),
        "file": ("file_exists", "file_nonempty", "line_contains", "checksum"),
        "http": ("status", "follow_up"),
        "pipeline": ("downstream",),
        "telegram": (),
        "stdout": (),
    }
    for name, manifest in registry.manifests().items():
        declared = manifest.output.checks if manifest.output else ()
        assert set(manifest.checks) == set(declared), name
        assert not set(declared) & set(UNIVERSAL_CHECKS), name


def test_only_sqlite_and_file_batch() -> None:
    assert {n for n, m in registry.manifests().items() if m.output and m.output.batches} == {
        "sqlite",
        "file",
    }


@pytest.mark.parametrize(("place", "role"), list(roles()), ids=lambda v: v if v is str else None)
def test_a_schema_is_closed_described_and_its_defaults_fit(place: str, role: Role) -> None:
    jsonschema_rs.meta.validate(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **role.schema}
    )
    _described(role.schema, place)


def _described(schema: Any, place: str) -> None:
    assert schema["type"] == "object", place
    assert schema["additionalProperties"] is False, place
    for name, made in schema["properties"].items():
        here = f"{place}.{name}"
        assert made.get("description"), here
        if "default" in made:
            jsonschema_rs.Draft202012Validator(made).validate(made["default"])
        if "properties" in made:
            _described(made, here)


def test_the_manifests_import_no_implementation() -> None:
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from pipo.connectors import registry; registry.manifests();"
            "print([m for m in sys.modules if m.split('.')[0] in"
            " ('apsw', 'aiohttp', 'grpc', 'asyncio', 'pysqlite3')"
            " or m.startswith('pipo.connectors.') and m.rpartition('.')[2] in"
            " ('input', 'tap', 'transform', 'output', 'checks')])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout.strip() == "[]"


def test_a_role_without_a_module_refuses_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda module: None)
    assert not registry.is_built("input", "watch")
    with pytest.raises(InvalidState, match=r"^the input 'watch' is not built yet$"):
        registry.build_inputs("watch", [], None)  # type: ignore[arg-type]


def test_the_manifests_are_put_together_once() -> None:
    """Each packet that waits for a check asks for one of them."""
    assert registry.manifests() is registry.manifests()


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(NotFound, match="no tap is called 'lgo'") as caught:
        registry.build_step("tap", "lgo", None)  # type: ignore[arg-type]
    assert caught.value.hint == "there are: emit, exec, file, http, log, telegram"
    with pytest.raises(NotFound, match="no output with checks is called 'stdout'"):
        registry.build_checks("stdout", CheckContext(SystemClock()))


@pytest.fixture
def fresh() -> Iterator[None]:
    _forget()
    yield
    _forget()


def _forget() -> None:
    registry._found.cache_clear()
    registry.manifests.cache_clear()


class _Entry:
    def __init__(self, value: str) -> None:
        self.value = value


@pytest.mark.usefixtures("fresh")
def test_an_installed_connector_may_not_take_a_name_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: [_Entry("pipo.connectors.log")])
    with pytest.raises(ConnectorError, match="two connectors are called 'log'"):
        registry.manifests()


@pytest.mark.usefixtures("fresh")
def test_an_installed_connector_that_does_not_load_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: [_Entry("no_such_kafka")])
    with pytest.raises(ConnectorError, match="'no_such_kafka' does not load") as caught:
        registry.manifests()
    assert "manifest.py" in caught.value.hint
