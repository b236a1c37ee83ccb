"""Values as text and as JSON, printed as JavaScript prints them.

Source: ECMA-262 §6.1.6.1.20 (Number::toString), §25.5.2 (JSON.stringify).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain, repeat
from json.encoder import encode_basestring
from typing import Any

from pipo.lang.faults import LanguageError
from pipo.lang.missing import MISSING
from pipo.lang.utf16 import SURROGATE, bounded, concat

INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_LAST_INDEX = 2**32 - 2


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
    return _list_text(value) if isinstance(value, list) else "[object Object]"


def _list_text(value: list[Any]) -> str:
    """A list as text: lists inside give their items, an empty one an empty text."""
    texts = []
    waiting: list[Any] = value[::-1]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list) and item:
            waiting.extend(reversed(item))
        else:
            texts.append("" if item in (None, MISSING, []) else to_text(item))
    return ",".join(bounded(texts))


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


def json_text(value: Any) -> str:
    """JSON as JavaScript writes it; `value` is not MISSING.

    NaN and infinities are null, MISSING is null in a list and left out of an
    object, keys that are whole numbers come first, half a surrogate pair is escaped.
    """
    pieces = _pieces(value) if isinstance(value, list | dict) else [_scalar(value)]
    return "".join(bounded(pieces))


def _pieces(value: Any) -> Iterator[str]:
    """The JSON text of a list or an object, piece by piece.

    What is open waits in a list of ours: data may nest as deep as Python calls.
    """
    waiting: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]
    closing = [""]
    while waiting:
        for before, item in waiting[-1]:
            if isinstance(item, str):
                yield before + _quoted(item)
            elif isinstance(item, list):
                yield before + "["
                closing.append("]")
                waiting.append(zip(chain(("",), repeat(",")), item, strict=False))
                break
            elif isinstance(item, dict):
                yield before + "{"
                closing.append("}")
                waiting.append(_named(item))
                break
            else:
                yield before + _scalar(item)
        else:
            waiting.pop()
            yield closing.pop()


def _named(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """An object's entries, each with the text before its value."""
    comma = ""
    for key, item in _own(value):
        yield f"{comma}{_quoted(key)}:", item
        comma = ","


def _scalar(value: Any) -> str:
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
    return INDEX.fullmatch(key) is not None and int(key) <= _LAST_INDEX


def _quoted(text: str) -> str:
    quoted: str = encode_basestring(text)
    if quoted.isascii() or not SURROGATE.search(quoted):
        return quoted
    return SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", concat([quoted]))


def jsonable(value: Any) -> Any:
    """A value as JSON holds it: no MISSING, NaN or infinity inside, −0 is 0.

    Returns MISSING for MISSING; what is a JSON value already is returned as it is.
    """
    if value.__class__ is float:
        return _json_number(value)
    root = [value]
    waiting: list[Any] = [root] if isinstance(value, list | dict) else []
    while waiting:
        made = waiting.pop()
        for key, item in list(enumerate(made) if isinstance(made, list) else made.items()):
            kind = item.__class__
            if kind is list or kind is dict:
                made[key] = item.copy()
                waiting.append(made[key])
            elif kind is float:
                made[key] = _json_number(item)
            elif item is MISSING and isinstance(made, list):
                made[key] = None
            elif item is MISSING:
                del made[key]
    return root[0]


def _json_number(value: float) -> float | None:
    return (value or 0) if math.isfinite(value) else None
