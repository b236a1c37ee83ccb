"""Steps that reach outside: a commit before and after, retries, pauses and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pipo.connectors.contract import Refused, RetryAfter, StepCall, WriteFailed
from pipo.journal.changes import (
    DeadLettered,
    FannedOut,
    Held,
    Retried,
    Stepped,
)
from pipo_runner.pipeline.flow.units import Unit
from pipo_runner.pipeline.steps.steps import Steps
from tests.unit.runner.pipeline.rig import (
    TABLE,
    FakeOutsideStep,
    Rig,
    edition_of,
    pipeline_of,
    quiet,
    until,
)

ASKS = f"""
input: {{ via: push }}
nodes:
  shape: {{ from: input, transform: map, with: {{ data: {{ n: "${{data.n}}" }} }} }}
  asked:
    from: shape
    transform: http
    with: {{ url: "http://127.0.0.1/", body: {{ n: "${{data.n + 1}}" }} }}
    on_error: {{ retry: 2, delay: 2s }}
  told: {{ from: asked, tap: log, with: {{ message: "x" }} }}
output: {{ from: told, {TABLE} }}
"""
TAPPED = f"""
input: {{ via: push }}
nodes:
  kept: {{ from: input, tap: file, with: {{ path: ./kept.jsonl }}, on_error: {{ then: continue }} }}
output: {{ from: kept, {TABLE} }}
"""


def asking(body: str = ASKS, **given: object) -> tuple[Rig, FakeOutsideStep]:
    rig = Rig(body, outside=("http", "file"), **given)  # type: ignore[arg-type]
    return rig, rig.outside["file" if "tap: file" in body else "http"]


def ran(rig: Rig) -> list[str]:
    return [node for _, node in rig.ran]


def fails(*errors: Exception) -> Callable[[StepCall], None]:
    """The next runs of the step outside fail with these, one after the other."""
    left = list(errors)

    def step(call: StepCall) -> None:
        if call.node in ("asked", "kept") and left:
            raise left.pop(0)

    return step


async def test_it_begins_once_all_before_it_is_on_disk() -> None:
    rig, _ = asking()
    await rig.accept({"n": 1})
    await quiet()
    assert ran(rig) == ["shape"]
    await rig.journal.land()
    assert ran(rig) == ["shape", "asked"]
    assert rig.journal.durable == [*rig.journal.durable[:1], *rig.journal.of(Stepped)[:1]]


async def test_its_result_is_on_disk_before_the_next_step_begins() -> None:
    rig, _ = asking()
    await rig.accept({"n": 1})
    await rig.journal.land()
    await quiet()
    assert ran(rig) == ["shape", "asked"]
    assert rig.output.writes == []
    await rig.journal.land()
    assert ran(rig) == ["shape", "asked", "told"]
    await rig.settle()
    assert rig.output.writes[0][0].data == {"n": 2}
    assert [s.node for s in rig.journal.of(Stepped)] == ["shape", "asked", "told"]
    assert rig.parts.executor.in_hand == 0


async def test_a_tap_leaves_the_data_as_it_was() -> None:
    rig, _ = asking(TAPPED)
    await rig.accept({"n": 1})
    await rig.settle()
    assert ran(rig) == ["kept"]
    assert rig.output.writes[0][0].data == {"n": 1}


async def test_a_failed_run_waits_and_is_repeated_under_the_same_key() -> None:
    rig, _ = asking()
    keys: list[str] = []
    attempts: list[int] = []
    fail = fails(WriteFailed("busy"), WriteFailed("busy"))

    def step(call: StepCall) -> None:
        if call.node == "asked":
            keys.append(call.key)
            attempts.append(call.meta["attempt"])
        fail(call)

    rig.step = step
    (packet,) = await rig.accept({"n": 1})
    await rig.settle()
    assert rig.timers.waits_s == [2.0]
    await rig.timers.elapse(2.0)
    await rig.settle()
    await rig.timers.elapse(2.0)
    await rig.settle()
    assert keys == [f"{packet}:asked"] * 3
    assert attempts == [1, 2, 3]
    assert [r.attempt for r in rig.journal.of(Retried)] == [1, 2]
    assert rig.output.written == [packet]
    (stepped,) = [s for s in rig.journal.of(Stepped) if s.node == "asked"]
    assert stepped.ms == 4000.0


async def test_a_receiver_that_asks_for_a_pause_gets_it() -> None:
    """Decision 41."""
    rig, _ = asking()
    rig.step = fails(RetryAfter("slow down", seconds=7.0))
    await rig.accept({"n": 1})
    await rig.settle()
    assert rig.timers.waits_s == [7.0]


@pytest.mark.parametrize(
    ("errors", "attempts"),
    [([Refused("never")], 1), ([WriteFailed("busy")] * 3, 3), ([ValueError("odd")] * 3, 3)],
    ids=["refused", "retries-used-up", "a-bug"],
)
async def test_what_fails_for_good_ends_as_its_policy_says(
    errors: list[Exception], attempts: int
) -> None:
    rig, _ = asking()
    rig.step = fails(*errors)
    await rig.accept({"n": 1})
    for _ in range(3):
        await rig.settle()
        await rig.timers.elapse(2.0)
    (dead,) = rig.journal.of(DeadLettered)
    assert (dead.node, dead.error.code, dead.error.attempts) == ("asked", "node.failed", attempts)
    assert len(rig.parts.pending) == 0
    assert rig.parts.executor.in_hand == 0


async def test_a_tap_that_fails_may_be_passed_by() -> None:
    rig, _ = asking(TAPPED)
    rig.step = fails(WriteFailed("full"))
    (packet,) = await rig.accept({"n": 1})
    await rig.settle()
    (stepped,) = rig.journal.of(Stepped)
    assert stepped.notes == (("node.failed_continued", {"error": "full"}),)
    assert rig.output.written == [packet]


async def test_a_result_beyond_the_limit_fails() -> None:
    rig, _ = asking(ASKS.replace("${data.n + 1}", "${data.n}"), packet_limit=20)
    rig.step = None
    await rig.accept({"n": "x" * 15})
    for _ in range(3):
        await rig.settle()
        await rig.timers.elapse(2.0)
    (dead,) = rig.journal.of(DeadLettered)
    assert "engine.packet_limit" in dead.error.message


async def test_no_more_are_outside_than_there_are_slots() -> None:
    rig, step = asking(f"concurrency: 2\n{ASKS}")
    step.hold()
    await rig.accept({"n": 1}, {"n": 2}, {"n": 3})
    await rig.settle()
    assert ran(rig).count("asked") == 2
    step.let_go()
    await rig.settle()
    assert ran(rig).count("asked") == 3


async def test_copies_wait_until_the_result_they_come_of_is_on_disk() -> None:
    body = f"""
