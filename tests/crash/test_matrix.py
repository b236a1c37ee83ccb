"""The covering set of the kills at outputs covers, and no case of it is too many."""

from __future__ import annotations

from tests.crash.matrix import SIZES, covering, product


def test_every_two_values_that_can_meet_do() -> None:
    wanted = {pair for case in product() for pair in case.pairs}
    chosen = list(covering())
    assert {pair for case in chosen for pair in case.pairs} == wanted
    for left_out in chosen:
        rest = {pair for case in chosen if case != left_out for pair in case.pairs}
        assert rest != wanted, f"{left_out} adds nothing"


def test_every_size_is_tried_often() -> None:
    sizes = [case.size for case in covering()]
    assert all(sizes.count(size) >= len(sizes) // 5 for size in SIZES)
