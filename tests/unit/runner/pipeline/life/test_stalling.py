"""Stalls of one pipeline: when they are told, what they do, and when they are over."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pipo.connectors.contract import StepCall, WriteFailed
from pipo.journal import changes as journaled
from pipo.journal.changes import PipelineEscalated, Stalled, Unjammed
from pipo.rpc.stubs import checker_pb2 as pb
from pipo_runner.pipeline.delivery.offers import LEASE_S
from pipo_runner.pipeline.life.stalling import Stalling
from pipo_runner.pipeline.resuming import take_up
from tests.unit.runner.pipeline.delivery.test_verification import CHECKED, FAILED, PASSED, Checker
from tests.unit.runner.pipeline.rig import TABLE, Rig, pending, quiet
from tests.unit.runner.pipeline.test_resuming import recovery

AFTER = "after: 8s"
# Far beyond any stall of these tests.
ENDLESS = "on_error: { retry: 1000, delay: 1h, max_delay: 1h }"


def stuck(stall: str = AFTER, *, more: str = "", retries: str = ENDLESS) -> str:
    """A pipeline whose write is tried again and again; two workers."""
    return f"""
concurrency: 2
input: {{ via: push }}
nodes: {{ keep: {{ from: input, filter: "data.n > 0" }} }}
output: {{ from: keep, {TABLE}, {retries} }}
delivered: {{ stall: {{ {stall} }} }}
{more}
"""


class Jam(Rig):
    """A rig that is active; the write fails until `mend`."""

    def __init__(self, body: str | None = None, **given: Any) -> None:
        super().__init__(stuck() if body is None else body, auto=True, **given)
        self.output.whole = WriteFailed("the disk is full")
        self.stalling.begin()

    @property
    def stalling(self) -> Stalling:
        assert self.parts.stalling is not None
        return self.parts.stalling

    @property
    def stalls(self) -> list[Stalled]:
        return self.journal.of(Stalled)

    def mend(self) -> None:
        self.output.whole = None


def progress_of(checker: Checker) -> list[pb.Progress]:
    return [one.progress for one in checker.replies if one.HasField("progress")]


# ── when ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("told_by", ["pipeline", "checker"])
async def test_one_stall_is_told_after_that_long_however_long_it_lasts(told_by: str) -> None:
    rig = Jam()
    checker = Checker(rig) if told_by == "checker" else None

    async def elapse(seconds: int) -> None:
        for _ in range(seconds):
            await rig.timers.elapse(1.0)
            if checker is not None:
                checker.beat()
                rig.parts.offers.on_stall_report("c1")
                await quiet()

    await rig.timers.elapse(3600.0)
    await rig.accept({"n": 1})
    await elapse(7)
    assert rig.stalls == []
    await elapse(2)
    assert len(rig.stalls) == 1
    assert rig.stalling.at == "$output"
    await elapse(100)
    assert len(rig.stalls) == 1
    assert ("warning", "pipeline stalled") in rig.logged


async def test_what_is_delivered_or_filtered_puts_it_off_and_a_dead_letter_does_not() -> None:
    rig = Jam(
        f"""
input: {{ via: push }}
nodes:
  keep: {{ from: input, filter: "data.n != 0" }}
  shape:
    from: keep
    transform: map
    with: {{ data: "${{data}}" }}
    on_error: {{ retry: 0 }}
