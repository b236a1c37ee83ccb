"""Sixteen inputs of one pipeline: each has its own way in, its own rules and its own memory."""

from __future__ import annotations

from typing import Any

from pipo.connectors.contract import Accepted, RejectedArrival
from pipo.journal import changes as journaled
from tests.unit.runner.pipeline.rig import TABLE, Rig

NAMES = [f"in{n}" for n in range(16)]


def body() -> str:
    """Each input takes its own number alone, and stamps it; every fourth goes straight on."""
    inputs = "".join(
        f"  {name}:\n    via: push\n    validate: ['data.n == {n}']\n"
        f"    on_invalid: {{ message: '{name} takes {n}, not ${{data.n}}' }}\n"
        for n, name in enumerate(NAMES)
    )
    nodes = "".join(
        f"  node{n}: {{ from: {name}, transform: map, with: {{ data: '${{meta.input}}' }} }}\n"
        for n, name in enumerate(NAMES)
        if n % 4
    )
    sources = [f"node{n}" if n % 4 else name for n, name in enumerate(NAMES)]
    return (
        f"inputs:\n{inputs}nodes:\n{nodes}output: {{ from: [{', '.join(sources)}], {TABLE} }}\n"
        "buffer: { max: 16 }\n"
    )


async def taken(rig: Rig, *arrivals: tuple[str, Any], **given: Any) -> list[Any]:
    return await rig.parts.intake.take([rig.arrival(n, name, **given) for name, n in arrivals])


async def test_each_input_has_its_own_way_and_its_own_rules() -> None:
    rig = Rig(body(), auto=True, packet_limit=10_000)
    mine = await taken(rig, *[(name, {"n": n}) for n, name in enumerate(NAMES)])
    await rig.settle()
    assert all(isinstance(one, Accepted) for one in mine)
    written = {unit.id: unit.data for group in rig.output.writes for unit in group}
    assert [written[one.packet_id] for one in mine] == [
        name if n % 4 else {"n": n} for n, name in enumerate(NAMES)
    ]
    others = await taken(rig, *[(name, {"n": n + 1}) for n, name in enumerate(NAMES)])
    assert [one.message for one in others if isinstance(one, RejectedArrival)] == [
        f"{name} takes {n}, not {n + 1}" for n, name in enumerate(NAMES)
    ]
    assert [one.error.node for one in rig.journal.of(journaled.Rejected)] == NAMES


async def test_each_input_remembers_for_itself() -> None:
    """Its state stands in the packet's own change, under its own name."""
    rig = Rig(body(), auto=True)
    for n, name in enumerate(NAMES):
        await taken(rig, (name, {"n": n}), state={"offset": str(n)})
    kept = {one.input: dict(one.state) for one in rig.journal.of(journaled.Accepted)}
    assert kept == {name: {"offset": str(n)} for n, name in enumerate(NAMES)}


async def test_all_inputs_share_one_buffer() -> None:
    rig = Rig(body(), auto=True, opened=False)
    rig.parts.admission.open()
    full = await taken(rig, *[(name, {"n": n}) for n, name in enumerate(NAMES)])
    assert all(isinstance(one, Accepted) for one in full)
    (refused,) = await taken(rig, ("in3", {"n": 3}))
    assert "buffer full (16 packets pending)" in refused.message
