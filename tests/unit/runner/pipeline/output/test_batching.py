"""Batches: who waits for whom, what is written together, and what failures cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipo.connectors.contract import (
    Flush,
    Settlement,
    WriteFailed,
    WriteUnit,
)
from pipo.errors import Unavailable
from pipo.journal import changes as journaled
from pipo.journal.recover import Recovery
from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo_runner.pipeline.definition.failures import DataDamaged
from pipo_runner.pipeline.flow.units import UNLOADED
from pipo_runner.pipeline.life.recovery import unit_of
from pipo_runner.pipeline.output import batching
from tests.unit.runner.pipeline.delivery.test_verification import Checker
from tests.unit.runner.pipeline.rig import AT, Rig, pending, quiet, stored, until
from tests.unit.runner.pipeline.test_resuming import resumed

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


def sizes(rig: Rig) -> dict[str, int]:
    return {one.unit: one.group_size for one in rig.journal.of(journaled.Written)}


# ── collecting ───────────────────────────────────────────────────────────────


@pytest.mark.seed("O068")
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


@pytest.mark.seed("O068")
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


@pytest.mark.seed("O075")
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
    assert (len(rig.parts.offers), rig.parts.executor.in_hand) == (4, 0)


@pytest.mark.seed("O058")
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


@pytest.mark.seed("O077")
async def test_each_version_has_batches_of_its_own() -> None:
    rig = Rig(batched(2, "1h"), auto=True)
    await rig.plans.add_older({0}, stored("pipo: 1\nname: people" + batched(2, "1h")))
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
    rig.output.whole = WriteFailed("locked")
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
    rig.output.whole = WriteFailed("locked")
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


@pytest.mark.seed("O076")
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
    rig.output.whole = WriteFailed("locked")
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
    assert (len(rig.parts.offers), rig.parts.executor.in_hand) == (3, 0)


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