output: {{ from: shape, {TABLE}, {ENDLESS} }}
delivered: {{ stall: {{ {AFTER} }} }}
"""
    )

    def fail(call: StepCall) -> None:
        if call.settings["data"]["n"] < 0:
            raise WriteFailed("no ink")

    rig.step = fail
    await rig.accept({"n": 1})
    for _ in range(5):
        await rig.timers.elapse(6.0)
        await rig.accept({"n": 0})
    assert rig.journal.names().count("Filtered") == 5
    assert rig.stalls == []
    for _ in range(3):
        await rig.timers.elapse(3.0)
        await rig.accept({"n": -1})
    assert rig.journal.names().count("DeadLettered") == 3
    assert len(rig.stalls) == 1
    assert rig.stalling.at == "$output"


async def test_an_idle_a_paused_and_an_escalated_pipeline_is_no_jam() -> None:
    rig = Jam(stuck(retries="on_error: { then: agent }", more="agent: { control: true }"))
    assert rig.timers.waits_s == []
    await rig.accept({"n": 1}, {"n": 2})
    assert rig.journal.names()[-2:] == ["Escalated", "Escalated"]
    await rig.timers.elapse(60.0)
    await rig.parts.pausing.pause("manual")
    await rig.accept({"n": 3})
    await rig.timers.elapse(60.0)
    assert rig.stalls == []
    assert rig.timers.waits_s == []


async def test_a_resume_begins_a_new_episode_with_a_fresh_clock() -> None:
    rig = Jam(stuck(f"{AFTER}, then: pause"))
    await rig.accept({"n": 1})
    await rig.timers.elapse(9.0)
    assert rig.parts.pausing.reason == "stall"
    assert rig.journal.names()[-2:] == ["Stalled", "Paused"]
    assert rig.stalling.at == "$output"
    await rig.timers.elapse(100.0)
    assert len(rig.stalls) == 1
    await rig.parts.pausing.resume()
    assert rig.stalling.at is None
    await rig.timers.elapse(7.0)
    assert len(rig.stalls) == 1
    await rig.timers.elapse(2.0)
    assert len(rig.stalls) == 2
    assert rig.journal.of(Unjammed) == []


async def test_the_next_delivered_packet_ends_the_episode_and_a_later_jam_is_told() -> None:
    rig = Jam()
    heard: list[str | None] = []
    rig.stalling.on_change.append(lambda: heard.append(rig.stalling.at))
    await rig.accept({"n": 1})
    await rig.timers.elapse(9.0)
    await rig.accept({"n": 0})
    await quiet()
    assert rig.stalling.at is None
    await rig.timers.elapse(9.0)
    kinds = [
        type(one).__name__ for one in rig.journal.durable if isinstance(one, Stalled | Unjammed)
    ]
    assert kinds == ["Stalled", "Unjammed", "Stalled"]
    assert heard == ["$output", None, "$output"]


async def test_no_stall_is_looked_for_before_the_start_and_after_the_end() -> None:
    rig = Rig(stuck(), auto=True)
    rig.output.whole = WriteFailed("the disk is full")
    assert rig.parts.stalling is not None
    await rig.accept({"n": 1})
    await rig.timers.elapse(60.0)
    assert rig.journal.of(Stalled) == []
    rig.parts.stalling.begin()
    await rig.timers.elapse(7.0)
    assert rig.journal.of(Stalled) == []
    rig.parts.stalling.end()
    await rig.timers.elapse(60.0)
    assert rig.journal.of(Stalled) == []


async def test_a_process_that_was_frozen_takes_its_own_absence_for_no_stall() -> None:
    rig = Jam()
    await rig.accept({"n": 1})
    rig.clock.passed_s += 20.0
    await rig.timers.elapse(0.0)
    rig.parts.offers.on_stall_report("c1")
    await rig.timers.elapse(7.9)
    assert rig.stalls == []
    await rig.timers.elapse(1.0)
    assert len(rig.stalls) == 1


async def test_packets_that_are_parked_for_an_ack_do_count() -> None:
    rig = Jam(
        f"""
