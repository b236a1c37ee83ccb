"""What each `then` makes of a unit whose step has failed for good, at each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipo.connectors.contract import Refused, Settlement, StepCall, WriteFailed
from pipo.errors import Internal
from pipo.journal import changes as journaled
from pipo.journal.changes import PacketError
from pipo_runner.pipeline.definition.failures import DataDamaged
from pipo_runner.pipeline.flow.endings import Failed
from pipo_runner.pipeline.flow.units import Unit
from tests.unit.runner.pipeline.delivery.test_verification import CHECKED, FAILED, PASSED, Checker
from tests.unit.runner.pipeline.rig import AT, TABLE, Rig, quiet

NODE = f"""
input: {{ via: push }}
nodes:
  shape:
    from: input
    transform: map
    with: {{ data: "${{data}}" }}
    on_error: {{ THEN }}
output: {{ from: shape, {TABLE} }}
agent: {{ control: true }}
"""
OUTPUT = f"""
input: {{ via: push }}
output: {{ from: input, {TABLE}, on_error: {{ THEN }} }}
agent: {{ control: true }}
"""
RULE = f"""
input: {{ via: push }}
output:
  from: input
  {TABLE.replace(", with", "{NL}  with")}
  validate: ["data.n > 5"]
  on_invalid: {{ THEN }}
