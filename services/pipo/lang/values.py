"""What values mean in expressions: JavaScript's rules over JSON values and `MISSING`.

A value is None, a bool, an int, a float, a str, a list, a dict, or MISSING
(JavaScript's undefined). Whole numbers from data are ints of any length; the
results of arithmetic are doubles, kept as ints while they are whole, within
±2^53 and not −0, so that they print as JavaScript prints them.

Source: facts §5.2, §5.3; ECMA-262 §6.1.6.1.20 (Number::toString), §7.1, §7.2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from json.encoder import encode_basestring
from typing import Any, Final, Literal

from pipo.lang.faults import LanguageError


class Missing:
    """The type of `MISSING`; falsy, and equal to nothing but itself."""

    __slots__ = ()

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()

SAFE = 2**53
"""Whole numbers up to here are exact as doubles."""

WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What JavaScript trims and skips; Python's own set differs."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PREFIXED = re.compile(r"0(?:[xX]([0-9a-fA-F]+)|[oO]([0-7]+)|[bB]([01]+))")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_LAST_INDEX = 2**32 - 2


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
    if -SAFE <= value <= SAFE and value == (whole := int(value)):
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


def number_text(value: float) -> str:
    """A number as JavaScript prints it; an int keeps all its digits."""
    if value.__class__ is int:
        return str(value)
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    digits, point = _shortest(abs(value))
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def _shortest(value: float) -> tuple[str, int]:
    """The fewest digits that name a double, and where its point stands among them."""
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).rstrip("0")
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    return stripped, point - (len(digits) - len(stripped))


# ── text ─────────────────────────────────────────────────────────────────────


def to_text(value: Any) -> str:
    """JavaScript's ToString."""
    kind = value.__class__
    if kind is str:
        return str(value)
    if kind is int or kind is float:
        return number_text(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is MISSING:
        return "undefined"
    if isinstance(value, list):
        return ",".join("" if v is None or v is MISSING else to_text(v) for v in value)
    return "[object Object]"


def mixed_text(value: Any) -> str:
    """A hole's value inside other text: null and missing are empty, containers are JSON."""
    kind = value.__class__
    if kind is str:
        return str(value)
    if value is None or value is MISSING:
        return ""
    if kind is dict or kind is list:
        return json_text(value)
    return to_text(value)


def concat(parts: Iterable[str]) -> str:
    """Texts joined; halves of a surrogate pair that meet become their character."""
    joined = "".join(parts)
    if joined.isascii() or not _HALVES.search(joined):
        return joined
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    if text.isascii():
        return len(text)
    return len(text) + sum(char > "\uffff" for char in text)


def unit_at(text: str, index: int) -> Any:
    """One UTF-16 unit of a text; MISSING beyond its ends."""
    if text.isascii():
        return text[index] if 0 <= index < len(text) else MISSING
    raw = text.encode("utf-16-le", "surrogatepass")
    if not 0 <= index < len(raw) // 2:
        return MISSING
    return raw[2 * index : 2 * index + 2].decode("utf-16-le", "surrogatepass")


def text_below(left: str, right: str) -> bool:
    """Whether `left` sorts before `right`, by UTF-16 units."""
    if left.isascii() or right.isascii():
        return left < right
    return left.encode("utf-16-be", "surrogatepass") < right.encode("utf-16-be", "surrogatepass")


def text_within(needle: str, text: str) -> bool:
    """Whether a text holds another, by UTF-16 units."""
    if needle in text:
        return True
    if text.isascii() or not _SURROGATE.search(needle):
        return False
    raw = text.encode("utf-16-le", "surrogatepass")
    wanted = needle.encode("utf-16-le", "surrogatepass")
    at = raw.find(wanted)
    while at > 0 and at % 2:
        at = raw.find(wanted, at + 1)
    return at >= 0


# ── comparison ───────────────────────────────────────────────────────────────


def equal(left: Any, right: Any) -> bool:
    """Strict and deep: no coercion, lists in order, objects in any order, NaN is unlike itself."""
    kind = left.__class__
    if kind is not right.__class__:
        if kind is int and right.__class__ is float:
            return bool(as_double(left) == right)
        if kind is float and right.__class__ is int:
            return bool(left == as_double(right))
        return False
    if kind is list:
        return len(left) == len(right) and all(map(equal, left, right))
    if kind is dict:
        return len(left) == len(right) and all(
            key in right and equal(value, right[key]) for key, value in left.items()
        )
    return bool(left == right)


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
        return unit_at(value, _index(key))
    return MISSING


def _index(key: Any) -> int:
    """The position that a key names; -1 for one that names none."""
    if key.__class__ is int:
        return int(key)
    text = to_text(key)
    return int(text) if _INDEX.fullmatch(text) else -1


# ── JSON ─────────────────────────────────────────────────────────────────────


def json_text(value: Any) -> str:
    """JSON as JavaScript writes it; `value` is not MISSING.

    NaN and infinities are null, MISSING is null in a list and left out of an
    object, keys that are whole numbers come first, half a surrogate pair is escaped.
    """
    kind = value.__class__
    if kind is str:
        return _quoted(value)
    if value is None or value is MISSING:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return number_text(value) if math.isfinite(value) else "null"
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_quoted(k)}:{json_text(v)}' for k, v in _own(value))}}}"
    raise LanguageError("runtime", f"a {kind.__name__} is not a JSON value")


def _own(value: dict[str, Any]) -> list[tuple[str, Any]]:
    """An object's entries in JavaScript's order, without the missing ones."""
    present = [(key, item) for key, item in value.items() if item is not MISSING]
    if not any(key[:1].isdigit() for key, _ in present):
        return present
    numbered = [entry for entry in present if _is_array_index(entry[0])]
    named = [entry for entry in present if not _is_array_index(entry[0])]
    return sorted(numbered, key=lambda entry: int(entry[0])) + named


def _is_array_index(key: str) -> bool:
    return _INDEX.fullmatch(key) is not None and int(key) <= _LAST_INDEX


def _quoted(text: str) -> str:
    quoted: str = encode_basestring(text)
    if quoted.isascii() or not _SURROGATE.search(quoted):
        return quoted
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", concat([quoted]))


def jsonable(value: Any) -> Any:
    """A value as JSON holds it: no MISSING, NaN or infinity inside, −0 is 0.

    Returns MISSING for MISSING; what is a JSON value already is returned as it is.
    """
    kind = value.__class__
    if kind is float:
        if not math.isfinite(value):
            return None
        return value or 0
    if kind is list:
        return [None if item is MISSING else jsonable(item) for item in value]
    if kind is dict:
        return {key: jsonable(item) for key, item in value.items() if item is not MISSING}
    return value
