"""Batches: who waits for whom, what is written together, and what failures cost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from pipo.connectors.contract import (
    Flush,
    NotConnected,
    Refused,
    RetryAfter,
    Settlement,
    WriteFailed,
    WriteUnit,
)
from pipo.errors import Unavailable
from pipo.journal import changes as journaled
from pipo.journal.recover import Recovery
from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo_runner.pipeline import batching
from pipo_runner.pipeline.failures import DataDamaged
from pipo_runner.pipeline.recovery import unit_of
from pipo_runner.pipeline.units import UNLOADED
from tests.unit.runner.pipeline.rig import AT, Rig, pending, quiet, until
from tests.unit.runner.pipeline.test_resuming import resumed
from tests.unit.runner.pipeline.test_verification import Checker

WITH = "with: { path: ./people.db, table: people, create: true }"


def batched(
    size: int,
    within: str = "2s",
    *,
    policy: str = "retry: 1, delay: 1s",
    settings: str = WITH,
    rest: str = "",
    more: str = "",
) -> str:
    """A pipeline whose output has a batch."""
    return f"""
input: {{ via: push }}
output:
  from: input
  to: sqlite
  batch: {{ size: {size}, within: {within} }}
  {settings}
  on_error: {{ {policy} }}
{more}
{rest}
"""


KEYED = 'with: { path: ./p.db, table: p, create: true, key: email, columns: { email: "${data.email}" } }'
ATTEMPT = (
    "with: { path: ./p.db, table: p, create: true,"
    ' columns: { packet_id: "${meta.key}", tries: "${meta.attempt}" } }'
)
PLACES = 'with: { path: "./${data.place}.db", table: people, create: true }'


def written_ids(rig: Rig) -> list[list[str]]:
    return [[unit.id for unit in group] for group in rig.output.writes]


def written_data(rig: Rig) -> list[list[Any]]:
    return [[unit.data for unit in group] for group in rig.output.writes]


def fails_for(*bad: Any) -> Any:
    """An output that takes everything but these."""
    return lambda unit: WriteFailed(f"bad {unit.data}") if unit.data in bad else {"rowid": 1}


def sizes(rig: Rig) -> dict[str, int]:
    return {one.unit: one.group_size for one in rig.journal.of(journaled.Written)}


def splits(rig: Rig) -> list[tuple[int, tuple[int, int]]]:
    return [(one.size, one.into) for one in rig.journal.of(journaled.BatchSplit)]


# ── collecting ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 7, 100])
async def test_a_batch_is_flushed_when_it_has_its_size(size: int) -> None:
    rig = Rig(batched(size, "1h"), auto=True)
    ids = await rig.accept(*range(2 * size + size // 2))
    await until(lambda: len(rig.journal.of(journaled.Batched)) == len(ids))
    await rig.settle()
    assert written_ids(rig) == [ids[:size], ids[size : 2 * size]]
    assert rig.output.atomic == [size > 1] * 2
    assert set(sizes(rig).values()) == {size}
    assert rig.parts.executor.in_hand == 0


async def test_a_batch_is_flushed_when_its_first_unit_has_waited() -> None:
    rig = Rig(batched(100, "2s"), auto=True)
    await rig.accept(1)
    await rig.timers.elapse(1.5)
    await rig.accept(2)
    assert rig.timers.waits_s == [0.5]
    await rig.timers.elapse(0.499)
    assert rig.output.writes == []
    await rig.timers.elapse(0.001)
    assert written_data(rig) == [[1, 2]]
    assert [set(sizes(rig).values()), rig.timers.waits_s] == [{2}, []]


async def test_the_next_batch_waits_its_whole_time_behind_a_full_one() -> None:
    """The timer of the full batch is still under way; it is set anew, and there is never a second."""
    rig = Rig(batched(2, "2s"), auto=True)
    await rig.accept(1)
    await rig.timers.elapse(1.0)
    await rig.accept(2, 3)
    assert written_data(rig) == [[1, 2]]
    assert rig.timers.waits_s == [1.0]
    await rig.timers.elapse(1.0)
    assert rig.timers.waits_s == [1.0]
    await rig.timers.elapse(0.999)
    assert len(rig.output.writes) == 1
    await rig.timers.elapse(0.001)
    assert written_data(rig)[1:] == [[3]]


async def test_no_timer_is_set_while_nothing_waits() -> None:
    rig = Rig(batched(1, "2s"), auto=True)
    await rig.accept(1, 2)
    assert rig.timers.waits_s == []


async def test_a_unit_counts_only_once_its_wait_is_on_disk() -> None:
    rig = Rig(batched(2, "1h"))
    ids = await rig.accept(1, 2)
    assert [rig.journal.names(unit) for unit in ids] == [["Accepted", "Batched"]] * 2
    assert rig.output.writes == []
    await rig.journal.land()
    assert written_data(rig) == [[1, 2]]
    assert rig.parts.executor.in_hand == 0


async def test_slots_come_back_at_once_until_the_disk_falls_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "JOINING_UNITS_LIMIT", 3)
    rig = Rig(batched(100, "1h", rest="concurrency: 2"))
    await rig.accept(*range(10))
    # Two and two did not wait for the disk; with four on their way to it, two more do.
    assert (len(rig.journal.of(journaled.Batched)), rig.parts.executor.in_hand) == (6, 2)
    await rig.settle()
    assert (len(rig.journal.of(journaled.Batched)), rig.parts.executor.in_hand) == (10, 0)


async def test_slots_come_back_at_once_until_much_waits_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "BATCH_BYTES_LIMIT", 300)
    rig = Rig(batched(100, "1h", rest="concurrency: 2"))
    await rig.accept(*("x" * 98 for _ in range(10)))
    assert (len(rig.journal.of(journaled.Batched)), rig.parts.executor.in_hand) == (6, 2)
    await rig.settle()
    assert (len(rig.journal.of(journaled.Batched)), rig.parts.executor.in_hand) == (10, 0)


async def test_what_waits_holds_no_slot() -> None:
    rig = Rig(batched(3, "1h", rest="concurrency: 1"), auto=True)
    ids = await rig.accept(1, 2, 3)
    await rig.settle()
    assert written_ids(rig) == [ids]
    assert [rig.journal.names(unit)[-1] for unit in ids] == ["Delivered"] * 3
    assert rig.parts.executor.in_hand == 0


async def test_with_one_slot_a_batched_unit_waits_for_its_check_without_it() -> None:
    check = 'delivered: { check: record_exists, with: { where: { packet_id: "${meta.key}" } } }'
    rig = Rig(batched(2, "1h", rest=f"concurrency: 1\n{check}"), auto=True)
    await rig.accept(1, 2, 3, 4)
    await rig.settle()
    assert written_data(rig) == [[1, 2], [3, 4]]
    assert (len(rig.parts.verifications), rig.parts.executor.in_hand) == (4, 0)


async def test_an_invalid_unit_never_joins() -> None:
    rig = Rig(batched(3, "1h", more="  validate: [data != 2]"), auto=True)
    ids = await rig.accept(1, 2, 3, 4)
    await rig.settle()
    assert written_ids(rig) == [[ids[0], ids[2], ids[3]]]
    assert rig.journal.names(ids[1]) == ["Accepted", "DeadLettered"]
    assert rig.parts.executor.in_hand == 0


async def test_what_cannot_be_rendered_never_joins() -> None:
    rig = Rig(batched(2, "1h", policy="retry: 0", settings=PLACES), auto=True)
    ids = await rig.accept({}, {"place": "a"}, {"place": "a"})
    await rig.settle()
    assert written_ids(rig) == [ids[1:]]
    assert rig.journal.names(ids[0]) == ["Accepted", "DeadLettered"]


async def test_an_explicit_key_is_on_disk_before_the_write_and_costs_no_commit_of_its_own() -> None:
    rig = Rig(batched(1, settings=KEYED))
    (unit,) = await rig.accept({"email": "a@b.c"})
    assert rig.journal.names(unit) == ["Accepted", "Batched", "Writing"]
    assert rig.output.writes == []
    await rig.journal.land()
    assert [one.key for one in rig.output.writes[0]] == ["a@b.c"]
    assert rig.journal.names(unit)[3:] == ["Written", "Delivered"]


async def test_flushes_follow_each_other_while_the_next_collects() -> None:
    rig = Rig(batched(2, "1h"), auto=True)
    rig.output.hold()
    await rig.accept(1, 2)
    await rig.accept(3, 4, 5, 6, 7)
    assert written_data(rig) == [[1, 2]]
    rig.output.let_go()
    await rig.settle()
    assert written_data(rig) == [[1, 2], [3, 4], [5, 6]]
    assert not rig.output.overlapped


async def test_each_version_has_batches_of_its_own() -> None:
    rig = Rig(batched(2, "1h"), auto=True)

    async def source(version: int) -> str:
        return "pipo: 1\nname: people" + batched(2, "1h")

    await rig.plans.add_older({0}, source)
    units = [unit_of(pending(n, version=n % 2)) for n in range(5)]
    for unit in units:
        rig.parts.pending.add(unit)
        rig.parts.executor.enqueue(unit)
    await rig.settle()
    assert sorted(written_ids(rig)) == [["u0", "u2"], ["u1", "u3"]]
    # Both lead to one database: never two writes at once.
    assert not rig.output.overlapped


async def test_a_large_batch_is_journaled_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "PIECE_UNITS", 4)
    rig = Rig(batched(10, "1h"), auto=True)
    rig.output.marks = {"/out/a.jsonl": 17}
    await rig.accept(*range(10))
    await rig.settle()
    assert len(rig.output.writes) == 1
    names = [name for name in rig.journal.names() if name in ("Written", "Marked")]
    # What a crash between two pieces repeats is looked for from the mark before.
    assert names == ["Written"] * 10 + ["Marked"]
    assert set(sizes(rig).values()) == {10}


async def test_a_piece_waits_until_the_one_before_is_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "PIECE_UNITS", 2)
    rig = Rig(batched(3, "1h"))
    await rig.accept(1, 2, 3)
    await rig.journal.land()
    assert len(rig.journal.of(journaled.Written)) == 2
    await rig.journal.land()
    assert len(rig.journal.of(journaled.Written)) == 3


SPLIT = f"""
input: {{ via: push }}
nodes:
  a: {{ from: input, transform: map, with: {{ data: "${{data}}" }} }}
  b: {{ from: input, transform: map, with: {{ data: "${{data}}" }} }}
