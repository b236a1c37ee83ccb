"""Takes what other pipelines hand over. Both ends declare the link: a sender stands in `from`.

The sender and the unit's key make one packet, however often they come: the packet's own
transaction holds the inbox row. What is refused here leaves nothing behind (decision 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from pipo.connectors.contract import (
    Arrival,
    HandOver,
    HandOverInput,
    InputContext,
    InputSpec,
    Refused,
    Taken,
)
from pipo.connectors.formats import parse_pushed
from pipo.errors import BadRequest

DEPTH_MAX = 16


def build(specs: Sequence[InputSpec], context: InputContext) -> HandOverInput:
    return PipelineInput(specs, context)


class PipelineInput:
    """Every `via: pipeline` input of one pipeline; a sender feeds one of them (P063)."""

    def __init__(self, specs: Sequence[InputSpec], context: InputContext) -> None:
        self._name = context.pipeline
        self._intake = context.intake
        self._by_sender = {sender: spec for spec in specs for sender in spec.settings["from"]}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def deliver(self, handed: Sequence[HandOver]) -> list[Taken | Refused]:
        """What became of each (contract.HandOverInput)."""
        met = [self._arrival(one) for one in handed]
        taken = iter(await self._intake.take([one for one in met if isinstance(one, Arrival)]))
        return [next(taken) if isinstance(one, Arrival) else one for one in met]

    def _arrival(self, one: HandOver) -> Arrival | Refused:
        spec = self._by_sender.get(one.sender)
        if spec is None:
            return Refused(
                f"{one.sender} may not hand packets over to {self._name}",
                hint=f"list it in `from` of an input of {self._name}, and restart that",
            )
        if one.depth > DEPTH_MAX:
            return Refused(
                f"the packet was handed over {one.depth} times, more than {DEPTH_MAX}",
                hint="the pipelines may feed each other in a circle",
            )
        try:
            data = parse_pushed(spec.format, one.data)
        except BadRequest as error:
            return Refused(error.message, hint=error.hint)
        return Arrival(
            input=spec.name,
            data=data,
            trigger="pipeline",
            source=one.sender,
            key=one.key,
            upstream={
                "pipeline": one.sender,
                "packet_id": one.packet_id,
                "key": one.key,
                "depth": one.depth,
            },
        )
