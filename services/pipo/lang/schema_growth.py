"""How much work a JSON Schema can make of one value, seen before it meets any.

The validator answers yes or no in linear time where a schema refers to itself: it
keeps what it found out about each part. It does not where references only fan out,
and never where it looks for the words of a refusal. So two things are measured:

    size     the schemas there are once every reference is followed, circles once.
             Ten definitions that each name the next one twice make a thousand.
    branches how many ways lead on at each turn of a circle, 0 or 1 where there is but
             one for each part of a value. Words then cost `branches` to the power of
             a value's depth, twice that where alternatives fail.

A circle that goes no level deeper into the value never ends, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from pipo.lang.graph import Edge, Graph

SIZE_LIMIT: Final = 100_000

# Where schemas stand in a schema: those for the same value, and those for a part of it.
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_LIST: Final = ("allOf", "anyOf", "oneOf")
_SAME_MAP: Final = ("dependentSchemas",)
_PART_ONE: Final = (
    "additionalProperties",
    "propertyNames",
    "items",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_PART_LIST: Final = ("prefixItems",)
_PART_MAP: Final = ("properties", "patternProperties")
_REFERENCES: Final = ("$ref", "$dynamicRef")
# Each part of a value is met by one of these at most.
_DISJOINT: Final = frozenset(
    ("properties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems")
)
# Why each of them failed is found out once more for the words of a refusal.
_ALTERNATIVES: Final = ("anyOf", "oneOf")


class TooMuch(ValueError):
    """A schema that asks for more than any value is worth, or for what is not in its file."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a schema grows to (see the file's head)."""

    size: int
    branches: int


class _Way(NamedTuple):
    """`keyword` of the schema `source` leads to the schema `target`, both named by their place."""

    source: str
    keyword: str
    target: str

    @property
    def deeper(self) -> bool:
        return self.keyword in (*_PART_ONE, *_PART_LIST, *_PART_MAP)


def growth(schema: Mapping[str, Any] | bool) -> Growth:
    """What a schema grows to.

    Raises: TooMuch, beyond SIZE_LIMIT, for a circle that goes no deeper, and for a
        reference that leads out of the schema; RecursionError, for one nested too deeply.
    """
    if isinstance(schema, bool):
        return Growth(1, 0)
    ways = _Document(schema).ways()
    still = Graph(Edge(way.source, "", way.target) for way in ways if not way.deeper)
    if still.circles(dict.fromkeys(way.source for way in ways)):
        raise TooMuch("it refers to itself without going a level deeper")
    leaving: dict[str, list[_Way]] = {}
    for way in ways:
        leaving.setdefault(way.source, []).append(way)
    sizes: dict[str, int] = {}
    branches = 0
    whole = Graph(Edge(way.source, "", way.target) for way in ways)
    for group in whole.components([""]):
        inside = set(group)
        total = 0
        for place in group:
            total += 1
            for way in leaving.get(place, ()):
                if way.target not in inside:
                    times = 2 if way.keyword in _ALTERNATIVES else 1
                    total += times * sizes[way.target]
        if total > SIZE_LIMIT:
            raise TooMuch(f"it grows to more than {SIZE_LIMIT} schemas when all are followed")
        sizes.update(dict.fromkeys(group, total))
        round_ = [way for place in group for way in leaving.get(place, ()) if way.target in inside]
        branches = max(branches, _branches(round_))
    return Growth(sizes.get("", 1), branches)


def _branches(ways: list[_Way]) -> int:
    """In how many ways one part of a value may come round a circle."""
    if not ways:
        return 0
    by_place: dict[str, list[str]] = {}
    for way in ways:
        by_place.setdefault(way.source, []).append(way.keyword)
    plain = all(
        _DISJOINT.issuperset(keywords) or (len(keywords) == 1 and keywords[0] in _REFERENCES)
        for keywords in by_place.values()
    )
    return 1 if plain else len(ways)


class _Document:
    """A schema file: its schemas by their place in it, as a JSON pointer."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        # A resource's URI → its place; (URI, anchor) → the anchor's place.
        self._resources = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self._bases: dict[str, str] = {}
        self._index(root, "", "")

    def ways(self) -> list[_Way]:
        """All ways between the schemas that can be reached from the root, from the root on."""
        found: list[_Way] = []
        seen = {""}
        waiting: list[tuple[str, Any]] = [("", self._root)]
        while waiting:
            place, schema = waiting.pop()
            for keyword, target, value in self._leaving(place, schema):
                found.append(_Way(place, keyword, target))
                if target not in seen:
                    seen.add(target)
                    waiting.append((target, value))
        return found

    def _leaving(self, place: str, schema: Any) -> Iterator[tuple[str, str, Any]]:
        """Keyword, place and content of each schema that a schema leads to."""
        if not isinstance(schema, dict):
            return
        for keyword, value in schema.items():
            here = f"{place}/{_escaped(keyword)}"
            if keyword in _REFERENCES and isinstance(value, str):
                yield keyword, *self._looked_up(place, value)
                if keyword == "$dynamicRef":
                    # Which of them is meant, only the way through the schema says.
                    for (_, anchor), target in self._anchors.items():
                        if anchor == value.partition("#")[2]:
                            yield keyword, target, self._at(target)
            elif keyword in (*_SAME_ONE, *_PART_ONE):
                yield keyword, here, value
            elif keyword in (*_SAME_LIST, *_PART_LIST) and isinstance(value, list):
                for number, each in enumerate(value):
                    yield keyword, f"{here}/{number}", each
            elif keyword in (*_SAME_MAP, *_PART_MAP) and isinstance(value, dict):
                for name, each in value.items():
                    yield keyword, f"{here}/{_escaped(name)}", each

    def _looked_up(self, place: str, reference: str) -> tuple[str, Any]:
        """Raises: TooMuch, for what is not in the file."""
        uri, fragment = urldefrag(urljoin(self._base_of(place), reference))
        fragment = unquote(fragment)
        start = self._resources.get(uri)
        target: str | None = None
        if start is not None:
            is_pointer = not fragment or fragment.startswith("/")
            target = start + fragment if is_pointer else self._anchors.get((uri, fragment))
        if target is not None:
            try:
                return target, self._at(target)
            except (KeyError, IndexError, ValueError, TypeError):
                pass
        raise TooMuch(f"it refers to {reference[:100]!r}, which is not in the file")

    def _at(self, place: str) -> Any:
        value: Any = self._root
        for part in place.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            value = value[int(name)] if isinstance(value, list) else value[name]
        return value

    def _base_of(self, place: str) -> str:
        """The URI of the resource that a place belongs to."""
        while place and place not in self._bases:
            place = place.rpartition("/")[0]
        return self._bases.get(place, "")

    def _index(self, value: Any, place: str, base: str) -> None:
        if isinstance(value, list):
            for number, each in enumerate(value):
                self._index(each, f"{place}/{number}", base)
        if not isinstance(value, dict):
            return
        if isinstance(value.get("$id"), str):
            base = urldefrag(urljoin(base, value["$id"])).url
            self._resources.setdefault(base, place)
            self._bases[place] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(value.get(keyword), str):
                self._anchors.setdefault((base, value[keyword]), place)
        for name, each in value.items():
            self._index(each, f"{place}/{_escaped(name)}", base)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
