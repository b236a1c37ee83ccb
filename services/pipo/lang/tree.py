"""The tree of an expression: one frozen class for each kind of node.

`position` counts characters from 0; `depth` is the height of the subtree, a leaf
has 1. `printed` gives text that parses to the same tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pipo.lang.printing import json_text, number_text

BinaryOp = Literal["===", "!==", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%"]
LogicalOp = Literal["&&", "||", "??"]
UnaryOp = Literal["!", "-", "+"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a text, true, false or null."""

    value: Any
    position: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    name: str
    position: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Access:
    """`object.key` or `object[key]`; a dotted key is a Constant."""

    object: Node
    key: Node
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class Unary:
    op: UnaryOp
    operand: Node
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    left: Node
    right: Node
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class Logical:
    """An operator that may leave its right side alone."""

    op: LogicalOp
    left: Node
    right: Node
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class Conditional:
    test: Node
    then: Node
    otherwise: Node
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class Call:
    """A helper and its arguments."""

    helper: str
    arguments: tuple[Node, ...]
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class ListLiteral:
    items: tuple[Node, ...]
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class ObjectLiteral:
    entries: tuple[tuple[str, Node], ...]
    position: int
    depth: int


Node = (
    Constant
    | Name
    | Access
    | Unary
    | Binary
    | Logical
    | Conditional
    | Call
    | ListLiteral
    | ObjectLiteral
)


def children(node: Node) -> tuple[Node, ...]:
    """A node's direct parts, in the order of the text."""
    match node:
        case Constant() | Name():
            return ()
        case Access():
            return (node.object, node.key)
        case Unary():
            return (node.operand,)
        case Binary() | Logical():
            return (node.left, node.right)
        case Conditional():
            return (node.test, node.then, node.otherwise)
        case Call():
            return node.arguments
        case ListLiteral():
            return node.items
        case ObjectLiteral():
            return tuple(value for _, value in node.entries)


def walk(node: Node) -> Iterator[Node]:
    """Every node of a tree, parents first, in the order of the text."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))


def printed(node: Node) -> str:
    """The tree as text, every operation in parentheses."""
    match node:
        case Constant():
            return "1e999" if node.value == math.inf else json_text(node.value)
        case Name():
            return node.name
        case Access():
            return f"{printed(node.object)}[{printed(node.key)}]"
        case Unary():
            return f"({node.op}{printed(node.operand)})"
        case Binary() | Logical():
            return f"({printed(node.left)} {node.op} {printed(node.right)})"
        case Conditional():
            return f"({printed(node.test)} ? {printed(node.then)} : {printed(node.otherwise)})"
        case Call():
            return f"{node.helper}({', '.join(map(printed, node.arguments))})"
        case ListLiteral():
            return f"[{', '.join(map(printed, node.items))}]"
        case ObjectLiteral():
            entries = (f"{json_text(key)}: {printed(value)}" for key, value in node.entries)
            return f"{{{', '.join(entries)}}}"


def key_text(value: float | str) -> str:
    """The key that a literal names in an object: `{2: x}` and `{"2": x}` are one."""
    return value if isinstance(value, str) else number_text(value)
