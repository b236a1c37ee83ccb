"""Expressions: compiled once, evaluated against a scope as often as needed.

    compile_expression("data.age >= 18").evaluate({"data": {"age": 20}})  →  True

The text passes `tokens` → `grammar` → `tree` → `closures`; `values` holds what
the operators mean and `functions` the helpers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pipo.clock import Clock, SystemClock
from pipo.lang.closures import Closure, Scope, closure
from pipo.lang.faults import LanguageError, beyond
from pipo.lang.functions import HELPERS
from pipo.lang.grammar import parse
from pipo.lang.missing import MISSING
from pipo.lang.printing import to_text
from pipo.lang.tree import Access, Constant, Name, Node, walk
from pipo.lang.values import truthy

__all__ = [
    "MISSING",
    "Expression",
    "LanguageError",
    "compile_expression",
    "parse_expression",
    "truthy",
]

_SYSTEM = SystemClock()
_HELPER_NAMES = tuple(HELPERS)


class Expression:
    """A compiled expression; safe to share, it keeps nothing between evaluations.

    `offset` is where it begins in the text that holds it: errors have their place there.
    """

    def __init__(self, text: str, tree: Node, clock: Clock, offset: int = 0) -> None:
        self.text = text
        self.tree = tree
        self._offset = offset
        self._run: Closure = closure(tree, clock)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    @cached_property
    def names(self) -> frozenset[str]:
        """The variables that it reads."""
        return frozenset(node.name for node in walk(self.tree) if isinstance(node, Name))

    def evaluate(self, scope: Scope) -> Any:
        """Its value, or MISSING.

        Raises: LanguageError, kind `unknown_name` or `runtime`, and nothing else.
        """
        try:
            return self._run(scope)
        except LanguageError as error:
            raise error.moved(self._offset) from error.__cause__
        except (RecursionError, ValueError, OverflowError) as error:
            raise beyond(error).moved(self._offset) from error

    def holds(self, scope: Scope) -> bool:
        """Whether its value is truthy; raises as `evaluate` does."""
        return truthy(self.evaluate(scope))


def compile_expression(text: str, *, clock: Clock = _SYSTEM, offset: int = 0) -> Expression:
    """The expression that a text says, which begins at `offset` of the text that holds it.

    Raises: LanguageError, kind `syntax` or `limit`, with the position of the fault.
    """
    try:
        return Expression(text, parse(text, _HELPER_NAMES), clock, offset)
    except LanguageError as error:
        raise error.moved(offset) from None


def parse_expression(text: str) -> Node:
    """The tree alone, for whoever only looks at it; raises as `compile_expression`."""
    return parse(text, _HELPER_NAMES)


def dotted(node: Node) -> tuple[str, ...]:
    """The path that a node reads, such as ("secrets", "token"); empty when it is none."""
    keys: list[str] = []
    while isinstance(node, Access) and isinstance(node.key, Constant):
        keys.append(to_text(node.key.value))
        node = node.object
    return (node.name, *reversed(keys)) if isinstance(node, Name) else ()
