"""Expressions and templates: P013, P040, P041, P050, P051.

`POSITIONS` is the table of facts §5.1: which texts are expressions or templates,
and which variables they see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pipo.lang.document import Map, Node, Scalar, texts
from pipo.lang.draft import Block, Draft, items_of, map_of, text_of
from pipo.lang.expressions import dotted, parse_expression
from pipo.lang.faults import LanguageError
from pipo.lang.placing import place_of
from pipo.lang.suggest import one_of
from pipo.lang.templates import Hole, is_template, split
from pipo.lang.tree import Access, Name, walk
from pipo.lang.tree import Node as Tree

RULE: Final = ("data", "meta", "env")
OUTPUT_RULE: Final = (*RULE, "output")
UNTIL: Final = ("stats", "env")
INPUT_WITH: Final = ("env", "secrets")
WITH: Final = (*RULE, "secrets")
DELIVERED_WITH: Final = (*WITH, "output", "result")
MESSAGE: Final = (*RULE, "error")
OUTPUT_MESSAGE: Final = (*RULE, "output", "error")
ON_FAIL_MESSAGE: Final = (*RULE, "output", "result", "error")
STALL_MESSAGE: Final = ("meta", "env", "stats", "stall")

# What a variable holds, where that is the same for every packet: a name beside these is missing
# at every run, and a condition on it never holds.
MEMBERS: Final = {
    ("meta",): (
        "packet_id", "branch", "key", "pipeline", "version", "node", "input", "trigger", "source",
        "received_at", "attempt", "hops", "iteration", "upstream",
    ),
    ("meta", "upstream"): ("pipeline", "packet_id", "key", "depth"),
    ("error",): ("message", "code", "rule", "node", "attempts", "elapsed"),
    ("stats",): (
        "accepted", "delivered", "pending", "escalated", "dead_lettered", "uptime", "in_per_min",
        "last_delivery_at",
    ),
    ("stall",): ("pending", "duration", "oldest"),
    ("stall", "oldest"): ("packet_id", "node", "age", "attempt", "last_error"),
}  # fmt: skip

_NAMES_SHOWN = 20
"""How many unknown names of one text are reported."""

# A secretary and a tokenizer are none.
_SECRET_KEY = re.compile(
    r"token(?!i[sz])|secret(?!ar|i)|passw(or)?d|api[-_ ]?key|authorization|credential",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"Bearer |sk-|ghp_|xox[a-zA-Z]-|AKIA")
_REFERENCE = re.compile(r"(op://|env:|file:/)")


@dataclass(frozen=True, slots=True)
class Position:
    """A text that is an expression or a template, and what it may read."""

    text: Scalar
    variables: tuple[str, ...]
    is_expression: bool
    in_with: bool = False


def check(draft: Draft) -> None:
    """P013, P040, P041, P051 for every expression and template, P050 for every `with`."""
    for position in _positions(draft):
        _judge(draft, position)
    for block in _withs(draft):
        for key, text in texts(block):
            _written_secret(draft, key, text)


def reads(text: Scalar, *path: str) -> bool:
    """Whether a template reads a path, such as `meta.packet_id`."""
    try:
        trees = _trees(text.value, False)
    except LanguageError:
        return False
    return any(dotted(node) == path for _, tree in trees for node in walk(tree))


# ── where ──


def _positions(draft: Draft) -> Iterator[Position]:
    lifetime = draft.block("lifetime")
    if lifetime:
        yield from _expression(text_of(lifetime, "until"), UNTIL)
    errors = draft.block("errors")
    if errors:
        yield from _template(errors.get("message"), MESSAGE)
    for block in draft.sound_inputs:
        yield from _expressions(items_of(block.map, "validate"), RULE)
        yield from _message(block.map, "on_invalid", MESSAGE)
        yield from _template(block.settings, INPUT_WITH, in_with=True)
    for node in draft.sound_nodes:
        yield from _node(node)
    if output := draft.sound_output:
        yield from _expressions(items_of(output.map, "validate"), OUTPUT_RULE)
        yield from _message(output.map, "on_invalid", OUTPUT_MESSAGE)
        yield from _message(output.map, "on_error", OUTPUT_MESSAGE)
        yield from _template(output.settings, WITH, in_with=True)
    if delivered := draft.block("delivered"):
        yield from _template(delivered.get("with"), DELIVERED_WITH, in_with=True)
        yield from _message(delivered, "on_fail", ON_FAIL_MESSAGE)
        yield from _message(delivered, "stall", STALL_MESSAGE)


def _node(node: Block) -> Iterator[Position]:
    yield from _expression(node.text("filter"), RULE)
    route = map_of(node.map, "route")
    for _, branch in route.items() if route else ():
        if isinstance(branch, Scalar) and branch.value != "else":
            yield from _expression(branch, RULE)
    loop = map_of(node.map, "loop")
    if loop:
        yield from _expression(text_of(loop, "until"), RULE)
    yield from _message(node.map, "on_error", MESSAGE)
    yield from _template(node.settings, WITH, in_with=True)


def _withs(draft: Draft) -> Iterator[Map]:
    blocks = [*draft.sound_inputs, *draft.sound_nodes]
    if output := draft.sound_output:
        blocks.append(output)
    yield from (block.settings for block in blocks)
    delivered = draft.block("delivered")
    if delivered and (settings := map_of(delivered, "with")):
        yield settings


def _expression(text: Scalar | None, variables: tuple[str, ...]) -> Iterator[Position]:
    if text:
        yield Position(text, variables, True)


def _expressions(nodes: Iterable[Node], variables: tuple[str, ...]) -> Iterator[Position]:
    for node in nodes:
        if isinstance(node, Scalar):
            yield Position(node, variables, True)


def _message(block: Map, key: str, variables: tuple[str, ...]) -> Iterator[Position]:
    inner = map_of(block, key)
    if inner:
        yield from _template(inner.get("message"), variables)


def _template(
    node: Node | None, variables: tuple[str, ...], *, in_with: bool = False
) -> Iterator[Position]:
    if node is not None:
        for _, text in texts(node):
            yield Position(text, variables, False, in_with)


# ── what ──


@lru_cache(maxsize=1024)
def _trees(text: str, is_expression: bool) -> tuple[tuple[int, Tree], ...]:
    """The expressions in a text and where each begins.

    Raises: LanguageError, at a position of the text.
    """
    if is_expression:
        return ((0, parse_expression(text)),)
    found = []
    for part in split(text):
        if isinstance(part, Hole):
            try:
                found.append((part.start, parse_expression(part.source)))
            except LanguageError as error:
                raise error.moved(part.start) from None
    return tuple(found)


def _judge(draft: Draft, position: Position) -> None:
    text = position.text
    if id(text) in draft.closed:
        return
    try:
        trees = _trees(text.value, position.is_expression)
    except LanguageError as error:
        place = place_of(text, error.position)
        draft.report("P040", text, error.message, _bare(position) or error.hint, place=place)
        return
    seen: set[str] = set()
    for start, tree in trees:
        for node in walk(tree):
            path = _unknown(node, position.variables)
            name = ".".join(path)
            if not path or name in seen or len(seen) == _NAMES_SHOWN:
                continue
            seen.add(name)
            if len(path) == 1:
                _unavailable(draft, position, name, start + node.position)
            else:
                _no_member(draft, position, path, start + node.position)
    if position.in_with:
        _undeclared(draft, text, [tree for _, tree in trees])


def _bare(position: Position) -> str:
    """How an expression is written that was written as a template; empty for any other."""
    if not position.is_expression or not is_template(position.text.value):
        return ""
    try:
        parts = split(position.text.value)
    except LanguageError:
        parts = []
    inner = parts[0].source.strip() if len(parts) == 1 and isinstance(parts[0], Hole) else ""
    return f"an expression stands here, without `${{…}}`{f': {inner}' if inner else ''}"


def _unknown(node: Tree, variables: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a name that is not there: a variable, or what a variable never holds."""
    if isinstance(node, Name):
        return () if node.name in variables else (node.name,)
    path = dotted(node) if isinstance(node, Access) else ()
    held = MEMBERS.get(path[:-1], path[-1:])
    return () if not path or path[0] not in variables or path[-1] in held else path


