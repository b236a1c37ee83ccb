"""A loaded file as a tree: every key and every value with its place.

Places count lines and columns from 1. What an alias or a merge key brings in has
the place of its use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A line and a column."""

    line: int
    col: int


class Span(NamedTuple):
    """Where a scalar's text stands in its source, and how it is written there."""

    source: str
    start: int
    end: int
    style: str | None


@dataclass(slots=True, eq=False)
class Scalar:
    """A text, number, boolean or null; `written` is its text in the file, without quotes.

    `span` is None for what an alias brought in.
    """

    value: Any
    written: str
    place: Place
    span: Span | None = None


@dataclass(slots=True, eq=False)
class Key:
    """A key of a map, as the text it is written as."""

    text: str
    place: Place


@dataclass(slots=True, eq=False)
class Map:
    """Keys and values, in the order of the file; each key stands once.

    `first` is where the first key stands, a `<<` too, which is no entry; None when empty.
    """

    place: Place
    entries: dict[str, tuple[Key, Node]] = field(default_factory=dict)
    first: Place | None = None

    def get(self, name: str) -> Node | None:
        entry = self.entries.get(name)
        return entry[1] if entry else None

    def key(self, name: str) -> Key | None:
        entry = self.entries.get(name)
        return entry[0] if entry else None

    def items(self) -> Iterator[tuple[Key, Node]]:
        return iter(self.entries.values())

    @property
    def inside(self) -> Place:
        """The place of the first key, or of the map itself when it is empty."""
        return self.first or self.place


@dataclass(slots=True, eq=False)
class Items:
    """A list."""

    place: Place
    items: list[Node] = field(default_factory=list)


Node = Scalar | Map | Items


def plain(node: Node) -> Any:
    """The node as JSON-like data, without places."""
    match node:
        case Scalar():
            return node.value
        case Map():
            return {key: plain(value) for key, (_, value) in node.entries.items()}
        case Items():
            return [plain(item) for item in node.items]


def at_path(node: Node, path: list[str | int]) -> Node:
    """The node that a path of keys and indexes leads to, or the last one on the way that is there."""
    for step in path:
        inner: Node | None = None
        if isinstance(node, Map) and isinstance(step, str):
            inner = node.get(step)
        elif isinstance(node, Items) and isinstance(step, int) and step < len(node.items):
            inner = node.items[step]
        if inner is None:
            return node
        node = inner
    return node


def texts(node: Node, key: str = "") -> Iterator[tuple[str, Scalar]]:
    """Every text inside, with the key that it stands at (a list's texts: the list's key)."""
    match node:
        case Scalar():
            if isinstance(node.value, str):
                yield key, node
        case Map():
            for name, (_, value) in node.entries.items():
                yield from texts(value, name)
        case Items():
            for item in node.items:
                yield from texts(item, key)


def paths(node: Node, path: str = "") -> Iterator[tuple[Node | Key, str]]:
    """Every node and key with its dotted path, such as `output.with.columns`."""
    yield node, path
    if isinstance(node, Map):
        for name, (key, value) in node.entries.items():
            inner = f"{path}.{name}" if path else name
            yield key, inner
            yield from paths(value, inner)
    elif isinstance(node, Items):
        for index, item in enumerate(node.items):
            yield from paths(item, f"{path}[{index}]")
