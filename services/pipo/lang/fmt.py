"""A pipeline file in its one layout: text in, text out.

    two spaces for each level, list items too; `key: value`; `{ a: b }` and `[a, b]`
    the language's keys in the order of the reference, the author's in their own
    at most one blank line in a row; with blank lines between blocks, one at each
    comments with what they stand at; `\\n` at the end of every line

Every text is copied from the source, letter by letter: its quotes, its digits, the
lines of a `|` block. So no text can turn into a number or lose its quotes on the way
(R43). ruamel.yaml's round trip was tried and not taken: it leaves a comment behind
when its key moves, drops comments inside brackets, joins folded texts, and writes
`~`, `-0`, escapes and long numbers anew.

Brackets over several lines keep their lines. A map keeps its order where another one
would put an alias before its anchor. A file with a `? key`, or with a lone text, stays
as it is.

The result is loaded and compared with the source before anybody sees it; where
data or a comment differ, that is an error of ours, and the text stays as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipo.errors import Internal, InvalidPipeline
from pipo.lang import key_order, source_reader, source_tree
from pipo.lang.document import Items, Map, Node, Scalar
from pipo.lang.key_order import KeyOrder
from pipo.lang.layout import Layout
from pipo.lang.load import load
from pipo.lang.source_tree import Block, Entry, Flow, Text, Tree, Value

if TYPE_CHECKING:
    from pipo.connectors.contract import Manifest


def fmt(text: str, file: str, manifests: Mapping[str, Manifest]) -> str:
    """The text in canonical layout; findings other than P001 do not stop it.

    Raises: InvalidPipeline, for a text that cannot be loaded; Internal, when the
        layout would change what the text says.
    """
    before = load(text, file)
    if before.root is None:
        first = before.findings[0]
        raise InvalidPipeline(
            f"{file}:{first.line}:{first.col}: {first.code} {first.message}",
            findings=before.findings,
            hint=first.hint,
        )
    source = source_reader.with_newlines(text)
    tree = source_reader.read(source)
    if isinstance(tree.root, Text) or tree.has_question:
        return text
    order = KeyOrder(manifests, _output(tree.root))
    _arrange(tree, order)
    made = Layout(source).file(tree)
    after = load(made, file)
    if after.root is None or not _same(source, before.root, made, after.root, order):
        raise Internal(
            f"{file}: the layout would change what the file says; it stays as it is",
            hint="this is a bug of `pipo fmt`: please report it with the file",
        )
    return made


# ── the order of keys ──


class _View:
    """A map of the tree, as the order looks at it."""

    def __init__(self, value: Flow | Block) -> None:
        self._value = value

    def word(self, key: str) -> str | None:
        for entry in self._value.entries:
            if _name(entry) == key and isinstance(entry.value, Text):
                return entry.value.value
        return None


def _name(entry: Entry) -> str | None:
    """A key's text; an alias's is not known here."""
    return entry.key.value if entry.key and entry.key.alias is None else None


def _output(root: Value | None) -> _View | None:
    for entry in root.entries if root and not isinstance(root, Text) else ():
        if _name(entry) == "output" and not isinstance(entry.value, Text):
            return _View(entry.value)
    return None


def _arrange(tree: Tree, order: KeyOrder) -> None:
    """Puts the entries of every map that has an order into it."""
    waiting: list[tuple[Value, Any]] = [(tree.root, order.root)] if tree.root else []
    while waiting:
        value, block = waiting.pop()
        if isinstance(value, Text):
            continue
        view, written = _View(value), value.entries
        for entry in written:
            inner = order.inner(block, view, _name(entry))
            waiting.append((entry.value, inner if value.is_map else key_order.items(block)))
        if not value.is_map or (isinstance(value, Flow) and value.has_comments):
            continue
        arranged = [written[at] for at in key_order.arranged(block, [_name(e) for e in written])]
        if arranged != written and _anchors_hold(written, arranged):
            value.arranged = arranged


def _anchors_hold(written: list[Entry], arranged: list[Entry]) -> bool:
    """Whether every alias means the same in another order of a map's entries.

    It does when the entries that use or set one anchor stay in their order; those
    that only use it may move.
    """
    places = {id(entry): at for at, entry in enumerate(arranged)}
    users: dict[str, list[int]] = {}
    anchors: set[str] = set()
    for entry in written:
        for value in (*source_tree.walk(entry.key), *source_tree.walk(entry.value)):
            if value.anchor:
                anchors.add(value.anchor)
            if name := value.anchor or (value.alias if isinstance(value, Text) else None):
                users.setdefault(name, []).append(places[id(entry)])
    return all(users[name] == sorted(users[name]) for name in anchors)


# ── the proof ──


def _same(source: str, before: Node, made: str, after: Node, order: KeyOrder) -> bool:
    """Whether two texts hold the same data and the same comments."""
    if _fingerprint(before, order.root, order) != _fingerprint(after, order.root, order):
        return False
    return Counter(source_reader.comments(source)) == Counter(source_reader.comments(made))


class _MapView:
    """A map of loaded data, as the order looks at it."""

    def __init__(self, value: Map) -> None:
        self._value = value

    def word(self, key: str) -> str | None:
        found = self._value.get(key)
        return found.written if isinstance(found, Scalar) else None


def _fingerprint(node: Node, block: Any, order: KeyOrder) -> Any:
    """The data with its types; in the order of the file where the order counts."""
    match node:
        case Scalar():
            return type(node.value).__name__, repr(node.value)
        case Items():
            return [_fingerprint(item, key_order.items(block), order) for item in node.items]
        case Map():
            view = _MapView(node)
            entries = [
                (name, _fingerprint(value, order.inner(block, view, name), order))
                for name, (_, value) in node.entries.items()
            ]
            return dict(entries) if key_order.has_order(block) else tuple(entries)