def _no_member(draft: Draft, position: Position, path: tuple[str, ...], offset: int) -> None:
    *owner, name = path
    held = MEMBERS[tuple(owner)]
    message = f"`{'.'.join(owner)}` has no `{name[:60]}`"
    hint = one_of(name, held, "it has")
    draft.report("P041", position.text, message, hint, place=place_of(position.text, offset))


def _unavailable(draft: Draft, position: Position, name: str, offset: int) -> None:
    place = place_of(position.text, offset)
    if name == "secrets" and not position.in_with:
        message = "secrets can be used inside `with` only"
        draft.report("P051", position.text, message, place=place)
        return
    hint = one_of(name, position.variables, "available here")
    draft.report("P041", position.text, f"there is no variable `{name}` here", hint, place=place)


def _undeclared(draft: Draft, text: Scalar, trees: Iterable[Tree]) -> None:
    if "secrets" in draft.broken:
        return
    secrets = map_of(draft.root, "secrets")
    declared = list(secrets.entries) if secrets else []
    wanted = (dotted(node) for tree in trees for node in walk(tree))
    used = {path[1] for path in wanted if len(path) == 2 and path[0] == "secrets"}
    for name in sorted(used.difference(declared)):
        hint = one_of(name, declared, "declared secrets")
        draft.report("P013", text, f"the secret `{name[:60]}` is not declared", hint)


def _written_secret(draft: Draft, key: str, text: Scalar) -> None:
    value = text.value
    if not value.strip() or is_template(value) or _REFERENCE.match(value):
        return
    if _SECRET_KEY.search(key) or _SECRET_VALUE.match(value):
        message = f"the value of `{key}` looks like a secret that is written out"
        draft.report("P050", text, message)
