"""Takes ready units through their steps.

Idea. There are `concurrency` slots. A ready unit takes one, runs straight
through its pure steps on the event loop, and arrives at the output stage, which
writes units of one place together. Nothing here awaits: one turn of the loop
moves as many units as there are slots, and hands the journal one list of
changes, ordered step by step, so that the writer applies them set-wise.

When the journal must be on disk: pure steps touch nothing outside, so their
changes only join the next commit. A crash repeats them; that is invisible. A step that
reaches outside begins once all that came before is on disk, runs in a task of its own,
and its result is on disk before anything that follows begins. The output stage keeps
the rule for its own effect (see `writing`).

Slots. A unit holds its slot while it is processed, waits for a retry (edge 106)
and is written. With `concurrency: 1` the output stage gives it back only when
the unit is settled, which makes delivery first in, first out (L029). A unit that splits
gives its slot back, and its copies queue up in its place; one that waits in a batch has
given it back too.

Failure cases. An expression that fails follows the node's policy. An exception
that is none of the packet's errors is a bug of ours: it is logged with its
trace, and still only costs the unit what its policy says.

Rejected: a task per unit. It costs ten times the step it runs and makes the
order of the journal's changes a matter of scheduling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from pipo.clock import Clock
from pipo.connectors.contract import Refused, RetryAfter, Settlement, StepCall
from pipo.crashpoints import reach
from pipo.journal.changes import SAME as UNCHANGED
from pipo.journal.changes import Change, FannedOut, Filtered, Looped, Retried, Stepped
from pipo.payload import encode
from pipo_runner.pipeline.endings import Ending, Endings, Failed
from pipo_runner.pipeline.failures import (
    PACKET_ERRORS,
    DataDamaged,
    Failure,
    describe,
    packet_error,
)
from pipo_runner.pipeline.ledger import Ledger
from pipo_runner.pipeline.masking import masked_notes
from pipo_runner.pipeline.plan import (
    FILTERED,
    SAME,
    Branch,
    Fork,
    Plan,
    PlannedLoop,
    PlannedNode,
    Way,
)
from pipo_runner.pipeline.policy import Wait, decide
from pipo_runner.pipeline.resting import Rest
from pipo_runner.pipeline.scopes import Scopes
from pipo_runner.pipeline.settling import Pending
from pipo_runner.pipeline.splitting import as_journaled, copies_of
from pipo_runner.pipeline.timers import Timers
from pipo_runner.pipeline.units import BATCH, OUTPUT, UNLOADED, VERIFY, ReadyQueue, Unit


class Stages(Protocol):
    """Where a unit goes after its steps."""

    def join(self, unit: Unit, plan: Plan) -> None: ...

    def flush(self) -> None: ...


# Units that one turn of the loop takes, so that a long queue leaves room for others.
TURN_UNITS_LIMIT: Final = 500


class Executor:
    """The slots and the queue of one pipeline."""

    def __init__(
        self,
        *,
        journal: Ledger,
        plan_of: Callable[[int], Plan],
        scopes: Scopes,
        pending: Pending,
        endings: Endings,
        clock: Clock,
        concurrency: int,
        packet_limit: int,
        load: Callable[[Unit], Awaitable[None]],
        redact: Callable[[str], str],
        log: Callable[..., None],
        timers: Timers,
    ) -> None:
        self._journal = journal
        self._plan_of = plan_of
        self._scopes = scopes
        self._pending = pending
        self._endings = endings
        self._clock = clock
        self._free = concurrency
        self._slots = concurrency
        self._packet_limit = packet_limit
        self._load = load
        self._redact = redact
        self._log = log
        self._timers = timers
        self._ready = ReadyQueue()
        self._open = False
        self._paused = False
        self._scheduled = False
        # Changes of this turn: by depth of step, then the ends.
        self._steps: list[list[Change]] = []
        self._ends: list[Change] = []
        self._ended: list[tuple[str, Settlement | None]] = []
        self._sent_back: list[Unit] = []
        # The copies of each unit that split in this turn.
        self._born: list[list[Unit]] = []
        # Steps that are outside, and who waits for them to come back.
        self._outside = 0
        self._rest = Rest(lambda: not self._outside)
        self.output: Stages

    # ── the queue ────────────────────────────────────────────────────────────

    def enqueue(self, unit: Unit) -> None:
        """A unit is ready; it runs when a slot is free."""
        self._ready.put(unit)
        self._wake()

    def open(self) -> None:
        """From now on ready units are taken."""
        self._open = True
        self._wake()

    def close(self) -> None:
        """No further unit is taken; those in hand go on."""
        self._open = False

    def pause(self) -> None:
        """No unit is taken until `unpause`; those in hand are put back behind their step."""
        self._paused = True

    def unpause(self) -> None:
        """Ready units are taken again."""
        self._paused = False
        self._wake()

    @property
    def taking(self) -> bool:
        """Whether a unit may begin a step now."""
        return self._open and not self._paused

    def put_back(self, unit: Unit) -> None:
        """A unit that may begin no step now gives its slot back and keeps its place (edge 302)."""
        self._free += 1
        self._ready.put(unit)
        self._wake()

    def take_queued(self) -> list[Unit]:
        """Every unit that waits for a slot, for whoever takes them out of its hands."""
        return list(iter(self._ready.pop, None))

    def hold(self) -> None:
        """Takes a slot for a unit that an earlier run left with one; `release` gives it back."""
        self._free -= 1

    def release(self, count: int = 1) -> None:
        """Gives slots back."""
        self._free += count
        self._wake()

    @property
    def serial(self) -> bool:
        """Whether units go one by one, each to its end (L029)."""
        return self._slots == 1

    @property
    def in_hand(self) -> int:
        """Units that hold a slot now."""
        return self._slots - self._free

    def _wake(self) -> None:
        if self.taking and not self._scheduled and self._free > 0 and len(self._ready):
            self._scheduled = True
            self._timers.soon(self.turn)

    def turn(self) -> None:
        """Takes the turn that is due, if one is.

        Called by the loop, and at the end of a landing, so that a lone packet waits for no other.
        """
        if not self._scheduled:
            return
        self._scheduled = False
        taken = 0
        while self.taking and self._free > 0 and (unit := self._ready.pop()) is not None:
            self._free -= 1
            taken += 1
            if unit.data is UNLOADED:
                self._timers.spawn(self._load_then_run(unit), name=f"load {unit.id}")
            else:
                self._advance(unit)
            if taken == TURN_UNITS_LIMIT:
                # Units that end in a step give their slots back at once; others want the loop too.
                self._wake()
                break
        self._finish_turn()

    def _finish_turn(self) -> None:
        changes = [change for depth in self._steps for change in depth]
        changes += self._ends
        ended, self._steps, self._ends = self._ended, [], []
        sent_back, self._ended, self._sent_back = self._sent_back, [], []
        if ended or sent_back:
            self._journal.submit(*changes, done=lambda error: self._after(ended, sent_back, error))
        elif changes:
            self._journal.stage(*changes)
        if self._born:
            born, self._born = self._born, []
            self._let_go(born)
        self.output.flush()

    def _let_go(self, born: Sequence[Sequence[Unit]]) -> None:
        """Copies take the place of the units that split into them.

        Only now, so that what they do is journaled behind their birth, and no later unit
        takes the slot before them.
        """
        for copies in born:
            self._free += 1
            for copy in copies:
                self._ready.put(copy)
        self._wake()

    async def _load_then_run(self, unit: Unit) -> None:
        try:
            await self._load(unit)
        except DataDamaged as error:
            self._damaged(unit, error)
        else:
            self._advance(unit)
        self._finish_turn()

    def resume(self, unit: Unit) -> None:
        """Continues a unit that already holds a slot, wherever its payload is."""
        if not self.taking:
            self.put_back(unit)
        elif unit.data is UNLOADED:
            self._timers.spawn(self._load_then_run(unit), name=f"load {unit.id}")
        else:
            self.run_again(unit)

    def run_again(self, unit: Unit) -> None:
        """Continues a unit that already holds a slot."""
        self._advance(unit)
        self._finish_turn()

    # ── the steps ────────────────────────────────────────────────────────────

    def _advance(self, unit: Unit) -> None:
        plan = self._plan_of(unit.version)
        depth = 0
        while unit.cursor not in (OUTPUT, BATCH, VERIFY):
            if not self.taking:
                self.put_back(unit)
                return
            node = plan.nodes[unit.cursor]
            if node.outside:
                self._outside += 1
                self._timers.spawn(self._run_outside(unit, node), name=f"{node.id} of {unit.id}")
                return
            if not self._step(unit, node, depth):
                return
            depth += 1
        if self.taking:
            self.output.join(unit, plan)
        else:
            self.put_back(unit)

    def _step(self, unit: Unit, node: PlannedNode, depth: int) -> bool:
        """Runs one node; False when the unit goes no further now."""
        scope, call = self._enter(unit, node)
        try:
            result, way = node.run(scope, call), node.follows
            if isinstance(result, Branch):
                way = result.way
                result = SAME
            elif result is not SAME and result is not FILTERED:
                unit.size = self._size_of(result)
        except Exception as error:
            return self._failed(unit, node, error, depth)
        if result is FILTERED or node.loop is not None:
            return self._filtered_or_looped(unit, node, scope, call, result, way, depth)
        return self._record(unit, node, result, way, tuple(call.notes), depth)

    async def _run_outside(self, unit: Unit, node: PlannedNode) -> None:
        """Runs one node that reaches outside, and goes on with the unit.

        Cancelled: the effect may or may not have happened; the unit stays at the node, and the
            attempt does not count.
        """
        try:
            # Everything that was handed over before, this unit's own steps among it.
            await self._journal.commit()
            if not self.taking:
                self.put_back(unit)
                return
            reach("step.before_effect")
            goes_on = await self._call_outside(unit, node)
            reach("step.after_effect")
            born, self._born = self._born, []
            self._finish_turn()
            await self._journal.commit()
            reach("step.after_commit")
            self._let_go(born)
            if goes_on:
                self.run_again(unit)
        finally:
            self._outside -= 1
            self._rest.look()

    async def _call_outside(self, unit: Unit, node: PlannedNode) -> bool:
        """Runs a node to its result; False when the unit goes no further now."""
        scope, call = self._enter(unit, node)
        try:
            result = await node.run(scope, call)
            if result is not SAME:
                unit.size = self._size_of(result)
        except Exception as error:
            return self._failed(unit, node, error, 0)
        if node.loop is not None:
            return self._filtered_or_looped(unit, node, scope, call, result, node.follows, 0)
        return self._record(unit, node, result, node.follows, tuple(call.notes), 0)

    async def idle(self, timeout_s: float) -> bool:
        """Whether no step is outside, waiting up to `timeout_s` for those that are."""
        return await self._rest.wait(timeout_s)

    def give_up_waiting(self) -> None:
        """Ends `idle`, whatever is still outside."""
        self._rest.give_up()

    def _enter(self, unit: Unit, node: PlannedNode) -> tuple[dict[str, Any], StepCall]:
        if unit.attempt == 0 or not unit.entered:
            unit.entered = self._clock.monotonic()
        scope = self._scopes.step(unit, node.id, with_meta=node.uses_meta)
        return scope, StepCall(unit.id, node.id, unit.data, scope.get("meta", {}), {})

    def _filtered_or_looped(
        self,
        unit: Unit,
        node: PlannedNode,
        scope: dict[str, Any],
        call: StepCall,
        result: Any,
        way: Way,
        depth: int,
    ) -> bool:
        """What else the result of a run may lead to; False when the unit goes no further now."""
        ms = (self._clock.monotonic() - unit.entered) * 1000.0
        if result is FILTERED:
            at = self._clock.now_ms()
            self._ends.append(Filtered(unit=unit.id, node=node.id, ms=ms, at=at))
            self._end(unit, Settlement("filtered"))
            return False
        loop = node.loop
        assert loop is not None, node.id
        scope["data"] = unit.data if result is SAME else result
        try:
            leaves = loop.until.holds(scope)
        except Exception as error:
            return self._failed(unit, node, error, depth)
        if leaves:
            return self._record(unit, node, result, way, tuple(call.notes), depth)
        self._send_back(unit, node, loop, scope["data"], call, ms, depth)
        return False

    def _record(
        self,
        unit: Unit,
        node: PlannedNode,
        result: Any,
        way: Way,
        notes: tuple[tuple[str, Any], ...],
        depth: int,
    ) -> bool:
        """The node is done; False when the unit splits behind it."""
        changed = result is not SAME
        cursor = way if isinstance(way, str) else node.id
        self._at_depth(depth).append(
            Stepped(
                unit=unit.id,
                node=node.id,
                cursor=cursor,
                at=self._clock.now_ms(),
                ms=(self._clock.monotonic() - unit.entered) * 1000.0,
                before=unit.data if changed else UNCHANGED,
                after=result if changed else UNCHANGED,
                notes=masked_notes(notes, self._redact),
            )
        )
        if changed:
            unit.data = result
        unit.cursor = cursor
        unit.moved_on()
        unit.hops += 1
        if isinstance(way, str):
            return True
        self._split(unit, way, depth)
        return False

    def _send_back(
        self,
        unit: Unit,
        node: PlannedNode,
        loop: PlannedLoop,
        data: Any,
        call: StepCall,
        ms: float,
        depth: int,
    ) -> None:
        """The unit goes back, with the result, unless it did so too often (edge 128-132).

        It keeps its slot and goes on once that is on disk, so that a loop of pure steps
        leaves room for others and waits for the journal as everybody does.
        """
        at = self._clock.now_ms()
        if unit.iteration >= loop.max:
            failure = Failure("loop.max", node.id, loop.limit_message, 1, ms)
            error = packet_error(
                failure,
                node.message,
                # The result is seen here only: the unit keeps what it came with (edge 130).
                lambda: self._scopes.rules(data, self._scopes.meta(unit, node.id)),
                self._redact,
            )
            failed = Failed(unit, error, node.id, at, ms)
            self._end_as(self._endings.of(loop.then, failed, lambda: self.enqueue(unit)), unit)
            return
        changed = data is not unit.data
        self._at_depth(depth).append(
            Looped(
                unit=unit.id,
                node=node.id,
                back_to=loop.back_to,
                at=at,
                ms=ms,
                before=unit.data if changed else UNCHANGED,
                after=data if changed else UNCHANGED,
                notes=masked_notes(tuple(call.notes), self._redact),
            )
        )
        unit.data, unit.cursor = data, loop.back_to
        unit.moved_on()
        unit.hops += 1
        unit.iteration += 1
        self._sent_back.append(unit)

    def _split(self, unit: Unit, forks: Sequence[Fork], depth: int) -> None:
        """The unit waits. Its slot is free and its copies are ready once the turn is journaled."""
        copies = copies_of(unit, forks)
        self._at_depth(depth).append(
            FannedOut(
                unit=unit.id,
                node=unit.cursor,
                copies=as_journaled(copies),
                data=encode(unit.data),
                at=self._clock.now_ms(),
            )
        )
        self._pending.split(unit, copies)
        self._born.append(copies)

    def _size_of(self, result: Any) -> int:
        """Raises: Refused, for a result beyond the limit (decision 40)."""
        size = len(encode(result))
        if size > self._packet_limit:
            raise Refused(
                f"the result has {size} bytes, more than engine.packet_limit"
                f" ({self._packet_limit})",
                hint="make it smaller, or raise engine.packet_limit",
            )
        return size

    def _at_depth(self, depth: int) -> list[Change]:
        while len(self._steps) <= depth:
            self._steps.append([])
        return self._steps[depth]

    def _failed(self, unit: Unit, node: PlannedNode, error: Exception, depth: int) -> bool:
        if not isinstance(error, PACKET_ERRORS):
            self._log("error", "a step failed unexpectedly", node=node.id, exc_info=error)
        unit.attempt += 1
        # A stall's mark ends the retries.
        hopeless = node.decides or isinstance(error, Refused) or unit.stall is not None
        move = decide(
            node.policy,
            failures=unit.attempt,
            asked_ms=error.seconds * 1000.0 if isinstance(error, RetryAfter) else None,
            hopeless=hopeless,
        )
        at = self._clock.now_ms()
        message = unit.last_error = self._redact(describe(error))
        if isinstance(move, Wait):
            self._at_depth(depth).append(
                Retried(
                    unit=unit.id,
                    node=node.id,
                    attempt=move.attempt,
                    wait_ms=move.ms,
                    retry_at=at + int(move.ms),
                    error=message,
                    at=at,
                )
            )
            self._timers.after(move.ms / 1000.0, self.resume, unit)
            return False
        ms = (self._clock.monotonic() - unit.entered) * 1000.0
        failure = Failure("node.failed", node.id, message, move.attempts, ms)
        journaled = packet_error(
            failure,
            node.message,
            lambda: self._scopes.rules(unit.data, self._scopes.meta(unit, node.id)),
            self._redact,
        )
        if move.then == "continue" and unit.stall is None:
            notes = (("node.failed_continued", {"error": journaled.message}),)
            return self._record(unit, node, SAME, node.follows, notes, depth)
        failed = Failed(unit, journaled, node.id, at, ms)
        self._end_as(self._endings.of(move.then, failed, lambda: self.enqueue(unit)), unit)
        return False

    def _damaged(self, unit: Unit, error: DataDamaged) -> None:
        """The unit fails alone: no further run mends what the journal holds of it."""
        to_output = unit.cursor in (OUTPUT, BATCH)
        where = "output" if to_output else unit.cursor
        code = "output.failed" if to_output else "node.failed"
        failure = Failure(code, where, str(error), unit.attempt)
        journaled = packet_error(failure, None, dict, self._redact)
        failed = Failed(unit, journaled, where, self._clock.now_ms(), 0.0)
        self._end_as(self._endings.of("dead_letter", failed, lambda: self.enqueue(unit)), unit)

    def _end_as(self, ending: Ending, unit: Unit) -> None:
        self._ends += ending.changes
        self._end(unit, ending.settlement)

    def _end(self, unit: Unit, settlement: Settlement | None) -> None:
        self._ended.append((unit.id, settlement))
        self._free += 1

    def _after(
        self,
        ended: Sequence[tuple[str, Settlement | None]],
        sent_back: Sequence[Unit],
        error: BaseException | None,
    ) -> None:
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        for unit_id, settlement in ended:
            if settlement is not None:
                self._pending.settled((unit_id,), settlement)
        for unit in sent_back:
            self.resume(unit)
        self._wake()