input: {{ via: push }}
nodes:
  asked: {{ from: input, transform: http, with: {{ url: "http://127.0.0.1/" }} }}
  a: {{ from: asked, transform: map, with: {{ data: "a" }} }}
output: {{ from: [asked, a], {TABLE} }}
"""
    rig, _ = asking(body)
    (packet,) = await rig.accept({"n": 1})
    await rig.journal.land()
    assert ran(rig) == ["asked"]
    assert [type(c) for one in rig.journal.waiting for c in one.changes] == [Stepped, FannedOut]
    await rig.journal.land()
    assert ran(rig) == ["asked", "a"]
    await rig.settle()
    assert sorted(rig.output.written) == [f"{packet}:a", f"{packet}:output"]
    assert rig.parts.executor.in_hand == 0


async def test_a_pause_lets_it_finish_and_keeps_what_follows() -> None:
    """Edge 302."""
    rig, step = asking()
    step.hold()
    await rig.accept({"n": 1})
    await rig.settle()
    pause = asyncio.ensure_future(rig.parts.pausing.pause("manual"))
    await rig.settle()
    await pause
    step.let_go()
    await rig.settle()
    assert [s.node for s in rig.journal.of(Stepped)] == ["shape", "asked"]
    assert ran(rig) == ["shape", "asked"]
    assert rig.parts.executor.in_hand == 0
    resume = asyncio.ensure_future(rig.parts.pausing.resume())
    await rig.settle()
    await resume
    await rig.settle()
    assert ran(rig) == ["shape", "asked", "told"]
    assert len(rig.parts.pending) == 0


async def test_a_pause_before_it_begins_keeps_it_back() -> None:
    rig, _ = asking()
    await rig.accept({"n": 1})
    pause = asyncio.ensure_future(rig.parts.pausing.pause("manual"))
    await rig.settle()
    await pause
    assert ran(rig) == ["shape"]
    assert rig.parts.executor.in_hand == 0


async def test_one_that_fails_may_pause_the_pipeline() -> None:
    rig, _ = asking(ASKS.replace("retry: 2, delay: 2s", "then: pause"))
    rig.step = fails(WriteFailed("gone"))
    (packet,) = await rig.accept({"n": 1})
    await rig.settle()
    assert [held.node for held in rig.journal.of(Held)] == ["asked"]
    assert rig.parts.executor.in_hand == 0
    resume = asyncio.ensure_future(rig.parts.pausing.resume())
    await rig.settle()
    await resume
    await rig.settle()
    assert rig.output.written == [packet]


async def test_a_stop_waits_for_what_is_outside() -> None:
    rig, step = asking()
    step.hold()
    await rig.accept({"n": 1})
    await rig.settle()
    rig.parts.executor.close()
    rest = asyncio.ensure_future(rig.parts.executor.idle(30.0))
    await quiet()
    assert not rest.done()
    step.let_go()
    await rig.settle()
    assert await rest
    assert [s.node for s in rig.journal.of(Stepped)] == ["shape", "asked"]
    assert ran(rig) == ["shape", "asked"]


async def test_a_stop_that_is_over_leaves_the_unit_at_its_step() -> None:
    rig, step = asking()
    step.hold()
    (packet,) = await rig.accept({"n": 1})
    await rig.settle()
    rig.parts.executor.close()
    rest = asyncio.ensure_future(rig.parts.executor.idle(30.0))
    await quiet()
    rig.parts.executor.give_up_waiting()
    assert not await rest
    await rig.timers.close(0.0)
    await rig.settle()
    assert rig.journal.names(packet) == ["Accepted", "Stepped"]
    unit = await until(lambda: rig.parts.pending.find(packet))
    assert isinstance(unit, Unit)
    assert (unit.cursor, unit.attempt) == ("asked", 0)
    assert await rig.parts.executor.idle(0.0)


class Counted:
    """A step that counts its life."""

    def __init__(self, pure: bool) -> None:
        self.pure = pure
        self.calls: list[str] = []

    async def open(self) -> None:
        self.calls.append("open")

    async def close(self) -> None:
        self.calls.append("close")


async def test_each_step_is_built_once_and_only_what_reaches_outside_is_opened() -> None:
    made: list[Counted] = []

    def build(role: str, name: str, edition: object) -> Counted:
        made.append(Counted(pure=name == "log"))
        return made[-1]

    steps = Steps(build)  # type: ignore[arg-type]
    first = edition_of(pipeline_of(ASKS))
    assert steps.of("tap", "file", first) is steps.of("tap", "file", first)
    assert steps.of("tap", "http", first) is not steps.of("transform", "http", first)
    steps.of("tap", "log", first)
    await steps.open()
    await steps.close()
    assert [one.calls for one in made] == [["open", "close"]] * 3 + [[]]
