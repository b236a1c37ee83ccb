"""Ticks on a grid and by the calendar, with a clock that the test moves (edges 41 to 48)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipo.clock import iso
from pipo.connectors.schedule.timetable import ByCron, Every
from pipo.lang.cron import Cron


class MovedClock:
    """Wall and monotonic time as the test sets them."""

    def __init__(self, start: str) -> None:
        self.wall_ms = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() * 1000)
        self.steady_s = 100.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.steady_s

    def jitter(self, span_s: float) -> float:
        return 0.0

    def pass_s(self, seconds: float) -> None:
        self.wall_ms += round(seconds * 1000)
        self.steady_s += seconds


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock("2026-11-30T10:00:30")


def test_the_first_tick_comes_a_full_period_after_the_start(clock: MovedClock) -> None:
    table = Every(10_000, clock)
    assert table.wait_s() == pytest.approx(10)
    clock.pass_s(9.9)
    assert table.wait_s() > 0
    clock.pass_s(0.1)
    assert table.wait_s() == pytest.approx(0)
    assert iso(table.due_ms()) == "2026-11-30T10:00:40.000Z"


def test_ticks_stay_on_the_grid_and_late_ones_are_missed(clock: MovedClock) -> None:
    table = Every(10_000, clock)
    clock.pass_s(13)
    assert table.advance() == 0
    assert table.wait_s() == pytest.approx(7)
    assert iso(table.due_ms()) == "2026-11-30T10:00:50.000Z"
    clock.pass_s(7 + 34)
    assert table.advance() == 3
    assert table.wait_s() == pytest.approx(6)
    assert iso(table.due_ms()) == "2026-11-30T10:01:30.000Z"


def test_every_does_not_follow_the_wall_clock(clock: MovedClock) -> None:
    table = Every(10_000, clock)
    clock.wall_ms -= 3_600_000
    assert table.wait_s() == pytest.approx(10)


def test_a_fraction_of_a_millisecond_does_not_drift(clock: MovedClock) -> None:
    table = Every(1.5, clock)
    for _ in range(1000):
        clock.steady_s += max(0.0, table.wait_s()) + 1e-9
        assert table.advance() == 0
    assert clock.steady_s - 100 == pytest.approx(1.5, abs=1e-4)


def by_cron(text: str, clock: MovedClock) -> ByCron:
    return ByCron(Cron(text), clock)


def test_cron_ticks_at_its_minutes(clock: MovedClock) -> None:
    table = by_cron("* * * * *", clock)
    assert table.wait_s() == pytest.approx(30)
    clock.pass_s(30)
    assert table.wait_s() <= 0
    assert iso(table.due_ms()) == "2026-11-30T10:01:00.000Z"
    assert table.advance() == 0
    assert iso(table.due_ms()) == "2026-11-30T10:02:00.000Z"


def test_a_timer_that_fires_early_makes_no_minute_twice(clock: MovedClock) -> None:
    table = by_cron("* * * * *", clock)
    clock.pass_s(29.995)
    assert table.advance() == 0
    assert iso(table.due_ms()) == "2026-11-30T10:02:00.000Z"


def test_cron_counts_what_it_missed(clock: MovedClock) -> None:
    table = by_cron("*/5 * * * *", clock)
    clock.pass_s(3600)
    assert table.advance() == 11
    assert iso(table.due_ms()) == "2026-11-30T11:05:00.000Z"


def test_a_very_long_gap_is_counted_up_to_a_limit(clock: MovedClock) -> None:
    table = by_cron("* * * * *", clock)
    clock.pass_s(100 * 24 * 3600)
    assert table.advance() == 1000
    assert 0 < table.wait_s() <= 60


def test_a_clock_that_jumps_ahead_is_noticed(clock: MovedClock) -> None:
    table = by_cron("0 12 * * *", clock)
    clock.wall_ms += 2 * 3_600_000
    assert table.wait_s() <= 0


def test_a_clock_that_is_set_back_a_little_repeats_nothing(clock: MovedClock) -> None:
    table = by_cron("*/30 * * * *", clock)
    clock.pass_s(1800)
    table.advance()
    clock.wall_ms -= 3_600_000
    assert iso(table.due_ms()) == "2026-11-30T11:00:00.000Z"
    assert table.wait_s() > 3600


def test_a_clock_that_was_years_ahead_starts_anew(clock: MovedClock) -> None:
    clock.wall_ms += 4 * 365 * SET_DAY_MS
    table = by_cron("0 12 * * *", clock)
    clock.wall_ms -= 4 * 365 * SET_DAY_MS
    assert table.wait_s() < 2 * 3600


SET_DAY_MS = 24 * 3600 * 1000