input: {{ via: push }}
output: {{ from: input, {TABLE} }}
delivered: {{ check: external, within: 1h, stall: {{ {AFTER} }} }}
"""
    )
    rig.mend()
    await rig.accept({"n": 1})
    await rig.settle()
    await rig.timers.elapse(9.0)
    assert len(rig.stalls) == 1
    assert rig.stalling.at == "$verify"


# ── who notices ──────────────────────────────────────────────────────────────


async def test_a_checker_that_falls_silent_hides_no_jam() -> None:
    rig = Jam()
    Checker(rig)
    await rig.accept({"n": 1})
    await rig.timers.elapse(LEASE_S + 1.0)
    assert len(rig.stalls) == 1
    assert rig.parts.offers.checkers == 0


async def test_a_checker_that_is_heard_and_says_nothing_hides_no_jam_for_long() -> None:
    rig = Jam()
    checker = Checker(rig)
    await rig.accept({"n": 1})
    for _ in range(10):
        await rig.timers.elapse(1.0)
        checker.beat()
    # It is one by now; the checker has a lease's time to say so first.
    assert rig.stalls == []
    for _ in range(int(LEASE_S) + 2):
        await rig.timers.elapse(1.0)
        checker.beat()
    assert len(rig.stalls) == 1


async def test_a_report_without_a_stall_is_answered_with_how_things_are() -> None:
    rig = Jam()
    checker = Checker(rig)
    await rig.accept({"n": 1})
    await rig.timers.elapse(3.0)
    before = len(progress_of(checker))
    rig.parts.offers.on_stall_report("c1")
    await quiet()
    assert rig.stalls == []
    (answer,) = progress_of(checker)[before:]
    assert (answer.pending_moving, answer.clock_from_ms, answer.told) == (1, 3000, False)


async def test_progress_goes_to_each_checker_with_its_hello_and_then_a_quarter_apart() -> None:
    rig = Jam()
    rig.mend()
    checker = Checker(rig)
    await quiet()
    (hello,) = progress_of(checker)
    assert hello == pb.Progress(clock_from_ms=0, after_ms=8000, looking=True)
    for n in range(1, 101):
        await rig.accept({"n": n})
        await rig.timers.elapse(0.1)
        checker.beat()
    told = progress_of(checker)
    # Ten seconds, two seconds apart, and the hello.
    assert 5 <= len(told) <= 7
    assert told[-1].HasField("last_progress_ms")
    before = len(told)
    await rig.parts.pausing.pause("manual")
    await rig.timers.elapse(2.0)
    assert [one.looking for one in progress_of(checker)[before:]] == [False]
    await rig.timers.elapse(3600.0)
    assert len(progress_of(checker)) == before + 1


async def test_without_stall_a_checker_hears_no_progress_and_nothing_waits() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    await rig.accept({"name": "Ada"})
    rig.parts.offers.tell_progress()
    rig.parts.offers.on_stall_report("c1")
    await quiet()
    assert rig.parts.stalling is None
    assert progress_of(checker) == []


# ── what is told ─────────────────────────────────────────────────────────────


async def test_the_event_holds_the_oldest_packet_and_the_numbers() -> None:
    rig = Jam()
    rig.journal.counters |= {"all.accepted": 3, "now.writing": 2, "now.dead_lettered": 1}
    (oldest, _) = await rig.accept({"n": 1}, {"n": 2})
    await rig.timers.elapse(9.0)
    (told,) = rig.stalls
    facts, stats = json.loads(told.stall), json.loads(told.stats)
    assert facts == {
        "pending": 2,
        "duration": "8s",
        "oldest": {
            "packet_id": oldest,
            "node": "$output",
            "age": "8s",
            "attempt": 1,
            "last_error": "the disk is full",
        },
    }
    assert (stats["accepted"], stats["pending"], stats["dead_lettered"]) == (3, 2, 1)
    assert told.then == "notify"
    assert told.message == (
        f"stalled: 2 packet(s) pending and none delivered for 8s; the oldest, {oldest} at "
        "'$output', is 8s old (attempt 1, last error: the disk is full)"
    )


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (
            "${meta.pipeline} v${meta.version} ${stall.pending} ${stall.duration} "
            "${stall.oldest.node} ${stats.uptime} ${env.SITE}",
            "people v1 1 8s $output 8 here",
        ),
        ("${stall.oldest.last_error}", "*** is full"),
        ("${upper(stats.uptime)}", "[the message template failed: "),
        ("  ", "stalled: 1 packet(s) pending"),
    ],
)
async def test_the_message_is_a_template_that_costs_no_stall_when_it_fails(
    template: str, told: str
) -> None:
    rig = Jam(
        stuck(f"{AFTER}, message: '{template}'"),
        env={"SITE": "here"},
        secrets={"disk": "topsecret"},
    )
    rig.output.whole = WriteFailed("topsecret is full")
    await rig.accept({"n": 1})
    await rig.timers.elapse(9.0)
    assert told in rig.stalls[0].message
    assert "topsecret" not in rig.stalls[0].message


async def test_what_an_earlier_run_met_is_read_from_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = recovery(pending(1, attempt=3, retry_at=10**15, cursor="$output"))
    rig = Jam(recovery=found)
    asked: list[str] = []

    async def recall(unit_id: str) -> str:
        asked.append(unit_id)
        await asyncio.sleep(0)
        return "no such host"

    monkeypatch.setattr(rig.stalling, "_recall", recall)
    await take_up(found.units, rig.around, rig.parts)
    await rig.timers.elapse(9.0)
    oldest = json.loads(rig.stalls[0].stall)["oldest"]
    assert (oldest["attempt"], oldest["last_error"]) == (3, "no such host")
    assert asked == ["u1"]


# ── handed over ──────────────────────────────────────────────────────────────

AGENT = "agent: { control: true, on_stall: handle }"


async def test_an_agent_that_is_only_told_gets_no_packet() -> None:
    rig = Jam(stuck(f"{AFTER}, then: agent", more="agent: { control: true }"))
    await rig.accept({"n": 1})
    await rig.timers.elapse(9.0)
    (told,) = rig.journal.of(PipelineEscalated)
    assert (told.reason, told.then, told.handle) == ("stall", "agent", False)
    assert (told.escalated, told.marked) == (None, None)
    assert "Escalated" not in rig.journal.names()


@pytest.mark.seed("D069")
@pytest.mark.parametrize("then", ["notify", "pause", "agent"])
async def test_what_is_queued_escalates_at_once_and_what_is_in_hand_at_its_next_failure(
    then: str,
) -> None:
    rig = Jam(stuck(f"{AFTER}, then: {then}", more=AGENT))
    first, second, third, fourth = await rig.accept(*({"n": n} for n in range(1, 5)))
    assert rig.parts.executor.in_hand == 2
    await rig.timers.elapse(9.0)
    (told,) = rig.journal.of(PipelineEscalated)
    assert (told.then, told.handle, told.escalated, told.marked) == (then, True, 2, 2)
    gone = rig.journal.of(journaled.Escalated)
    assert [(one.unit, one.node, one.reason, one.stall) for one in gone] == [
        (third, "keep", "stall", rig.stalls[0].message),
        (fourth, "keep", "stall", rig.stalls[0].message),
    ]
    assert {(one.error.code, one.error.node, one.error.message) for one in gone} == {
        ("stall", "keep", rig.stalls[0].message)
    }
    await rig.parts.pausing.resume()
    await rig.timers.elapse(3600.0)
    # With `pause` the next stall has paused it again before the back-off was over.
    await rig.parts.pausing.resume()
    await rig.settle()
    late = rig.journal.of(journaled.Escalated)[2:]
    assert {one.unit for one in late} == {first, second}
    assert {(one.reason, one.error.code, one.error.message, one.node) for one in late} == {
        ("stall", "output.failed", "the disk is full", "$output")
    }
    assert (rig.parts.executor.in_hand, rig.parts.pending.moving) == (0, 0)


async def test_a_marked_unit_that_moves_on_is_not_handed_over() -> None:
    rig = Jam(stuck(more=AGENT))
    (unit,) = await rig.accept({"n": 1})
    await rig.timers.elapse(9.0)
    rig.mend()
    await rig.timers.elapse(3600.0)
    assert "Delivered" in rig.journal.names(unit)
    assert rig.journal.of(journaled.Escalated) == []
    assert len(rig.journal.of(Unjammed)) == 1


async def test_the_mark_of_one_step_is_none_of_the_next() -> None:
    body = f"""
