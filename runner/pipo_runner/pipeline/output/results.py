"""What became of units at the output: journaled first, told once it is on disk.

A unit that waits in a batch holds no slot (`Unit.batched`); of any other its end or its
write gives the slot back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pipo.clock import Clock
from pipo.connectors.contract import Flush, Refused, RetryAfter, Settlement
from pipo.journal.changes import AwaitingAck, Change, Delivered, Marked, Retried, Written
from pipo.lang.model import Then
from pipo.payload import encode
from pipo_runner.pipeline.definition.failures import Failure, describe, packet_error, told
from pipo_runner.pipeline.definition.masking import masked_json
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.policy import GiveUp, Wait, decide
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.delivery.acks import Acks
from pipo_runner.pipeline.flow.endings import Endings, Failed
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.units import OUTPUT, VERIFY, Unit
from pipo_runner.pipeline.output.doubts import Doubts
from pipo_runner.pipeline.output.preparing import BrokenRule, Prepared
from pipo_runner.pipeline.steps.executor import Executor

# A unit that was written, with what the write returned as JSON.
Taken = tuple[Prepared, bytes]


class Results:
    """Journals and tells. Failures and ends are kept until `flush`, so that a turn is one commit."""

    def __init__(
        self,
        *,
        journal: Ledger,
        executor: Executor,
        scopes: Scopes,
        pending: Pending,
        doubts: Doubts,
        endings: Endings,
        clock: Clock,
        redact: Callable[[str], str],
        verify: Callable[[Unit, Plan, Mapping[str, Any], bytes], None],
        acks: Acks,
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._scopes = scopes
        self._pending = pending
        self._doubts = doubts
        self._endings = endings
        self._clock = clock
        self._redact = redact
        self._verify = verify
        self._acks = acks
        self._failures: list[Change] = []
        self._ended: list[tuple[Unit, Settlement | None]] = []
        self._slots = 0

    # ── written ──────────────────────────────────────────────────────────────

    def sort(
        self, group: Sequence[Prepared], flush: Flush
    ) -> tuple[list[Taken], list[tuple[Prepared, Exception]]]:
        """Which units of a write were written, and which failed."""
        written: list[Taken] = []
        failed: list[tuple[Prepared, Exception]] = []
        for prepared, result in zip(group, flush.results, strict=True):
            if isinstance(result, Exception):
                failed.append((prepared, result))
            else:
                # Masked once: a check sees the same result before a crash and after it.
                written.append((prepared, masked_json(encode(result), self._redact)))
        return written, failed

    def written(
        self, written: Sequence[Taken], *, size: int, marks: Mapping[str, int | None]
    ) -> None:
        """Hands over that these units were written in a group of `size`, with the output's marks."""
        at, now = self._clock.now_ms(), self._clock.monotonic()
        changes: list[Change] = [
            Written(p.unit.id, result, (now - p.unit.entered) * 1000.0, size, at)
            for p, result in written
        ]
        slots = 0
        for p, _ in written:
            # One that waited in a batch stays without a slot until it settles.
            p.unit.holds_slot = self._executor.serial and not p.unit.batched
            slots += not (self._executor.serial or p.unit.batched)
            p.unit.cursor = VERIFY
            p.unit.moved_on()
            p.unit.write_no += 1
        follows = [self._with_write(p, at) for p, _ in written]
        changes += [change for change in follows if change is not None]
        settled = {change.unit for change in follows if isinstance(change, Delivered)}
        if noted := self._doubts.to_note(marks):
            changes.append(Marked(noted))
        if changes:
            self._journal.submit(
                *changes, done=lambda error: self._after_write(written, settled, error)
            )
        if slots:
            self._executor.release(slots)

    def _with_write(self, prepared: Prepared, at: int) -> Delivered | AwaitingAck | None:
        """What stands in one commit with its Written: its end, or the window of its ack."""
        unit, plan = prepared.unit, prepared.plan
        if plan.settled_by_write:
            return Delivered(unit.id, None, at, check=plan.check)
        return self._acks.with_write(unit, at) if plan.parks else None

    def _after_write(
        self,
        written: Sequence[Taken],
        settled: Collection[str],
        error: BaseException | None,
    ) -> None:
        """The write is on disk: those in `settled` are delivered, the others wait for their check."""
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        slots = 0
        for prepared, result in written:
            unit = prepared.unit
            ends = unit.id in settled
            if ends or prepared.plan.parks:
                # Nobody waits in a slot for an ack (edge 223).
                slots += unit.holds_slot
                unit.holds_slot = False
            if ends:
                continue
            if prepared.plan.parks:
                self._acks.park(unit)
            else:
                self._verify(unit, prepared.plan, prepared.settings, result)
        self._pending.settled(settled, Settlement("delivered"))
        if slots:
            self._executor.release(slots)

    # ── failed ───────────────────────────────────────────────────────────────

    def next_move(self, unit: Unit, plan: Plan, error: Exception) -> Wait | GiveUp:
        """What the policy makes of one more failed run of the unit's write."""
        unit.attempt += 1
        unit.last_error = self.text_of(error)
        # The write may have happened without our knowing (design §4).
        unit.repeat = "recovered" if unit.repeat == "first" else unit.repeat
        self._doubts.add(unit)
        return decide(
            plan.pipeline.output.on_error,
            failures=unit.attempt,
            asked_ms=error.seconds * 1000.0 if isinstance(error, RetryAfter) else None,
            # A stall's mark ends the retries (edge 238).
            hopeless=isinstance(error, Refused) or unit.stall is not None,
        )

    def retry(self, unit: Unit, move: Wait, error: Exception, *, batch: int | None = None) -> None:
        """The unit is written again after a wait; `batch` units failed together."""
        at = self._clock.now_ms()
        self._failures.append(
            Retried(
                unit=unit.id,
                node=OUTPUT,
                attempt=move.attempt,
                wait_ms=move.ms,
                retry_at=move.over_at(at),
                error=self.text_of(error),
                at=at,
                batch=batch,
            )
        )

    def text_of(self, error: Exception) -> str:
        """An error's text as it may be journaled."""
        return told(describe(error), self._redact)

    def give_up(self, unit: Unit, plan: Plan, move: GiveUp, error: Exception) -> None:
        """The unit's write has failed for good: it ends as the policy says."""
        ms = (self._clock.monotonic() - unit.entered) * 1000.0
        failure = Failure("output.failed", "output", self.text_of(error), move.attempts, ms)
        self._end(unit, plan, failure, move.then, "output")

    def refuse(self, unit: Unit, plan: Plan, broken: BrokenRule) -> None:
        """A rule of the output does not hold. It fails the same way again: no retry (O056)."""
        failure = Failure("output.invalid", "output", str(broken), 1, rule=broken.rule)
        then = plan.pipeline.output.on_invalid.then or "dead_letter"
        self._end(unit, plan, failure, then, "output_invalid")

    def flush(self) -> None:
        """Hands over the failures and ends that came since the last time."""
        if not self._failures:
            return
        changes, ended, slots = self._failures, self._ended, self._slots
        self._failures, self._ended, self._slots = [], [], 0
        self._journal.submit(*changes, done=lambda error: self._after_end(ended, slots, error))

    def _end(self, unit: Unit, plan: Plan, failure: Failure, then: Then, template: str) -> None:
        error = packet_error(
            failure,
            plan.messages[template],
            lambda: (
                self._scopes.rules(unit.data, self._scopes.meta(unit, "output", key=unit.key))
                | {"output": plan.pipeline.output.raw}
            ),
            self._redact,
        )
        self._slots += not unit.batched
        failed = Failed(unit, error, OUTPUT, self._clock.now_ms(), failure.elapsed_ms)
        ending = self._endings.of(then, failed, lambda: self._executor.enqueue(unit))
        self._failures += ending.changes
        self._ended.append((unit, ending.settlement))

    def _after_end(
        self,
        ended: Sequence[tuple[Unit, Settlement | None]],
        slots: int,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            raise error
        for unit, settlement in ended:
            if settlement is not None:
                self._pending.settled((unit.id,), settlement)
        if slots:
            self._executor.release(slots)
