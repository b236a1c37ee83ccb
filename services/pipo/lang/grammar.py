"""The parser: tokens into a tree, by precedence climbing over one table of operators.

Parentheses make no node and may nest as deep as the text is long, so runs of them
are unwound in a loop; everything else that nests makes a node, and the depth
limit bounds the recursion.

Source: facts §5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final, TypeVar

from pipo.lang.faults import LanguageError
from pipo.lang.tokens import Token, tokens
from pipo.lang.tree import (
    Access,
    Binary,
    Call,
    Conditional,
    Constant,
    ListLiteral,
    Logical,
    Name,
    Node,
    ObjectLiteral,
    Unary,
    key_text,
)
from pipo.lang.utf16 import units

LENGTH_LIMIT: Final = 2000
DEPTH_LIMIT: Final = 32
NODE_LIMIT: Final = 256

# Operator → how tightly it binds; all group from the left.
PRECEDENCE: Final = {
    **dict.fromkeys(("||", "??"), 1),
    "&&": 2,
    **dict.fromkeys(("===", "!==", "==", "!="), 3),
    **dict.fromkeys(("<", "<=", ">", ">=", "in"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "%"), 6),
}
UNARY: Final = ("!", "-", "+")
LOGICAL: Final = ("&&", "||", "??")
SAME: Final = {"==": "===", "!=": "!=="}
"""The two spellings of equality mean one thing."""

Item = TypeVar("Item")

CONSTANTS: Final = {"true": True, "false": False, "null": None}
REFUSED_NAMES: Final = ("new", "this", "typeof", "instanceof", "in")
REFUSED_KEYS: Final = ("__proto__", "constructor", "prototype")


def parse(text: str, helpers: Sequence[str]) -> Node:
    """The tree of an expression.

    Raises: LanguageError, kind `syntax` or `limit`, with the position of the fault.
    """
    if units(text) > LENGTH_LIMIT:
        raise LanguageError("limit", f"the expression has over {LENGTH_LIMIT} characters")
    return _Parser(tokens(text), helpers).whole()


class _Parser:
    def __init__(self, read: list[Token], helpers: Sequence[str]) -> None:
        self._tokens = read
        self._at = 0
        self._helpers = helpers
        self._node_count = 0
        self._level = 0

    def whole(self) -> Node:
        if self._token.kind == "end":
            raise LanguageError("syntax", "the expression is empty", self._token.position)
        node = self._expression()
        token = self._token
        if token.kind == "end":
            return node
        raise self._unexpected(token)

    # ── tokens ──

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _is(self, operator: str, *, ahead: int = 0) -> bool:
        token = self._tokens[self._at + ahead]
        return token.kind == "operator" and token.value == operator

    def _take(self, operator: str) -> bool:
        if self._is(operator):
            self._at += 1
            return True
        return False

    def _expect(self, operator: str, opened: Token) -> None:
        if not self._take(operator):
            token = self._token
            raise LanguageError(
                "syntax",
                f"expected `{operator}` for the {opened.shown()} before, found {token.shown()}",
                token.position,
            )

    def _unexpected(self, token: Token) -> LanguageError:
        if token.kind == "end":
            return LanguageError("syntax", "the expression ends too early", token.position)
        hint = ""
        if token.value == "instanceof":
            hint = "`type(x)` gives the type's name"
        elif token.kind == "operator" and token.value == ",":
            hint = "an expression is one value; a list is written in [ ]"
        return LanguageError("syntax", f"unexpected {token.shown()}", token.position, hint=hint)

    # ── limits ──

    def _depth(self, position: int, *parts: Node) -> int:
        """The height of a new node over its parts; counts it against the limits."""
        self._node_count += 1
        if self._node_count > NODE_LIMIT:
            raise LanguageError("limit", f"the expression has over {NODE_LIMIT} parts", position)
        depth = 1 + max((part.depth for part in parts), default=0)
        self._refuse_depth(depth, position)
        return depth

    def _refuse_depth(self, depth: int, position: int) -> None:
        if depth > DEPTH_LIMIT:
            raise LanguageError(
                "limit", f"the expression nests over {DEPTH_LIMIT} levels deep", position
            )

    def _nested(self) -> Node:
        """An expression one level further in."""
        with self._inside():
            return self._expression()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        # Each level in hand becomes a node around what is read next.
        self._level += 1
        self._refuse_depth(self._level + 1, self._token.position)
        yield
        self._level -= 1

    # ── expressions, loosest first ──

    def _expression(self) -> Node:
        opened = self._open_parentheses()
        node = self._rest(self._unary())
        while opened:
            self._expect(")", opened.pop())
            node = self._rest(self._postfix(node))
        return node

    def _open_parentheses(self) -> list[Token]:
        """The run of `(` here but the last; that one is the operand's own."""
        opened = []
        while self._is("(") and self._is("(", ahead=1):
            opened.append(self._token)
            self._at += 1
        return opened

    def _rest(self, left: Node) -> Node:
        """A whole expression whose first operand has been read."""
        test = self._binary(left, 0)
        question = self._token
        if not self._take("?"):
            return test
        then = self._nested()
        self._expect(":", question)
        otherwise = self._nested()
        at = test.position
        return Conditional(test, then, otherwise, at, self._depth(at, test, then, otherwise))

    def _binary(self, left: Node, floor: int) -> Node:
        """`left` and the operators behind it that bind tighter than `floor`."""
        while (binding := self._binding()) > floor:
            op = SAME.get(self._token.value, self._token.value)
            self._at += 1
            with self._inside():
                right = self._binary(self._unary(), binding)
            at = left.position
            kind = Logical if op in LOGICAL else Binary
            left = kind(op, left, right, at, self._depth(at, left, right))
        return left

    def _binding(self) -> int:
        token = self._token
        is_operator = token.kind == "operator" or (token.kind == "name" and token.value == "in")
        return PRECEDENCE.get(token.value, 0) if is_operator else 0

    def _unary(self) -> Node:
        token = self._token
        if token.kind != "operator" or token.value not in UNARY:
            return self._postfix(self._primary())
        self._at += 1
        with self._inside():
            operand = self._unary()
        return Unary(token.value, operand, token.position, self._depth(token.position, operand))

    def _postfix(self, node: Node) -> Node:
        """`node` and the accesses behind it."""
        while (key := self._key()) is not None:
            node = Access(node, key, node.position, self._depth(node.position, node, key))
        return node

    def _key(self) -> Node | None:
        """The key of the access here, if there is one."""
        token = self._token
        if self._take("["):
            return self._indexed(token)
        if self._take("."):
            return self._dotted()
        if self._take("?."):
            bracket = self._token
            return self._indexed(bracket) if self._take("[") else self._dotted()
        if self._is("("):
            known = f"they are: {', '.join(self._helpers)}"
            raise LanguageError("syntax", "only helpers can be called", token.position, hint=known)
        return None

    def _dotted(self) -> Constant:
        token = self._token
        if token.kind != "name":
            raise LanguageError(
                "syntax", f"expected a key behind the point, found {token.shown()}", token.position
            )
        self._at += 1
        self._refuse_key(token)
        return Constant(token.value, token.position)

    def _indexed(self, bracket: Token) -> Node:
        key = self._nested()
        self._expect("]", bracket)
        return key

    def _refuse_key(self, token: Token) -> None:
        if token.value in REFUSED_KEYS:
            raise LanguageError(
                "syntax",
                f"the key `{token.value}` is not allowed here",
                token.position,
                hint=f'data of that name is read with ["{token.value}"]',
            )

    # ── operands ──

    def _primary(self) -> Node:
        token = self._token
        self._at += 1
        if token.kind in ("number", "text"):
            return Constant(token.value, token.position, self._depth(token.position))
        if token.kind == "name":
            return self._named(token)
        if token.value == "(":
            node = self._expression()
            self._expect(")", token)
            return node
        if token.value == "[":
            items = self._separated("]", self._nested, token)
            return ListLiteral(tuple(items), token.position, self._depth(token.position, *items))
        if token.value == "{":
            entries = self._separated("}", self._entry, token)
            depth = self._depth(token.position, *(value for _, value in entries))
            return ObjectLiteral(tuple(entries), token.position, depth)
        raise self._unexpected(token)

    def _named(self, token: Token) -> Node:
        if token.value in CONSTANTS:
            depth = self._depth(token.position)
            return Constant(CONSTANTS[token.value], token.position, depth)
        if token.value in REFUSED_NAMES:
            raise self._unexpected(token)
        if self._is("("):
            return self._call(token)
        return Name(token.value, token.position, self._depth(token.position))

    def _call(self, token: Token) -> Node:
        if token.value not in self._helpers:
            close = get_close_matches(token.value, self._helpers, 1)
            known = f"the helpers are: {', '.join(self._helpers)}"
            raise LanguageError(
                "syntax",
                f"there is no helper `{token.value[:60]}`",
                token.position,
                hint=f"did you mean `{close[0]}`? {known}" if close else known,
            )
        opened = self._token
        self._at += 1
        arguments = self._separated(")", self._nested, opened, trailing=False)
        depth = self._depth(token.position, *arguments)
        return Call(token.value, tuple(arguments), token.position, depth)

    def _entry(self) -> tuple[str, Node]:
        token = self._token
        if token.kind not in ("name", "text", "number"):
            raise LanguageError("syntax", f"expected a key, found {token.shown()}", token.position)
        self._at += 1
        self._refuse_key(token)
        if self._take(":"):
            return key_text(token.value), self._nested()
        if token.kind == "name" and token.value not in (*CONSTANTS, *REFUSED_NAMES):
            with self._inside():
                return token.value, Name(token.value, token.position, self._depth(token.position))
        found = self._token
        raise LanguageError(
            "syntax", f"expected `:` behind the key, found {found.shown()}", found.position
        )

    def _separated(
        self, close: str, read: Callable[[], Item], opened: Token, *, trailing: bool = True
    ) -> list[Item]:
        """Items up to the closing bracket, with commas between."""
        items: list[Item] = []
        if self._take(close):
            return items
        while True:
            items.append(read())
            if self._take(close):
                return items
            if not self._take(","):
                self._expect(close, opened)
            if trailing and self._take(close):
                return items
