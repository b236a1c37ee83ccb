"""Records: what is made for every packet, and altered by nobody.

A frozen dataclass sets each of its fields by a call, which takes several times as long as making
one that is not frozen; a packet's way makes a dozen of them. So `record` leaves the promise to the
type checker, which holds it before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """A dataclass with slots, compared and hashed by its fields; frozen to the type checker."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
