"""Dead letters: back in flight, or gone for good.

Idea. Both operations take a list of ids, all or none of them, or every dead letter there is.
`all` is a list of ids taken once, at the call, and worked off in groups, each a commit of its
own, so that the journal stays free for new packets. A dead letter that dies again meanwhile
is on no list any more: a queue never feeds itself (decision 30).

A replay is on disk before anything runs. In the turn of the loop that hears of its commit the
units join the pending ones and the queue, behind whoever came before; the journal tells in
order, so a drain that begins beside it waits for them. A paused pipeline holds them like all
others. They have a place in the buffer, whatever its limit (edge 330).

Which step. The error says where a unit stopped: a node runs again, and what failed at the
output or at its check is written again, under the same key and as a repeated write. Of a split
packet its dead copies run; what they came of waits for them once more (edge 263).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pipo.clock import Clock
from pipo.connectors.contract import ConnectorError
from pipo.crashpoints import reach
from pipo.errors import InvalidState, NotFound, PipoError
from pipo.journal import units
from pipo.journal.changes import DEAD_LETTERED
from pipo.journal.interventions import Purged, Replayed
from pipo.journal.states import LOOP_MAX, plain
from pipo.journal.units import UnitStanding
from pipo_runner.pipeline.definition.masking import signature
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.flow.units import OUTPUT, VERIFY, Unit
from pipo_runner.pipeline.orders.orders import (
    GROUP_PACKETS_LIMIT,
    LISTED_LIMIT,
    Family,
    Ledger,
    MovedUnit,
    Orders,
    Revived,
    SkippedPacket,
    WayBack,
    splits_of,
    taken_up,
)

# Where an error says it happened, for what resumes at the output.
WRITTEN_AT: Final = plain(OUTPUT)
CHECKED_AT: Final = plain(VERIFY)

Skipped = list[SkippedPacket]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplayedPacket:
    packet_id: str
    units: list[MovedUnit]


@dataclass(frozen=True, slots=True)
class Replays:
    """What a replay did; the lists are cut, the count is not."""

    replayed: int
    packets: list[ReplayedPacket]
    skipped: list[SkippedPacket]


@dataclass(frozen=True, slots=True)
class Purges:
    """What a purge did; the lists are cut, the count is not."""

    purged: int
    packet_ids: list[str]
    skipped: list[SkippedPacket]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one call wants: these packets; for `all`, with when each had died at the call."""

    ids: Sequence[str]
    by: str
    died: Mapping[str, int] | None

    @property
    def all(self) -> bool:
        return self.died is not None

    def groups(self) -> Iterator[Sequence[str]]:
        """What is committed together: named packets all at once, or none."""
        size = GROUP_PACKETS_LIMIT if self.all else max(1, len(self.ids))
        for start in range(0, len(self.ids), size):
            yield self.ids[start : start + size]


