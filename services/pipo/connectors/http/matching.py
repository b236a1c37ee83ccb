"""Whether a JSON body holds what a check expects, and where it does not. Pure.

Source: decision 15: an object is a recursive subset, each element of a list is
matched by some element, scalars compare strictly.
"""

from __future__ import annotations

from typing import Any

from pipo.connectors.contract import CheckError
from pipo.payload import BadPayload, encode

# Lists compare each with each: two long ones would take minutes.
COMPARISONS_MAX = 200_000
_SHOWN_CHARACTERS = 200


def difference(wanted: Any, found: Any) -> str:
    """The first place where `found` does not hold `wanted`; empty when it holds all of it.

    Raises: CheckError, beyond COMPARISONS_MAX comparisons.
    """
    return _Comparison().difference(wanted, found, "")


class _Comparison:
    def __init__(self) -> None:
        self._left = COMPARISONS_MAX

    def difference(self, wanted: Any, found: Any, where: str) -> str:
        if isinstance(wanted, dict) and isinstance(found, dict):
            for key, value in wanted.items():
                place = f"{where}.{key}" if where else key
                if key not in found:
                    return f"there is no {place}"
                if told := self.difference(value, found[key], place):
                    return told
            return ""
        if isinstance(wanted, list) and isinstance(found, list):
            missing = (one for one in wanted if not self._is_among(one, found))
            return next(
                (f"no element of {where or 'the body'} is {show(one)}" for one in missing), ""
            )
        if self._holds(wanted, found):
            return ""
        return f"{where or 'the body'} is {show(found)}, not {show(wanted)}"

    def _holds(self, wanted: Any, found: Any) -> bool:
        self._left -= 1
        if self._left < 0:
            raise CheckError(
                f"`match` takes more than {COMPARISONS_MAX} comparisons: expect less of the body"
            )
        if isinstance(wanted, dict) and isinstance(found, dict):
            return all(
                key in found and self._holds(value, found[key]) for key, value in wanted.items()
            )
        if isinstance(wanted, list) and isinstance(found, list):
            return all(self._is_among(value, found) for value in wanted)
        return _same(wanted, found)

    def _is_among(self, wanted: Any, found: list[Any]) -> bool:
        return any(self._holds(wanted, one) for one in found)


def _same(wanted: Any, found: Any) -> bool:
    """`true` is not 1, and "1" is not 1."""
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, (int, float)) and isinstance(found, (int, float)):
        return wanted == found
    return type(wanted) is type(found) and bool(wanted == found)


def show(value: Any) -> str:
    """A value for people: whole, since half a secret could not be masked, or its kind."""
    try:
        text = encode(value).decode()
    except BadPayload:
        text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    match value:
        case dict():
            kind = "an object"
        case list():
            kind = "a list"
        case _:
            kind = "a value"
    return f"{kind} of {len(text)} characters"
