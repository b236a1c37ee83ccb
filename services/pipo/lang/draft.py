"""A file under check: its blocks with their places, and the findings so far.

A block that fails its schema is not sound: later rules leave it alone and judge
the others. Names are still known, so that one mistake does not make many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipo.lang.codes import finding
from pipo.lang.document import Items, Key, Map, Node, Place, Scalar, paths
from pipo.lang.model import KINDS
from pipo.lang.templates import is_template

if TYPE_CHECKING:
    from pipo.connectors.contract import Manifest, OutputRole, Role
    from pipo.errors import Finding


@dataclass(slots=True, eq=False)
class Block:
    """One input, one node, or the output: a map with a name."""

    name: str
    key: Key | None
    map: Map
    sound: bool = True

    @property
    def place(self) -> Place:
        return self.map.inside

    def text(self, key: str) -> Scalar | None:
        """The value of a key, if it is a text."""
        return text_of(self.map, key)

    @property
    def settings(self) -> Map:
        """The block's `with`; empty when there is none."""
        return map_of(self.map, "with") or Map(self.map.place)

    @property
    def sources(self) -> list[Scalar]:
        """The texts of `from`."""
        value = self.map.get("from")
        items = value.items if isinstance(value, Items) else [value]
        return [i for i in items if isinstance(i, Scalar) and isinstance(i.value, str)]


@dataclass(slots=True, eq=False)
class NodeBlock(Block):
    """A node; `kind` is empty unless it has exactly one."""

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in KINDS if self.map.get(kind) is not None]

    @property
    def kind(self) -> str:
        kinds = self.kinds
        return kinds[0] if len(kinds) == 1 else ""

    @property
    def uses(self) -> Scalar | None:
        """The value of the kind, unless it is a route's map."""
        return self.text(self.kind) if self.kind else None

    @property
    def branches(self) -> Map:
        return map_of(self.map, "route") or Map(self.map.place)


@dataclass(slots=True)
class Draft:
    """One file and what has been found in it.

    `broken` holds the top-level keys whose block fails its schema. `closed` holds
    the texts that take no template. `files` stand in place of those on the disk.
    """

    file: str
    root: Map
    manifests: Mapping[str, Manifest]
    home: Path | None = None
    files: Mapping[str, str] | None = None
    inputs: list[Block] = field(default_factory=list)
    nodes: dict[str, NodeBlock] = field(default_factory=dict)
    output: Block | None = None
    broken: set[str] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    _found: list[tuple[str, Place, str, str, Node | Key | None]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder that the file's paths are relative to."""
        return Path(self.file).parent

    @property
    def name(self) -> str:
        """The pipeline's name, or nothing when it has none."""
        name = text_of(self.root, "name")
        return name.value if name and "name" not in self.broken else ""

    def report(
        self, code: str, at: Node | Key, message: str, hint: str = "", *, place: Place | None = None
    ) -> None:
        """Adds a finding, at its node or key unless `place` says more exactly where."""
        self._found.append((code, place or at.place, message, hint, at))

    def findings(self) -> list[Finding]:
        """All findings, by position."""
        names = {id(at): path for at, path in paths(self.root)} if self._found else {}
        made = [
            finding(code, place, message, hint, names.get(id(at), ""))
            for code, place, message, hint, at in self._found
        ]
        return sorted(made, key=lambda f: (f.line, f.col, f.code, f.message))

    def has_errors(self) -> bool:
        return any(f.severity == "error" for f in self.findings())

    # ── blocks ──

    def block(self, name: str) -> Map | None:
        """A top-level map that passed its schema."""
        return None if name in self.broken else map_of(self.root, name)

    @property
    def sound_inputs(self) -> Iterator[Block]:
        return (block for block in self.inputs if block.sound)

    @property
    def sound_nodes(self) -> Iterator[NodeBlock]:
        return (node for node in self.nodes.values() if node.sound)

    @property
    def sound_output(self) -> Block | None:
        return self.output if self.output and self.output.sound else None

    # ── connectors ──

    def role(self, role: str, name: str) -> Role | None:
        """What a connector says of one of its roles."""
        manifest = self.manifests.get(name)
        found: Role | None = getattr(manifest, role, None)
        return found

    def output_role(self, name: str) -> OutputRole | None:
        manifest = self.manifests.get(name)
        return manifest.output if manifest else None

    def names(self, role: str) -> list[str]:
        """The connectors that have a role."""
        return [name for name in self.manifests if self.role(role, name)]

    def uses(self, role: str, name: str) -> Iterator[NodeBlock]:
        """The sound nodes that use a connector in a role."""
        for node in self.sound_nodes:
            if node.kind == role and node.uses and node.uses.value == name:
                yield node


def text_of(map_: Map, key: str) -> Scalar | None:
    value = map_.get(key)
    return value if isinstance(value, Scalar) and isinstance(value.value, str) else None


def literal_of(map_: Map, key: str) -> Scalar | None:
    """The value of a key, if it is a text without a template."""
    value = text_of(map_, key)
    return None if value is None or is_template(value.value) else value


def map_of(map_: Map, key: str) -> Map | None:
    value = map_.get(key)
    return value if isinstance(value, Map) else None


def items_of(map_: Map, key: str) -> Iterable[Node]:
    value = map_.get(key)
    return value.items if isinstance(value, Items) else ()


def value_of(map_: Map, key: str) -> Any:
    """The plain value of a key; None when it is missing or no scalar."""
    value = map_.get(key)
    return value.value if isinstance(value, Scalar) else None
