"""Records behave as frozen dataclasses do, but for the price of making one."""

from __future__ import annotations

import timeit
from dataclasses import dataclass

from pipo.records import record


@record
class Quick:
    one: int
    two: str
    three: str
    four: str
    five: int = 5


@dataclass(frozen=True, slots=True)
class Frozen:
    one: int
    two: str
    three: str
    four: str
    five: int = 5


def test_a_record_is_compared_and_hashed_by_its_fields() -> None:
    assert Quick(1, "b", "c", "d") == Quick(1, "b", "c", "d", 5)
    assert len({Quick(1, "b", "c", "d"), Quick(1, "b", "c", "d"), Quick(2, "b", "c", "d")}) == 2
    assert repr(Quick(1, "b", "c", "d")) == "Quick(one=1, two='b', three='c', four='d', five=5)"
    assert not hasattr(Quick(1, "b", "c", "d"), "__dict__")


def test_a_record_is_made_in_less_than_half_the_time_of_a_frozen_one() -> None:
    def quickest(kind: type[Quick] | type[Frozen]) -> float:
        return min(timeit.repeat(lambda: kind(1, "b", "c", "d"), number=500, repeat=20))

    assert quickest(Quick) < quickest(Frozen) / 2
