"""A function's result as JSON, or where it holds what JSON cannot.

Made once, here: what the pipeline journals, the later steps see and the limit counts is this
text. Tuples become lists, and keys that are numbers, true, false or None become texts, as
Python's own `json` does it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pipo import NULL

DEPTH_LIMIT: Final = 512
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_CHARS: Final = 200


class Unfit(Exception):
    """The text says where in the result JSON fails, and why."""


def as_json(result: Any) -> bytes:
    """The result as compact JSON. Raises: Unfit."""
    try:
        raw = _encode(result).encode()
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise Unfit(_fault(result) or str(error)) from None
    if raw.count(b"[") + raw.count(b"{") > DEPTH_LIMIT and (why := _fault(result)):
        raise Unfit(why)
    return raw


def _null(value: Any) -> None:
    if value is not NULL:
        raise TypeError


# Bound here, whatever the author's code makes of `json` for its own use.
_encode: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_null
).encode


def _fault(result: Any) -> str:
    """Where the first part is that JSON cannot hold, and what it is; empty if there is none."""
    # Each layer's containers, from the outside in: a result may be deeper than a stack.
    stack: list[tuple[str, Any, frozenset[int]]] = [("data", result, frozenset())]
    while stack:
        place, value, around = stack.pop()
        if why := _unfit(value):
            return f"{_cut(place)} {why}"
        if not isinstance(value, (dict, list, tuple)):
            continue
        if id(value) in around:
            return f"{_cut(place)} holds itself"
        if len(around) == DEPTH_LIMIT:
            return f"{_cut(place)} lies more than {DEPTH_LIMIT} levels deep"
        inside = around | {id(value)}
        items = value.items() if isinstance(value, dict) else enumerate(value)
        shown = _key if isinstance(value, dict) else "[{}]".format
        stack += reversed([(place + shown(key), item, inside) for key, item in items])
    return ""


def _unfit(value: Any) -> str:
    """What about a value, apart from what it holds, JSON cannot say."""
    match value:
        case None | bool() | list() | tuple():
            return ""
        case str():
            return "holds half of a surrogate pair" if _is_broken(value) else ""
        case float():
            return f"is {value!r}" if value != value or value in (_INFINITE, -_INFINITE) else ""
        case int():
            try:
                int.__repr__(value)
            except ValueError:
                return "is an integer of more than 4300 digits"
            return ""
        case dict():
            for key in value:
                if isinstance(key, str) and _is_broken(key):
                    return f"has the key {key!r:.80}, with half of a surrogate pair"
                if not isinstance(key, (str, int, float, bool, type(None))):
                    return f"has a key that is a {type(key).__name__}"
            return ""
        case _:
            return "" if value is NULL else f"is a {type(value).__name__}"


_INFINITE: Final = float("inf")


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _key(key: Any) -> str:
    text = str(key)
    return f".{text}" if _PLAIN_KEY.fullmatch(text) else f"[{_encode(text)}]"


def _cut(place: str) -> str:
    return place if len(place) <= _SHOWN_CHARS else f"{place[:_SHOWN_CHARS]}…"
