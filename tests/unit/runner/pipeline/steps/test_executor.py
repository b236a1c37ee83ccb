"""Slots, the order of steps, failures and waits of the executor."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipo.connectors.contract import Refused, StepCall, WriteFailed
from pipo.journal import changes as journaled
from pipo_runner.pipeline.definition.failures import MESSAGE_CHARS_MAX
from pipo_runner.pipeline.flow.units import UNLOADED, Unit
from pipo_runner.pipeline.life.recovery import unit_of
from tests.unit.runner.pipeline.rig import AT, TABLE, Rig, pending, quiet, until

STEPS = f"""
input: {{ via: push }}
nodes:
  shape:
    from: input
    transform: map
    with: {{ data: {{ n: "${{data.n + 1}}" }} }}
    on_error: {{ retry: 2, delay: 100ms, backoff: exponential }}
  told:
    from: shape
    tap: log
    with: {{ message: "n is ${{data.n}}" }}
output: {{ from: told, {TABLE} }}
"""
FILTERED = f"""
input: {{ via: push }}
nodes:
  some: {{ from: input, filter: "data.n > 1", on_error: {{ retry: 3 }} }}
output: {{ from: some, {TABLE} }}
"""


def with_policy(policy: str) -> str:
    return STEPS.replace("retry: 2, delay: 100ms, backoff: exponential", policy)


def failing(*errors: Exception) -> Any:
    """Fails a step with each of these in turn, then lets it pass."""
    left = list(errors)

    def step(call: StepCall) -> None:
        if left:
            raise left.pop(0)

    return step


def held(rig: Rig) -> list[str]:
    return [change.unit for change in rig.journal.of(journaled.Writing)]


async def test_pure_steps_run_straight_on_and_share_a_commit() -> None:
    rig = Rig(STEPS)
    (unit,) = await rig.accept({"n": 1})
    assert rig.journal.names(unit) == [
        "Accepted", "Stepped", "Stepped", "Writing", "Written", "Delivered",
    ]  # fmt: skip
    shape, told = rig.journal.of(journaled.Stepped)
    assert (shape.node, shape.cursor, shape.before, shape.after) == (
        "shape", "told", {"n": 1}, {"n": 2},
    )  # fmt: skip
    assert (told.node, told.cursor, told.after) == ("told", "$output", journaled.SAME)
    assert rig.output.writes[0][0].data == {"n": 2}


async def test_a_filtered_packet_ends_once_its_end_is_durable() -> None:
    rig = Rig(FILTERED)
    (unit,) = await rig.accept({"n": 1})
    assert rig.journal.names(unit) == ["Accepted", "Filtered"]
    waiting = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    await quiet()
    assert not waiting.done()
    assert len(rig.parts.pending) == 1
    await rig.journal.land()
    assert (await waiting).state == "filtered"
    assert rig.output.writes == []


async def test_a_filter_that_fails_is_not_retried() -> None:
    rig = Rig(FILTERED.replace("data.n > 1", "upper(data.n) == 'A'"), auto=True)
    (unit,) = await rig.accept({"n": 1})
    assert rig.timers.waits_s == []
    assert rig.journal.names(unit) == ["Accepted", "DeadLettered"]
    assert rig.journal.of(journaled.DeadLettered)[0].error.attempts == 1


async def test_a_retry_waits_longer_each_time_and_then_gives_up() -> None:
    rig = Rig(STEPS, auto=True)
    rig.step = failing(*(WriteFailed("the line is busy") for _ in range(3)))
    (unit,) = await rig.accept({"n": 1})
    assert rig.timers.waits_s == [0.1]
    await rig.timers.elapse(0.1)
    assert rig.timers.waits_s == [0.2]
    await rig.timers.elapse(0.2)
    retried = rig.journal.of(journaled.Retried)
    assert [(r.node, r.attempt, r.wait_ms, r.retry_at - AT) for r in retried] == [
        ("shape", 1, 100.0, 100),
        ("shape", 2, 200.0, 300),
    ]
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.node, dead.error.node, dead.error.attempts) == ("shape", "shape", 3)
    assert (dead.error.code, dead.error.message) == ("node.failed", "the line is busy")
    assert len(rig.parts.pending) == 0
    assert unit not in rig.output.written


async def test_a_retry_that_passes_goes_on() -> None:
    rig = Rig(STEPS, auto=True)
    rig.step = failing(WriteFailed("the line is busy"))
    (unit,) = await rig.accept({"n": 1})
    await rig.timers.elapse(0.1)
    assert rig.journal.names(unit)[1:3] == ["Retried", "Stepped"]
    assert rig.output.written == [unit]


async def test_what_is_refused_is_not_retried() -> None:
    rig = Rig(STEPS, auto=True)
    rig.step = failing(Refused("never", hint="look at it"))
    await rig.accept({"n": 1})
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert dead.error.message == "never (look at it)"
    assert dead.error.attempts == 1


async def test_a_retry_holds_its_slot() -> None:
    rig = Rig(STEPS + "concurrency: 1\n", auto=True)
    rig.step = failing(WriteFailed("the line is busy"))
    first, second = await rig.accept({"n": 1}, {"n": 2})
    assert [unit for unit, _ in rig.ran] == [first]
    assert rig.parts.executor.in_hand == 1
    await rig.timers.elapse(0.1)
    assert rig.output.written == [first, second]


async def test_no_more_units_are_in_hand_than_there_are_slots() -> None:
    rig = Rig(STEPS + "concurrency: 2\n", auto=True)
    rig.step = failing(*(WriteFailed("busy") for _ in range(2)))
    ids = await rig.accept({"n": 1}, {"n": 2}, {"n": 3})
    assert rig.parts.executor.in_hand == 2
    assert [unit for unit, _ in rig.ran] == ids[:2]
    await rig.timers.elapse(0.1)
    assert sorted(rig.output.written) == sorted(ids)


async def test_continue_keeps_the_data_and_notes_the_failure() -> None:
    tap = STEPS.replace("tap: log", "tap: log\n    on_error: { then: continue }")
    rig = Rig(tap, auto=True)

    def step(call: StepCall) -> None:
        if call.node == "told":
            raise WriteFailed("no ink")

    rig.step = step
    (unit,) = await rig.accept({"n": 1})
    told = rig.journal.of(journaled.Stepped)[1]
    assert told.notes == (("node.failed_continued", {"error": "no ink"}),)
    assert rig.output.writes[0][0].data == {"n": 2}
    assert rig.journal.names(unit)[-1] == "Delivered"


async def test_drop_ends_as_filtered_with_its_error() -> None:
    rig = Rig(with_policy("then: drop"), auto=True)
    rig.step = failing(WriteFailed("no"))
    (unit,) = await rig.accept({"n": 1})
    assert rig.journal.names(unit) == ["Accepted", "Dropped"]
    assert rig.journal.of(journaled.Dropped)[0].error.message == "no"
    assert len(rig.parts.pending) == 0


async def test_a_policys_message_sees_the_error() -> None:
    message = 'message: "${error.node} after ${error.attempts}: ${error.message}, n=${data.n}"'
    rig = Rig(with_policy(message), auto=True)
    rig.step = failing(WriteFailed("no"))
    await rig.accept({"n": 7})
    assert rig.journal.of(journaled.DeadLettered)[0].error.message == "shape after 1: no, n=7"


async def test_a_message_that_cannot_be_rendered_costs_nothing() -> None:
    rig = Rig(with_policy('message: "${upper(data.n)}"'), auto=True)
    rig.step = failing(WriteFailed("no"))
    await rig.accept({"n": 7})
    message = rig.journal.of(journaled.DeadLettered)[0].error.message
    assert message.startswith("no [the message template failed: ")


async def test_errors_are_redacted_where_they_are_journaled() -> None:
    rig = Rig(STEPS, auto=True, secrets={"key": "s3cr3t-value"})
    rig.step = failing(*(WriteFailed("denied for s3cr3t-value") for _ in range(3)))
    await rig.accept({"n": 1})
    await rig.timers.elapse(1.0)
    assert [r.error for r in rig.journal.of(journaled.Retried)] == ["denied for ***"] * 2
    assert rig.journal.of(journaled.DeadLettered)[0].error.message == "denied for ***"


async def test_an_endless_error_text_is_cut_in_each_of_its_places() -> None:
    rig = Rig(STEPS, auto=True)
    rig.step = failing(*(WriteFailed("x" * 100_000) for _ in range(3)))
    await rig.accept({"n": 1})
    await rig.timers.elapse(1.0)
    texts = [r.error for r in rig.journal.of(journaled.Retried)]
    texts.append(rig.journal.of(journaled.DeadLettered)[0].error.message)
    assert [len(text) for text in texts] == [MESSAGE_CHARS_MAX] * 3


async def test_a_bug_in_a_step_is_logged_and_costs_only_the_unit() -> None:
    rig = Rig(with_policy("retry: 0"), auto=True)
    rig.step = failing(ZeroDivisionError("oops"))
    bad, good = await rig.accept({"n": 1}, {"n": 2})
    assert ("error", "a step failed unexpectedly") in rig.logged
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert dead.unit == bad
    assert "this is a bug in Pipo" in dead.error.message
    assert rig.output.written == [good]
    assert rig.timers.crashes == []


async def test_a_result_beyond_the_limit_is_the_steps_error() -> None:
    grows = STEPS.replace('n: "${data.n + 1}"', 'n: ["${data.n}", "${data.n}"]')
    rig = Rig(grows, auto=True, packet_limit=100)
    small, large = await rig.accept({"n": "x" * 30}, {"n": "x" * 60})
    assert rig.output.written == [small]
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.unit, dead.node, dead.error.attempts) == (large, "shape", 1)
    assert dead.error.message == (
        "the result has 133 bytes, more than engine.packet_limit (100)"
        " (make it smaller, or raise engine.packet_limit)"
    )


async def test_notes_of_a_failed_run_are_thrown_away() -> None:
    rig = Rig(STEPS, auto=True)
    runs: list[str] = []

    def step(call: StepCall) -> None:
        runs.append(call.node)
        call.notes.append(("seen", {"run": len(runs)}))
        if len(runs) == 1:
            raise WriteFailed("once")

    rig.step = step
    await rig.accept({"n": 1})
    await rig.timers.elapse(0.1)
    assert rig.journal.of(journaled.Stepped)[0].notes == (("seen", {"run": 2}),)


async def test_units_run_in_the_order_of_their_places_in_the_queue() -> None:
    rig = Rig(opened=False, auto=True)
    found = [pending(number) for number in (3, 1, 2)]
    for row in found:
        rig.parts.executor.enqueue(unit_of(row))
    rig.parts.executor.open()
    await quiet()
    assert rig.output.written == ["u1", "u2", "u3"]


async def test_a_closed_executor_takes_nothing_more() -> None:
    rig = Rig(auto=True)
    rig.parts.executor.close()
    await rig.accept({"n": 1})
    assert rig.output.writes == []
    rig.parts.executor.open()
    await quiet()
    assert len(rig.output.written) == 1


async def test_a_payload_left_in_the_journal_is_read_back_in_its_turn() -> None:
    rig = Rig(STEPS, auto=True, opened=False, stored={"u1": {"n": 41}})
    unit = unit_of(pending(1, cursor="shape", data=None))
    assert unit.data is UNLOADED
    rig.parts.executor.enqueue(unit)
    rig.parts.executor.open()
    await quiet()
    assert rig.loaded == ["u1"]
    assert rig.output.writes[0][0].data == {"n": 42}


async def test_a_payload_that_is_read_back_too_late_starts_nothing() -> None:
    rig = Rig(STEPS, auto=True, opened=False, stored={"u1": {"n": 41}})
    read = asyncio.Event()
    load = rig.load

    async def slow(unit: Unit) -> None:
        await read.wait()
        await load(unit)

    rig.load = slow
    rig.parts.executor.enqueue(unit_of(pending(1, cursor="shape", data=None)))
    rig.parts.executor.open()
    await quiet()
    rig.parts.executor.close()
    read.set()
    await quiet()
    assert (rig.ran, rig.output.writes, rig.parts.executor.in_hand) == ([], [], 0)
    rig.parts.executor.open()
    await quiet()
    assert rig.output.writes[0][0].data == {"n": 42}


async def test_a_payload_that_cannot_be_read_back_stops_the_process() -> None:
    rig = Rig(STEPS, auto=True, opened=False)
    rig.parts.executor.enqueue(unit_of(pending(1, cursor="shape", data=None)))
    rig.parts.executor.open()
    await until(lambda: rig.timers.crashes)
    assert isinstance(rig.timers.crashes[0], KeyError)


async def test_a_stop_leaves_a_back_off_where_it_was() -> None:
    rig = Rig(STEPS, auto=True)
    rig.step = failing(WriteFailed("busy"))
    (unit,) = await rig.accept({"n": 1})
    assert rig.journal.names(unit)[-1] == "Retried"
    assert len(rig.parts.pending) == 1


@pytest.mark.parametrize("kind", ["Filtered", "DeadLettered"])
async def test_an_end_that_the_journal_refuses_stops_the_process(kind: str) -> None:
    """Otherwise its unit would be pending for ever, and nobody would know."""
    body = FILTERED if kind == "Filtered" else FILTERED.replace("data.n > 1", "upper(data.n)")
    rig = Rig(body)
    await rig.accept({"n": 1})
    assert rig.journal.names()[-1] == kind
    await rig.journal.fail(RuntimeError("illegal change"))
    assert [str(error) for error in rig.journal.raised] == ["illegal change"]


async def test_a_step_that_an_earlier_run_began_is_timed_from_this_run_on() -> None:
    """The monotonic clock of another run, or of another boot, says nothing."""
    rig = Rig(STEPS, auto=True)
    unit = unit_of(pending(1, cursor="shape", state="processing", attempt=1))
    rig.parts.pending.add(unit)
    rig.parts.executor.enqueue(unit)
    await rig.settle()
    assert [change.ms for change in rig.journal.of(journaled.Stepped)] == [0.0, 0.0]


async def test_a_write_that_an_earlier_run_began_is_timed_from_this_run_on() -> None:
    rig = Rig(auto=True)
    unit = unit_of(pending(1, state="writing", attempt=1))
    rig.parts.pending.add(unit)
    rig.parts.executor.enqueue(unit)
    await rig.settle()
    (written,) = rig.journal.of(journaled.Written)
    assert written.ms == 0.0
