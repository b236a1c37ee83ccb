"""What a module says of itself before it runs: its public functions, and the files it imports.

Read from the syntax tree; nothing is run. A large text is parsed in a process of its own,
since a tree takes a hundred times the memory of its text.
"""

from __future__ import annotations

import ast
import json
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

PARSED_HERE_BYTES: Final = 1024 * 1024
PARSE_TIMEOUT_S: Final = 10.0
MEMORY_BYTES: Final = 256 * 1024 * 1024
_QUOTED_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class Outline:
    """The public functions, and the dotted names that relative imports may mean.

    `fault` says why there is nothing to show, and may quote the text; `place` says where
    and quotes nothing.
    """

    functions: frozenset[str] = frozenset()
    imports: tuple[str, ...] = ()
    fault: str = ""
    place: str = ""


def outline(raw: bytes, name: str, package: str = "") -> Outline:
    """The outline of a module's text; `name` is what faults call it.

    `package` is the dotted name that its relative imports start from; empty beside the module.
    """
    if len(raw) <= PARSED_HERE_BYTES:
        return parsed(raw, name, package)
    command = [sys.executable, "-P", "-m", __name__, name, package]
    try:
        done = subprocess.run(
            command, input=raw, capture_output=True, timeout=PARSE_TIMEOUT_S, check=False
        )
        functions, imports, fault, place = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        why = f"{name} is too large to be read: it takes more than {PARSE_TIMEOUT_S:g} s or 256 MiB"
        return Outline(fault=why, place=why)
    return Outline(frozenset(functions), tuple(imports), fault, place)


def parsed(raw: bytes, name: str, package: str = "") -> Outline:
    """The outline, made in this process."""
    try:
        tree = ast.parse(raw)
    except SyntaxError as error:
        line = (error.text or "").strip()
        where = f"{name} line {error.lineno or 1}"
        quoted = f": `{line[:_QUOTED_CHARS]}`" if line else ""
        return Outline(fault=f"{where}: {error.msg}{quoted}", place=f"{where} is not Python")
    except (ValueError, RecursionError, MemoryError) as error:
        why = f"{name} cannot be read: {str(error) or type(error).__name__}"
        return Outline(fault=why, place=f"{name} cannot be read")
    public = frozenset(found for found in _defined(tree.body) if not found.startswith("_"))
    return Outline(public, tuple(dict.fromkeys(_imported(tree, package))))


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    """The functions of a block; those under `if`, `try` and `with` count as well."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield statement.name
            case ast.Assign(value=ast.Lambda()):
                yield from (t.id for t in statement.targets if isinstance(t, ast.Name))
            case ast.If() | ast.Try() | ast.With():
                yield from _defined(statement.body)
                yield from _defined(getattr(statement, "orelse", []))
                yield from _defined(getattr(statement, "finalbody", []))
                for handler in getattr(statement, "handlers", []):
                    yield from _defined(handler.body)


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """`from .a import b` means a module `a`, and perhaps a module `a.b`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        above = package.split(".") if package else []
        if node.level - 1 > len(above):
            # Beyond the module's own folder. The import will say so.
            continue
        base = [*above[: len(above) - node.level + 1], *(node.module or "").split(".")]
        base = [part for part in base if part]
        if base:
            yield ".".join(base)
        yield from (".".join([*base, a.name]) for a in node.names if a.name != "*")


def _main(name: str, package: str) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    found = parsed(sys.stdin.buffer.read(), name, package)
    shown: Iterable[object] = (sorted(found.functions), found.imports, found.fault, found.place)
    sys.stdout.write(json.dumps(list(shown)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
