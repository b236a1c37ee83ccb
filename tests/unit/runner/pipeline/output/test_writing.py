"""The output stage: groups, keys, commits around the write, failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipo.connectors.contract import (
    Flush,
    Refused,
    RetryAfter,
    Settlement,
    WriteFailed,
    WriteUnit,
)
from pipo.errors import Unavailable
from pipo.journal import changes as journaled
from pipo_runner.pipeline.life.recovery import unit_of
from pipo_runner.pipeline.output.writing import GROUP_BYTES_LIMIT, GROUP_UNITS_LIMIT
from tests.unit.runner.pipeline.rig import AT, PLAIN, FakeOutput, Rig, pending, quiet, stored, until

KEYED = """
input: { via: push }
output:
  from: input
  to: sqlite
  with:
    path: ./people.db
    table: people
    create: true
    key: email
    columns: { email: "${data.email}", asked: "${meta.key}" }
  on_error: { retry: 1, delay: 1s }
"""
RETRIED = f"{PLAIN[:-3]}, on_error: {{ retry: 2, delay: 1s, max_delay: 5s }} }}\n"
PLACES = """
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: "./${data.place}.db", table: people, create: true }
concurrency: 600
"""
SERIAL = PLAIN + "concurrency: 1\n"
RULED = """
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: ./people.db, table: people, create: true }
  validate: ["data.n < 10", "upper(data.name) == data.name"]
  on_invalid: { message: "bad ${error.rule}" }
  on_error: { retry: 5 }
