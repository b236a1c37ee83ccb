"""What values mean in expressions: JavaScript's rules over JSON values and `MISSING`.

A value is None, a bool, an int, a float, a str, a list, a dict, or MISSING
(JavaScript's undefined). Whole numbers from data are ints of any length; the
results of arithmetic are doubles, kept as ints while they are whole, below
±2^53 and not −0, so that they print as JavaScript prints them.

Source: facts §5.2; ECMA-262 §7.1 (conversion), §7.2 (comparison).
"""

from __future__ import annotations

import math
import re
from typing import Any

from pipo.lang.missing import MISSING as MISSING
from pipo.lang.printing import INDEX, to_text
from pipo.lang.utf16 import concat, text_below, text_within, unit_at

SAFE = 2**53
"""Below here a double and a whole number name each other; 2^53 is the double of 2^53 + 1 too."""

WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What JavaScript trims and skips; Python's own set differs."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PREFIXED = re.compile(r"0(?:[xX]([0-9a-fA-F]+)|[oO]([0-7]+)|[bB]([01]+))")


# ── truth and types ──────────────────────────────────────────────────────────


def truthy(value: Any) -> bool:
    """Whether a condition holds: all but `false 0 -0 "" null missing NaN`."""
    kind = value.__class__
    if kind is list or kind is dict:
        return True
    if kind is float:
        return bool(value) and value == value
    return bool(value)


def type_name(value: Any) -> str:
    """The word that `type()` gives."""
    if value is None:
        return "null"
    if value is MISSING:
        return "undefined"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


# ── numbers ──────────────────────────────────────────────────────────────────


def number(value: float) -> int | float:
    """A double as we keep it: an int where that is the same number."""
    if -SAFE < value < SAFE and value == (whole := int(value)):
        return whole if whole or math.copysign(1.0, value) > 0 else -0.0
    return value


def as_double(value: int) -> float:
    """A whole number as a double; beyond their range it is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def to_number(value: Any) -> float:
    """JavaScript's ToNumber."""
    kind = value.__class__
    if kind is float:
        return float(value)
    if kind is int or kind is bool:
        return as_double(value)
    if value is None:
        return 0.0
    if value is MISSING:
        return math.nan
    return text_to_number(value if kind is str else to_text(value))


def text_to_number(text: str) -> float:
    """JavaScript's StringToNumber: the whole trimmed text, or NaN."""
    trimmed = text.strip(WHITE_SPACE)
    if not trimmed:
        return 0.0
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed)
    if found := _PREFIXED.fullmatch(trimmed):
        digits, base = next((d, b) for d, b in zip(found.groups(), (16, 8, 2), strict=True) if d)
        return as_double(int(digits, base))
    return {"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}.get(
        trimmed, math.nan
    )


# ── comparison ───────────────────────────────────────────────────────────────


def equal(left: Any, right: Any) -> bool:
    """Strict and deep: no coercion, lists in order, objects in any order, NaN is unlike itself."""
    kind = left.__class__
    if kind is not right.__class__:
        return _equal_numbers(left, right)
    if kind is not list and kind is not dict:
        return bool(left == right)
    # A list of ours: data may nest as deep as Python calls.
    waiting: list[tuple[Any, Any]] = [(left, right)]
    while waiting:
        a, b = waiting.pop()
        kind = a.__class__
        if kind is not b.__class__:
            if not _equal_numbers(a, b):
                return False
        elif kind is list:
            if len(a) != len(b):
                return False
            waiting.extend(zip(a, b, strict=True))
        elif kind is dict:
            if a.keys() != b.keys():
                return False
            waiting.extend((item, b[key]) for key, item in a.items())
        elif a != b:
            return False
    return True


def _equal_numbers(left: Any, right: Any) -> bool:
    """Whether a whole number from data and a double are one; anything else of two kinds is not."""
    kind, other = left.__class__, right.__class__
    if kind is int and other is float:
        return bool(as_double(left) == right)
    return kind is float and other is int and bool(left == as_double(right))


def below(left: Any, right: Any) -> bool:
    """JavaScript's `left < right`."""
    left, right = _primitive(left), _primitive(right)
    if left.__class__ is str and right.__class__ is str:
        return text_below(left, right)
    return to_number(left) < to_number(right)


def at_most(left: Any, right: Any) -> bool:
    """JavaScript's `left <= right`."""
    left, right = _primitive(left), _primitive(right)
    if left.__class__ is str and right.__class__ is str:
        return not text_below(right, left)
    return to_number(left) <= to_number(right)


def within(left: Any, right: Any) -> bool:
    """`left in right`: an item of a list, a part of a text, a key of an object."""
    if isinstance(right, list):
        return any(equal(left, item) for item in right)
    if isinstance(right, str):
        return isinstance(left, str) and text_within(left, right)
    if isinstance(right, dict):
        return to_text(left) in right
    return False


def _primitive(value: Any) -> Any:
    return to_text(value) if isinstance(value, list | dict) else value


# ── arithmetic ───────────────────────────────────────────────────────────────


def add(left: Any, right: Any) -> Any:
    """JavaScript's `+`: text when either side is text (or a container), else a sum."""
    left, right = _primitive(left), _primitive(right)
    if left.__class__ is str or right.__class__ is str:
        return concat((to_text(left), to_text(right)))
    return number(to_number(left) + to_number(right))


def divide(left: float, right: float) -> float:
    """`left / right` of doubles, by zero as well."""
    if right:
        return left / right
    if not left or left != left or right != right:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(left: float, right: float) -> float:
    """`left % right` of doubles; the sign is the left side's."""
    if not right or math.isinf(left) or left != left or right != right:
        return math.nan
    return math.fmod(left, right)


# ── members ──────────────────────────────────────────────────────────────────


def member(value: Any, key: Any) -> Any:
    """`value[key]`: an own key, an item, a UTF-16 unit; MISSING for all else, never an error."""
    if isinstance(value, dict):
        return value.get(key if key.__class__ is str else to_text(key), MISSING)
    if isinstance(value, list):
        index = _index(key)
        return value[index] if 0 <= index < len(value) else MISSING
    if isinstance(value, str):
        unit = unit_at(value, _index(key))
        return MISSING if unit is None else unit
    return MISSING


def _index(key: Any) -> int:
    """The position that a key names; -1 for one that names none."""
    if key.__class__ is int:
        return int(key)
    text = to_text(key)
    return int(text) if INDEX.fullmatch(text) else -1
