"""The texts of a version: the pipeline's own, and those of every file that it is made with.

    the `fn` module, and the siblings it imports by relative path (decision 25)
    the schema of each input, and of each agent node that names one literally

They are read once, when the version is made; from then on it runs with these texts, whatever
becomes of the files. A file goes by its path as the pipeline writes it, a sibling by its path
beside the module written the same way: `./lib/people.fn.py` has `./lib/prices.py`.

Pure but for `on_disk`, which reads files.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pipo.errors import NotFound
from pipo.functions.code import Code
from pipo.functions.outline import outline
from pipo.lang import modules
from pipo.lang.load import BYTES_LIMIT
from pipo.lang.model import Pipeline
from pipo.lang.templates import is_template

Read = Callable[[str], str | None]
"""The text of a file by its path as the pipeline writes it; None when there is none."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What a version is made of; `files` has the text of each file by its path as written."""

    source: str
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """SHA-256 of all of it, hexadecimal; of the source alone where it names no file."""
        if not self.files:
            return _digest(self.source)
        whole = [self.source, *sorted(self.digests.items())]
        return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file, hexadecimal (edge 355)."""
        return {path: _digest(text) for path, text in sorted(self.files.items())}


def collect(source: str, pipeline: Pipeline, read: Read) -> Texts:
    """The texts that a pipeline is made with, as `read` gives them now.

    Raises: NotFound, for a file that it names and that is not there.
    """
    files: dict[str, str] = {}
    for path in named(pipeline):
        text = read(path)
        if text is None:
            raise NotFound(
                f"{pipeline.name} names {path}, and there is no such file",
                hint="paths are relative to the pipeline's file",
            )
        files[path] = text
    if pipeline.fn is not None:
        files |= _siblings(pipeline.fn, files[pipeline.fn], read)
    return Texts(source, files)


def named(pipeline: Pipeline) -> list[str]:
    """The files that a pipeline names itself, each once, in the order of the file."""
    found = [] if pipeline.fn is None else [pipeline.fn]
    found += [entry.schema for entry in pipeline.inputs if entry.schema is not None]
    for node in pipeline.nodes:
        schema = node.settings.get("schema")
        if node.kind == "agent" and isinstance(schema, str) and not is_template(schema):
            found.append(schema)
    return list(dict.fromkeys(found))


def code_of(main: str, folder: Path, files: Mapping[str, str] | None = None) -> Code:
    """The code of one `fn` module, from the disk or among the texts that were sent.

    Raises: NotFound, when it cannot be read.
    """
    read = on_disk(folder) if files is None else files.get
    text = read(main)
    if text is None:
        raise NotFound(f"{folder / main} is not there", hint="bring it back")
    return Code("checked", main, {main: text} | _siblings(main, text, read), folder)


def on_disk(folder: Path) -> Read:
    """Reads from the folder of a pipeline's file.

    What is there and cannot be read, or is not UTF-8 text or too large, raises NotFound.
    """

    def read(path: str) -> str | None:
        try:
            limit = modules.MODULE_BYTES_LIMIT if path.endswith(".py") else BYTES_LIMIT
            return modules.read_limited(folder / path, limit).decode("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise NotFound(
                f"{folder / path} cannot be read: {error}", hint="it must be UTF-8 text"
            ) from error

    return read


def _siblings(module: str, text: str, read: Read) -> dict[str, str]:
    """The files that a module imports by relative path, and those that they import."""
    root = posixpath.dirname(module)
    found: dict[str, str] = {}
    left = [(module, text)]
    while left:
        path, text = left.pop()
        for candidate in _imported(path, text, root):
            if candidate == module or candidate in found:
                continue
            sibling = read(candidate)
            if sibling is not None:
                found[candidate] = sibling
                left.append((candidate, sibling))
    return found


def _imported(path: str, text: str, root: str) -> Iterator[str]:
    """Where the relative imports of a file may lie; not all of them need be there."""
    inside = posixpath.relpath(posixpath.dirname(path) or ".", root or ".")
    package = "" if inside == "." else inside.replace("/", ".")
    for dotted in outline(text.encode("utf-8", "surrogatepass"), path, package).imports:
        base = root
        for part in dotted.split("."):
            base = posixpath.join(base, part)
            yield f"{base}.py"
            yield posixpath.join(base, "__init__.py")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
