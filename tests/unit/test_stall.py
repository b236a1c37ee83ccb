"""The stall rules: a table of moments, and what must hold for any."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipo.stall import Progress, interval_ms, is_stalled, next_look_ms

# Two packets on their way since second 10, and 5 s is too long.
STUCK = Progress(after_ms=5000, pending_moving=2, clock_from_ms=10_000)


@pytest.mark.seed("D056", "D060", "D063", "D064", "D065", "D066", "D072")
@pytest.mark.parametrize(
    ("seen", "now_ms", "stalled"),
    [
        pytest.param(STUCK, 14_999, False, id="not yet"),
        pytest.param(STUCK, 15_000, True, id="after that long"),
        pytest.param(STUCK, 900_000, True, id="noticed late"),
        pytest.param(replace(STUCK, last_progress_ms=12_000), 15_000, False, id="one got through"),
        pytest.param(replace(STUCK, last_progress_ms=12_000), 17_000, True, id="and none since"),
        pytest.param(replace(STUCK, last_progress_ms=2000), 14_999, False, id="resumed since"),
        pytest.param(replace(STUCK, last_progress_ms=2000), 15_000, True, id="and stuck again"),
        pytest.param(replace(STUCK, pending_moving=0), 900_000, False, id="nothing on its way"),
        pytest.param(replace(STUCK, looking=False), 900_000, False, id="paused, or ending"),
        pytest.param(replace(STUCK, told=True), 900_000, False, id="told already"),
    ],
)
def test_a_stall_is_when_nothing_gets_through_for_too_long(
    seen: Progress, now_ms: float, stalled: bool
) -> None:
    assert is_stalled(seen, now_ms) is stalled


@pytest.mark.seed("D061", "D062")
@pytest.mark.parametrize(
    ("after_ms", "interval"),
    [(0, 50), (1, 50), (200, 50), (800, 200), (3000, 750), (4000, 1000), (86_400_000, 1000)],
)
def test_looks_are_a_quarter_of_after_apart_within_bounds(after_ms: float, interval: float) -> None:
    assert interval_ms(after_ms) == interval


def test_the_next_look_is_when_a_stall_would_be_one() -> None:
    assert next_look_ms(STUCK, 10_000) == 5001
    assert next_look_ms(replace(STUCK, last_progress_ms=13_000), 13_500) == 4501
    # Not more often than the interval, however near or past the moment is.
    assert next_look_ms(STUCK, 14_999) == 1000
    assert next_look_ms(STUCK, 99_000) == 1000
    assert next_look_ms(replace(STUCK, pending_moving=0), 10_000) is None
    assert next_look_ms(replace(STUCK, looking=False), 10_000) is None
    assert next_look_ms(replace(STUCK, told=True), 10_000) is None


MOMENTS = st.integers(0, 10**9)
ANY = st.builds(
    Progress,
    after_ms=st.floats(0, 10**8),
    pending_moving=st.integers(0, 5),
    clock_from_ms=MOMENTS,
    last_progress_ms=st.none() | MOMENTS,
    looking=st.booleans(),
    told=st.booleans(),
)


@given(ANY, MOMENTS)
def test_a_look_finds_nothing_before_the_next_one_is_due(seen: Progress, now_ms: int) -> None:
    wait_ms = next_look_ms(seen, now_ms)
    if wait_ms is None:
        assert not is_stalled(seen, now_ms)
        assert not is_stalled(seen, now_ms + 10**12)
        return
    assert wait_ms >= interval_ms(seen.after_ms)
    # The look that is due finds the stall, unless something got through; an earlier one, that
    # leaves more than an interval, finds none.
    assert is_stalled(seen, now_ms + wait_ms)
    if wait_ms > interval_ms(seen.after_ms):
        assert not is_stalled(seen, now_ms + wait_ms - 2)


@given(ANY, MOMENTS, st.integers(0, 10**9))
def test_time_alone_ends_no_stall_and_progress_always_does(
    seen: Progress, now_ms: int, later_ms: int
) -> None:
    if is_stalled(seen, now_ms):
        assert is_stalled(seen, now_ms + later_ms)
        moved = replace(seen, last_progress_ms=now_ms)
        assert is_stalled(moved, now_ms) is (seen.after_ms == 0)


@given(ANY, MOMENTS, st.integers(0, 10**6))
def test_ages_say_the_same_on_another_clock(seen: Progress, now_ms: int, ahead_ms: int) -> None:
    last = seen.last_progress_ms
    there = replace(
        seen,
        clock_from_ms=seen.clock_from_ms + ahead_ms,
        last_progress_ms=None if last is None else last + ahead_ms,
    )
    assert is_stalled(there, now_ms + ahead_ms) is is_stalled(seen, now_ms)
    assert next_look_ms(there, now_ms + ahead_ms) == next_look_ms(seen, now_ms)
