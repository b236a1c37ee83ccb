"""Loads a pipeline file: YAML text into a tree with the place of every key and value.

The parser's events are libyaml's; the composer is ours, because the stock one
takes a key twice, gives every use of an alias the place of its anchor, and lets
aliases explode. All faults found here are P001.

Source: decision 22; facts §7, §9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from pipo.errors import Finding
from pipo.lang import scalars
from pipo.lang.codes import finding
from pipo.lang.document import Items, Key, Map, Node, Place, Scalar, Span

BYTES_LIMIT: Final = 1024 * 1024
DEPTH_LIMIT: Final = 100
# What is looked at one by one; a megabyte of one-letter keys would be looked at for a minute.
VALUES_LIMIT: Final = 20_000
ALIAS_NODES_LIMIT: Final = 10_000
ALIAS_CHARACTERS_LIMIT: Final = 200_000
_DUPLICATES_SHOWN: Final = 50

# YAML 1.2 §5.1, and what is left of it in a Python string.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a text holds; `root` is None when `findings` say why."""

    file: str
    root: Node | None
    findings: tuple[Finding, ...]


class _Fault(Exception):
    """The text cannot be read beyond this place."""

    def __init__(self, place: Place, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.place, self.message, self.hint = place, message, hint


def load(text: str, file: str) -> Loaded:
    """The tree of one YAML document; never raises for anything a text can be.

    A byte order mark is no part of the text: the parser's marks do not count it.
    """
    text = text.removeprefix("\ufeff")
    composer = _Composer(text)
    try:
        _refuse_size(text)
        root = composer.document()
    except _Fault as fault:
        composer.faults.append(fault)
        root = None
    faults = sorted(composer.faults, key=lambda fault: fault.place)
    found = tuple(finding("P001", f.place, f.message, f.hint) for f in faults)
    return Loaded(file, None if found else root, found)


def decode(raw: bytes) -> str:
    """A file's bytes as text; what is not UTF-8 becomes characters that `load` refuses."""
    return raw.decode("utf-8", "surrogateescape")


def _refuse_size(text: str) -> None:
    if len(text) > BYTES_LIMIT or len(text.encode("utf-8", "surrogatepass")) > BYTES_LIMIT:
        raise _Fault(Place(1, 1), "the file is larger than 1 MiB")
    if bad := _UNPRINTABLE.search(text):
        raise _Fault(
            _place_in(text, bad.start()),
            f"the character U+{ord(bad[0]):04X} cannot stand in a file",
            "the file must be plain UTF-8 text",
        )


def _place_in(text: str, index: int) -> Place:
    breaks = list(_BREAK.finditer(text, 0, index))
    return Place(len(breaks) + 1, index - (breaks[-1].end() if breaks else 0) + 1)


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


@dataclass(slots=True)
class _Open:
    """A map or list being read; `key` waits for its value, `anchor` for the end.

    `merging` says that the key is a plain `<<`.
    """

    node: Map | Items
    anchor: str | None
    key: Key | None = None
    merging: bool = False
    merges: list[Node] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


class _Composer:
    """Events into nodes, without recursion."""

    def __init__(self, text: str) -> None:
        self.faults: list[_Fault] = []
        self._text = text
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._values = 0
        self._alias_nodes = 0
        self._alias_characters = 0
        self._root: Node | None = None

    def document(self) -> Node:
        """The root; an empty text is a null.

        Raises: _Fault, at the first place that cannot be read.
        """
        documents = 0
        for event in self._events():
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise _Fault(
                            _place(event.start_mark),
                            "a second document starts here",
                            "one file holds one pipeline",
                        )
                case yaml.ScalarEvent():
                    self._take(self._scalar(event), event.anchor)
                case yaml.AliasEvent():
                    self._take(self._alias(event), None)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end()
        return self._root or Scalar(None, "", Place(1, 1))

    def _events(self) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(self._text, Loader=yaml.CLoader)
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from None
        except yaml.YAMLError as error:
            raise _Fault(Place(1, 1), f"not well-formed YAML: {error}") from None

    def _syntax(self, error: yaml.MarkedYAMLError) -> _Fault:
        mark: Any = error.problem_mark or error.context_mark
        index = mark.index if mark else 0
        if index >= len(self._text):
            # At its end libyaml counts a line that is not there.
            index = len(self._text.rstrip())
        place = _place_in(self._text, index)
        if self._text[index : index + 1] == "\t":
            return _Fault(place, "a tab cannot be indentation", "indent with blanks")
        if self._text[max(0, index - 1) : index + 1] == "${":
            hint = 'put quotes around a text with a template: "${…}"'
            return _Fault(place, "inside `{ }` and `[ ]` a plain text cannot hold a `{`", hint)
        context = ""
        if error.context and error.context_mark:
            start = _place(error.context_mark)
            context = f" ({error.context} that starts at {start.line}:{start.col})"
        problem = error.problem or "this cannot be read"
        return _Fault(place, f"not well-formed YAML: {problem}{context}")

    # ── nodes ──

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        place = _place(event.start_mark)
        plain = event.style is None or event.style == ""
        try:
            if event.tag:
                value = scalars.tagged(event.value, event.tag)
            else:
                value = scalars.resolve(event.value) if plain else event.value
        except scalars.BadScalar as error:
            raise _Fault(place, str(error)) from None
        style = None if plain else event.style
        start: Any = event.start_mark
        end: Any = event.end_mark
        span = Span(self._text, start.index, end.index, style)
        return Scalar(value, event.value, place, span)

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        place = _place(event.start_mark)
        is_map = isinstance(event, yaml.MappingStartEvent)
        if event.tag and not scalars.is_container_tag(event.tag, "map" if is_map else "seq"):
            raise _Fault(place, f"the tag {scalars.shown(event.tag)} is not known here")
        self._refuse_depth(place, len(self._open))
        if self._open and self._wants_key(self._open[-1]):
            raise _Fault(place, "a key must be a single text")
        if event.anchor:
            self._anchors[event.anchor] = None
        node = Map(place) if is_map else Items(place)
        self._open.append(_Open(node, event.anchor))

    def _end(self) -> None:
        ended = self._open.pop()
        for merged in ended.merges:
            self._merge(ended.node, merged)
        self._take(ended.node, ended.anchor)

    def _alias(self, event: yaml.AliasEvent) -> Node:
        place = _place(event.start_mark)
        if event.anchor not in self._anchors:
            raise _Fault(place, f"there is no anchor `&{event.anchor}` before")
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise _Fault(place, f"`*{event.anchor}` stands inside its own anchor")
        return self._copy(anchored, place, len(self._open))

    def _copy(self, node: Node, place: Place, depth: int) -> Node:
        """The node with all its parts at one place, `depth` levels deep in the file."""
        self._alias_nodes += 1
        if self._alias_nodes > ALIAS_NODES_LIMIT:
            raise _Fault(place, f"aliases make more than {ALIAS_NODES_LIMIT:,} values")
        match node:
            case Scalar():
                self._alias_characters += len(node.written)
                if self._alias_characters > ALIAS_CHARACTERS_LIMIT:
                    limit = f"{ALIAS_CHARACTERS_LIMIT:,}"
                    raise _Fault(place, f"aliases make texts of more than {limit} characters")
                return Scalar(node.value, node.written, place)
            case Items():
                self._refuse_depth(place, depth)
                return Items(place, [self._copy(item, place, depth + 1) for item in node.items])
            case Map():
                self._refuse_depth(place, depth)
                made = Map(place)
                for name, (_, value) in node.entries.items():
                    made.entries[name] = (Key(name, place), self._copy(value, place, depth + 1))
                return made

    @staticmethod
    def _refuse_depth(place: Place, depth: int) -> None:
        if depth >= DEPTH_LIMIT:
            raise _Fault(place, f"nested more than {DEPTH_LIMIT} levels deep")

    # ── putting together ──

    @staticmethod
    def _wants_key(open_: _Open) -> bool:
        return isinstance(open_.node, Map) and open_.key is None

    def _take(self, node: Node, anchor: str | None) -> None:
        """Gives a finished node to what it stands in."""
        self._values += 1
        if self._values > VALUES_LIMIT:
            raise _Fault(node.place, f"the file has more than {VALUES_LIMIT:,} keys and values")
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if isinstance(parent.node, Items):
            parent.node.items.append(node)
        elif parent.key is None:
            parent.key = self._key(node)
            parent.node.first = parent.node.first or parent.key.place
            parent.merging = isinstance(node, Scalar) and _is_merge(node)
        else:
            self._enter(parent, parent.node, parent.key, node)
            parent.key = None

    @staticmethod
    def _key(node: Node) -> Key:
        """A key is its text: `no` and `1` stay what they are written as."""
        if not isinstance(node, Scalar):
            raise _Fault(node.place, "a key must be a single text")
        return Key(node.written, node.place)

    def _enter(self, parent: _Open, map_: Map, key: Key, node: Node) -> None:
        if key.text in parent.seen:
            if len(self.faults) < _DUPLICATES_SHOWN:
                self.faults.append(_Fault(key.place, f"the key `{key.text}` stands here twice"))
            return
        parent.seen.add(key.text)
        if parent.merging:
            parent.merges.extend(self._mergeable(node))
        else:
            map_.entries[key.text] = (key, node)

    @staticmethod
    def _mergeable(node: Node) -> list[Node]:
        merged: list[Node] = node.items if isinstance(node, Items) else [node]
        for each in merged:
            if not isinstance(each, Map):
                raise _Fault(each.place, "`<<` merges a map, or a list of maps")
        return merged

    @staticmethod
    def _merge(into: Any, merged: Any) -> None:
        """A map's own keys win, then those of the map that was named first."""
        for name, entry in merged.entries.items():
            into.entries.setdefault(name, entry)


def _is_merge(key: Scalar) -> bool:
    return key.written == "<<" and key.span is not None and key.span.style is None
