"""Trees into Python closures: each node once, so that evaluation walks no tree.

A closure takes the scope (variable → value) and gives the node's value. Paths of
plain keys, comparisons with a constant and small whole numbers have closures of
their own: they are what filters and maps consist of. All others go through the
rules in `values`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pipo.clock import Clock
from pipo.lang import values
from pipo.lang.faults import LanguageError
from pipo.lang.functions import HELPERS
from pipo.lang.printing import to_text
from pipo.lang.suggest import one_of
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
)
from pipo.lang.values import MISSING, SAFE, equal, member, number, to_number, truthy

Scope = Mapping[str, Any]
Closure = Callable[[Scope], Any]


def closure(node: Node, clock: Clock) -> Closure:
    """What evaluates a tree; `clock` is what `now()` and `iso()` read."""
    made = partial(closure, clock=clock)
    match node:
        case Constant():
            return _constant(node.value)
        case Name():
            return _path(node, ())
        case Access():
            return _access(node, made)
        case Unary():
            return _UNARY[node.op](made(node.operand))
        case Binary():
            return _binary(node, made)
        case Logical():
            return _LOGICAL[node.op](made(node.left), made(node.right))
        case Conditional():
            return _conditional(made(node.test), made(node.then), made(node.otherwise))
        case Call():
            return _call(node, [made(argument) for argument in node.arguments], clock)
        case ListLiteral():
            items = [made(item) for item in node.items]
            return lambda scope: [item(scope) for item in items]
        case ObjectLiteral():
            entries = [(key, made(value)) for key, value in node.entries]
            return lambda scope: {key: value(scope) for key, value in entries}


def _constant(value: Any) -> Closure:
    return lambda scope: value


# ── names and members ──


def _access(node: Access, made: Callable[[Node], Closure]) -> Closure:
    keys: list[str] = []
    root: Node = node
    while isinstance(root, Access) and isinstance(root.key, Constant):
        keys.append(to_text(root.key.value))
        root = root.object
    if isinstance(root, Name):
        return _path(root, tuple(reversed(keys)))
    owner, key = made(node.object), made(node.key)
    return lambda scope: member(owner(scope), key(scope))


def _path(root: Name, keys: tuple[str, ...]) -> Closure:
    """A variable and plain keys behind it."""
    name = root.name

    def unknown(scope: Scope) -> LanguageError:
        hint = one_of(name, scope, "the variables are")
        message = f"there is no variable `{name[:60]}` here"
        return LanguageError("unknown_name", message, root.position, hint=hint)

    def variable(scope: Scope) -> Any:
        try:
            return scope[name]
        except KeyError:
            raise unknown(scope) from None

    def one_key(scope: Scope) -> Any:
        try:
            value = scope[name]
        except KeyError:
            raise unknown(scope) from None
        return value.get(key, MISSING) if value.__class__ is dict else member(value, key)

    def many_keys(scope: Scope) -> Any:
        try:
            value = scope[name]
        except KeyError:
            raise unknown(scope) from None
        for each in keys:
            value = value.get(each, MISSING) if value.__class__ is dict else member(value, each)
        return value

    if not keys:
        return variable
    key = keys[0]
    return one_key if len(keys) == 1 else many_keys


# ── operators ──


def _not(operand: Closure) -> Closure:
    return lambda scope: not truthy(operand(scope))


def _plus(operand: Closure) -> Closure:
    return lambda scope: number(to_number(operand(scope)))


def _minus(operand: Closure) -> Closure:
    return lambda scope: number(-to_number(operand(scope)))


def _and(left: Closure, right: Closure) -> Closure:
    def evaluate(scope: Scope) -> Any:
        value = left(scope)
        return right(scope) if value is True or truthy(value) else value

    return evaluate


def _or(left: Closure, right: Closure) -> Closure:
    def evaluate(scope: Scope) -> Any:
        value = left(scope)
        return value if value is True or truthy(value) else right(scope)

    return evaluate


def _else(left: Closure, right: Closure) -> Closure:
    def evaluate(scope: Scope) -> Any:
        value = left(scope)
        return right(scope) if value is None or value is MISSING else value

    return evaluate


def _conditional(test: Closure, then: Closure, otherwise: Closure) -> Closure:
    return lambda scope: then(scope) if truthy(test(scope)) else otherwise(scope)


_UNARY: dict[str, Callable[[Closure], Closure]] = {"!": _not, "+": _plus, "-": _minus}
_LOGICAL: dict[str, Callable[[Closure, Closure], Closure]] = {"&&": _and, "||": _or, "??": _else}


def _binary(node: Binary, made: Callable[[Node], Closure]) -> Closure:
    left, op = made(node.left), node.op
    if isinstance(node.right, Constant):
        if op in _TESTS and _is_small_number(node.right.value):
            return _ordered_by_constant(left, op, node.right.value)
        if op in ("===", "!==") and isinstance(node.right.value, str):
            return _equal_to_text(left, node.right.value, op == "===")
    right = made(node.right)
    if op in _EXACT:
        return _arithmetic(left, right, _EXACT[op], _RULES[op])
    rule = _RULES[op]
    return lambda scope: rule(left(scope), right(scope))


def _is_small_number(value: Any) -> bool:
    # Beyond ±2^53 a whole number must be rounded to a double before it is compared.
    return value.__class__ in (int, float) and -SAFE < value < SAFE


def _ordered_by_constant(left: Closure, op: str, limit: float) -> Closure:
    test, rule = _TESTS[op], _RULES[op]

    def evaluate(scope: Scope) -> Any:
        value = left(scope)
        kind = value.__class__
        return test(value, limit) if kind is int or kind is float else rule(value, limit)

    return evaluate


def _equal_to_text(left: Closure, text: str, wanted: bool) -> Closure:
    def evaluate(scope: Scope) -> Any:
        value = left(scope)
        return (value.__class__ is str and value == text) is wanted

    return evaluate


def _arithmetic(
    left: Closure,
    right: Closure,
    exact: Callable[[int, int], int],
    rule: Callable[[Any, Any], Any],
) -> Closure:
    """Whole numbers within ±2^53 in whole numbers, all else by JavaScript's rule."""

    def evaluate(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        if (
            a.__class__ is int
            and b.__class__ is int
            and -SAFE <= a <= SAFE
            and -SAFE <= b <= SAFE
            # A zero may be −0, which only a double can hold.
            and (result := exact(a, b))
        ):
            return result if -SAFE < result < SAFE else float(result)
        return rule(a, b)

    return evaluate


def _subtract(left: Any, right: Any) -> Any:
    return number(to_number(left) - to_number(right))


def _multiply(left: Any, right: Any) -> Any:
    return number(to_number(left) * to_number(right))


def _divide(left: Any, right: Any) -> Any:
    return number(values.divide(to_number(left), to_number(right)))


def _remainder(left: Any, right: Any) -> Any:
    return number(values.remainder(to_number(left), to_number(right)))


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXACT: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "===": equal,
    "!==": lambda left, right: not equal(left, right),
    "<": values.below,
    "<=": values.at_most,
    ">": lambda left, right: values.below(right, left),
    ">=": lambda left, right: values.at_most(right, left),
    "in": values.within,
    "+": values.add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
}


# ── helpers ──


def _call(node: Call, arguments: list[Closure], clock: Clock) -> Closure:
    helper = HELPERS[node.helper]
    call = partial(helper.call, clock) if helper.timed else helper.call
    arity = helper.arity
    position = node.position
    if arity == 1 and len(arguments) == 1:
        return _call_with_one(call, arguments[0], position)
    padding = [MISSING] * max(0, arity - len(arguments))

    def evaluate(scope: Scope) -> Any:
        given = [argument(scope) for argument in arguments]
        try:
            return call(*given[:arity], *padding)
        except LanguageError as error:
            raise error.moved(position) from error.__cause__

    return evaluate


def _call_with_one(call: Callable[[Any], Any], argument: Closure, position: int) -> Closure:
    def evaluate(scope: Scope) -> Any:
        given = argument(scope)
        try:
            return call(given)
        except LanguageError as error:
            # A helper does not know where it was called.
            raise error.moved(position) from error.__cause__

    return evaluate
