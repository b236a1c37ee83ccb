"""The output stage: validate, render, write, commit.

Idea. Units that arrive at the output are sorted by place (a database, a file).
Each place has at most one write in flight; whatever arrives meanwhile forms the
next group. So an idle pipeline writes a lone packet at once, and a busy one
writes hundreds in one transaction, with no timer in either case.

Commits. Before the effect: with the default key the acceptance that is already
on disk is enough, since a repeat after a crash finds the key at the
destination; an explicit key is committed with *writing* first and reused on
every repeat (design §4.3). After the effect: *written* is committed with the
result, together with *delivered* where the check is `ack` or `none`, and with the
window of an ack where it is `external`. Only then does anyone learn of it.

The next group of a place may be written while the commit of the one before is
under way; the journal keeps the order, and a crash repeats at most what was not
committed, each with its own key.

Failure cases. One bad unit fails alone; a failure of the whole call (a locked
database, a full disk) is each unit's own failure. Either way `policy` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipo.clock import Clock
from pipo.connectors.contract import (
    ConnectorError,
    Flush,
    Output,
    Refused,
    RetryAfter,
    Settlement,
    WriteFailed,
    WriteUnit,
)
from pipo.crashpoints import reach
from pipo.journal.changes import AwaitingAck, Change, Delivered, Marked, Retried, Writing, Written
from pipo.lang.model import Then
from pipo.payload import encode
from pipo_runner.pipeline.acks import Acks
from pipo_runner.pipeline.endings import Endings, Failed
from pipo_runner.pipeline.executor import Executor
from pipo_runner.pipeline.failures import (
    PACKET_ERRORS,
    Failure,
    describe,
    packet_error,
)
from pipo_runner.pipeline.ledger import Ledger
from pipo_runner.pipeline.masking import masked_json
from pipo_runner.pipeline.plan import Plan
from pipo_runner.pipeline.policy import Wait, decide
from pipo_runner.pipeline.scopes import Scopes
from pipo_runner.pipeline.settling import Pending
from pipo_runner.pipeline.timers import Timers
from pipo_runner.pipeline.units import OUTPUT, VERIFY, Unit

GROUP_UNITS_LIMIT: Final = 256
GROUP_BYTES_LIMIT: Final = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Prepared:
    """A unit whose settings and key are rendered; they stay the same through its retries."""

    unit: Unit
    plan: Plan
    settings: Mapping[str, Any]
    key: str
    explicit: bool
    output: Output
    place: str
    """The destination, with its connector: versions may write to one path in two ways."""

    def write_unit(self) -> WriteUnit:
        unit = self.unit
        return WriteUnit(
            unit.id, self.key, unit.data, self.settings, unit.repeat, unit.trigger, unit.source
        )


class OutputStage:
    """Groups ready units by place and writes them."""

    def __init__(
        self,
        *,
        journal: Ledger,
        output_of: Callable[[Plan], Output],
        executor: Executor,
        scopes: Scopes,
        pending: Pending,
        endings: Endings,
        timers: Timers,
        clock: Clock,
        redact: Callable[[str], str],
        log: Callable[..., None],
        verify: Callable[[Unit, Plan, Mapping[str, Any], bytes], None],
        acks: Acks,
        serial: bool,
    ) -> None:
        self._journal = journal
        self._output_of = output_of
        self._executor = executor
        self._scopes = scopes
        self._pending = pending
        self._endings = endings
        self._timers = timers
        self._clock = clock
        self._redact = redact
        self._log = log
        self._verify = verify
        self._acks = acks
        self._serial = serial
        self._waiting: dict[str, list[Prepared]] = {}
        self._busy: set[str] = set()
        self._idle: asyncio.Event | None = None
        self._refusals: list[Change] = []
        self._refused: list[tuple[Unit, Settlement | None]] = []

    # ── arriving ─────────────────────────────────────────────────────────────

    def join(self, unit: Unit, plan: Plan) -> None:
        """A unit arrives with its slot; it is written after the next `flush`."""
        if unit.attempt == 0 or not unit.entered:
            unit.entered = self._clock.monotonic()
        try:
            prepared = self._prepare(unit, plan)
        except Exception as error:
            if not isinstance(error, PACKET_ERRORS):
                self._log("error", "the output failed unexpectedly", exc_info=error)
            self._failed(unit, plan, None, error)
            return
        if prepared is not None:
            self._waiting.setdefault(prepared.place, []).append(prepared)

    def flush(self) -> None:
        """Starts a write at every place that is idle and has units."""
        if self._refusals:
            refused, changes = self._refused, self._refusals
            self._refused, self._refusals = [], []
            self._journal.submit(*changes, done=lambda error: self._after_end(refused, error))
        for place in self._waiting:
            if place not in self._busy:
                self._busy.add(place)
                self._timers.spawn(self._write_place(place), name=f"write {place}")

    def give_back(self) -> None:
        """Units whose write has not begun go back to the queue, each to its old place."""
        waiting, self._waiting = self._waiting, {}
        for group in waiting.values():
            for prepared in group:
                self._executor.put_back(prepared.unit)

    async def idle(self, timeout_s: float) -> bool:
        """Whether no write is in flight, waiting up to `timeout_s` for those that are."""
        if self._busy:
            self._idle = asyncio.Event()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._idle.wait()
            except TimeoutError:
                pass
            finally:
                self._idle = None
        return not self._busy

    def give_up_waiting(self) -> None:
        """Ends `idle`, whatever is still in flight."""
        if self._idle is not None:
            self._idle.set()

    def _prepare(self, unit: Unit, plan: Plan) -> Prepared | None:
        meta = self._scopes.meta(unit, "output", key=unit.key) if plan.output_uses_meta else {}
        scope = self._scopes.step(unit, "output", with_meta=False) | {"meta": meta}
        output = self._output_of(plan)
        if plan.output_rules.rules and not self._valid(unit, plan, output, scope):
            return None
        settings = plan.output_settings.render(scope)
        explicit = unit.key or output.explicit_key(settings)
        if explicit is not None and explicit != unit.key and plan.output_uses_key:
            # `meta.key` is the explicit key, known only once the settings are rendered.
            scope["meta"] = {**meta, "key": explicit}
            settings = plan.output_settings.render(scope)
        key = unit.id if explicit is None else explicit
        output.prepare(unit.data, settings, key)
        place = f"{plan.pipeline.output.to} {output.place(settings, key)}"
        return Prepared(unit, plan, settings, key, explicit is not None, output, place)

    def _valid(self, unit: Unit, plan: Plan, output: Output, scope: Mapping[str, Any]) -> bool:
        meta = scope["meta"]
        if plan.rules_use_meta:
            meta = {**meta, "key": self._key_ahead(unit, plan, output, scope)}
        seen = {"data": unit.data, "meta": meta, "env": scope["env"]}
        broken = plan.output_rules.broken({**seen, "output": plan.pipeline.output.raw})
        if broken is None:
            return True
        rule, message = broken
        failure = Failure("output.invalid", "output", message, 1, rule=rule)
        # A rule fails the same way again: never retried (O056).
        then = plan.pipeline.output.on_invalid.then or "dead_letter"
        self._end(unit, plan, failure, then, "output_invalid")
        return False

    def _key_ahead(self, unit: Unit, plan: Plan, output: Output, scope: Mapping[str, Any]) -> str:
        """The key that the write would have (O052); the unit's own where it has none to tell yet."""
        try:
            explicit = unit.key or output.explicit_key(plan.output_settings.render(scope))
        except PACKET_ERRORS:
            # What cannot be rendered is the write's failure, behind the rules.
            explicit = None
        return explicit or unit.id

    # ── writing ──────────────────────────────────────────────────────────────

    async def _write_place(self, place: str) -> None:
        try:
            while group := self._take(place):
                await self._write_group(group)
        finally:
            self._busy.discard(place)
            if not self._busy and self._idle is not None:
                self._idle.set()

    def _take(self, place: str) -> list[Prepared]:
        """The next group of a place, cut at its limits."""
        waiting = self._waiting.get(place)
        if not waiting:
            self._waiting.pop(place, None)
            return []
        size = count = 0
        for prepared in waiting:
            size += prepared.unit.size
            if count and (count >= GROUP_UNITS_LIMIT or size > GROUP_BYTES_LIMIT):
                break
            count += 1
        group, self._waiting[place] = waiting[:count], waiting[count:]
        return group

    async def _write_group(self, group: Sequence[Prepared]) -> None:
        at = self._clock.now_ms()
        if any(p.explicit and p.unit.key is None for p in group):
            await self._journal.commit(
                *(Writing(p.unit.id, p.key if p.explicit else None, at) for p in group)
            )
            for p in group:
                if p.explicit:
                    p.unit.key = p.key
        else:
            self._journal.stage(*(Writing(p.unit.id, p.unit.key, at) for p in group))
        reach("output.before_write")
        try:
            flush = await group[0].output.write([p.write_unit() for p in group], atomic=False)
        except Exception as error:
            if not isinstance(error, PACKET_ERRORS):
                self._log("error", "the write failed unexpectedly", exc_info=error)
            flush = Flush(results=[_as_result(error)] * len(group))
        reach("output.after_write")
        self._settle_group(group, flush)

    def _settle_group(self, group: Sequence[Prepared], flush: Flush) -> None:
        """Stages what a write led to: the results first, then the ends, then the failures."""
        at, now = self._clock.now_ms(), self._clock.monotonic()
        written: list[tuple[Prepared, bytes]] = []
        failed: list[tuple[Prepared, Exception]] = []
        for prepared, result in zip(group, flush.results, strict=True):
            if isinstance(result, Exception):
                failed.append((prepared, result))
            else:
                # Masked once: a check sees the same result before a crash and after it.
                written.append((prepared, masked_json(encode(result), self._redact)))
        changes: list[Change] = [
            Written(
                p.unit.id,
                result,
                (now - p.unit.entered) * 1000.0,
                len(written),
                at,
            )
            for p, result in written
        ]
        for p, _ in written:
            p.unit.cursor, p.unit.attempt = VERIFY, 0
            p.unit.write_no += 1
        follows = [self._with_write(p, at) for p, _ in written]
        changes += [change for change in follows if change is not None]
        settled = {change.unit for change in follows if isinstance(change, Delivered)}
        if flush.marks:
            changes.append(Marked(flush.marks))
        if changes:
            self._journal.submit(
                *changes, done=lambda error: self._after_write(written, settled, error)
            )
        if not self._serial and written:
            self._executor.release(len(written))
        for prepared, error in failed:
            self._failed(prepared.unit, prepared.plan, prepared, error)
        if failed:
            self.flush()

    def _with_write(self, prepared: Prepared, at: int) -> Delivered | AwaitingAck | None:
        """What stands in one commit with its Written: its end, or the window of its ack."""
        unit, plan = prepared.unit, prepared.plan
        if plan.settled_by_write:
            return Delivered(unit.id, None, at, check=plan.check)
        return self._acks.with_write(unit, at) if plan.parks else None

    def _after_write(
        self,
        written: list[tuple[Prepared, bytes]],
        settled: Collection[str],
        error: BaseException | None,
    ) -> None:
        """The write is on disk: those in `settled` are delivered, the others wait for their check."""
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        # Nobody waits in a slot for an ack (edge 223).
        slots = len(settled)
        for prepared, result in written:
            if prepared.unit.id in settled:
                continue
            if prepared.plan.parks:
                slots += 1
                self._acks.park(prepared.unit)
            else:
                prepared.unit.holds_slot = self._serial
                self._verify(prepared.unit, prepared.plan, prepared.settings, result)
        self._pending.settled(settled, Settlement("delivered"))
        if self._serial and slots:
            self._executor.release(slots)

    # ── failing ──────────────────────────────────────────────────────────────

    def _failed(self, unit: Unit, plan: Plan, prepared: Prepared | None, error: Exception) -> None:
        """One failed run of one unit; it waits for the next, or ends as the policy says."""
        unit.attempt += 1
        asked = error.seconds * 1000.0 if isinstance(error, RetryAfter) else None
        move = decide(
            plan.pipeline.output.on_error,
            failures=unit.attempt,
            asked_ms=asked,
            hopeless=isinstance(error, Refused),
        )
        message = self._redact(describe(error))
        # The write may have happened without our knowing (design §4).
        unit.repeat = "recovered" if unit.repeat == "first" else unit.repeat
        if isinstance(move, Wait):
            at = self._clock.now_ms()
            self._refusals.append(
                Retried(
                    unit=unit.id,
                    node=OUTPUT,
                    attempt=move.attempt,
                    wait_ms=move.ms,
                    retry_at=at + int(move.ms),
                    error=message,
                    at=at,
                )
            )
            self._timers.after(move.ms / 1000.0, self._again, unit, plan, prepared)
            return
        ms = (self._clock.monotonic() - unit.entered) * 1000.0
        failure = Failure("output.failed", "output", message, move.attempts, ms)
        self._end(unit, plan, failure, move.then, "output")

    def _again(self, unit: Unit, plan: Plan, prepared: Prepared | None) -> None:
        if not self._executor.taking:
            self._executor.put_back(unit)
        elif prepared is None:
            self.join(unit, plan)
        else:
            self._waiting.setdefault(prepared.place, []).append(prepared)
        self.flush()

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
        failed = Failed(unit, error, OUTPUT, self._clock.now_ms(), failure.elapsed_ms)
        ending = self._endings.of(then, failed, lambda: self._executor.enqueue(unit))
        self._refusals += ending.changes
        self._refused.append((unit, ending.settlement))

    def _after_end(
        self, refused: list[tuple[Unit, Settlement | None]], error: BaseException | None
    ) -> None:
        if error is not None:
            raise error
        for unit, settlement in refused:
            if settlement is not None:
                self._pending.settled((unit.id,), settlement)
        self._executor.release(len(refused))


def _as_result(error: Exception) -> WriteFailed | RetryAfter | Refused:
    if isinstance(error, (WriteFailed, RetryAfter, Refused)):
        return error
    if isinstance(error, ConnectorError):
        return WriteFailed(error.message, hint=error.hint)
    return WriteFailed(describe(error))
