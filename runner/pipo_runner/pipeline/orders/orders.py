"""Orders: what callers want done to packets that do not move by themselves.

Idea. A replay, a purge, a rerun or a resolution looks packets up in the journal, decides, and
commits. One group at a time, whoever asks and whatever for: what was looked up still holds when
it is committed, and a version is made ready once. Only the clean-up of old packets waits for
nobody; if it comes between, the group is looked up again.

An order belongs to the pipeline, not to its caller: a caller that goes away leaves it done.

What is taken up again joins the pending ones in the turn of the loop that hears of its commit,
as it stands on disk then; its payload is read when its turn comes. Rejected: reading the units
back after the commit, as a start does. Between the two a drain could end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from pipo.errors import PipoError
from pipo.journal.changes import DELIVERED, Change
from pipo.journal.rows import Rows
from pipo.journal.sheet import IllegalChange
from pipo.journal.units import UnitStanding
from pipo.payload import decode_own
from pipo_runner.pipeline.flow.settling import Pending, Split
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import UNLOADED, Unit

# Packets of one commit, so that many at once leave room for others.
GROUP_PACKETS_LIMIT: Final = 128
# What an answer lists of them (edge 255).
LISTED_LIMIT: Final = 100
# How often a group is looked up when something comes between.
LOOKS_LIMIT: Final = 3

Family = Sequence[UnitStanding]
T = TypeVar("T")


class Ledger(Protocol):
    """The journal, as operations use it."""

    @property
    def rows(self) -> Rows: ...

    def submit(self, *changes: Change, done: Callable[[BaseException | None], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class MovedUnit:
    """A packet or a copy, and the step it goes on at: a node, or `$output`."""

    id: str
    node: str


@dataclass(frozen=True, slots=True)
class SkippedPacket:
    packet_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Revived:
    """One packet on its way back: its units, the splits that wait for them, its changes."""

    packet_id: str
    units: Sequence[Unit]
    splits: Sequence[Split]
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class WayBack:
    """Where what is taken up again joins what moves: the buffer, the pending ones, the queue."""

    pending: Pending
    take_places: Callable[[int], None]
    next_place: Callable[[], int]
    enqueue: Callable[[Unit], None]

    def join(self, revived: Sequence[Revived]) -> None:
        """These packets are pending and ready from now on."""
        self.take_places(len(revived))
        for packet in revived:
            for split in packet.splits:
                self.pending.add_split(split)
            for unit in packet.units:
                self.pending.add(unit)
                self.enqueue(unit)


class Orders:
    """Carries orders out, one group at a time."""

    def __init__(self, journal: Ledger, timers: Timers) -> None:
        self._journal = journal
        self._timers = timers
        self._turn = asyncio.Lock()

    async def carry_out(self, work: Coroutine[Any, Any, T], *, name: str) -> T:
        """What the work comes to; it goes on without its caller.

        Cancelled: only the wait ends. Raises: PipoError, as the work does.
        """

        async def all_of_it() -> T | PipoError:
            try:
                return await work
            except PipoError as error:
                # Raised in here it would be the pipeline's own.
                return error

        answer: T | PipoError = await asyncio.shield(self._timers.spawn(all_of_it(), name=name))
        if isinstance(answer, PipoError):
            raise answer
        return answer

    async def in_turn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """One group's work, from looking up to committing; anew when another change came between."""
        async with self._turn:
            for _ in range(LOOKS_LIMIT - 1):
                try:
                    return await work()
                except IllegalChange:
                    continue
            return await work()

    async def commit(self, changes: Sequence[Change], landed: Callable[[], None]) -> None:
        """Calls `landed` in the turn that hears that the changes are on disk."""
        if not changes:
            return
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if error is not None:
                durable.set_exception(error)
                return
            landed()
            durable.set_result(None)

        self._journal.submit(*changes, done=done)
        # Nobody cancels this wait but the end of the process.
        await asyncio.shield(durable)


# ── what is taken up again ───────────────────────────────────────────────────


def taken_up(
    unit: UnitStanding, cursor: str, place: int, *, iteration: int = 0, version: int = 0
) -> Unit:
    """The unit in memory as its change leaves it on disk, its payload there.

    `version` pins it anew; 0 leaves it with its own.
    """
    return Unit(
        id=unit.id,
        version=version or unit.version,
        input=unit.input,
        trigger=unit.trigger,
        source=unit.source,
        received_at=unit.received_at,
        queue_seq=place,
        cursor=cursor,
        data=UNLOADED,
        size=0,
        hops=unit.hops,
        iteration=iteration,
        # A write may have happened before, whether anybody saw it or not.
        repeat="repeated",
        write_no=unit.write_no,
        branch=unit.branch,
        key=unit.key,
        acked_write_no=unit.acked_write_no,
        ack_by=unit.ack_by,
        upstream=None if unit.upstream is None else decode_own(unit.upstream),
    )


def splits_of(family: Family, moving: Sequence[UnitStanding]) -> list[Split]:
    """The units of a family that wait for copies once those that are `moving` do."""
    by_id = {unit.id: unit for unit in family}
    open_ones = {unit.id for unit in moving}
    for unit in moving:
        above = unit.parent
        while above is not None:
            open_ones.add(above)
            above = by_id[above].parent
    return [
        split
        for unit in family
        if unit.id in open_ones and (split := _split_of(unit, family, open_ones)) is not None
    ]


def _split_of(unit: UnitStanding, family: Family, open_ones: set[str]) -> Split | None:
    copies = [one for one in family if one.parent == unit.id]
    if not copies:
        return None
    # None of them stays dead: every dead one moves.
    return Split(
        taken_up(unit, "", 0),
        open=sum(one.id in open_ones for one in copies),
        delivered=any(one.state == DELIVERED and one.id not in open_ones for one in copies),
    )
