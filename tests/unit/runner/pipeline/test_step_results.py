"""What a step returns becomes data only if the journal gives the same back."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import StepCall
from pipo.journal.changes import DeadLettered, Looped, Stepped
from pipo.payload import DEPTH_LIMIT, decode, depth, encode
from tests.unit.runner.pipeline.rig import TABLE, Rig

WRAPS = f"""
input: {{ via: push }}
nodes:
  wrap:
    from: input
    transform: map
    with: {{ data: {{ in: "${{data}}" }} }}
    on_error: {{ retry: 5 }}
    loop: {{ back_to: wrap, until: "meta.iteration + 1 >= TIMES", max: 9999 }}
output: {{ from: wrap, {TABLE} }}
"""
ASKS = f"""
input: {{ via: push }}
nodes:
  asked:
    from: input
    transform: http
    with: {{ url: "http://127.0.0.1/" }}
    on_error: {{ retry: 5 }}
output: {{ from: asked, {TABLE} }}
"""


async def test_data_that_grows_too_deep_is_no_damage_for_the_next_start_to_find() -> None:
    rig = Rig(WRAPS.replace("TIMES", str(DEPTH_LIMIT)), packet_limit=10_000)
    await rig.accept(1)
    await rig.settle()
    (written,) = rig.output.writes[0]
    assert depth(written.data) == DEPTH_LIMIT
    assert decode(encode(written.data)) == written.data

    rig = Rig(WRAPS.replace("TIMES", str(DEPTH_LIMIT + 1)), packet_limit=10_000)
    await rig.accept(1)
    await rig.settle()
    (dead,) = rig.journal.of(DeadLettered)
    assert (dead.node, dead.error.attempts) == ("wrap", 1)
    assert dead.error.message == "the result is nested more than 512 levels deep"
    assert depth(rig.journal.of(Looped)[-1].after) == DEPTH_LIMIT


@pytest.mark.parametrize("made", [{"odd": object()}, {1j}], ids=["an-object", "a-complex-number"])
async def test_what_json_cannot_hold_is_the_steps_error(made: Any) -> None:
    rig = Rig(ASKS, auto=True, outside=("http",))

    async def run(call: StepCall) -> Any:
        return made

    rig.outside["http"].run = run  # type: ignore[method-assign]
    await rig.accept(1)
    await rig.settle()
    (dead,) = rig.journal.of(DeadLettered)
    assert dead.error.attempts == 1
    assert dead.error.message.startswith("the result is not JSON: ")
    assert rig.journal.of(Stepped) == []
    assert ("error", "a step failed unexpectedly") not in rig.logged


async def test_numbers_that_json_does_not_know_are_gone_before_the_next_step() -> None:
    """Facts 5.4: the next step sees what a restart would find."""
    body = f"""
input: {{ via: push }}
nodes:
  odd: {{ from: input, transform: map, with: {{ data: ["${{0/0}}", "${{-0}}", "${{1/0}}"] }} }}
  seen: {{ from: odd, filter: "data[0] === null && data[2] === null && 1 / data[1] > 0" }}
output: {{ from: seen, {TABLE} }}
"""
    rig = Rig(body, auto=True)
    (packet,) = await rig.accept(1)
    await rig.settle()
    assert rig.output.written == [packet]
