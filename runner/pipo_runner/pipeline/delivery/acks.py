"""Written units that wait for an ack from outside: check `external`.

Idea. A parked unit costs a row of a heap and nothing else: no slot, no task, no payload
in memory, and one timer for all of them, at the earliest deadline. Its window is on disk,
as an absolute time, in the commit that holds its write; a restart goes on waiting for what
is left, and waits no longer than `within`, however far back the clock was set.

The unit itself says which write is acked (`Unit.acked_write_no`). It is set in the turn of
the loop that hands `Acked` to the journal, so memory and journal tell the same story in
the same order, and each race has one end:

    ack before the write      kept on the unit; *written* and *delivered* are one commit
    ack beside that commit    kept too; the unit is delivered when it would be parked
    ack while parked          *acked* and *delivered* are one commit
    ack beside the deadline   whoever takes the unit out of `_parked` first; the other finds
                              it gone, and an ack is then told what became of it
    ack during a pause        kept; delivered after the resume

Nothing moves during a pause, so no deadline ends one either: what is overdue fails at the
resume, unless it was acked meanwhile (edge 222). Windows are opened after that: where it
pauses again, they open whole at the end of that pause, or two packets that miss their
deadlines in turn would let no resume last.

Failure cases. A missed deadline is `on_fail`. `pause` closes the window, and the resume opens
a fresh one (edge 215); `agent` sends the unit back to the output, and its next write
wants a new ack (decision 12). A crash finds each unit as its last commit left it
(`recovery`).

Rejected: a timer per unit (10,000 handles, and as many to cancel at a stop), and
looking at the journal for overdue rows every second (an idle pipeline stays idle).
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Protocol

from pipo.clock import Clock
from pipo.connectors.contract import Settlement
from pipo.crashpoints import reach
from pipo.durations import show
from pipo.errors import BadRequest, InvalidState, NotFound, PipoError, Unavailable
from pipo.journal import units
from pipo.journal.changes import (
    DEAD_LETTERED,
    DELIVERED,
    PENDING,
    Acked,
    AwaitingAck,
    Change,
    Delivered,
    Unverified,
)
from pipo.journal.outcomes import Acknowledged
from pipo.journal.rows import Rows
from pipo.journal.sheet import IllegalChange
from pipo.payload import encode
from pipo_runner.pipeline.definition.failures import DataDamaged, Failure, packet_error
from pipo_runner.pipeline.definition.masking import signature
from pipo_runner.pipeline.definition.plan import EXTERNAL, Plan
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.flow.endings import Endings, Failed
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import UNLOADED, VERIFY, Unit

# Units that one commit settles, so that many at once leave room for others.
GROUP_UNITS_LIMIT: Final = 256
# Entries of the heap whose units are gone already, before it is made anew.
STALE_LIMIT: Final = 1024
NO_RESULT: Final = b"null"

# When it is due on the monotonic clock, a number that keeps heap entries apart, the unit.
Entry = tuple[float, int, Unit]


class Ledger(Protocol):
    """The journal, as acks use it: they also read it, to say why one is refused."""

    @property
    def rows(self) -> Rows: ...

    def submit(self, *changes: Change, done: Callable[[BaseException | None], None]) -> None: ...

    async def commit(self, *changes: Change) -> list[Any]: ...


class Acks:
    """All units of one pipeline that wait for an ack; `paused` says whether nothing may move."""

    def __init__(
        self,
        *,
        name: str,
        journal: Ledger,
        plan_of: Callable[[int], Plan],
        scopes: Scopes,
        pending: Pending,
        endings: Endings,
        timers: Timers,
        clock: Clock,
        paused: Callable[[], bool],
        load: Callable[[Unit], Awaitable[None]],
        redact: Callable[[str], str],
        log: Callable[..., None],
    ) -> None:
        self._name = name
        self._journal = journal
        self._plan_of = plan_of
        self._scopes = scopes
        self._pending = pending
        self._endings = endings
        self._timers = timers
        self._clock = clock
        self._paused = paused
        self._load = load
        self._redact = redact
        self._log = log
        self._parked: dict[str, Entry] = {}
        self._heap: list[Entry] = []
        self._numbers = count()
        self._confirmed: dict[str, Unit] = {}
        self._unopened: list[Unit] = []
        self._armed: float | None = None
        self._expiring = False
        self._closed = False

    # ── written ──────────────────────────────────────────────────────────────

    def with_write(self, unit: Unit, at: int) -> Delivered | AwaitingAck | None:
        """What stands in one commit with the unit's Written: its window, or its end.

        None for a unit that is acked and may not move now.
        """
        if not unit.acked:
            return self._window(unit, at)
        return None if self._paused() else self._delivered(unit, at)

    def park(self, unit: Unit) -> None:
        """The unit's write and window are on disk: it waits, unless an ack came meanwhile."""
        # It may wait for days, and an ack needs no payload.
        unit.data = UNLOADED
        if unit.acked:
            self._confirm([unit])
            return
        assert unit.deadline_at is not None, unit.id
        left_ms = min(unit.deadline_at - self._clock.now_ms(), self._within_ms(unit))
        due = self._clock.monotonic() + left_ms / 1000.0
        self._put(due, unit)
        self._arm()

    def open(self, waiting: Iterable[Unit]) -> None:
        """Written units without a window: each waits for its whole `within` (edge 215).

        One that is acked is delivered.
        """
        self._unopened += waiting
        self._go_on()

    def _open_windows(self) -> None:
        waiting, self._unopened = self._unopened, []
        self._confirm(unit for unit in waiting if unit.acked)
        for group in _groups([unit for unit in waiting if not unit.acked]):
            at = self._clock.now_ms()
            changes = [self._window(unit, at) for unit in group]
            self._journal.submit(*changes, done=partial(self._opened, group))

    def _opened(self, group: Sequence[Unit], error: BaseException | None) -> None:
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        for unit in group:
            self.park(unit)

    def _window(self, unit: Unit, at: int) -> AwaitingAck:
        unit.deadline_at = at + self._within_ms(unit)
        return AwaitingAck(unit=unit.id, deadline_at=unit.deadline_at, since=at, at=at)

    def _within_ms(self, unit: Unit) -> int:
        return round(self._plan_of(unit.version).pipeline.delivered.within_ms)

    def take_parked(self) -> list[Unit]:
        """Every parked unit, for whoever takes them out of its hands; none that is acked."""
        taken = [unit for _, _, unit in self._parked.values()]
        self._parked.clear()
        self._heap.clear()
        return taken

    # ── a pause, an end ──────────────────────────────────────────────────────

    def unpause(self) -> None:
        """What was acked meanwhile is delivered; what is overdue fails now."""
        confirmed, self._confirmed = self._confirmed, {}
        self._confirm(confirmed.values())
        self._go_on()

    def close(self) -> None:
        """The pipeline ends: no ack is taken any more; what waits is parked by the next run."""
        self._closed = True

    # ── acks ─────────────────────────────────────────────────────────────────

    async def ack(self, unit_id: str, by: str) -> Acknowledged:
        """Someone confirms the unit's write, or the one to come; it is on disk on return.

        Cancelled: only the wait ends. Raises: BadRequest, without an id; NotFound;
            InvalidState, with the reason; Unavailable, at a stop and when too many wait.
        Source: edge 123, 216-222, 227.
        """
        if not unit_id:
            raise BadRequest("packet_id is missing", hint=f"pipo packets {self._name} lists them")
        # A caller that gives up must not keep a unit from its end.
        work = self._timers.spawn(self._answer(unit_id, by), name=f"ack {unit_id}")
        answer: Acknowledged | PipoError = await asyncio.shield(work)
        if isinstance(answer, PipoError):
            raise answer
        return answer

    async def _answer(self, unit_id: str, by: str) -> Acknowledged | PipoError:
        """The outcome or the refusal; an error that a task raises would be the pipeline's own."""
        try:
            return await self._ack(unit_id, by)
        except PipoError as refusal:
            return refusal

    async def _ack(self, unit_id: str, by: str) -> Acknowledged:
        if self._closed:
            raise Unavailable("the pipeline is stopping", hint="ack it once it runs again")
        unit = self._pending.find(unit_id)
        if unit is None or not self._plan_of(unit.version).parks:
            return await self._look_up(unit_id)
        return await self._take(unit, signature(by, self._redact))

    async def _take(self, unit: Unit, by: str) -> Acknowledged:
        before = unit.acked_write_no, unit.ack_by
        entry = None
        if unit.acked_write_no != unit.next_write_no:
            unit.acked_write_no, unit.ack_by = unit.next_write_no, by
            entry = self._parked.pop(unit.id, None)
        at = self._clock.now_ms()
        changes: list[Change] = [Acked(unit.id, by, at)]
        ends = entry is not None and not self._paused()
        if ends:
            changes.append(self._delivered(unit, at))
        elif entry is not None:
            self._confirmed[unit.id] = unit
        reach("ack.before_commit")
        try:
            outcomes = await self._journal.commit(*changes)
        except PipoError as error:
            unit.acked_write_no, unit.ack_by = before
            if entry is not None:
                self._confirmed.pop(unit.id, None)
                self._put(entry[0], unit)
                self._arm()
            if isinstance(error, IllegalChange):
                return await self._look_up(unit.id)
            raise
        reach("ack.after_commit")
        if ends:
            self._pending.settled((unit.id,), Settlement("delivered"))
        self._forget_stale()
        acknowledged: Acknowledged = outcomes[0]
        return acknowledged

    def _confirm(self, acked: Iterable[Unit]) -> None:
        """Acked units are delivered; after the resume, if there is a pause."""
        acked = list(acked)
        if self._paused():
            self._confirmed.update((unit.id, unit) for unit in acked)
            return
        for group in _groups(acked):
            at = self._clock.now_ms()
            reach("ack.before_delivery")
            self._journal.submit(
                *(self._delivered(unit, at) for unit in group),
                done=partial(self._settled, group),
            )

    def _settled(self, group: Sequence[Unit], error: BaseException | None) -> None:
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        self._pending.settled((unit.id for unit in group), Settlement("delivered"))

    def _delivered(self, unit: Unit, at: int) -> Delivered:
        """Its evidence is who confirmed it (decision 29); when, the event `packet.acked` says."""
        evidence = encode({"acked_by": unit.ack_by})
        return Delivered(unit.id, evidence, at, check=EXTERNAL)

    # ── refusals ─────────────────────────────────────────────────────────────

    async def _look_up(self, unit_id: str) -> Acknowledged:
        """What the journal says of a unit that takes no ack: that it has one.

        Raises: NotFound, InvalidState, Unavailable, with why it takes none.
        """
        rows = self._journal.rows
        found = (await units.units(rows, [unit_id])).get(unit_id)
        if found is None:
            raise NotFound(
                f"pipeline {self._name!r} has no packet {unit_id!r}",
                hint="a copy of a split packet is named <packet_id>:<branch>; "
                f"pipo packets {self._name} lists the newest packets",
            )
        check = await units.check_of(rows, found.version)
        if check != EXTERNAL:
            raise InvalidState(
                f"{unit_id} waits for no ack: its version v{found.version} has check: {check}",
                hint="only packets of a version with check: external are acked",
            )
        copies = [
            one
            for one in (await units.families(rows, [found.packet_id])).get(found.packet_id, ())
            if one.parent == found.id
        ]
        if copies:
            listing = ", ".join(f"{one.id} ({one.state})" for one in copies)
            raise InvalidState(f"{unit_id} is split into copies", hint=f"ack its copies: {listing}")
        if found.state == DELIVERED and found.acked_write_no == found.write_no:
            return Acknowledged(found.state, already=True)
        raise self._refusal(found)

    def _refusal(self, found: units.UnitStanding) -> PipoError:
        if found.state in PENDING:
            # It is being taken up again, this very moment.
            return Unavailable(f"{found.id} is about to move", hint="ack it once more")
        if found.state == DEAD_LETTERED:
            return InvalidState(
                f"{found.id} is dead_lettered: nothing waits for its ack",
                hint="it is in the dead-letter queue; its next write takes an ack after "
                f"pipo dlq replay {self._name} {found.packet_id}",
            )
        return InvalidState(
            f"{found.id} is {found.state}: nothing waits for its ack",
            hint=f"pipo inspect {self._name} {found.packet_id} tells its story",
        )

    # ── deadlines ────────────────────────────────────────────────────────────

    def _put(self, due: float, unit: Unit) -> None:
        # Each time an entry of its own: one that is left in the heap from before is stale.
        entry = self._parked[unit.id] = (due, next(self._numbers), unit)
        heapq.heappush(self._heap, entry)

    def _forget_stale(self) -> None:
        """Makes the heap anew once most of it is acked: `within` may be days."""
        if len(self._heap) > 2 * len(self._parked) + STALE_LIMIT:
            self._heap = sorted(self._parked.values())

    def _waits(self, entry: Entry) -> bool:
        return self._parked.get(entry[2].id) is entry

    def _go_on(self) -> None:
        """Opens the windows that are due once nothing is late, and waits for the next deadline."""
        if self._unopened and not (self._paused() or self._expiring or self._is_late()):
            self._open_windows()
        self._arm()

    def _is_late(self) -> bool:
        due = self._earliest()
        return due is not None and due <= self._clock.monotonic()

    def _earliest(self) -> float | None:
        """The earliest deadline of those that wait still."""
        heap = self._heap
        while heap and not self._waits(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _arm(self) -> None:
        """One timer, for the earliest deadline; a later one that was set before finds nothing."""
        due = self._earliest()
        if due is None or self._expiring or self._paused():
            return
        if self._armed is None or due < self._armed:
            self._armed = due
            left_s = max(0.0, due - self._clock.monotonic())
            self._timers.after(left_s, self._look_at_time, due)

    def _look_at_time(self, armed: float) -> None:
        if self._armed == armed:
            self._armed = None
        if self._expiring or self._closed:
            return
        self._expiring = True
        self._timers.spawn(self._expire(), name="ack deadlines")

    async def _expire(self) -> None:
        """Fails what is overdue, group by group, unless an ack or a pause comes first.

        The pause that one of them begins is that of all of them (edge 138).
        """
        ours = False
        try:
            while (ours or not self._paused()) and (late := self._overdue()):
                results = {entry[2].id: await self._needed(entry[2]) for entry in late}
                late = [entry for entry in late if self._waits(entry)]
                if self._paused() and not ours:
                    for entry in late:
                        heapq.heappush(self._heap, entry)
                elif late:
                    begun = await self._fail([entry[2] for entry in late], results)
                    ours = self._paused() and (ours or begun)
        finally:
            self._expiring = False
        self._go_on()

    def _overdue(self) -> list[Entry]:
        """The next few whose deadline is over, off the heap."""
        now = self._clock.monotonic()
        late: list[Entry] = []
        while self._heap and self._heap[0][0] <= now and len(late) < GROUP_UNITS_LIMIT:
            entry = heapq.heappop(self._heap)
            if self._waits(entry):
                late.append(entry)
        return late

    async def _needed(self, unit: Unit) -> bytes:
        """Brings back what the message's template names; the result of the unit's write."""
        template = self._plan_of(unit.version).messages["delivered"]
        names = template.names if template is not None else frozenset()
        if "data" in names:
            try:
                await self._load(unit)
            except DataDamaged:
                # It fails anyway; a template that needs the data falls back to the plain message.
                unit.data = None
        if "result" not in names:
            return NO_RESULT
        return await units.result_of(self._journal.rows, unit.id) or NO_RESULT

    async def _fail(self, late: Sequence[Unit], results: dict[str, bytes]) -> bool:
        """Whether that has begun a pause."""
        at, paused = self._clock.now_ms(), self._paused()
        changes: list[Change] = []
        ended: list[tuple[str, Settlement]] = []
        for unit in late:
            del self._parked[unit.id]
            settlement = self._give_up(unit, results[unit.id], at, changes)
            if settlement is not None:
                ended.append((unit.id, settlement))
        begun = self._paused() and not paused
        self._log("warning", "not acknowledged in time", action="ack_missed", packets=len(late))
        reach("ack.before_deadline_commit")
        await self._journal.commit(*changes)
        reach("ack.after_deadline_commit")
        for unit_id, settlement in ended:
            self._pending.settled((unit_id,), settlement)
        return begun

    def _give_up(
        self, unit: Unit, result: bytes, at: int, changes: list[Change]
    ) -> Settlement | None:
        """`on_fail`: the outcome is the deadline's own, however late it is noticed (edge 214)."""
        plan = self._plan_of(unit.version)
        within_ms = plan.pipeline.delivered.within_ms
        message = f"not acknowledged within {show(within_ms)}"
        failure = Failure("delivery.unverified", "delivered", message, 0, within_ms)
        error = packet_error(
            failure,
            plan.messages["delivered"],
            lambda: self._scopes.verdict(unit, plan, result),
            self._redact,
        )
        ending = self._endings.of(
            plan.pipeline.delivered.on_fail.then,
            Failed(unit, error, VERIFY, at, within_ms),
            lambda: self.open([unit]),
        )
        unit.deadline_at = None
        changes += (Unverified(unit=unit.id, error=error, at=at, check=EXTERNAL), *ending.changes)
        return ending.settlement


def _groups(members: Sequence[Unit]) -> Iterable[Sequence[Unit]]:
    for start in range(0, len(members), GROUP_UNITS_LIMIT):
        yield members[start : start + GROUP_UNITS_LIMIT]
