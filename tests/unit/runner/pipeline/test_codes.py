"""Every code that a packet's error may have is reached (facts §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pipo.connectors.contract import StepCall, WriteFailed
from pipo.journal import changes as journaled
from pipo.journal.changes import PacketError
from pipo.journal.families import dead_branch_error
from pipo.journal.states import CODES
from tests.unit.runner.pipeline.delivery.test_verification import CHECKED, FAILED, Checker
from tests.unit.runner.pipeline.intake.test_intake import RULED
from tests.unit.runner.pipeline.rig import AT, TABLE, Rig
from tests.unit.runner.pipeline.test_input_schemas import rig_with, taken_by

NODE = f"""
input: {{ via: push }}
nodes:
  shape: {{ from: input, transform: map, with: {{ data: "${{data}}" }}, LOOP }}
output: {{ from: shape, {TABLE} }}
"""
LOOP = "loop: { back_to: shape, until: 'false', max: 1 }"
RULE = f"""
input: {{ via: push }}
output: {{ from: input, {TABLE}, validate: ["data.n > 5"] }}
"""


async def of_schema() -> PacketError:
    rig = rig_with()
    await taken_by(rig, {})
    return rig.journal.of(journaled.Rejected)[0].error


async def of_rule() -> PacketError:
    rig = Rig(RULED, auto=True)
    await rig.accept({"age": 3, "name": "Bo"})
    return rig.journal.of(journaled.Rejected)[0].error


async def ended(rig: Rig) -> PacketError:
    await rig.accept({"n": 1})
    await rig.settle()
    return rig.journal.of(journaled.DeadLettered)[0].error


async def of_node() -> PacketError:
    rig = Rig(NODE.replace("LOOP", ""))

    def fail(call: StepCall) -> None:
        raise WriteFailed("no ink")

    rig.step = fail
    return await ended(rig)


async def of_loop() -> PacketError:
    return await ended(Rig(NODE.replace("LOOP", LOOP)))


async def of_output_rule() -> PacketError:
    return await ended(Rig(RULE))


async def of_output() -> PacketError:
    rig = Rig(auto=True)
    rig.output.whole = WriteFailed("no ink")
    return await ended(rig)


async def of_check() -> PacketError:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    await rig.accept({"name": "ada"})
    await rig.settle()
    checker.say(checker.offers[0].id, FAILED, message="not there")
    await rig.settle()
    return rig.journal.of(journaled.DeadLettered)[0].error


async def of_branch() -> PacketError:
    return dead_branch_error("p:bad", (await of_node()).json())


async def of_stall() -> PacketError:
    rig = Rig(opened=False)
    rig.parts.admission.open()
    (id,) = await rig.accept({"n": 1})
    unit = rig.parts.pending.find(id)
    assert unit is not None
    handed = rig.parts.endings.handed_over(unit, "no way through", AT)
    assert isinstance(handed, journaled.Escalated)
    return handed.error


REACHED: dict[str, tuple[Callable[[], Awaitable[PacketError]], str]] = {
    "input.schema": (of_schema, "strict"),
    "input.invalid": (of_rule, "input"),
    "node.failed": (of_node, "shape"),
    "loop.max": (of_loop, "shape"),
    "output.invalid": (of_output_rule, "output"),
    "output.failed": (of_output, "output"),
    "delivery.unverified": (of_check, "delivered"),
    "branch.dead_lettered": (of_branch, "shape"),
    "stall": (of_stall, "output"),
}
# Agent nodes spend tokens, and are not built.
UNBUILT = {"budget.packet"}


@pytest.mark.parametrize("code", REACHED)
async def test_the_code_is_reached_at_its_step(code: str) -> None:
    reach, node = REACHED[code]
    error = await reach()
    assert (error.code, error.node) == (code, node)
    assert error.message


def test_no_code_is_left_out() -> None:
    assert set(REACHED) | UNBUILT == set(CODES)
