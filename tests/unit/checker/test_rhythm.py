from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipo_checker import rhythm


def looks(
    check: str = "query", *, within_ms: int, left_ms: int | None = None, took_s: float = 0.0
) -> tuple[list[float], float]:
    """When each look begins, and when the last one ends, from the offer on."""
    left_ms = within_ms if left_ms is None else left_ms
    made = rhythm.begin(check, 0.0, within_left_ms=left_ms, within_ms=within_ms)
    begun: list[float] = []
    due: float | None = 0.0
    while due is not None:
        begun.append(due)
        finished = due + took_s
        due = rhythm.next_look(made, finished)
    return begun, finished


@pytest.mark.seed("D012")
def test_looks_every_250_ms_and_once_more_at_the_deadline() -> None:
    assert looks(within_ms=1000) == ([0.0, 0.25, 0.5, 0.75, 1.0], 1.0)
    assert looks(within_ms=600) == ([0.0, 0.25, 0.5, 0.6], 0.6)


@pytest.mark.seed("D013")
def test_a_short_within_is_the_interval() -> None:
    assert looks(within_ms=100) == ([0.0, 0.1], 0.1)


def test_the_pause_counts_from_the_end_of_a_slow_look() -> None:
    assert looks(within_ms=10_000, took_s=5.0) == ([0.0, 5.25], 10.25)


@pytest.mark.parametrize("left_ms", [0, -3000])
def test_there_is_one_look_when_nothing_is_left_of_within(left_ms: int) -> None:
    assert looks(within_ms=1000, left_ms=left_ms) == ([0.0], 0.0)


def test_a_still_check_looks_now_and_at_the_deadline() -> None:
    assert looks("status", within_ms=10_000) == ([0.0, 10.0], 10.0)


@given(
    within_ms=st.integers(0, 5000),
    left_ms=st.integers(-1000, 5000),
    took_s=st.floats(0, 2, allow_subnormal=False),
)
def test_the_loop_always_ends_and_never_before_the_deadline(
    within_ms: int, left_ms: int, took_s: float
) -> None:
    begun, finished = looks(within_ms=within_ms, left_ms=left_ms, took_s=took_s)
    assert begun[0] == 0.0
    assert finished >= max(left_ms, 0) / 1000
    assert begun[-1] <= max(left_ms, 0) / 1000


def test_a_pause_that_was_asked_for_is_kept_up_to_the_deadline() -> None:
    made = rhythm.begin("follow_up", 0.0, within_left_ms=10_000, within_ms=10_000)
    assert rhythm.next_look(made, 1.0, 3.0) == 4.0
    assert rhythm.next_look(made, 1.0, 0.1) == 1.25
    assert rhythm.next_look(made, 1.0, 60.0) == 10.0
    assert rhythm.next_look(made, 10.0, 3.0) is None
