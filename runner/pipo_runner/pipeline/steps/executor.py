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

Rejected: a task per unit. It costs ten times the step it runs and makes the
order of the journal's changes a matter of scheduling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from pipo.clock import Clock
from pipo.crashpoints import reach
from pipo_runner.pipeline.definition.failures import DataDamaged
from pipo_runner.pipeline.definition.plan import Plan, PlannedNode
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.flow.endings import Endings
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.resting import Rest
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import BATCH, OUTPUT, UNLOADED, VERIFY, ReadyQueue, Unit
from pipo_runner.pipeline.steps.nodes import Nodes, Turn


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
        self._pending = pending
        self._free = concurrency
        self._slots = concurrency
        self._load = load
        self._timers = timers
        self._ready = ReadyQueue()
        self._open = False
        self._paused = False
        self._scheduled = False
        self._nodes = Nodes(
            scopes=scopes,
            pending=pending,
            endings=endings,
            clock=clock,
            packet_limit=packet_limit,
            redact=redact,
            log=log,
            timers=timers,
            resume=self.resume,
            enqueue=self.enqueue,
            free_slot=self._free_slot,
        )
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

    def keep_slot(self, unit: Unit, plan: Plan) -> None:
        """With one slot a written unit has it until it settles (L029), unless it was batched."""
        if self.serial and not plan.batches:
            unit.holds_slot = True
            self.hold()

    def release(self, count: int = 1) -> None:
        """Gives slots back."""
        self._free += count
        self._wake()

    def _free_slot(self) -> None:
        """Whoever ends a unit in a turn sees to it that what waits is woken after it."""
        self._free += 1

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

    async def _load_then_run(self, unit: Unit) -> None:
        try:
            await self._load(unit)
        except DataDamaged as error:
            self._nodes.damaged(unit, error)
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

    # ── the way of a unit ────────────────────────────────────────────────────

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
            if not self._nodes.run(unit, node, depth):
                return
            depth += 1
        if self.taking:
            self.output.join(unit, plan)
        else:
            self.put_back(unit)

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
            goes_on = await self._nodes.run_outside(unit, node)
            reach("step.after_effect")
            turn = self._nodes.take()
            self._hand_over(turn)
            await self._journal.commit()
            reach("step.after_commit")
            self._let_go(turn.born)
            if goes_on:
                self.run_again(unit)
        finally:
            self._outside -= 1
            self._rest.look()

    async def idle(self, timeout_s: float) -> bool:
        """Whether no step is outside, waiting up to `timeout_s` for those that are."""
        return await self._rest.wait(timeout_s)

    def give_up_waiting(self) -> None:
        """Ends `idle`, whatever is still outside."""
        self._rest.give_up()

    # ── the end of a turn ────────────────────────────────────────────────────

    def _finish_turn(self) -> None:
        turn = self._nodes.take()
        self._hand_over(turn)
        if turn.born:
            self._let_go(turn.born)
        self.output.flush()

    def _hand_over(self, turn: Turn) -> None:
        changes = turn.changes
        if turn.ended or turn.sent_back:
            self._journal.submit(*changes, done=lambda error: self._after(turn, error))
        elif changes:
            self._journal.stage(*changes)

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

    def _after(self, turn: Turn, error: BaseException | None) -> None:
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        for unit_id, settlement in turn.ended:
            if settlement is not None:
                self._pending.settled((unit_id,), settlement)
        for unit in turn.sent_back:
            self.resume(unit)
        self._wake()
