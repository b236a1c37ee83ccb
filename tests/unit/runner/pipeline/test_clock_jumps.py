"""The wall clock is set by an hour, either way, while a pipeline runs: nothing notices.

Each part that waits is given a wait, the wall clock is set in its midst, and the wait ends when it
would have ended. What a restart makes of a clock that was set stands with the parts themselves
(test_resuming, test_acks, test_lifetime), `every` and `cron` with their timetables.
"""

from __future__ import annotations

import pytest

from pipo.connectors.contract import WriteFailed
from pipo.journal.changes import Stalled, Unverified
from pipo_runner.pipeline.resuming import take_up
from tests.unit.runner.pipeline.delivery.test_acks import PARKS, parked, rig_of
from tests.unit.runner.pipeline.life.test_stalling import Jam
from tests.unit.runner.pipeline.rig import AT, PLAIN, TABLE, Rig, pending, quiet
from tests.unit.runner.pipeline.test_measures import series
from tests.unit.runner.pipeline.test_resuming import recovery

HOUR_MS = 3_600_000
both_ways = pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "back"])


@both_ways
async def test_a_retry_waits_as_long_as_its_policy_says(by_ms: int) -> None:
    rig = Rig(f"{PLAIN[:-3]}, on_error: {{ retry: 2, delay: 10s }} }}\n", auto=True)
    rig.output.answer = lambda unit: WriteFailed("busy")
    await rig.accept({"n": 1})
    await quiet()
    assert (len(rig.output.writes), rig.timers.waits_s) == (1, [10.0])
    rig.clock.set_ms = by_ms
    await rig.timers.elapse(9.9)
    assert len(rig.output.writes) == 1
    await rig.timers.elapse(0.1)
    assert len(rig.output.writes) == 2


@both_ways
async def test_a_batch_is_flushed_when_its_first_packet_has_waited(by_ms: int) -> None:
    rig = Rig(
        f"input: {{ via: push }}\noutput: {{ from: input, {TABLE},"
        " batch: { size: 9, within: 10s } }\n",
        auto=True,
    )
    await rig.accept(1, 2)
    await quiet()
    rig.clock.set_ms = by_ms
    await rig.timers.elapse(9.9)
    assert rig.output.writes == []
    await rig.timers.elapse(0.2)
    assert len(rig.output.writes) == 1


@both_ways
async def test_an_ack_is_missed_when_its_window_is_over(by_ms: int) -> None:
    rig = rig_of(PARKS)
    await parked(rig, {"n": 1})
    rig.clock.set_ms = by_ms
    await rig.timers.elapse(3599.0)
    await rig.settle()
    assert rig.journal.of(Unverified) == []
    await rig.timers.elapse(1.0)
    await rig.settle()
    assert len(rig.journal.of(Unverified)) == 1


@both_ways
async def test_a_stall_is_told_after_that_long(by_ms: int) -> None:
    rig = Jam()
    await rig.accept({"n": 1})
    await quiet()
    rig.clock.set_ms = by_ms
    await rig.timers.elapse(7.9)
    assert rig.journal.of(Stalled) == []
    await rig.timers.elapse(1.0)
    assert len(rig.journal.of(Stalled)) == 1


@both_ways
async def test_a_minute_of_the_statistics_is_one(by_ms: int) -> None:
    rig = Rig(PLAIN, auto=True)
    await rig.accept(1, 2, 3)
    rig.clock.set_ms = by_ms
    rig.clock.passed_s = 50.0
    await rig.accept(4)
    found = rig.parts.statistics.scope()
    assert (found["in_per_min"], found["uptime"]) == (4, 50)
    rig.clock.passed_s = 70.0
    assert rig.parts.statistics.scope()["in_per_min"] == 1


@both_ways
async def test_no_delivery_takes_less_than_no_time(by_ms: int) -> None:
    rig = Rig(PLAIN, auto=True)
    rig.output.hold()
    await rig.accept(1)
    rig.clock.set_ms = by_ms
    rig.clock.passed_s = 2.0
    rig.output.let_go()
    await quiet()
    (seen,) = series(rig.parts.measures)["pipo_delivery_duration_seconds"]
    assert seen.histogram.sum == 2.0


@both_ways
async def test_a_packet_of_an_earlier_run_took_no_less_than_no_time(by_ms: int) -> None:
    rig = Rig(PLAIN, auto=True, recovery=recovery(pending(1, received_at=AT - 5000)))
    rig.clock.set_ms = by_ms
    await take_up(recovery(pending(1, received_at=AT - 5000)).units, rig.around, rig.parts)
    await quiet()
    (seen,) = series(rig.parts.measures)["pipo_delivery_duration_seconds"]
    assert seen.histogram.sum == (max(0, by_ms) / 1000 + 5 if by_ms > 0 else 0)


@both_ways
async def test_ids_only_rise(by_ms: int) -> None:
    rig = Rig(PLAIN, auto=True)
    ids = await rig.accept(1)
    rig.clock.set_ms = by_ms
    ids += await rig.accept(2)
    rig.clock.set_ms = -by_ms
    ids += await rig.accept(3)
    assert ids == sorted(ids)