class DeadLetters:
    """The dead-letter queue of one pipeline.

    `may_replay` and `may_purge` raise while the pipeline is in no state for it; `prepare`
    makes plans and outputs of older versions ready, and raises where one cannot be.
    """

    def __init__(
        self,
        *,
        name: str,
        journal: Ledger,
        plan_of: Callable[[int], Plan],
        prepare: Callable[[set[int]], Awaitable[None]],
        may_replay: Callable[[], None],
        may_purge: Callable[[], None],
        orders: Orders,
        way_back: WayBack,
        clock: Clock,
        redact: Callable[[str], str],
    ) -> None:
        self._name = name
        self._journal = journal
        self._plan_of = plan_of
        self._prepare = prepare
        self._may_replay = may_replay
        self._may_purge = may_purge
        self._orders = orders
        self._way_back = way_back
        self._clock = clock
        self._redact = redact

    # ── replay ───────────────────────────────────────────────────────────────

    async def replay(self, ids: Sequence[str], *, every: bool, by: str) -> Replays:
        """Puts dead letters back in flight; it is on disk on return.

        Cancelled: only the wait ends. Raises: NotFound and InvalidState, for one id or more, and
            then none is replayed; Unavailable, when too many wait for the journal.
        Source: edge 253-265, R017-R026.
        """
        self._may_replay()
        made, skipped = await self._owned(ids, every, by, self._replay_group)
        return Replays(len(made), made[:LISTED_LIMIT], skipped)

    async def _replay_group(
        self, group: Sequence[str], asked: Asked, skipped: Skipped
    ) -> list[ReplayedPacket]:
        self._may_replay()
        revived: list[Revived] = []
        for family in await self._dead(group, asked, skipped):
            reason = await self._obstacle(family)
            if reason is None:
                revived.append(self._revived(family, asked.by))
            elif asked.all:
                skipped.append(SkippedPacket(family[0].id, reason))
            else:
                raise self._stuck(family[0].id, reason)
        # A pipeline that began to end meanwhile takes nothing up any more.
        self._may_replay()
        # Before the commit: after it they move.
        listed = [_listed(one) for one in revived]
        reach("dlq.before_replay_commit")
        await self._orders.commit(
            [change for one in revived for change in one.changes], lambda: self._landed(revived)
        )
        return listed

    async def _obstacle(self, family: Family) -> str | None:
        """Why a dead letter cannot run again on its version; None when it can (edge 262)."""
        version = family[0].version
        try:
            await self._prepare({version})
        except (PipoError, ConnectorError) as error:
            return f"its version v{version} does not run any more: {error.message}"
        steps = self._plan_of(version).nodes
        for unit in _dead_leaves(family):
            cursor = _cursor_of(unit)
            if cursor != OUTPUT and cursor not in steps:
                return f"its version v{version} has no step {cursor!r}"
        return None

    def _stuck(self, id_: str, reason: str) -> InvalidState:
        return InvalidState(
            f"{id_} cannot be replayed: {reason}",
            hint=f"push its data again (pipo inspect {self._name} {id_} --json has it), "
            f"then: pipo dlq purge {self._name} {id_}",
        )

    def _revived(self, family: Family, by: str) -> Revived:
        # Copies have the place of their packet.
        place, at = self._way_back.next_place(), self._clock.now_ms()
        dead = _dead_leaves(family)
        moving = [_unit_of(unit, _cursor_of(unit), place) for unit in dead]
        changes = [Replayed(unit.id, unit.cursor, by, at, place) for unit in moving]
        return Revived(family[0].id, moving, splits_of(family, dead), changes)

    def _landed(self, revived: Sequence[Revived]) -> None:
        reach("dlq.after_replay_commit")
        self._way_back.join(revived)

    # ── purge ────────────────────────────────────────────────────────────────

    async def purge(self, ids: Sequence[str], *, every: bool, by: str) -> Purges:
        """Deletes dead letters, their copies and events; it is on disk on return.

        Cancelled, Raises: as `replay`. Source: edge 266-268, R027, R028.
        """
        self._may_purge()
        made, skipped = await self._owned(ids, every, by, self._purge_group)
        return Purges(len(made), made[:LISTED_LIMIT], skipped)

    async def _purge_group(self, group: Sequence[str], asked: Asked, skipped: Skipped) -> list[str]:
        self._may_purge()
        gone = [family[0].id for family in await self._dead(group, asked, skipped)]
        self._may_purge()
        at = self._clock.now_ms()
        reach("dlq.before_purge_commit")
        await self._orders.commit(
            [Purged(id_, asked.by, at) for id_ in gone], lambda: reach("dlq.after_purge_commit")
        )
        return gone

    # ── both ─────────────────────────────────────────────────────────────────

    async def _owned(
        self,
        ids: Sequence[str],
        every: bool,
        by: str,
        work: Callable[[Sequence[str], Asked, Skipped], Coroutine[Any, Any, list[T]]],
    ) -> tuple[list[T], Skipped]:
        """What was done and what was left, by a task that goes on without its caller."""

        async def all_of_it() -> tuple[list[T], Skipped]:
            return await self._work_off(await self._asked(ids, every, by), work)

        made, skipped = await self._orders.carry_out(all_of_it(), name="dead letters")
        return made, skipped[:LISTED_LIMIT]

    async def _asked(self, ids: Sequence[str], every: bool, by: str) -> Asked:
        by = signature(by, self._redact)
        if not every:
            return Asked(list(dict.fromkeys(ids)), by, None)
        died = await units.dead_letters(self._journal.rows)
        # Those that came first go first.
        return Asked(list(reversed(died)), by, died)

    async def _work_off(
        self,
        asked: Asked,
        work: Callable[[Sequence[str], Asked, Skipped], Coroutine[Any, Any, list[T]]],
    ) -> tuple[list[T], Skipped]:
        made: list[T] = []
        skipped: Skipped = []
        for group in asked.groups():
            try:
                made += await self._work_group(group, asked, work, skipped)
            except InvalidState as error:
                if not made:
                    raise
                # It ends, and what was committed stands.
                skipped += [SkippedPacket(id_, error.message) for id_ in group]
        return made, skipped

    async def _work_group(
        self,
        group: Sequence[str],
        asked: Asked,
        work: Callable[[Sequence[str], Asked, Skipped], Coroutine[Any, Any, list[T]]],
        skipped: Skipped,
    ) -> list[T]:
        """One group; those that it leaves are told once, however often it is looked up."""

        async def once() -> tuple[list[T], Skipped]:
            left: Skipped = []
            return await work(group, asked, left), left

        made, left = await self._orders.in_turn(once)
        skipped += left
        return made

    async def _dead(self, group: Sequence[str], asked: Asked, skipped: Skipped) -> list[Family]:
        """The families of a group, in its order; of `all`, without those that are dead no more.

        Raises: NotFound, InvalidState for the first that is no dead letter.
        """
        found = await units.families(self._journal.rows, group)
        dead: list[Family] = []
        for id_ in group:
            family = found.get(id_, ())
            error = self._refusal(id_, family, asked)
            if error is None:
                dead.append(family)
            elif asked.all:
                skipped.append(SkippedPacket(id_, error.message))
            else:
                raise error
        return dead

    def _refusal(self, id_: str, family: Family, asked: Asked) -> PipoError | None:
        """Why a packet is not to be touched; None for a dead letter."""
        hint = f"nothing was changed; pipo dlq {self._name} lists the dead letters"
        if not family:
            packet_id, _, branch = id_.partition(":")
            if branch:
                hint = f"nothing was changed; name the packet {packet_id}, not a copy of it"
            return NotFound(f"pipeline {self._name!r} has no packet {id_!r}", hint=hint)
        if family[0].state != DEAD_LETTERED:
            return InvalidState(f"{id_} is {family[0].state}, not dead_lettered", hint=hint)
        if asked.died is not None and family[0].updated_at != asked.died[id_]:
            return InvalidState(f"{id_} died again meanwhile", hint=hint)
        return None


def _listed(revived: Revived) -> ReplayedPacket:
    return ReplayedPacket(
        revived.packet_id, [MovedUnit(unit.id, unit.cursor) for unit in revived.units]
    )


# ── families, and what moves of them ─────────────────────────────────────────


def _dead_leaves(family: Family) -> list[UnitStanding]:
    """What died itself: not of its copies."""
    split = {unit.parent for unit in family}
    return [unit for unit in family if unit.state == DEAD_LETTERED and unit.id not in split]


def _cursor_of(unit: UnitStanding) -> str:
    """The step that a dead unit failed at; what failed at its check is written again (edge 210)."""
    assert unit.error is not None, unit.id
    node = unit.error.node
    return OUTPUT if node in (WRITTEN_AT, CHECKED_AT) else node


def _unit_of(unit: UnitStanding, cursor: str, place: int) -> Unit:
    """The unit in memory as `Replayed` leaves it on disk."""
    assert unit.error is not None, unit.id
    # After a loop's limit its passes count anew (edge 133).
    iteration = 0 if unit.error.code == LOOP_MAX else unit.iteration
    return taken_up(unit, cursor, place, iteration=iteration)
