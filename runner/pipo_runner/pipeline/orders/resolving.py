"""Escalated units: someone decides that they run again, are dead-lettered or dropped.

An escalated unit is pending and set aside: it holds no slot and keeps its place in the buffer.
A resolution is on disk before anything runs. In the turn of the loop that hears of its commit
the unit moves again, behind whoever came before, or has ended.

Whoever asks names packets, or copies of split ones: all of them are resolved, or none.
Source: edge 123, 126, 133, 287-298, R044-R047.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from pipo.clock import Clock
from pipo.connectors.contract import Settlement
from pipo.crashpoints import reach
from pipo.errors import InvalidState, NotFound, PipoError
from pipo.journal import units
from pipo.journal.changes import DEAD_LETTERED, ESCALATED, FILTERED
from pipo.journal.interventions import Resolved
from pipo.journal.states import BRANCHED, DROP, LOOP_MAX, RETRY, state_at
from pipo.journal.units import UnitStanding
from pipo_runner.pipeline.definition.masking import signature
from pipo_runner.pipeline.flow.units import OUTPUT
from pipo_runner.pipeline.orders.orders import Ledger, Orders, WayBack

HUMAN: Final = "human"
AGENT: Final = "agent"

Action = Literal["retry", "dead_letter", "drop"]


@dataclass(frozen=True, slots=True)
class ResolvedUnit:
    """What became of one unit; `node` is the step that it goes on at."""

    packet_id: str
    state: str
    node: str | None


@dataclass(frozen=True, slots=True)
class Resolution:
    action: str
    resolved: list[ResolvedUnit]


@dataclass(frozen=True, slots=True)
class Decision:
    """What someone wants, and who they are; everything that is kept of them is redacted."""

    action: Action
    by: str
    by_kind: str
    reason: str


class Resolutions:
    """`may` raises while the pipeline is in no state for it, and `agents_may` says whether
    the version in force lets agents resolve packets."""

    def __init__(
        self,
        *,
        name: str,
        journal: Ledger,
        orders: Orders,
        may: Callable[[], None],
        agents_may: Callable[[], bool],
        way_back: WayBack,
        clock: Clock,
        redact: Callable[[str], str],
    ) -> None:
        self._name = name
        self._journal = journal
        self._orders = orders
        self._may = may
        self._agents_may = agents_may
        self._way_back = way_back
        self._clock = clock
        self._redact = redact

    async def resolve(
        self, ids: Sequence[str], *, action: str, by: str, by_kind: str, reason: str
    ) -> Resolution:
        """Decides over these units; it is on disk on return.

        `action` is retry, dead_letter or drop. Cancelled: only the wait ends. Raises: NotFound
            and InvalidState, for one id or more, and then none is resolved; Unavailable, when
            too many wait for the journal.
        """
        decision = Decision(
            cast(Action, action),
            signature(by, self._redact),
            by_kind or HUMAN,
            self._redact(reason),
        )
        wanted = list(dict.fromkeys(ids))
        self._check(decision)
        resolved = await self._orders.carry_out(
            self._orders.in_turn(lambda: self._resolve(wanted, decision)), name="resolve"
        )
        return Resolution(action, resolved)

    def _check(self, decision: Decision) -> None:
        self._may()
        if decision.by_kind == AGENT and not self._agents_may():
            raise InvalidState(
                f"{self._name} lets no agent resolve packets",
                hint="its file would have to say agent: { control: true }; a person may always",
            )

    async def _resolve(self, ids: Sequence[str], decision: Decision) -> list[ResolvedUnit]:
        found = await units.units(self._journal.rows, ids)
        waiting: list[UnitStanding] = []
        for id_ in ids:
            error = await self._refusal(id_, found.get(id_), decision)
            if error is not None:
                raise error
            waiting.append(found[id_])
        # A pipeline that began to end meanwhile takes nothing up any more.
        self._check(decision)
        changes = [self._change(unit, decision) for unit in waiting]
        reach("resolve.before_commit")
        await self._orders.commit(changes, lambda: self._landed(waiting, changes))
        return [_answer(unit, decision.action) for unit in waiting]

    def _change(self, unit: UnitStanding, decision: Decision) -> Resolved:
        return Resolved(
            unit.id,
            decision.action,
            decision.by,
            decision.by_kind,
            decision.reason,
            self._clock.now_ms(),
            self._way_back.next_place() if decision.action == RETRY else None,
        )

    def _landed(self, waiting: Sequence[UnitStanding], changes: Sequence[Resolved]) -> None:
        reach("resolve.after_commit")
        for standing, change in zip(waiting, changes, strict=True):
            assert standing.error is not None, standing.id
            if change.action == RETRY:
                self._take_up(standing, change)
            else:
                state = FILTERED if change.action == DROP else DEAD_LETTERED
                self._way_back.pending.settled(
                    (standing.id,), Settlement(state, standing.error.message)
                )

    def _take_up(self, standing: UnitStanding, change: Resolved) -> None:
        unit = self._way_back.pending.back(standing.id)
        assert unit is not None, standing.id
        assert change.queue_seq is not None, standing.id
        assert standing.error is not None, standing.id
        unit.queue_seq = change.queue_seq
        # A write that failed, or that nobody found, may have happened all the same.
        unit.repeat = "repeated"
        if standing.error.code == LOOP_MAX:
            # Its passes count anew (edge 133).
            unit.iteration = 0
        self._way_back.enqueue(unit)

    async def _refusal(
        self, id_: str, unit: UnitStanding | None, decision: Decision
    ) -> PipoError | None:
        """Why a unit cannot be resolved so; None for one that can."""
        listing = (
            f"nothing was changed; pipo packets {self._name} --state escalated lists what waits"
        )
        if unit is None:
            return NotFound(f"pipeline {self._name!r} has no packet {id_!r}", hint=listing)
        if unit.state == BRANCHED:
            copies = await self._copies(unit)
            return InvalidState(
                f"{id_} is split into copies",
                hint=f"nothing was changed; name its copies: {copies}",
            )
        if unit.state != ESCALATED:
            return InvalidState(f"{id_} is {unit.state}, not escalated", hint=listing)
        if decision.action == DROP and unit.cursor == OUTPUT:
            return InvalidState(
                f"{id_} waits at the output and cannot be dropped: it may have been written",
                hint="nothing was changed; retry it, or dead_letter it",
            )
        return None

    async def _copies(self, unit: UnitStanding) -> str:
        family = await units.families(self._journal.rows, [unit.packet_id])
        copies = [one for one in family.get(unit.packet_id, ()) if one.parent == unit.id]
        return ", ".join(f"{one.id} ({one.state})" for one in copies)


def _answer(unit: UnitStanding, action: Action) -> ResolvedUnit:
    if action == RETRY:
        assert unit.cursor is not None, unit.id
        return ResolvedUnit(unit.id, state_at(unit.cursor), unit.cursor)
    return ResolvedUnit(unit.id, FILTERED if action == DROP else DEAD_LETTERED, None)
