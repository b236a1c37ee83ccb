"""Small JSON files of the home, read back with the types of their dataclass.

Whoever reads one goes by its fields: a text where a number belongs would be found out far from
here, in an answer about all pipelines (R38, edge 444).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
# What 64 bits of an answer hold; no time, pid or port comes near.
NUMBER_MAX = 2**62


def load(path: Path) -> Any:
    """The JSON of a file. Raises: OSError; ValueError, if it is none."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decode(kind: type[_T], found: Any) -> _T:
    """A dataclass of that kind; keys that it does not know are left out.

    Raises: ValueError, if a field is missing or of another type.
    """
    try:
        made = msgspec.convert(found, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise ValueError(str(error)) from None
    for name, value in found.items():
        if isinstance(value, int) and abs(value) > NUMBER_MAX:
            raise ValueError(f"{name} is {value}")
    return made
