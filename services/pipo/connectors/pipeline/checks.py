"""Looks at what the receiver made of a handed packet: `downstream`.

The receiver tells when a packet settles (`standings`), so a look is made at once, at the
news, and at the deadline. A receiver that does not run is a failed look, made again in the
usual rhythm (D045).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipo.connectors.contract import (
    CheckContext,
    CheckError,
    Checks,
    Impossible,
    Judgement,
    Passed,
    Pending,
    Seen,
    Target,
)
from pipo.connectors.pipeline.receivers import Receivers
from pipo.connectors.pipeline.standings import Standing, Standings

DELIVERED: Final = "delivered"
# A packet that the receiver holds no longer is `gone`.
ENDED: Final = frozenset({"dead_lettered", "filtered", "rejected", "gone"})


def build(context: CheckContext) -> Checks:
    return PipelineChecks(context)


class PipelineChecks:
    """One stream to each receiver."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._receivers: Receivers | None = None
        self._standings: dict[str, Standings] = {}

    def place(self, target: Target) -> str:
        """The receiver that answered the hand-off."""
        return _part(target, "pipeline")

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        try:
            standings = await self._at(place).look([_part(t, "packet_id") for t in targets])
        except CheckError as error:
            return [error] * len(targets)
        return [Seen(one, _evidence(place, one)) for one in standings]

    def judge(self, target: Target, seen: Seen) -> Judgement:
        return judge(_part(target, "pipeline"), seen)

    async def close(self) -> None:
        for standings in self._standings.values():
            await standings.close()
        if self._receivers is not None:
            await self._receivers.close()

    def _at(self, receiver: str) -> Standings:
        """Raises: CheckError."""
        if self._receivers is None:
            if self._context.home is None:
                raise CheckError("there is no home to find other pipelines in")
            self._receivers = Receivers(self._context.home, self._context.clock)
        if receiver not in self._standings:
            self._standings[receiver] = Standings(receiver, self._receivers)
        return self._standings[receiver]


def judge(receiver: str, seen: Seen) -> Judgement:
    """Whether the receiver has delivered its packet, or never will."""
    standing: Standing = seen.value
    packet = f"packet {standing.packet_id} of pipeline {receiver!r}"
    if standing.state == DELIVERED:
        return Passed(seen.evidence)
    if standing.state in ENDED:
        reason = f": {standing.reason}" if standing.reason else ""
        return Impossible(f"{packet} is {standing.state}{reason}", seen.evidence)
    where = f"is {standing.state}" if standing.state else "is not settled"
    # What was told meanwhile is news too: the next look comes at once.
    news = None if standing.state else standing.news
    return Pending(f"{packet} {where}, not yet delivered", seen.evidence, news=news)


def _evidence(receiver: str, standing: Standing) -> dict[str, str]:
    return {
        "pipeline": receiver,
        "packet_id": standing.packet_id,
        "state": standing.state or "not settled",
    }


def _part(target: Target, name: str) -> str:
    """One part of what the hand-off returned. Raises: CheckError."""
    found = target.result.get(name) if isinstance(target.result, dict) else None
    if not isinstance(found, str):
        raise CheckError(f"the hand-off left no {name} to look for")
    return found
