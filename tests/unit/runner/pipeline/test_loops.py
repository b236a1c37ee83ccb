"""Nodes that send packets back (edge 128-135)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipo.connectors.contract import StepCall, WriteFailed
from pipo.journal.changes import (
    DeadLettered,
    Dropped,
    Filtered,
    Held,
    Looped,
    Retried,
    Stepped,
)
from pipo_runner.pipeline.flow.units import Unit
from tests.unit.runner.pipeline.rig import TABLE, Rig


def looping(loop: str, more: str = "", *, nodes: str = "", of: str = "data.n + 1") -> str:
    return f"""
input: {{ via: push }}
nodes:
  first: {{ from: input, filter: "true" }}
  more: {{ from: first, transform: map, with: {{ data: {{ n: "${{{of}}}" }} }}{more}, loop: {{ {loop} }} }}
{nodes}output: {{ from: more, {TABLE} }}
"""


def written(rig: Rig) -> list[Any]:
    return [unit.data for group in rig.output.writes for unit in group]


@pytest.mark.parametrize("back_to", ["more", "first"], ids=["itself", "upstream"])
async def test_a_packet_goes_back_until_the_condition_holds_of_the_result(back_to: str) -> None:
    rig = Rig(looping(f"back_to: {back_to}, until: 'data.n >= 4', max: 9"))
    (packet,) = await rig.accept({"n": 1})
    await rig.settle()
    assert written(rig) == [{"n": 4}]
    looped = rig.journal.of(Looped)
    assert [(one.back_to, one.after) for one in looped] == [
        (back_to, {"n": 2}), (back_to, {"n": 3}),
    ]  # fmt: skip
    assert [n for u, n in rig.ran if u == packet].count("more") == 3


async def test_leaving_the_loop_keeps_the_count() -> None:
    nodes = '  seen: { from: more, transform: map, with: { data: "${meta.iteration}" } }\n'
    body = looping("back_to: more, until: 'data.n >= 4', max: 9", nodes=nodes)
    rig = Rig(body.replace("{ from: more, to", "{ from: seen, to"))
    await rig.accept({"n": 1})
    await rig.settle()
    assert written(rig) == [2]


async def test_the_node_runs_once_more_than_it_may_send_back() -> None:
    rig = Rig(looping("back_to: more, until: 'false', max: 3"))
    (packet,) = await rig.accept({"n": 0})
    await rig.settle()
    assert [n for _, n in rig.ran] == ["more"] * 4
    assert len(rig.journal.of(Looped)) == 3
    (dead,) = rig.journal.of(DeadLettered)
    assert (dead.unit, dead.node) == (packet, "more")
    assert (dead.error.code, dead.error.node, dead.error.attempts) == ("loop.max", "more", 1)
    assert "3 times" in dead.error.message
    assert "'false'" in dead.error.message
    assert rig.parts.executor.in_hand == 0


async def test_the_last_result_is_seen_by_the_message_only() -> None:
    """Edge 130; edge 129: `then` is the loop's own."""
    policy = ", on_error: { then: halt, message: 'at ${data.n} of ${meta.iteration}' }"
    rig = Rig(looping("back_to: more, until: 'false', max: 3", policy))
    kept: list[Any] = []
    (packet,) = await rig.accept({"n": 0})
    unit = rig.parts.pending.find(packet)
    assert isinstance(unit, Unit)
    await rig.settle()
    kept.append(unit.data)
    (dead,) = rig.journal.of(DeadLettered)
    assert dead.error.message == "at 4 of 3"
    assert rig.journal.of(Stepped)[-1].node == "first"
    assert kept == [{"n": 3}]


async def test_what_a_loop_may_do_at_its_limit() -> None:
    rig = Rig(looping("back_to: more, until: 'false', max: 1, then: drop"))
    await rig.accept({"n": 0})
    await rig.settle()
    (dropped,) = rig.journal.of(Dropped)
    assert dropped.error.code == "loop.max"
    rig = Rig(looping("back_to: more, until: 'data.n > 9', max: 1, then: pause"))
    (packet,) = await rig.accept({"n": 0})
    await rig.settle()
    assert [held.unit for held in rig.journal.of(Held)] == [packet]
    resume = asyncio.ensure_future(rig.parts.pausing.resume())
    await rig.settle()
    await resume
    await rig.settle()
    assert [held.unit for held in rig.journal.of(Held)] == [packet, packet]


async def test_the_count_is_the_packets_over_all_loops() -> None:
    nodes = (
        "  again: { from: more, transform: map, with: { data: { n: '${data.n + 10}' } }, "
        "loop: { back_to: again, until: 'data.n > 40', max: 4 } }\n"
    )
    body = looping("back_to: more, until: 'data.n >= 3', max: 9", nodes=nodes)
    rig = Rig(body.replace("{ from: more, to", "{ from: again, to"))
    await rig.accept({"n": 0})
    await rig.settle()
    # Two send-backs by the first loop leave two of the second's four.
    assert [one.node for one in rig.journal.of(Looped)] == ["more", "more", "again", "again"]
    (dead,) = rig.journal.of(DeadLettered)
    assert dead.node == "again"


