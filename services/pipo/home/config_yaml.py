"""config.yaml as plain values that know their line and column.

YAML 1.2 core scalars (decision 22): `no`, `on`, `12:30` and `017` are text, text,
text and seventeen. The home stands below the language, so it reads with a small
loader of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

_DEPTH_LIMIT = 32


@dataclass(frozen=True, slots=True)
class Place:
    """Counting from 1; col is in characters."""

    line: int
    col: int


@dataclass(frozen=True, slots=True)
class Value:
    """One value and where it begins: a scalar, a tuple of Values, or a dict of them.

    `keys` says where each key of a mapping stands.
    """

    place: Place
    content: Any
    keys: dict[str, Place]

    def plain(self) -> Any:
        """The value without places."""
        match self.content:
            case dict():
                return {key: value.plain() for key, value in self.content.items()}
            case tuple():
                return [value.plain() for value in self.content]
            case _:
                return self.content


class Malformed(Exception):
    """The text is no YAML that a configuration may use."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


class _Core(yaml.SafeLoader):
    # PyYAML declares it as an instance's; it means the class's.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_Core.add_implicit_resolver("null", _NULL, ["~", "n", "N", ""])
_Core.add_implicit_resolver("bool", _BOOL, list("tTfF"))
_Core.add_implicit_resolver("int", _INT, list("-+0123456789"))
_Core.add_implicit_resolver("float", _FLOAT, list("-+.0123456789"))


def parse(text: str) -> Value | None:
    """The document's root; None for an empty one.

    Raises: Malformed, at its place.
    """
    try:
        root = yaml.compose(text, Loader=_Core)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        raise Malformed(place, error.problem or str(error)) from error
    except yaml.reader.ReaderError as error:
        raise Malformed(_at(text, error.position), "a character that YAML forbids") from error
    return None if root is None else _value(root, depth=0)


def _value(node: yaml.Node, *, depth: int) -> Value:
    place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    if depth > _DEPTH_LIMIT:
        raise Malformed(place, f"nested deeper than {_DEPTH_LIMIT} levels (an alias of itself?)")
    match node:
        case yaml.ScalarNode():
            return Value(place, _scalar(node), {})
        case yaml.SequenceNode():
            items = tuple(_value(item, depth=depth + 1) for item in node.value)
            return Value(place, items, {})
        case yaml.MappingNode():
            return _mapping(node, place, depth)
    raise Malformed(place, "a value that YAML core does not have")


def _mapping(node: yaml.MappingNode, place: Place, depth: int) -> Value:
    content: dict[str, Value] = {}
    keys: dict[str, Place] = {}
    for key_node, value_node in node.value:
        at = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if not isinstance(key_node, yaml.ScalarNode):
            raise Malformed(at, "a key must be a text")
        key = key_node.value
        if key in content:
            raise Malformed(at, f"key {key!r} stands twice, first in line {keys[key].line}")
        content[key] = _value(value_node, depth=depth + 1)
        keys[key] = at
    return Value(place, content, keys)


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    match node.tag:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _whole(text)
        case "float":
            return float(text)
        case _:
            return text


def _whole(text: str) -> int | str:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    try:
        return int(text[2:], base) if base != 10 else int(text)
    except ValueError:
        # More digits than Python converts.
        return text


def _at(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
