"""The floors of the house: lower never imports higher, services never each other (design §3)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Longest prefix wins. Equal floors may import each other only where ALONE does not name them.
FLOORS = {
    "pipo.rpc.stubs": 0,
    "pipo": 1,
    "pipo.errors": 1,
    "pipo.children": 1,
    "pipo.clock": 1,
    "pipo.durations": 1,
    "pipo.payload": 1,
    "pipo.records": 1,
    "pipo.crashpoints": 1,
    "pipo.collector": 1,
    "pipo.stall": 1,
    "pipo.telemetry": 2,
    "pipo.home": 2,
    "pipo.functions": 2,
    "pipo.lang": 3,
    "pipo.journal": 4,
    "pipo.rpc": 4,
    "pipo.connectors": 5,
    "pipo.access": 6,
    "pipo.service": 6,
    "pipo.health": 6,
    "pipo_runner": 7,
    "pipo_gateway": 7,
    "pipo_checker": 7,
    "pipo_cli": 8,
}
# The packages of a pipeline process: each imports only those before it.
PIPELINE = "pipo_runner.pipeline"
PARTS = ["flow", "definition", "steps", "intake", "delivery", "output", "orders", "life"]
SERVICES = ("pipo_runner", "pipo_gateway", "pipo_checker")
PACKAGES = (
    "services/pipo",
    "runner/pipo_runner",
    "gateway/pipo_gateway",
    "checker/pipo_checker",
    "cli/pipo_cli",
)


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of ours by its dotted name; generated stubs are left out."""
    for package in PACKAGES:
        base = ROOT / package
        for path in sorted(base.rglob("*.py")):
            parts = path.relative_to(base.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not name.startswith("pipo.rpc.stubs"):
                yield name, path


def imports(path: Path) -> Iterator[str]:
    """What a module imports when it runs; `if TYPE_CHECKING:` is for readers only."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor(name: str) -> int | None:
    """The floor of a module of ours; None for anything else."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        found = FLOORS.get(".".join(parts[:end]))
        if found is not None:
            return found
    return None


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: str(value))
def test_a_module_imports_only_its_own_floor_and_below(name: str, path: Path) -> None:
    own = floor(name)
    assert own is not None, f"{name} stands on no floor: add it to FLOORS"
    for imported in imports(path):
        other = floor(imported)
        if other is None:
            continue
        assert other <= own, f"{name} (floor {own}) imports {imported} (floor {other})"
        if name.split(".")[0] in SERVICES and imported.split(".")[0] in SERVICES:
            assert name.split(".")[0] == imported.split(".")[0], f"{name} imports {imported}"


def test_the_parts_of_a_pipeline_process_stand_on_each_other() -> None:
    def part(name: str) -> str | None:
        """The package that a module of the pipeline process lies in; None for what joins them."""
        inner = name.removeprefix(f"{PIPELINE}.").split(".")[0] if name != PIPELINE else ""
        return inner if name.startswith(f"{PIPELINE}.") and inner in PARTS else None

    found = [(name, path) for name, path in modules() if part(name) is not None]
    assert {part(name) for name, _ in found} == set(PARTS)
    for name, path in found:
        for imported in imports(path):
            if not imported.startswith(f"{PIPELINE}."):
                continue
            other = part(imported)
            assert other is not None, f"{name} imports {imported}, which joins the parts"
            assert PARTS.index(other) <= PARTS.index(part(name) or ""), f"{name} imports {imported}"


def test_a_connector_is_imported_only_through_the_registry() -> None:
    folders = {p.name for p in (ROOT / "services/pipo/connectors").iterdir() if p.is_dir()}
    for name, path in modules():
        if name.startswith("pipo.connectors."):
            continue
        for imported in imports(path):
            parts = imported.split(".")
            assert not (
                parts[:2] == ["pipo", "connectors"] and len(parts) > 2 and parts[2] in folders
            ), f"{name} reaches into the connector {imported}"