output:
  from: [a, b]
  to: sqlite
  batch: {{ size: 3, within: 2s }}
  {WITH}
"""


async def test_copies_are_members_of_their_own() -> None:
    """Edge 122: each with its key, and with the size of the batch that it was written in."""
    rig = Rig(SPLIT, auto=True)
    one, two = await rig.accept(1, 2)
    await rig.settle()
    await rig.timers.elapse(2.0)
    await rig.settle()
    keys = [[unit.key for unit in group] for group in rig.output.writes]
    assert [len(group) for group in keys] == [3, 1]
    assert sorted(key for group in keys for key in group) == [
        f"{one}:a",
        f"{one}:b",
        f"{two}:a",
        f"{two}:b",
    ]
    assert sizes(rig) == {key: len(group) for group in keys for key in group}
    assert (len(rig.parts.pending), rig.parts.executor.in_hand) == (0, 0)


# ── failing ──────────────────────────────────────────────────────────────────


async def test_a_batch_is_retried_as_a_whole() -> None:
    rig = Rig(batched(3, "1h", policy="retry: 2, delay: 1s"), auto=True)
    rig.output.whole = NotConnected("locked")
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
    rig.output.whole = NotConnected("denied for s3cr3t-value")
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
    rig.output.whole = NotConnected("locked")
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


# ── pauses and ends ──────────────────────────────────────────────────────────


async def test_a_pause_flushes_what_waits_and_what_still_joins() -> None:
    rig = Rig(batched(100, "1h"))
    await rig.accept(1)
    await rig.journal.land()
    await rig.accept(2)
    pausing = asyncio.create_task(rig.parts.pausing.pause("manual"))
    await quiet()
    assert written_data(rig) == [[1]]
    await rig.settle()
    await pausing
    # The second one was being journaled when the pause came.
    assert written_data(rig) == [[1], [2]]
    assert rig.journal.names()[-1] == "Delivered"


async def test_after_a_resume_batches_collect_again() -> None:
    rig = Rig(batched(100, "1h"), auto=True)
    await rig.parts.pausing.pause("manual")
    await rig.accept(1)
    assert rig.output.writes == []
    await rig.parts.pausing.resume()
    await rig.accept(2)
    await rig.settle()
    assert rig.output.writes == []
    assert rig.timers.waits_s == [3600.0]


async def test_a_retry_that_ends_in_a_pause_joins_a_new_batch_after_it() -> None:
    rig = Rig(batched(2, "5s"), auto=True)
    rig.output.whole = NotConnected("locked")
    ids = await rig.accept(1, 2)
    await rig.parts.pausing.pause("manual")
    await rig.timers.elapse(1.0)
    assert len(rig.output.writes) == 1
    rig.output.whole = None
    await rig.parts.pausing.resume()
    await rig.settle()
    assert written_ids(rig) == [ids, ids]
    assert rig.journal.names(ids[0]).count("Batched") == 1
    assert rig.parts.executor.in_hand == 0


async def test_while_it_drains_nothing_waits_for_company() -> None:
    rig = Rig(batched(100, "1h"), auto=True)
    await rig.accept(1)
    rig.parts.batches.hasten()
    await rig.accept(2)
    await rig.settle()
    assert written_data(rig) == [[1], [2]]


async def test_an_end_waits_for_no_retry() -> None:
    rig = Rig(batched(2, "1h", policy="retry: 3, delay: 1h, max_delay: 1h"), auto=True)
    rig.output.whole = NotConnected("locked")
    await rig.accept(1, 2, 3)
    assert not await rig.parts.writing.idle(0.0)
    rig.parts.executor.close()
    rig.parts.batches.wind_up()
    # The one that was alone is tried too, once.
    assert await rig.parts.writing.idle(5.0)
    assert written_data(rig) == [[1, 2], [3]]
    assert "DeadLettered" not in rig.journal.names()
    assert len(rig.parts.pending) == 3


async def test_idle_waits_for_those_that_are_being_journaled() -> None:
    rig = Rig(batched(100, "1h"))
    await rig.accept(1)
    rig.parts.executor.close()
    rig.parts.batches.wind_up()
    idle = asyncio.create_task(rig.parts.writing.idle(60.0))
    await quiet()
    assert not idle.done()
    await rig.settle()
    assert await idle
    assert written_data(rig) == [[1]]


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
    rig.output.whole = NotConnected("locked")
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


# ── restarts ─────────────────────────────────────────────────────────────────


async def restarted(rig: Rig, *units: Any) -> None:
    """What a start does with units that it finds."""
    for row in units:
        unit = unit_of(row)
        rig.parts.pending.add(unit)
        rig.parts.executor.enqueue(unit)
    await rig.settle()


def at_batch(number: int, **given: Any) -> Any:
    return pending(number, state="writing", cursor="$batch", **given)


async def test_what_waited_joins_a_new_batch_whose_time_starts_again() -> None:
    rig = Rig(batched(3, "2s"), auto=True)
    await restarted(rig, at_batch(1), at_batch(2))
    assert (rig.output.writes, rig.timers.waits_s) == ([], [2.0])
    assert (rig.journal.names(), rig.parts.executor.in_hand) == ([], 0)
    await rig.timers.elapse(2.0)
    assert written_ids(rig) == [["u1", "u2"]]
    assert [unit.repeat for unit in rig.output.writes[0]] == ["recovered"] * 2


async def test_old_and_new_share_the_batch() -> None:
    rig = Rig(batched(3, "1h"), auto=True)
    await restarted(rig, at_batch(1), at_batch(2))
    (new,) = await rig.accept({"n": 3})
    await rig.settle()
    assert written_ids(rig) == [["u1", "u2", new]]


async def test_a_new_batch_has_all_its_retries() -> None:
    rig = Rig(batched(2, "1h", policy="retry: 2, delay: 1s"), auto=True)
    rig.output.whole = NotConnected("locked")
    await restarted(rig, at_batch(1, attempt=2, retry_at=AT + 9000), at_batch(2))
    assert [one.attempt for one in rig.journal.of(journaled.Retried)] == [1, 1]


async def test_a_wait_of_an_earlier_batch_is_not_gone_on_with() -> None:
    """Nor its count of attempts: the batch is another one, and its units hold no slot."""
    body = batched(2, "1h", rest="concurrency: 1", settings=ATTEMPT)
    units = [at_batch(n, attempt=2, retry_at=AT + 60_000) for n in (1, 2)]
    rig, rows = await resumed(body, *units)
    assert rows == {"R1": 2}
    assert [unit.settings["columns"]["tries"] for unit in rig.output.writes[0]] == [1, 1]


CHECKED = (
    "concurrency: 1\ndelivered: { check: record_exists, with: { where: { n: 1 } }, %s }\n"
    "agent: { control: true }"
)


async def test_with_one_slot_written_units_of_batches_take_none_after_a_restart() -> None:
    body = batched(2, "1h", rest=CHECKED % "within: 5s")
    written = [
        pending(n, state="verifying", cursor="$verify", write_no=1, result=b"{}") for n in (1, 2, 3)
    ]
    rig, rows = await resumed(body, *written)
    assert rows == {"R4": 3}
    assert (len(rig.parts.verifications), rig.parts.executor.in_hand) == (3, 0)


async def test_with_one_slot_a_batched_unit_is_looked_for_again_without_it() -> None:
    rig = Rig(batched(2, "1h", rest=CHECKED % "within: 5s, on_fail: { then: pause }"), auto=True)
    checker = Checker(rig)
    await rig.accept(1, 2)
    await rig.settle()
    checker.say(checker.offers[0].id, Verdict.OUTCOME_FAILED, message="not there")
    await rig.settle()
    await rig.parts.pausing.resume()
    await rig.settle()
    assert len(checker.offers) == 3
    assert rig.parts.executor.in_hand == 0


async def test_the_committed_key_is_used_again() -> None:
    rig = Rig(batched(1, settings=KEYED), auto=True)
    await restarted(rig, at_batch(1, key="old@b.c", data=b'{"email":"new@b.c"}'))
    assert [unit.key for unit in rig.output.writes[0]] == ["old@b.c"]
    assert "Writing" not in rig.journal.names()


async def test_with_one_slot_many_that_waited_take_none() -> None:
    rig = Rig(batched(50, "1h", rest="concurrency: 1"), auto=True)
    await restarted(rig, *(at_batch(n) for n in range(50)))
    assert len(rig.output.writes) == 1
    assert rig.parts.executor.in_hand == 0


async def test_a_batched_unit_that_breaks_a_rule_now_ends_without_a_slot() -> None:
    rig = Rig(batched(2, "1h", more="  validate: [data.n != 1]"), auto=True)
    await restarted(rig, at_batch(1), at_batch(2))
    assert rig.journal.names("u1") == ["DeadLettered"]
    assert rig.parts.executor.in_hand == 0


# ── memory ───────────────────────────────────────────────────────────────────


async def test_a_batch_is_closed_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "BATCH_BYTES_LIMIT", 250)
    rig = Rig(batched(100, "1h"), auto=True)
    await rig.accept(*("x" * 98 for _ in range(5)), "x" * 300, 1)
    await rig.settle()
    assert [len(group) for group in rig.output.writes] == [2, 2, 1, 1]


async def test_payloads_that_wait_behind_a_flush_stay_in_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "RESIDENT_BYTES_LIMIT", 250)
    rig = Rig(batched(2, "1h"), auto=True)
    rig.output.hold()
    ids = await rig.accept(*(str(n) * 98 for n in range(8)))
    assert rig.loaded == []
    waiting = [rig.parts.pending.back(unit) for unit in ids]
    left = [unit is not None and unit.data is UNLOADED for unit in waiting]
    assert left == [False, False, True, True] * 2
    rig.output.let_go()
    await rig.settle()
    assert rig.loaded == [*ids[2:4], *ids[6:]]
    assert written_data(rig) == [[str(n) * 98, str(n + 1) * 98] for n in range(0, 8, 2)]
    assert len(rig.journal.of(journaled.Delivered)) == 8


async def test_a_payload_that_cannot_be_read_back_costs_its_unit_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "RESIDENT_BYTES_LIMIT", 1)
    rig = Rig(batched(2, "1h"), auto=True)
    rig.output.hold()
    ids = await rig.accept(1, 2, 3, 4)

    async def load(unit: Any) -> None:
        if unit.id == ids[2]:
            raise DataDamaged("its data in the journal is damaged: torn")
        await rig._load_stored(unit)

    rig.load = load
    rig.output.let_go()
    await rig.settle()
    assert written_data(rig) == [[1, 2], [4]]
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert dead.unit == ids[2]
    assert (len(rig.parts.pending), rig.parts.executor.in_hand) == (0, 0)


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


# ── failures of the journal ──────────────────────────────────────────────────


async def test_a_journal_that_fails_lets_nobody_join() -> None:
    rig = Rig(batched(1))
    (unit,) = await rig.accept(1)
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    await quiet()
    await rig.journal.fail(Unavailable("the disk is gone"))
    assert (len(rig.journal.raised), rig.output.writes) == (1, [])
    assert not told.done()
    told.cancel()


async def test_everybody_hears_of_the_end_once_it_is_on_disk() -> None:
    rig = Rig(batched(2, "1h"))
    unit, _ = await rig.accept(1, 2)
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    await rig.journal.land()
    assert rig.journal.names(unit)[-1] == "Delivered"
    assert not told.done()
    await rig.journal.land()
    assert await told == Settlement("delivered")


async def test_a_wrong_number_of_results_stops_the_process() -> None:
    rig = Rig(batched(2, "1h"), auto=True)

    async def write(units: list[WriteUnit], *, atomic: bool) -> Flush:
        return Flush([{"rowid": 1}])

    rig.output.write = write  # type: ignore[assignment,method-assign]
    await rig.accept(1, 2)
    await until(lambda: rig.timers.crashes)
    assert "Delivered" not in rig.journal.names()


async def test_nothing_moves_in_a_pause_that_a_restart_found() -> None:
    paused = Recovery(units=[], next_queue_seq=9, marks={}, version=1, pause_reason="manual")
    rig = Rig(batched(1), auto=True, recovery=paused)
    await restarted(rig, at_batch(1))
    assert rig.output.writes == []
    await rig.parts.pausing.resume()
    await rig.settle()
    assert written_ids(rig) == [["u1"]]
