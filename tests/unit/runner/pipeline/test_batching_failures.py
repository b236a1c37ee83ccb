"""Batches that fail: what is tried again, what is split, and who pays for it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from pipo.connectors.contract import Flush, Refused, RetryAfter, WriteFailed
from pipo.journal import changes as journaled
from pipo_runner.pipeline.output import batching
from tests.unit.runner.pipeline.output.test_batching import (
    PLACES,
    WITH,
    batched,
    sizes,
    written_data,
    written_ids,
)
from tests.unit.runner.pipeline.rig import AT, Rig, quiet


def fails_for(*bad: Any) -> Any:
    """An output that takes everything but these."""
    return lambda unit: WriteFailed(f"bad {unit.data}") if unit.data in bad else {"rowid": 1}


def splits(rig: Rig) -> list[tuple[int, tuple[int, int]]]:
    return [(one.size, one.into) for one in rig.journal.of(journaled.BatchSplit)]


# ── failing ──────────────────────────────────────────────────────────────────


async def test_a_batch_is_retried_as_a_whole() -> None:
    rig = Rig(batched(3, "1h", policy="retry: 2, delay: 1s"), auto=True)
    rig.output.whole = WriteFailed("locked")
    ids = await rig.accept(1, 2, 3)
    await rig.settle()
    retried = rig.journal.of(journaled.Retried)
    assert [(r.unit, r.attempt, r.batch, r.retry_at - AT) for r in retried] == [
        (unit, 1, 3, 1000) for unit in ids
    ]
    assert rig.timers.waits_s == [1.0, 3600.0]
    rig.output.whole = None
    await rig.timers.elapse(1.0)
    await rig.settle()
    assert written_ids(rig) == [ids, ids]
    assert [unit.repeat for unit in rig.output.writes[1]] == ["recovered"] * 3
    assert [rig.journal.names(unit)[-1] for unit in ids] == ["Delivered"] * 3
    assert splits(rig) == []


@pytest.mark.parametrize("power", [0, 1, 2, 3, 4, 5, 6])
async def test_one_bad_unit_of_a_power_of_two_costs_as_many_splits(power: int) -> None:
    count = 2**power
    bad = count * 2 // 3
    rig = Rig(batched(count, "1h"), auto=True)
    rig.output.answer = fails_for(bad)
    ids = await rig.accept(*range(count))
    await rig.timers.elapse(100.0)
    await rig.settle()
    assert splits(rig) == [(2**n, (2 ** (n - 1), 2 ** (n - 1))) for n in range(power, 0, -1)]
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.unit, dead.error.message, dead.error.attempts) == (ids[bad], f"bad {bad}", 2)
    assert len(rig.journal.of(journaled.Delivered)) == count - 1
    assert (len(rig.parts.pending), rig.parts.executor.in_hand) == (0, 0)


async def test_the_larger_half_comes_first_and_each_half_has_all_retries() -> None:
    rig = Rig(batched(5, "1h"), auto=True)
    rig.output.answer = fails_for(3)
    began = rig.clock.passed_s
    ids = await rig.accept(1, 2, 3, 4, 5)
    tries: list[tuple[float, list[Any]]] = []
    write = rig.output.write

    async def noted(units: Any, *, atomic: bool) -> Flush:
        tries.append((rig.clock.passed_s - began, [unit.data for unit in units]))
        return await write(units, atomic=atomic)

    rig.output.write = noted  # type: ignore[method-assign]
    await rig.timers.elapse(100.0)
    await rig.settle()
    assert tries == [
        (1.0, [1, 2, 3, 4, 5]),
        (1.0, [1, 2, 3]),
        (2.0, [1, 2, 3]),
        (2.0, [1, 2]),
        (2.0, [3]),
        (3.0, [3]),
        (3.0, [4, 5]),
    ]
    assert splits(rig) == [(5, (3, 2)), (3, (2, 1))]
    assert sizes(rig) == {ids[0]: 2, ids[1]: 2, ids[3]: 2, ids[4]: 2}
    # Those of the single unit are its own.
    assert [(r.batch, r.attempt) for r in rig.journal.of(journaled.Retried)][-1] == (None, 1)


async def test_when_all_are_bad_it_ends() -> None:
    rig = Rig(batched(5, "1h", policy="retry: 0"), auto=True)
    rig.output.answer = lambda unit: WriteFailed(f"bad {unit.data}")
    ids = await rig.accept(1, 2, 3, 4, 5)
    await rig.settle()
    dead = rig.journal.of(journaled.DeadLettered)
    assert [(one.unit, one.error.message) for one in dead] == [
        (unit, f"bad {n}") for n, unit in enumerate(ids, 1)
    ]
    assert len(splits(rig)) == 4
    assert len(rig.parts.pending) == 0


async def test_what_the_receiver_asks_for_is_waited_for() -> None:
    rig = Rig(batched(2, "1h", policy="retry: 2, delay: 1s, max_delay: 5s"), auto=True)
    rig.output.whole = RetryAfter("slow", seconds=3.0)
    await rig.accept(1, 2)
    assert rig.timers.waits_s[0] == 3.0
    rig.output.whole = RetryAfter("slow", seconds=60.0)
    await rig.timers.elapse(3.0)
    assert rig.timers.waits_s[0] == 5.0
    rig.output.whole = None
    await rig.timers.elapse(5.0)
    assert rig.journal.names()[-1] == "Delivered"


async def test_what_is_refused_is_split_at_once() -> None:
    rig = Rig(batched(2, "1h", policy="retry: 5, delay: 1s"), auto=True)
    rig.output.whole = Refused("never")
    await rig.accept(1, 2)
    await rig.settle()
    assert [len(group) for group in rig.output.writes] == [2, 1, 1]
    dead = rig.journal.of(journaled.DeadLettered)
    assert [one.error.attempts for one in dead] == [1, 1]
    assert rig.journal.of(journaled.Retried) == []


async def test_a_single_unit_says_itself_that_no_retry_can_help() -> None:
    rig = Rig(batched(2, "1h", policy="retry: 1, delay: 1s"), auto=True)
    rig.output.answer = lambda unit: Refused("no column") if unit.data == 1 else {"rowid": 1}
    await rig.accept(1, 2)
    await rig.timers.elapse(1.0)
    await rig.settle()
    assert rig.output.atomic == [True, True, False, False]
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.error.message, dead.error.attempts) == ("no column", 1)


async def test_a_bug_in_the_output_follows_the_policy() -> None:
    rig = Rig(batched(2, "1h", policy="retry: 0"), auto=True)
    rig.output.whole = ZeroDivisionError("oops")
    await rig.accept(1, 2)
    await rig.settle()
    assert ("error", "the write failed unexpectedly") in rig.logged
    assert len(rig.journal.of(journaled.DeadLettered)) == 2
    assert rig.timers.crashes == []


async def test_errors_of_a_batch_are_redacted() -> None:
    rig = Rig(batched(2, "1h"), auto=True, secrets={"key": "s3cr3t-value"})
    rig.output.whole = WriteFailed("denied for s3cr3t-value")
    await rig.accept(1, 2)
    await rig.timers.elapse(10.0)
    await rig.settle()
    assert {r.error for r in rig.journal.of(journaled.Retried)} == {"denied for ***"}
    assert {s.error for s in rig.journal.of(journaled.BatchSplit)} == {"denied for ***"}
    assert {d.error.message for d in rig.journal.of(journaled.DeadLettered)} == {"denied for ***"}


async def test_the_next_batch_waits_until_the_one_before_has_ended() -> None:
    rig = Rig(batched(2, "1h"), auto=True)
    rig.output.answer = fails_for(1)
    await rig.accept(1, 2, 3, 4)
    await rig.timers.elapse(1.0)
    await rig.settle()
    assert written_data(rig) == [[1, 2], [1, 2], [1]]
    await rig.timers.elapse(1.0)
    await rig.settle()
    assert written_data(rig)[3:] == [[1], [2], [3, 4]]


async def test_a_batched_writes_time_is_the_groups() -> None:
    rig = Rig(batched(2, "10s"), auto=True)
    rig.output.whole = WriteFailed("locked")
    await rig.accept(1)
    await rig.timers.elapse(10.0)
    rig.output.whole = None
    await rig.timers.elapse(1.0)
    assert [one.ms for one in rig.journal.of(journaled.Written)] == [1000.0]


# ── several places ───────────────────────────────────────────────────────────


async def test_a_batch_is_one_write_per_place() -> None:
    rig = Rig(batched(4, "1h", settings=PLACES), auto=True)
    ids = await rig.accept(*({"place": place} for place in "abab"))
    await rig.settle()
    assert written_ids(rig) == [[ids[0], ids[2]], [ids[1], ids[3]]]
    assert rig.output.atomic == [True, True]
    assert sizes(rig) == dict.fromkeys(ids, 4)


async def test_the_failure_of_a_place_is_its_own() -> None:
    rig = Rig(batched(4, "1h", settings=PLACES), auto=True)
    rig.output.answer = lambda unit: (
        WriteFailed("locked") if unit.data["place"] == "a" else {"rowid": 1}
    )
    ids = await rig.accept(*({"place": place} for place in "aabb"))
    await rig.settle()
    assert [rig.journal.names(unit)[-1] for unit in ids] == ["Retried"] * 2 + ["Delivered"] * 2
    assert {r.batch for r in rig.journal.of(journaled.Retried)} == {2}
    rig.output.answer = lambda unit: {"rowid": 1}
    await rig.timers.elapse(1.0)
    await rig.settle()
    assert sizes(rig) == {ids[0]: 2, ids[1]: 2, ids[2]: 4, ids[3]: 4}


async def test_many_places_are_written_some_at_a_time() -> None:
    rig = Rig(batched(20, "1h", settings=PLACES), auto=True)
    rig.output.hold()
    await rig.accept(*({"place": f"p{n}"} for n in range(20)))
    await quiet()
    assert len(rig.output.writes) == batching.PLACES_AT_ONCE
    rig.output.let_go()
    await rig.settle()
    assert len(rig.output.writes) == 20


# ── policies ─────────────────────────────────────────────────────────────────


async def test_the_isolated_unit_is_held_and_the_others_are_written() -> None:
    rig = Rig(batched(4, "1h", policy="retry: 0, then: pause"), auto=True)
    rig.output.answer = fails_for(2)
    ids = await rig.accept(1, 2, 3, 4)
    await rig.settle()
    (held,) = rig.journal.of(journaled.Held)
    assert (held.unit, held.how) == (ids[1], "pause")
    assert [one.reason for one in rig.journal.of(journaled.Paused)] == ["error at $output"]
    assert {one.unit for one in rig.journal.of(journaled.Delivered)} == {ids[0], ids[2], ids[3]}
    rig.output.answer = fails_for()
    await rig.parts.pausing.resume()
    await rig.settle()
    rig.parts.batches.hasten()
    await rig.settle()
    assert rig.output.written[-1] == ids[1]
    # It stayed where it was: no second wait is journaled.
    assert rig.journal.names(ids[1]).count("Batched") == 1
    assert (len(rig.parts.pending), rig.parts.executor.in_hand) == (0, 0)


async def test_the_isolated_unit_that_is_escalated_waits_at_the_output() -> None:
    rig = Rig(
        batched(2, "1h", policy="retry: 0, then: agent", rest="agent: { control: true }"), auto=True
    )
    rig.output.answer = fails_for(1)
    ids = await rig.accept(1, 2)
    await rig.settle()
    (escalated,) = rig.journal.of(journaled.Escalated)
    assert (escalated.unit, escalated.cursor) == (ids[0], "$output")
    unit = rig.parts.pending.back(ids[0])
    assert unit is not None
    rig.parts.executor.enqueue(unit)
    await rig.settle()
    assert rig.journal.names(ids[0]).count("Batched") == 2


async def test_a_stalls_mark_splits_the_batch_and_escalates_what_fails_alone() -> None:
    body = batched(4, "1h", policy="retry: 5, delay: 1s", rest="agent: { control: true }")
    rig = Rig(body, auto=True)
    rig.output.whole = WriteFailed("locked")
    ids = await rig.accept(1, 2, 3, 4)
    await rig.settle()
    for marked in ids[:2]:
        unit = rig.parts.pending.find(marked)
        assert unit is not None
        unit.stall = "nothing gets through"
    rig.output.whole = None
    rig.output.answer = fails_for(1)
    await rig.timers.elapse(1.0)
    await rig.settle()
    # Its neighbours are written, the other marked one too.
    assert written_data(rig) == [[1, 2, 3, 4]] * 2 + [[1, 2], [1], [2], [3, 4]]
    (escalated,) = rig.journal.of(journaled.Escalated)
    assert (escalated.unit, escalated.reason, escalated.error.message) == (ids[0], "stall", "bad 1")
    assert len(rig.journal.of(journaled.Delivered)) == 3


# ── at random ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("turn", range(25))
async def test_whatever_fails_each_unit_ends_once_as_it_deserves(turn: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed, turn)
    chance = random.Random(seed)
    size, count = chance.choice([1, 2, 3, 7, 16, 50]), chance.randrange(1, 60)
    bad = {n for n in range(count) if chance.random() < chance.choice([0.0, 0.1, 0.9])}
    stored: Counter[int] = Counter()
    rest = f"concurrency: {chance.choice([1, 3, 8])}"
    settings = PLACES.replace("data.place", "data.n % 3") if chance.random() < 0.5 else WITH
    rig = Rig(batched(size, "500ms", settings=settings, rest=rest), auto=True)
    rig.output.answer = lambda unit: (
        WriteFailed("bad") if unit.data["n"] in bad else {"rowid": unit.data["n"]}
    )
    write = rig.output.write

    async def sometimes(units: Any, *, atomic: bool) -> Flush:
        flush = await write(units, atomic=atomic)
        good = (u.data["n"] for u, made in zip(units, flush.results, strict=True) if made)
        stored.update(n for n in good if n not in bad)
        return flush

    rig.output.write = sometimes  # type: ignore[method-assign]
    ids: list[str] = []
    while len(ids) < count:
        some = chance.randrange(1, count - len(ids) + 1)
        ids += await rig.accept(*({"n": n} for n in range(len(ids), len(ids) + some)))
        if chance.random() < 0.4:
            await rig.parts.pausing.pause("manual")
            await rig.timers.elapse(chance.random() * 2)
            await rig.parts.pausing.resume()
        await rig.timers.elapse(chance.random() * 2)
    await rig.timers.elapse(500.0)
    await rig.settle()
    dead = Counter(one.unit for one in rig.journal.of(journaled.DeadLettered))
    delivered = Counter(one.unit for one in rig.journal.of(journaled.Delivered))
    assert dead == Counter(ids[n] for n in bad)
    assert delivered == Counter(ids[n] for n in range(count) if n not in bad)
    assert stored == Counter(n for n in range(count) if n not in bad)
    assert all(rig.journal.names(unit).count("Batched") == 1 for unit in ids)
    assert {one.error.attempts for one in rig.journal.of(journaled.DeadLettered)} <= {2}
    assert not rig.output.overlapped
    assert (len(rig.parts.pending), rig.parts.executor.in_hand) == (0, 0)
    assert rig.timers.crashes == []
