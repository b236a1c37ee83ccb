"""Runs single nodes, and collects what comes of them until the turn of the loop is over.

A run ends in one of these ways, each a change and perhaps an end: the unit goes on to the
next step, splits, is sent back, waits for another try, or ends (filtered, or as the
node's policy says). The executor hands the changes over, and decides when a unit may run.

Failure cases. An expression that fails follows the node's policy. An exception
that is none of the packet's errors is a bug of ours: it is logged with its
trace, and still only costs the unit what its policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipo.clock import Clock
from pipo.connectors.contract import Refused, RetryAfter, Settlement, StepCall
from pipo.journal.changes import SAME as UNCHANGED
from pipo.journal.changes import Change, FannedOut, Filtered, Looped, Retried, Stepped
from pipo.journal.states import Code
from pipo.payload import BadPayload, encode, encode_data
from pipo_runner.pipeline.definition.failures import (
    PACKET_ERRORS,
    DataDamaged,
    Failure,
    describe,
    packet_error,
    told,
)
from pipo_runner.pipeline.definition.masking import masked_notes
from pipo_runner.pipeline.definition.plan import (
    FILTERED,
    SAME,
    Branch,
    Fork,
    PlannedLoop,
    PlannedNode,
    Way,
)
from pipo_runner.pipeline.definition.policy import Wait, decide
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.flow.endings import Ending, Endings, Failed
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import BATCH, OUTPUT, Unit
from pipo_runner.pipeline.steps.splitting import as_journaled, copies_of


@dataclass(slots=True)
class Turn:
    """What came of the runs of one turn.

    `steps` are changes by depth of step, so that the writer applies them set-wise; the `ends`
    follow them. `ended` units have a settlement, or None where they wait for someone;
    `sent_back` ones keep their slots; `born` are the copies of each unit that split.
    """

    steps: list[list[Change]] = field(default_factory=list)
    ends: list[Change] = field(default_factory=list)
    ended: list[tuple[str, Settlement | None]] = field(default_factory=list)
    sent_back: list[Unit] = field(default_factory=list)
    born: list[list[Unit]] = field(default_factory=list)

    def at(self, depth: int) -> list[Change]:
        """The changes of the units that have run so many steps before in this turn."""
        while len(self.steps) <= depth:
            self.steps.append([])
        return self.steps[depth]

    @property
    def changes(self) -> list[Change]:
        return [change for depth in self.steps for change in depth] + self.ends


class Nodes:
    """`resume` continues a unit that waited with its slot, `enqueue` takes one up without,
    and `free_slot` hears that a unit has ended."""

    def __init__(
        self,
        *,
        scopes: Scopes,
        pending: Pending,
        endings: Endings,
        clock: Clock,
        packet_limit: int,
        redact: Callable[[str], str],
        log: Callable[..., None],
        timers: Timers,
        resume: Callable[[Unit], None],
        enqueue: Callable[[Unit], None],
        free_slot: Callable[[], None],
    ) -> None:
        self._scopes = scopes
        self._pending = pending
        self._endings = endings
        self._clock = clock
        self._packet_limit = packet_limit
        self._redact = redact
        self._log = log
        self._timers = timers
        self._resume = resume
        self._enqueue = enqueue
        self._free_slot = free_slot
        self._turn = Turn()

    def take(self) -> Turn:
        """What has come since the last time."""
        turn, self._turn = self._turn, Turn()
        return turn

    # ── a run ────────────────────────────────────────────────────────────────

    def run(self, unit: Unit, node: PlannedNode, depth: int) -> bool:
        """Runs one node; False when the unit goes no further now."""
        scope, call = self._enter(unit, node)
        try:
            result, way = node.run(scope, call), node.follows
            if result is not SAME and result is not FILTERED:
                if isinstance(result, Branch):
                    way = result.way
                    result = SAME
                else:
                    unit.size = self._size_of(result)
        except Exception as error:
            return self._failed(unit, node, error, depth)
        if result is FILTERED or node.loop is not None:
            return self._filtered_or_looped(unit, node, scope, call, result, way, depth)
        return self._record(unit, node, result, way, tuple(call.notes), depth)

    async def run_outside(self, unit: Unit, node: PlannedNode) -> bool:
        """As `run`, for one that reaches outside; nothing else has a part in the turn it makes.

        Cancelled: the effect may or may not have happened, and nothing comes of it.
        """
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
            self._turn.ends.append(Filtered(unit=unit.id, node=node.id, ms=ms, at=at))
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
        forks: Sequence[Fork] = ()
        if isinstance(way, str):
            cursor = way
        else:
            cursor, forks = node.id, way
        self._turn.at(depth).append(
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
        if not forks:
            return True
        self._split(unit, forks, depth)
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
            self._end_as(self._endings.of(loop.then, failed, lambda: self._enqueue(unit)), unit)
            return
        changed = data is not unit.data
        self._turn.at(depth).append(
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
        self._turn.sent_back.append(unit)

    def _split(self, unit: Unit, forks: Sequence[Fork], depth: int) -> None:
        """The unit waits. Its slot is free and its copies are ready once the turn is journaled."""
        copies = copies_of(unit, forks)
        self._turn.at(depth).append(
            FannedOut(
                unit=unit.id,
                node=unit.cursor,
                copies=as_journaled(copies),
                data=encode(unit.data),
                at=self._clock.now_ms(),
            )
        )
        self._pending.split(unit, copies)
        self._turn.born.append(copies)

    def _size_of(self, result: Any) -> int:
        """Raises: Refused, for what can be no data: beyond the limit (decision 40), too deep, no JSON.

        Otherwise a restart would find something else in the journal, or nothing it can read.
        """
        try:
            size = len(encode_data(result))
        except BadPayload as error:
            raise Refused(f"the result is {error}") from error
        if size > self._packet_limit:
            raise Refused(
                f"the result has {size} bytes, more than engine.packet_limit"
                f" ({self._packet_limit})",
                hint="make it smaller, or raise engine.packet_limit",
            )
        return size

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
        message = unit.last_error = told(describe(error), self._redact)
        if isinstance(move, Wait):
            self._turn.at(depth).append(
                Retried(
                    unit=unit.id,
                    node=node.id,
                    attempt=move.attempt,
                    wait_ms=move.ms,
                    retry_at=move.over_at(at),
                    error=message,
                    at=at,
                )
            )
            self._timers.after(move.ms / 1000.0, self._resume, unit)
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
        self._end_as(self._endings.of(move.then, failed, lambda: self._enqueue(unit)), unit)
        return False

    def damaged(self, unit: Unit, error: DataDamaged) -> None:
        """The unit fails alone: no further run mends what the journal holds of it."""
        to_output = unit.cursor in (OUTPUT, BATCH)
        where = "output" if to_output else unit.cursor
        code: Code = "output.failed" if to_output else "node.failed"
        failure = Failure(code, where, str(error), unit.attempt)
        journaled = packet_error(failure, None, dict, self._redact)
        failed = Failed(unit, journaled, where, self._clock.now_ms(), 0.0)
        self._end_as(self._endings.of("dead_letter", failed, lambda: self._enqueue(unit)), unit)

    def _end_as(self, ending: Ending, unit: Unit) -> None:
        self._turn.ends += ending.changes
        self._end(unit, ending.settlement)

    def _end(self, unit: Unit, settlement: Settlement | None) -> None:
        self._turn.ended.append((unit.id, settlement))
        self._free_slot()
