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

    Raises: BadScalar, for a whole number of more digits than Python reads.
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
    try:
        if text.startswith(("0o", "0x")):
            return int(text[2:], 8 if text[1] == "o" else 16)
        return int(text)
    except ValueError:
        raise BadScalar(f"a whole number of {len(text)} digits is too long") from None
