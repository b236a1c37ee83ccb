"""The variable `stats`, which survives restarts but for what is this run's."""

from __future__ import annotations

from typing import cast

import pytest

from pipo_runner.pipeline.flow.rates import MinuteRate
from pipo_runner.pipeline.flow.statistics import Journal, Statistics
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
    made = Statistics(cast(Journal, FakeJournal(counters=COUNTERS)), rate, clock)
    rate.add(4, clock.monotonic())
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
    made = Statistics(cast(Journal, FakeJournal(counters=COUNTERS)), MinuteRate(), clock)
    assert not made.message().HasField("last_delivery_at")
    made.last_delivery_at = AT
    shown = made.message()
    assert {name: getattr(shown, name) for name in made.scope()} == made.scope()
    assert shown.filtered == 1


async def test_a_run_goes_on_counting_the_minute_before_it(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the wall clock was set back meanwhile: what is to come is not of this minute."""

    async def before(rows: object, since_ms: int) -> dict[int, int]:
        assert since_ms == AT - 60_000
        now = AT // 1000
        return {now - 50: 2, now - 5: 3, now + 3600: 9}

    async def never(rows: object) -> None:
        return None

    monkeypatch.setattr("pipo.journal.reads.accepted_since", before)
    monkeypatch.setattr("pipo.journal.reads.last_delivery_at", never)
    made = Statistics(cast(Journal, FakeJournal(counters=COUNTERS)), MinuteRate(), clock)
    await made.recall()
    assert made.scope()["in_per_min"] == 5
    clock.passed_s = 30.0
    assert made.scope()["in_per_min"] == 3
