"""The variable `stats`, which survives restarts but for what is this run's."""

from __future__ import annotations

import pytest

from pipo_runner.pipeline.rates import MinuteRate
from pipo_runner.pipeline.statistics import Statistics
from tests.unit.runner.pipeline.rig import AT, FakeClock, FakeJournal

COUNTERS = {
    "all.accepted": 12,
    "all.delivered": 7,
    "all.filtered": 1,
    "now.processing": 1,
    "now.escalated": 2,
    "now.dead_lettered": 1,
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_the_counts_are_the_journals_and_the_time_is_this_runs(clock: FakeClock) -> None:
    rate = MinuteRate()
    made = Statistics(FakeJournal(counters=COUNTERS), rate, clock)
    rate.add(4, clock.now_ms())
    clock.passed_s = 59.9
    assert made.scope() == {
        "accepted": 12,
        "delivered": 7,
        "pending": 3,
        "escalated": 2,
        "dead_lettered": 1,
        "uptime": 59,
        "in_per_min": 4,
        "last_delivery_at": None,
    }
    clock.passed_s = 61.0
    made.last_delivery_at = AT
    assert (made.scope()["in_per_min"], made.scope()["last_delivery_at"]) == (0, AT)


def test_status_shows_the_same_numbers(clock: FakeClock) -> None:
    made = Statistics(FakeJournal(counters=COUNTERS), MinuteRate(), clock)
    assert not made.message().HasField("last_delivery_at")
    made.last_delivery_at = AT
    shown = made.message()
    assert {name: getattr(shown, name) for name in made.scope()} == made.scope()
    assert shown.filtered == 1
