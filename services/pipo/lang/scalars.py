"""What a YAML scalar is, by the core schema of YAML 1.2.

`no`, `on`, `12:30`, `1_000` and `2026-01-02` are text; `017` is seventeen and
`0o17` is fifteen (decision 22).
"""

from __future__ import annotations

import re
from typing import Any

from pipo.lang.values import number

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DIGITS_LIMIT = 3000
"""The digits of a whole number, a power of 16 too: Python prints at most 4300 decimal ones."""
_CORE = "tag:yaml.org,2002:"
_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
}


class BadScalar(ValueError):
    """A scalar that its tag or its size forbids."""


def resolve(text: str) -> Any:
    """The value of a plain scalar.

    Raises: BadScalar, for a whole number of more than `_DIGITS_LIMIT` digits.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        return number(float(text)) or 0
    if _ENDLESS.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


def tagged(text: str, tag: str) -> Any:
    """The value of a scalar with a tag of its own.

    Raises: BadScalar, for an unknown tag and for a text that is not of its type.
    """
    name = tag.removeprefix(_CORE)
    if tag == "!" or name == "str":
        return text
    if tag == name or name not in _TYPES:
        raise BadScalar(f"the tag {shown(tag)} is not known here")
    value = resolve(text)
    if type(value) not in _TYPES[name]:
        raise BadScalar(f"{text[:40]!r} is not a value of the tag {shown(tag)}")
    return value


def is_container_tag(tag: str, container: str) -> bool:
    """Whether a map or list may carry the tag; `container` is `map` or `seq`."""
    return tag in ("!", _CORE + container)


def shown(tag: str) -> str:
    """A tag as it is written in a file."""
    return f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag


def _whole(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # Python reads any number of octal and hexadecimal digits, but prints none of such numbers.
    if len(text) > _DIGITS_LIMIT:
        raise BadScalar(f"a whole number of {len(text)} digits is too long")
    return int(text if base == 10 else text[2:], base)
