"""Files that a pipeline names: P012, P014, P052, P054, P059."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipo.errors import NotFound
from pipo.functions.importing import import_fault
from pipo.functions.outline import Outline, outline
from pipo.lang import modules, texts
from pipo.lang.document import Scalar
from pipo.lang.draft import Draft, literal_of, text_of
from pipo.lang.json_schema import JsonSchema
from pipo.lang.rules.names import FUNCTION
from pipo.lang.suggest import one_of

ORIGIN = ".pipo-origin.json"
TRUST = "trust.json"
_NOWHERE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def present(draft: Draft, *, quote: bool) -> None:
    """P014, P054."""
    if (module := _module(draft)) and not _is_there(draft, module):
        draft.report("P014", module, f"there is no file {module.value!r}", _looked(draft, module))
    for schema in _schemas(draft):
        if not _is_there(draft, schema):
            draft.report(
                "P014", schema, f"there is no file {schema.value!r}", _looked(draft, schema)
            )
        elif problem := _schema_fault(draft, schema):
            why = f": {problem}" if quote else ""
            draft.report("P054", schema, f"{schema.value!r} is no JSON Schema{why}")


def functions(draft: Draft) -> None:
    """P012, and P059 for a module that does not parse."""
    used = list(_functions(draft))
    declared = draft.root.get("fn")
    if declared is None:
        for value, name in used:
            message = f"there is no `fn:` module to take `{name}` from"
            draft.report("P012", value, message)
        return
    module = _module(draft)
    if module is None or not _is_there(draft, module):
        return
    read = _read(draft, module)
    if read.fault:
        return
    for value, name in used:
        if name not in read.functions:
            message = f"{module.value} defines no public function `{name}`"
            draft.report("P012", value, message, one_of(name, sorted(read.functions), "it defines"))


def imports(draft: Draft, *, run: bool, quote: bool) -> None:
    """P059: judged last, and by running the module only when `run` says so."""
    module = _module(draft)
    if module is None or draft.has_errors():
        return
    read = _read(draft, module)
    fault = read.fault if quote else read.place
    if not fault and run:
        fault = _import_fault(draft, module)
    if fault:
        draft.report("P059", module, f"the module does not import: {fault}", _import_hint(fault))


def named_modules(draft: Draft) -> tuple[str, ...]:
    """The functions' module as the file names it, if it is there."""
    module = _module(draft)
    return (str(module.value),) if module and _is_there(draft, module) else ()


def trusted(draft: Draft) -> None:
    """P052."""
    origin = _json(draft.folder / ORIGIN)
    if not isinstance(origin, dict) or not isinstance(origin.get("modules"), dict):
        return
    module = _module(draft)
    if module and (why := _distrust(draft, origin, _path(draft, module))):
        draft.report("P052", module, f"the module {module.value} {why}")
    if why := _distrust(draft, origin, Path(draft.file)):
        for node in (*draft.uses("tap", "exec"), *draft.uses("transform", "exec")):
            assert node.uses is not None
            draft.report("P052", node.uses, f"this file runs programs and {why}")


def _distrust(draft: Draft, origin: dict[str, Any], path: Path) -> str:
    """Why a file that came with a template is not trusted; empty for trusted and own files."""
    listed = origin["modules"].get(_below(draft.folder, path))
    if listed is None:
        return ""
    template = str(origin.get("template", "?"))[:60]
    trust = _json(draft.home / TRUST) if draft.home else None
    trusted = trust.get("trusted") if isinstance(trust, dict) else None
    if not isinstance(trusted, list) or origin.get("template_hash") not in trusted:
        return f"comes from the template `{template}`, which nobody has trusted"
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        found = ""
    return "" if found == listed else f"was edited since the template `{template}` was trusted"


def _below(folder: Path, path: Path) -> str:
    """The path of a file from the folder, links followed; empty when it lies elsewhere."""
    try:
        return Path(os.path.realpath(path)).relative_to(os.path.realpath(folder)).as_posix()
    except ValueError:
        return ""


def _module(draft: Draft) -> Scalar | None:
    return None if "fn" in draft.broken else literal_of(draft.root, "fn")


def _schemas(draft: Draft) -> Iterator[Scalar]:
    """The schema files that inputs and agents name."""
    for block in draft.sound_inputs:
        if schema := literal_of(block.map, "schema"):
            yield schema
    for node in draft.sound_nodes:
        if node.kind == "agent" and (schema := literal_of(node.settings, "schema")):
            yield schema


def _functions(draft: Draft) -> Iterator[tuple[Scalar, str]]:
    for node in draft.sound_nodes:
        uses = text_of(node.map, node.kind) if node.kind in ("tap", "transform") else None
        found = FUNCTION.fullmatch(uses.value) if uses else None
        if uses and found:
            yield uses, found[1]


def _path(draft: Draft, text: Scalar) -> Path:
    return draft.folder / str(text.value)


def _is_there(draft: Draft, text: Scalar) -> bool:
    """Whether a file is there; a name that no file can have is none."""
    if draft.files is not None:
        return text.value in draft.files
    try:
        return _path(draft, text).is_file()
    except OSError:
        return False


def _raw(draft: Draft, text: Scalar) -> bytes:
    """A file's bytes. Raises: OSError, ValueError."""
    if draft.files is not None:
        return draft.files[str(text.value)].encode()
    return modules.read_limited(_path(draft, text))


def _import_fault(draft: Draft, module: Scalar) -> str:
    try:
        code = texts.code_of(str(module.value), draft.folder, draft.files)
    except NotFound as error:
        return f"{error.message}; {error.hint}"
    return import_fault(code)


def _import_hint(fault: str) -> str:
    """The way out for a module that is nowhere installed; empty for what the code says itself."""
    if not (found := _NOWHERE.search(fault)):
        return ""
    name = found[1]
    return (
        f"install `{name}` into the Python that runs Pipo; "
        f"a file beside the module is imported with a dot: `from . import {name}`"
    )


def _read(draft: Draft, module: Scalar) -> Outline:
    path = _path(draft, module)
    if draft.files is None:
        return modules.read(path)
    return outline(draft.files[str(module.value)].encode(), path.name)


def _looked(draft: Draft, text: Scalar) -> str:
    if draft.files is not None:
        return "send its text with the pipeline's, under the path that the pipeline names it by"
    return f"looked for {_path(draft, text)}; paths are relative to the pipeline's file"


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _schema_fault(draft: Draft, text: Scalar) -> str:
    try:
        JsonSchema(_raw(draft, text))
    except OSError as error:
        return str(error)[:200]
    except ValueError as error:
        return str(error)
    return ""
