"""`fn` modules as the check sees them: their functions, read without running anything.

`import_fault` is the exception: it runs the module's import in a process of its
own, for whoever may run the author's code (decision 38).
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipo.lang.load import BYTES_LIMIT

IMPORT_TIMEOUT_S: Final = 10.0
IMPORT_MEMORY_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Module:
    """The public functions that a file defines, or why it has none to show.

    `fault` may quote the file; `place` says where the fault is and quotes nothing.
    """

    functions: frozenset[str]
    fault: str = ""
    place: str = ""


def read(path: Path) -> Module:
    """What a module defines, from its syntax tree."""
    try:
        raw = read_limited(path)
    except (OSError, ValueError) as error:
        why = f"{path.name} cannot be read: {error}"
        return Module(frozenset(), why, f"{path.name} cannot be read")
    return parsed(raw, path.name)


def parsed(raw: bytes, name: str) -> Module:
    """What a module's text defines; `name` is what a fault calls it."""
    try:
        tree = ast.parse(raw)
    except SyntaxError as error:
        line = (error.text or "").strip()
        where = f"{name} line {error.lineno or 1}"
        quoted = f": `{line[:80]}`" if line else ""
        return Module(frozenset(), f"{where}: {error.msg}{quoted}", f"{where} is not Python")
    except (ValueError, RecursionError, MemoryError) as error:
        return Module(frozenset(), f"{name} cannot be read: {error}", f"{name} cannot be read")
    return Module(frozenset(name for name in _defined(tree.body) if not name.startswith("_")))


def read_limited(path: Path) -> bytes:
    """The bytes of a file that a pipeline names.

    Raises: OSError; ValueError, when they are more than a pipeline's own file may have.
    """
    with path.open("rb") as opened:
        raw = opened.read(BYTES_LIMIT + 1)
    if len(raw) > BYTES_LIMIT:
        raise ValueError("the file is larger than 1 MiB")
    return raw


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


# Runs in its own process. The module's prints go nowhere; the fault is the only output.
_PROBE: Final = """
import importlib.util, json, os, resource, sys, traceback, types
path, memory = sys.argv[1], int(sys.argv[2])
answer = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
package = types.ModuleType("pipo_fn")
package.__path__ = [os.path.dirname(path)]
sys.modules["pipo_fn"] = package
fault = ""
try:
    spec = importlib.util.spec_from_file_location("pipo_fn.module", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["pipo_fn.module"] = module
    spec.loader.exec_module(module)
except BaseException as error:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    line = line or (frames[-1].lineno if frames else 1)
    text = frames[-1].line if frames else ""
    fault = f"{os.path.basename(path)} line {line}: {type(error).__name__}: {error}"
    fault += f": `{text[:80]}`" if text else ""
answer.write(json.dumps(fault[:500]))
answer.flush()
os._exit(0)
"""


def import_fault(path: Path, *, timeout_s: float = IMPORT_TIMEOUT_S) -> str:
    """Why a module does not import, with its line; empty when it does.

    Runs the author's code in a process with a memory limit, and ends it at the timeout.
    """
    command = [sys.executable, "-c", _PROBE, str(path.resolve()), str(IMPORT_MEMORY_BYTES)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{path.name} does not finish importing within {timeout_s:g} s"
    try:
        return str(json.loads(done.stdout))
    except ValueError:
        return f"{path.name} ends the process that imports it (status {done.returncode})"