"""


async def test_written_and_delivered_are_one_commit_and_told_after_it() -> None:
    rig = Rig()
    (unit,) = await rig.accept({"n": 1})
    (last,) = [one for one in rig.journal.waiting if one.done is not None]
    assert [type(change).__name__ for change in last.changes] == ["Written", "Delivered"]
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    await quiet()
    assert not told.done()
    await rig.journal.land()
    assert await told == Settlement("delivered")


async def test_the_default_key_costs_no_commit_before_the_write() -> None:
    rig = Rig()
    (unit,) = await rig.accept({"n": 1})
    assert rig.output.writes == [
        [WriteUnit(unit, unit, {"n": 1}, rig.output.writes[0][0].settings, "first", "push", "test")]
    ]
    assert rig.journal.of(journaled.Writing)[0].key is None


async def test_an_explicit_key_is_durable_before_the_write() -> None:
    rig = Rig(KEYED)
    (unit,) = await rig.accept({"email": "a@b.c"})
    assert rig.journal.names(unit) == ["Accepted", "Writing"]
    assert rig.journal.of(journaled.Writing)[0].key == "a@b.c"
    assert rig.output.writes == []
    await rig.journal.land()
    ((written,),) = rig.output.writes
    assert written.key == "a@b.c"
    assert written.settings["columns"] == {"email": "a@b.c", "asked": "a@b.c"}


async def test_a_retry_keeps_the_explicit_key_and_says_that_it_repeats() -> None:
    rig = Rig(KEYED, auto=True)
    rig.output.whole = WriteFailed("gone")
    await rig.accept({"email": "a@b.c"})
    rig.output.whole = None
    await rig.timers.elapse(1.0)
    assert [(w.key, w.repeat) for group in rig.output.writes for w in group] == [
        ("a@b.c", "first"),
        ("a@b.c", "recovered"),
    ]
    assert [change.key for change in rig.journal.of(journaled.Writing)] == ["a@b.c"] * 2


async def test_a_recovered_unit_keeps_the_key_that_was_committed() -> None:
    rig = Rig(KEYED, auto=True)
    unit = unit_of(pending(1, key="old@b.c", data=b'{"email":"new@b.c"}'))
    rig.parts.pending.add(unit)
    rig.parts.executor.enqueue(unit)
    await quiet()
    ((written,),) = rig.output.writes
    assert (written.key, written.repeat) == ("old@b.c", "recovered")


async def test_units_that_wait_for_one_place_are_one_group() -> None:
    rig = Rig(PLACES, auto=True)
    rig.output.hold()
    first = await rig.accept({"place": "a"})
    others = await rig.accept({"place": "a"}, {"place": "b"}, {"place": "a"})
    # Another place does not wait.
    assert [[unit.id for unit in group] for group in rig.output.writes] == [first, [others[1]]]
    rig.output.let_go()
    await quiet()
    assert [unit.id for unit in rig.output.writes[2]] == [others[0], others[2]]
    assert not rig.output.overlapped
    sizes = {change.unit: change.group_size for change in rig.journal.of(journaled.Written)}
    assert [sizes[unit] for unit in (*first, others[0], others[2])] == [1, 2, 2]


async def test_a_group_is_cut_at_its_number_of_units() -> None:
    rig = Rig(PLACES, auto=True)
    rig.output.hold()
    await rig.accept({"place": "a"})
    await rig.accept(*({"place": "a"} for _ in range(GROUP_UNITS_LIMIT + 5)))
    rig.output.let_go()
    await rig.settle()
    assert [len(group) for group in rig.output.writes] == [1, GROUP_UNITS_LIMIT, 5]


async def test_a_group_is_cut_at_its_bytes() -> None:
    size = GROUP_BYTES_LIMIT // 2 - 1000
    rig = Rig(PLACES, auto=True, packet_limit=GROUP_BYTES_LIMIT)
    rig.output.hold()
    await rig.accept({"place": "a"})
    await rig.accept(*({"place": "a", "x": "x" * size} for _ in range(3)))
    rig.output.let_go()
    await rig.settle()
    assert [len(group) for group in rig.output.writes] == [1, 2, 1]


async def test_what_a_step_made_of_a_packet_counts_for_its_group() -> None:
    size = GROUP_BYTES_LIMIT // 2 - 1000
    body = PLACES.replace("from: input", "from: grow").replace(
        "output:",
        "nodes:\n  grow:\n    from: input\n    transform: map\n"
        '    with: { data: { place: "${data.place}", x: ["${data.x}", "${data.x}"] } }\noutput:',
    )
    rig = Rig(body, auto=True, packet_limit=GROUP_BYTES_LIMIT)
    rig.output.hold()
    await rig.accept({"place": "a"})
    await rig.accept(*({"place": "a", "x": "x" * (size // 2)} for _ in range(3)))
    rig.output.let_go()
    await rig.settle()
    assert [len(group) for group in rig.output.writes] == [1, 2, 1]


async def test_a_unit_larger_than_a_group_goes_alone() -> None:
    rig = Rig(PLACES, auto=True, packet_limit=3 * GROUP_BYTES_LIMIT)
    rig.output.hold()
    await rig.accept({"place": "a"})
    await rig.accept({"place": "a", "x": "x" * (GROUP_BYTES_LIMIT + 1)}, {"place": "a"})
    rig.output.let_go()
    await rig.settle()
    assert [len(group) for group in rig.output.writes] == [1, 1, 1]


async def test_one_bad_unit_fails_alone() -> None:
    rig = Rig(auto=True)
    rig.output.answer = lambda unit: WriteFailed("too old") if unit.data == 2 else {"rowid": 1}
    ids = await rig.accept(1, 2, 3)
    await rig.settle()
    assert [rig.journal.names(unit)[-1] for unit in ids] == [
        "Delivered", "DeadLettered", "Delivered",
    ]  # fmt: skip
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.error.code, dead.error.node, dead.node) == ("output.failed", "output", "$output")
    assert dead.error.message == "too old"
    assert rig.parts.executor.in_hand == 0


async def test_a_failure_of_the_whole_call_is_each_units_own() -> None:
    rig = Rig(RETRIED, auto=True)
    rig.output.whole = WriteFailed("the disk is full", hint="make room")
    ids = await rig.accept(1, 2)
    assert [(r.unit, r.attempt, r.error) for r in rig.journal.of(journaled.Retried)] == [
        (unit, 1, "the disk is full (make room)") for unit in ids
    ]
    assert rig.timers.waits_s == [1.0, 1.0]
    rig.output.whole = None
    await rig.timers.elapse(1.0)
    assert rig.output.written[2:] == ids
    assert [rig.journal.names(unit)[-1] for unit in ids] == ["Delivered"] * 2


async def test_retries_end_in_a_dead_letter_with_every_attempt() -> None:
    rig = Rig(RETRIED, auto=True)
    rig.output.whole = WriteFailed("gone")
    await rig.accept(1)
    await rig.timers.elapse(10.0)
    assert len(rig.output.writes) == 3
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert dead.error.attempts == 3
    assert (len(rig.parts.pending), rig.parts.executor.in_hand) == (0, 0)


async def test_what_the_receiver_asks_for_is_waited_for_up_to_max_delay() -> None:
    rig = Rig(RETRIED, auto=True)
    answers: list[Any] = [RetryAfter("slow", seconds=3.0), RetryAfter("slow", seconds=60.0)]
    rig.output.answer = lambda unit: answers.pop(0) if answers else {"rowid": 1}
    await rig.accept(1)
    assert rig.timers.waits_s == [3.0]
    await rig.timers.elapse(3.0)
    assert rig.timers.waits_s == [5.0]
    assert [r.retry_at - AT for r in rig.journal.of(journaled.Retried)] == [3000, 8000]
    await rig.timers.elapse(5.0)
    assert rig.journal.names()[-1] == "Delivered"


async def test_what_is_refused_is_never_retried() -> None:
    rig = Rig(RETRIED, auto=True)
    rig.output.answer = lambda unit: Refused("no such column")
    await rig.accept(1)
    assert rig.timers.waits_s == []
    assert rig.journal.of(journaled.DeadLettered)[0].error.attempts == 1


async def test_a_retry_holds_its_slot() -> None:
    rig = Rig(RETRIED + "concurrency: 1\n", auto=True)
    rig.output.whole = WriteFailed("gone")
    first, second = await rig.accept(1, 2)
    assert rig.output.written == [first]
    rig.output.whole = None
    await rig.timers.elapse(1.0)
    assert rig.output.written == [first, first, second]


@pytest.mark.seed("L029")
async def test_with_one_slot_the_next_waits_until_the_end_is_durable() -> None:
    rig = Rig(SERIAL)
    first, second = await rig.accept(1, 2)
    assert rig.journal.names(first)[-1] == "Delivered"
    assert rig.output.written == [first]
    await rig.journal.land()
    assert rig.output.written == [first, second]


async def test_with_several_slots_the_next_group_does_not_wait_for_the_commit() -> None:
    rig = Rig(PLAIN + "concurrency: 2\n")
    ids = await rig.accept(1, 2, 3, 4)
    assert rig.output.written == ids


async def test_marks_commit_with_the_write_they_are_about() -> None:
    rig = Rig()
    rig.output.marks = {"/out/a.jsonl": 17}
    await rig.accept(1)
    (last,) = [one for one in rig.journal.waiting if one.done is not None]
    assert journaled.Marked({"/out/a.jsonl": 17}) in last.changes


async def test_rules_of_the_output_are_one_attempt_whatever_the_policy() -> None:
    rig = Rig(RULED, auto=True)
    bad, broken, good = await rig.accept(
        {"n": 10, "name": "A"}, {"n": 1, "name": 2}, {"n": 1, "name": "A"}
    )
    dead = {change.unit: change.error for change in rig.journal.of(journaled.DeadLettered)}
    assert dead.keys() == {bad, broken}
    assert (dead[bad].code, dead[bad].rule, dead[bad].attempts) == (
        "output.invalid",
        "data.n < 10",
        1,
    )
    assert dead[bad].message == "bad data.n < 10"
    assert dead[broken].rule == "upper(data.name) == data.name"
    assert rig.output.written == [good]
    assert rig.timers.waits_s == []
    assert rig.parts.executor.in_hand == 0


async def test_settings_that_cannot_be_rendered_fail_the_unit_alone() -> None:
    rig = Rig(PLACES, auto=True)
    missing, escaping, good = await rig.accept({}, {"place": "../x"}, {"place": "a"})
    messages = {c.unit: c.error.message for c in rig.journal.of(journaled.DeadLettered)}
    assert messages == {
        missing: "the path './${data.place}.db' needs a value that the packet does not have",
        escaping: "the path './${data.place}.db' would leave its folder: '../x'",
    }
    assert rig.output.written == [good]


async def test_what_the_output_sees_beforehand_fails_without_a_write() -> None:
    rig = Rig(auto=True)
    rig.output.refuses = lambda data: Refused("not a row") if data == 1 else None
    bad, good = await rig.accept(1, 2)
    assert rig.journal.names(bad) == ["Accepted", "DeadLettered"]
    assert rig.output.written == [good]


async def test_a_message_that_cannot_be_rendered_costs_nothing() -> None:
    body = f'{PLAIN[:-3]}, on_error: {{ message: "${{upper(data)}}" }} }}\n'
    rig = Rig(body, auto=True)
    rig.output.answer = lambda unit: WriteFailed("no")
    await rig.accept(1)
    message = rig.journal.of(journaled.DeadLettered)[0].error.message
    assert message.startswith("no [the message template failed: ")


async def test_errors_are_redacted() -> None:
    rig = Rig(RETRIED, auto=True, secrets={"key": "s3cr3t-value"})
    rig.output.whole = WriteFailed("denied for s3cr3t-value")
    await rig.accept(1)
    await rig.timers.elapse(10.0)
    assert {r.error for r in rig.journal.of(journaled.Retried)} == {"denied for ***"}
    assert rig.journal.of(journaled.DeadLettered)[0].error.message == "denied for ***"


async def test_a_bug_in_the_output_is_logged_and_follows_the_policy() -> None:
    rig = Rig(auto=True)
    rig.output.whole = ZeroDivisionError("oops")
    await rig.accept(1)
    assert ("error", "the write failed unexpectedly") in rig.logged
    assert "this is a bug in Pipo" in rig.journal.of(journaled.DeadLettered)[0].error.message
    assert rig.timers.crashes == []


async def test_a_journal_that_fails_before_the_write_stops_the_process() -> None:
    rig = Rig(KEYED)
    await rig.accept({"email": "a@b.c"})
    await rig.journal.fail(Unavailable("the disk is gone"))
    await until(lambda: rig.timers.crashes)
    assert rig.output.writes == []


async def test_nobody_hears_of_a_write_that_the_journal_lost() -> None:
    rig = Rig()
    (unit,) = await rig.accept(1)
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    await quiet()
    await rig.journal.fail(Unavailable("the disk is gone"))
    assert len(rig.journal.raised) == 1
    assert not told.done()
    assert len(rig.parts.pending) == 1
    told.cancel()


async def test_idle_says_whether_a_write_is_in_flight() -> None:
    rig = Rig(auto=True)
    assert await rig.parts.writing.idle(0.0)
    rig.output.hold()
    await rig.accept(1)
    assert not await rig.parts.writing.idle(0.0)
    waiting = asyncio.create_task(rig.parts.writing.idle(60.0))
    await quiet()
    rig.output.let_go()
    assert await waiting


@pytest.mark.parametrize("count", [1, 3])
async def test_a_wrong_number_of_results_stops_the_process(count: int) -> None:
    """Which unit was written cannot be known: the next run finds out by the keys."""
    rig = Rig(auto=True)

    async def write(units: Any, *, atomic: bool) -> Any:
        return Flush([{"rowid": 1}] * count)

    rig.output.write = write  # type: ignore[method-assign]
    await rig.accept(1, 2)
    await until(lambda: rig.timers.crashes)
    assert "Delivered" not in rig.journal.names()


async def test_an_end_that_the_journal_refuses_stops_the_process() -> None:
    rig = Rig()
    rig.output.answer = lambda unit: Refused("no")
    await rig.accept(1)
    assert rig.journal.names()[-1] == "DeadLettered"
    await rig.journal.fail(RuntimeError("illegal change"))
    assert [str(error) for error in rig.journal.raised] == ["illegal change"]


async def test_each_version_writes_through_its_own_connector() -> None:
    """Also where both versions name one path: it is not one place, and never one group."""
    rig = Rig(auto=True)
    older = rig.outputs["file"] = FakeOutput()
    to_file = "to: file, with: { path: ./people.db }"
    source = (
        f"pipo: 1\nname: people\ninput: {{ via: push }}\noutput: {{ from: input, {to_file} }}\n"
    )
    await rig.plans.add_older({0}, stored(source))
    units = [unit_of(pending(1, version=0)), unit_of(pending(2))]
    for unit in units:
        rig.parts.pending.add(unit)
        rig.parts.executor.enqueue(unit)
    await rig.settle()
    assert (older.written, rig.output.written) == (["u1"], ["u2"])


async def test_rules_see_the_key_that_the_write_would_have() -> None:
    rig = Rig(KEYED + "  validate: [meta.key == data.email]\n", auto=True)
    await rig.accept({"email": "a@b.c"})
    assert [written.key for group in rig.output.writes for written in group] == ["a@b.c"]


async def test_rules_that_ask_for_a_key_nothing_can_render_see_the_units_own() -> None:
    rig = Rig(
        KEYED.replace('"${data.email}"', '"${lower(data.email)}"')
        + "  validate: [meta.key == meta.packet_id]\n",
        auto=True,
    )
    await rig.accept({"email": 5})
    # The rule holds, and the rendering fails as a write does.
    assert [change.error.code for change in rig.journal.of(journaled.DeadLettered)] == []
    await rig.timers.elapse(1.0)
    assert [c.error.code for c in rig.journal.of(journaled.DeadLettered)] == ["output.failed"]