async def test_a_filter_drops_before_the_condition_is_looked_at() -> None:
    body = f"""
input: {{ via: push }}
nodes:
  f: {{ from: input, filter: "false", loop: {{ back_to: f, until: "upper(data)", max: 3 }} }}
output: {{ from: f, {TABLE} }}
"""
    rig = Rig(body)
    await rig.accept(1)
    await rig.settle()
    assert [type(change) for change in rig.journal.durable[1:]] == [Filtered]


async def test_a_condition_that_fails_is_a_failed_run() -> None:
    more = ", on_error: { retry: 1, delay: 1s }"
    rig = Rig(looping("back_to: more, until: 'upper(data.n)', max: 3", more))
    await rig.accept({"n": 1})
    await rig.settle()
    assert len(rig.journal.of(Retried)) == 1
    await rig.timers.elapse(1.0)
    await rig.settle()
    (dead,) = rig.journal.of(DeadLettered)
    assert (dead.error.code, dead.error.attempts) == ("node.failed", 2)


async def test_each_pass_has_all_its_attempts() -> None:
    rig = Rig(
        looping(
            "back_to: more, until: 'data.n >= 3', max: 9", ", on_error: { retry: 1, delay: 0s }"
        )
    )
    fail = {1, 2}

    def step(call: StepCall) -> None:
        if call.node == "more" and call.data["n"] in fail:
            fail.discard(call.data["n"])
            raise WriteFailed("busy")

    rig.step = step
    await rig.accept({"n": 1})
    for _ in range(4):
        await rig.settle()
        await rig.timers.elapse(0.0)
    assert [one.attempt for one in rig.journal.of(Retried)] == [1, 1]
    assert written(rig) == [{"n": 3}]


async def test_a_pause_stops_a_loop_where_it_is() -> None:
    rig = Rig(looping("back_to: first, until: 'data.n >= 5', max: 9"))
    await rig.accept({"n": 1})
    pause = asyncio.ensure_future(rig.parts.pausing.pause("manual"))
    await rig.settle()
    await pause
    assert len(rig.journal.of(Looped)) == 1
    assert rig.parts.executor.in_hand == 0
    resume = asyncio.ensure_future(rig.parts.pausing.resume())
    await rig.settle()
    await resume
    await rig.settle()
    assert written(rig) == [{"n": 5}]


async def test_a_loop_without_end_leaves_room_for_others() -> None:
    rig = Rig("concurrency: 2\n" + looping("back_to: more, until: 'data.n == 0', max: 100000000"))
    await rig.accept({"n": 1})
    for _ in range(5):
        await rig.journal.land()
    passes = len(rig.journal.of(Looped))
    assert 1 < passes < 20
    take = asyncio.ensure_future(rig.parts.intake.take([rig.arrival({"n": -1})]))
    for _ in range(10):
        await rig.journal.land()
    await take
    assert written(rig) == [{"n": 0}]


async def test_a_route_may_send_back_and_goes_its_way_after() -> None:
    body = f"""
input: {{ via: push }}
nodes:
  more: {{ from: input, transform: map, with: {{ data: {{ n: "${{data.n + 1}}" }} }} }}
  r:
    from: more
    route: {{ odd: "data.n % 2 == 1", even: else }}
    loop: {{ back_to: more, until: "data.n >= 4", max: 9 }}
output: {{ from: [r.odd, r.even], {TABLE} }}
"""
    rig = Rig(body)
    await rig.accept({"n": 1})
    await rig.settle()
    assert written(rig) == [{"n": 4}]
    assert [one.node for one in rig.journal.of(Looped)] == ["r", "r"]


async def test_a_loop_outside_sends_back_what_it_was_answered() -> None:
    body = f"""
input: {{ via: push }}
nodes:
  asked:
    from: input
    transform: http
    with: {{ url: "http://127.0.0.1/", body: {{ n: "${{data.n + 1}}" }} }}
    loop: {{ back_to: asked, until: "data.n >= 3", max: 9 }}
output: {{ from: asked, {TABLE} }}
"""
    rig = Rig(body, outside=("http",))
    await rig.accept({"n": 0})
    await rig.settle()
    assert written(rig) == [{"n": 3}]
    assert len(rig.journal.of(Looped)) == 2


async def test_a_loop_above_a_split_splits_again_on_each_pass() -> None:
    """Edge 119, 120: branches nest, and copies inherit the count."""
    body = f"""
input: {{ via: push }}
nodes:
  top: {{ from: input, transform: map, with: {{ data: {{ n: "${{data.n + 1}}" }} }} }}
  x: {{ from: top, filter: "true", loop: {{ back_to: top, until: "data.n >= 3", max: 9 }} }}
  y: {{ from: top, filter: "true" }}
output: {{ from: [x, y], {TABLE} }}
"""
    rig = Rig(body)
    (packet,) = await rig.accept({"n": 0})
    await rig.settle()
    assert {unit.id: unit.data["n"] for group in rig.output.writes for unit in group} == {
        f"{packet}:y": 1,
        f"{packet}:x/y": 2,
        f"{packet}:x/x/x": 3,
        f"{packet}:x/x/y": 3,
    }
    assert len(rig.parts.pending) == 0
