"""`MISSING`: what is not there, which is not null. JavaScript calls it undefined."""

from __future__ import annotations

from typing import Final, Literal


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