agent: {{ control: true }}
""".replace("{NL}", "\n")
VERIFY = CHECKED + "  on_fail: { THEN }\nagent: { control: true }\n"


def then(body: str, word: str, more: str = "") -> str:
    return body.replace("THEN", f"then: {word}{more}")


def break_step(rig: Rig) -> Callable[[], None]:
    """Fails the node; the returned call mends it."""

    def fail(call: StepCall) -> None:
        raise Refused("no ink")

    rig.step = fail

    def mend() -> None:
        rig.step = None

    return mend


def break_output(rig: Rig) -> Callable[[], None]:
    rig.output.whole = WriteFailed("no ink")

    def mend() -> None:
        rig.output.whole = None

    return mend


def break_rule(rig: Rig) -> Callable[[], None]:
    return lambda: None


STEPS = [
    pytest.param(NODE, break_step, "shape", id="node"),
    pytest.param(OUTPUT, break_output, "$output", id="output"),
    pytest.param(RULE, break_rule, "$output", id="rule"),
]


@pytest.mark.parametrize(("body", "fail", "cursor"), STEPS)
async def test_pause_holds_the_unit_where_it_stands_and_pauses(
    body: str, fail: Callable[[Rig], Callable[[], None]], cursor: str
) -> None:
    rig = Rig(then(body, "pause"), auto=True)
    fail(rig)
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    (held,) = rig.journal.of(journaled.Held)
    assert (held.unit, held.how, held.node) == (unit, "pause", cursor)
    assert held.error.node == ("shape" if cursor == "shape" else "output")
    (paused,) = rig.journal.of(journaled.Paused)
    assert paused == journaled.Paused(f"error at {cursor}", AT)
    assert rig.parts.pausing.reason == f"error at {cursor}"
    # It keeps its place in the buffer, holds no slot and holds up no drain.
    assert (len(rig.parts.pending), rig.parts.pending.moving) == (1, 0)
    assert rig.parts.executor.in_hand == 0
    assert rig.journal.of(journaled.DeadLettered) == []


@pytest.mark.parametrize(("body", "fail", "cursor"), STEPS[:2])
async def test_after_a_resume_the_step_runs_again_with_all_its_attempts(
    body: str, fail: Callable[[Rig], Callable[[], None]], cursor: str
) -> None:
    rig = Rig(then(body, "pause", ", retry: 1, delay: 1s"), auto=True)
    mend = fail(rig)
    if cursor == "shape":
        # A refusal is not retried; a plain failure is.
        rig.step = lambda call: (_ for _ in ()).throw(WriteFailed("no ink"))
    (unit,) = await rig.accept({"n": 1})
    await rig.timers.elapse(1.0)
    assert len(rig.journal.of(journaled.Held)) == 1
    assert rig.journal.of(journaled.Held)[0].error.attempts == 2
    assert await rig.parts.pausing.resume() is False
    await rig.settle()
    await rig.timers.elapse(1.0)
    assert [one.attempt for one in rig.journal.of(journaled.Retried)] == [1, 1]
    assert len(rig.journal.of(journaled.Held)) == 2
    assert len(rig.journal.of(journaled.Paused)) == 2
    mend()
    await rig.parts.pausing.resume()
    await rig.settle()
    assert rig.journal.names(unit)[-1] == "Delivered"
    assert len(rig.parts.pending) == 0
    # What was held is told so beside the end of the pause, in one commit.
    names = rig.journal.names()
    assert names[names.index("Resumed") + 1] == "Unheld"


async def test_a_held_unit_that_a_stall_hands_over_is_no_matter_of_the_resume() -> None:
    rig = Rig(then(OUTPUT, "pause"), auto=True)
    break_output(rig)
    (id,) = await rig.accept({"n": 1})
    await rig.settle()
    unit = rig.parts.pending.back(id)
    assert unit is not None
    rig.journal.submit(
        rig.parts.endings.handed_over(unit, "no way through", AT), done=lambda error: None
    )
    await rig.parts.pausing.resume()
    await rig.settle()
    assert rig.journal.of(journaled.Unheld) == []
    assert len(rig.output.writes) == 1
    assert (len(rig.parts.pending), rig.parts.pending.moving) == (1, 0)


async def test_a_held_write_may_have_happened() -> None:
    rig = Rig(then(OUTPUT, "pause"), auto=True)
    mend = break_output(rig)
    await rig.accept({"n": 1})
    mend()
    await rig.parts.pausing.resume()
    await rig.settle()
    assert [unit.repeat for group in rig.output.writes for unit in group] == ["first", "recovered"]


async def test_several_that_fail_at_once_are_one_pause() -> None:
    rig = Rig(then(OUTPUT, "pause"), auto=True)
    rig.output.hold()
    await rig.accept({"n": 1})
    await rig.accept({"n": 2}, {"n": 3})
    rig.output.answer = lambda unit: WriteFailed(f"no ink for {unit.data['n']}")
    rig.output.let_go()
    await rig.settle()
    # The first failure pauses before the second group is taken.
    assert len(rig.journal.of(journaled.Held)) == 1
    rig.output.hold()
    await rig.parts.pausing.resume()
    await quiet()
    rig.output.let_go()
    await rig.settle()
    assert len(rig.output.writes[-1]) == 3
    assert len(rig.journal.of(journaled.Held)) == 4
    assert [one.reason for one in rig.journal.of(journaled.Paused)] == ["error at $output"] * 2
    assert rig.parts.pausing.held == 3


@pytest.mark.parametrize(("body", "fail", "cursor"), STEPS)
async def test_halt_holds_the_unit_and_tells_why(
    body: str, fail: Callable[[Rig], Callable[[], None]], cursor: str
) -> None:
    rig = Rig(then(body, "halt"), auto=True)
    reasons: list[str] = []
    rig.parts.endings.on_halt = reasons.append
    fail(rig)
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    (held,) = rig.journal.of(journaled.Held)
    assert (held.unit, held.how, held.node) == (unit, "halt", cursor)
    assert reasons == [f"error at {cursor}: {held.error.message}"]
    assert rig.journal.of(journaled.Paused) == []
    assert len(rig.parts.pending) == 1


@pytest.mark.parametrize(("body", "fail", "cursor"), STEPS)
async def test_agent_escalates_and_goes_on_with_the_others(
    body: str, fail: Callable[[Rig], Callable[[], None]], cursor: str
) -> None:
    rig = Rig(then(body, "agent") + "concurrency: 1\n", auto=True)
    mend = fail(rig)
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    (escalated,) = rig.journal.of(journaled.Escalated)
    assert (escalated.unit, escalated.reason) == (unit, "error")
    assert (escalated.node, escalated.cursor) == (cursor, cursor)
    assert (len(rig.parts.pending), rig.parts.pending.moving) == (1, 0)
    assert rig.parts.pausing.reason is None
    mend()
    await rig.accept({"n": 6})
    await rig.settle()
    assert len(rig.output.written) == (2 if cursor == "$output" and body is OUTPUT else 1)
    assert rig.parts.pending.moving == 0


async def test_drop_is_filtered_with_its_error() -> None:
    rig = Rig(then(NODE, "drop"), auto=True)
    break_step(rig)
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    assert rig.journal.names(unit)[-1] == "Dropped"
    assert len(rig.parts.pending) == 0


def test_a_step_that_goes_on_has_not_ended() -> None:
    rig = Rig()
    unit = Unit("u1", 1, "input", "push", "test", AT, 1, "shape", {}, 2)
    failed = Failed(unit, PacketError("node.failed", "no ink", None, "shape", 1), "shape", AT, 1.0)
    with pytest.raises(Internal, match="has not ended"):
        rig.parts.endings.of("continue", failed, lambda: None)


# ── at the check ─────────────────────────────────────────────────────────────


async def failed_at_the_check(word: str, more: str = "") -> tuple[Rig, Checker, str]:
    rig = Rig(then(VERIFY, word) + more, auto=True)
    checker = Checker(rig)
    (unit,) = await rig.accept({"name": "ada"})
    await rig.settle()
    checker.say(checker.offers[0].id, FAILED, message="not there")
    await rig.settle()
    return rig, checker, unit


@pytest.mark.parametrize("more", ["", "concurrency: 1\n"])
async def test_a_check_that_pauses_is_asked_again_without_a_write(more: str) -> None:
    rig, checker, unit = await failed_at_the_check("pause", more)
    (held,) = rig.journal.of(journaled.Held)
    assert (held.unit, held.node, held.error.code) == (unit, "$verify", "delivery.unverified")
    assert rig.parts.pausing.reason == "error at $verify"
    assert rig.parts.executor.in_hand == 0
    there = rig.parts.pending.find(unit)
    assert there is not None
    assert not there.holds_slot
    rig.clock.passed_s += 60.0
    checker.beat()
    await rig.parts.pausing.resume()
    await rig.settle()
    assert [offer.id for offer in checker.offers] == [f"{unit}:1:1", f"{unit}:1:2"]
    assert checker.offers[1].within_left_ms == 5000
    assert rig.parts.executor.in_hand == (1 if more else 0)
    checker.say(checker.offers[1].id, PASSED)
    await rig.settle()
    assert rig.output.written == [unit]
    assert rig.journal.names(unit)[-1] == "Delivered"
    assert rig.parts.executor.in_hand == 0


async def test_a_check_that_halts_holds_its_unit() -> None:
    rig, _, unit = await failed_at_the_check("halt")
    (held,) = rig.journal.of(journaled.Held)
    assert (held.unit, held.how, held.node) == (unit, "halt", "$verify")


async def test_a_check_that_escalates_waits_at_the_output() -> None:
    rig, _, unit = await failed_at_the_check("agent")
    (escalated,) = rig.journal.of(journaled.Escalated)
    assert (escalated.unit, escalated.cursor) == (unit, "$verify")
    there = rig.parts.pending.back(unit)
    assert there is not None
    assert there.cursor == "$output"


async def test_a_check_that_cannot_be_rendered_is_rendered_again_after_the_pause() -> None:
    rig = Rig(then(VERIFY, "pause"), auto=True)
    checker = Checker(rig)
    rig.output.answer = lambda unit: {}
    (unit,) = await rig.accept({"name": ["no text"]})
    await rig.settle()
    assert [one.unit for one in rig.journal.of(journaled.Held)] == [unit]
    await rig.parts.pausing.resume()
    await rig.settle()
    first, second = rig.journal.of(journaled.Held)
    # The same error, and not one about a payload that is not there.
    assert (second.unit, second.error.message) == (unit, first.error.message)
    assert rig.loaded == [unit]
    assert checker.offers == []

    async def damaged(unit: Unit) -> None:
        raise DataDamaged("its data in the journal is damaged")

    rig.load = damaged
    await rig.parts.pausing.resume()
    await rig.settle()
    assert rig.journal.of(journaled.Held)[-1].error.message == "its data in the journal is damaged"


async def test_who_waits_for_a_packet_that_is_held_hears_that_it_is_on_its_way() -> None:
    rig = Rig(then(OUTPUT, "pause"), auto=True)
    break_output(rig)
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    assert await rig.parts.intake.settled(unit, 0.01) == Settlement("accepted")