input: {{ via: push }}
nodes:
  shape:
    from: input
    transform: map
    with: {{ data: "${{data}}" }}
    on_error: {{ retry: 3, delay: 1h, max_delay: 1h }}
output: {{ from: shape, {TABLE}, {ENDLESS} }}
delivered: {{ stall: {{ {AFTER} }} }}
{AGENT}
"""

    def fail(call: StepCall) -> None:
        raise WriteFailed("no ink")

    rig = Jam(body)
    rig.step = fail
    (unit,) = await rig.accept({"n": 1})
    await rig.timers.elapse(9.0)
    assert rig.journal.of(PipelineEscalated)[0].marked == 1
    rig.step = None
    await rig.timers.elapse(3600.0)
    assert rig.journal.of(journaled.Stepped)[-1].unit == unit
    assert rig.journal.names(unit)[-1] == "Retried"
    assert rig.journal.of(journaled.Escalated) == []


async def test_a_marked_unit_at_a_node_escalates_whatever_its_policy_says() -> None:
    body = f"""
input: {{ via: push }}
nodes:
  say:
    from: input
    tap: log
    with: {{ message: "${{data.n}}" }}
    on_error: {{ retry: 3, delay: 1h, max_delay: 1h, then: continue }}
output: {{ from: say, {TABLE} }}
delivered: {{ stall: {{ {AFTER} }} }}
{AGENT}
"""

    def fail(call: StepCall) -> None:
        raise WriteFailed("no ink")

    rig = Jam(body)
    rig.step = fail
    (unit,) = await rig.accept({"n": 1})
    await rig.timers.elapse(9.0)
    await rig.timers.elapse(3600.0)
    (gone,) = rig.journal.of(journaled.Escalated)
    assert (gone.unit, gone.reason, gone.error.code, gone.node) == (
        unit,
        "stall",
        "node.failed",
        "say",
    )


@pytest.mark.parametrize("outcome", [PASSED, FAILED])
async def test_a_unit_at_its_check_is_marked_and_its_verdict_decides(outcome: Any) -> None:
    rig = Jam(CHECKED + f"  stall: {{ {AFTER} }}\n{AGENT}\n")
    rig.mend()
    checker = Checker(rig)
    (unit,) = await rig.accept({"name": "Ada"})
    await rig.settle()
    await rig.timers.elapse(8.5)
    rig.parts.offers.on_stall_report("c1")
    await rig.settle()
    assert rig.journal.of(PipelineEscalated)[0].marked == 1
    checker.say(f"{unit}:1:1", outcome, message="not there")
    await rig.settle()
    if outcome == PASSED:
        assert "Delivered" in rig.journal.names(unit)
        return
    (gone,) = rig.journal.of(journaled.Escalated)
    assert (gone.reason, gone.error.code, gone.error.node) == (
        "stall",
        "delivery.unverified",
        "delivered",
    )


async def test_a_unit_that_is_parked_for_an_ack_escalates_at_once() -> None:
    rig = Jam(
        f"""
input: {{ via: push }}
output: {{ from: input, {TABLE} }}
delivered: {{ check: external, within: 1h, stall: {{ {AFTER} }} }}
{AGENT}
"""
    )
    rig.mend()
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    await rig.timers.elapse(9.0)
    (gone,) = rig.journal.of(journaled.Escalated)
    assert (gone.unit, gone.error.code, gone.error.node) == (unit, "stall", "delivered")
    await rig.timers.elapse(7200.0)
    assert rig.journal.names(unit)[-1] == "Escalated"
    assert rig.parts.pending.moving == 0
