"""Written units on offer to the checkers, and their verdicts.

Idea. A written unit becomes a `Waiting` with its check rendered once (edge 206).
Each attached checker has an outbox; a waiting unit is put into the one that
holds least. An offer is `<unit>:<write_no>:<offer_no>`: the first part names the
write it is about, the last one who was asked. So a `passed` for the current
write counts from anyone (the destination was seen), while `failed` and
`refused` count only from the checker that holds the offer.

Leases. A checker renews everything it holds with each message; one that is
silent for 10 s counts as detached, and what it held is offered again. One that holds
nothing, where nobody looks for stalls, speaks seldom, and is given a minute; its 10 s begin with
the first that it is offered.

Deadlines. `within` counts from the first offer; a new offer after a lost
checker carries what is left, a restart of this process begins anew. A unit that
no checker has looked at is never late: the checker's own rule is one look
before it may fail.

Failure cases. No checker: units wait, status says so. A verdict about an older
write, or for a unit that has settled, is ignored. A check whose settings cannot
be rendered fails like one that was never seen, at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pipo.clock import Clock
from pipo.connectors.contract import OutputRole, Settlement
from pipo.crashpoints import reach
from pipo.errors import Unavailable
from pipo.journal.changes import Delivered, Unverified
from pipo.payload import encode
from pipo.rpc.stubs import checker_pb2 as pb
from pipo_runner.pipeline.endings import Endings, Failed
from pipo_runner.pipeline.executor import Executor
from pipo_runner.pipeline.failures import (
    PACKET_ERRORS,
    DataDamaged,
    Failure,
    describe,
    packet_error,
)
from pipo_runner.pipeline.ledger import Ledger
from pipo_runner.pipeline.masking import masked_json
from pipo_runner.pipeline.plan import Plan
from pipo_runner.pipeline.scopes import Scopes
from pipo_runner.pipeline.settling import Pending
from pipo_runner.pipeline.timers import Timers
from pipo_runner.pipeline.units import UNLOADED, VERIFY, Unit

LEASE_S: Final = 10.0
# A checker that holds nothing, and watches for no stall, says so every 20 s.
IDLE_LEASE_S: Final = 65.0
# Checkers find a pipeline that has just started within half a second.
ALONE_S: Final = 3.0
MESSAGE_BYTES_LIMIT: Final = 1024 * 1024


@dataclass(slots=True, eq=False)
class Waiting:
    """One written unit that waits for its verdict."""

    unit: Unit
    plan: Plan
    settings: bytes
    target: bytes
    result: bytes
    written: float
    """When its write was committed, or its last pause over, on the monotonic clock."""
    offer_no: int = 0
    deadline: float | None = None
    holder: Attached | None = None
    again: Callable[[], None] | None = None
    """Asks anew for a check that could not be rendered."""

    @property
    def bytes(self) -> int:
        """About how long its message is."""
        return len(self.settings) + len(self.target) + len(self.result) + 128

    @property
    def write_id(self) -> str:
        return f"{self.unit.id}:{self.unit.write_no}"

    @property
    def offer_id(self) -> str:
        return f"{self.write_id}:{self.offer_no}"


@dataclass(slots=True, eq=False)
class Attached:
    """One checker's stream: what it holds, and what is still to be sent to it."""

    checker_id: str
    capacity: int
    heard: float
    """When it spoke last, or was offered something while it held nothing."""
    held: dict[str, Waiting] = field(default_factory=dict)
    outbox: list[Waiting] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    signal: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False
    progress_due: bool = False
    """It is still to be told how the pipeline gets on."""

    @property
    def room(self) -> int:
        return self.capacity - len(self.held)


class Verifications:
    """All units of one pipeline that wait for a verdict."""

    def __init__(
        self,
        *,
        journal: Ledger,
        executor: Executor,
        scopes: Scopes,
        pending: Pending,
        endings: Endings,
        timers: Timers,
        clock: Clock,
        role_of: Callable[[Plan], OutputRole],
        load: Callable[[Unit], Awaitable[None]],
        redact: Callable[[str], str],
        log: Callable[..., None],
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._scopes = scopes
        self._pending = pending
        self._endings = endings
        self._timers = timers
        self._clock = clock
        self._role_of = role_of
        self._load = load
        self._redact = redact
        self._log = log
        self._waiting: dict[str, Waiting] = {}
        self._unassigned: deque[Waiting] = deque()
        self._checkers: list[Attached] = []
        self._sweeping = False
        self._told = False
        # A checker went, or none came in time: the next one is worth a line in the log.
        self._missed = False
        self._closed = False
        self._paused = False
        self.progress: Callable[[], pb.Progress] | None = None
        """How the pipeline gets on, at the moment of sending; None where nobody looks for stalls."""
        self.on_stall_report: Callable[[str], None] = _nobody
        """Hears which checker takes the progress for a stall."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def checkers(self) -> int:
        """How many checkers are attached and were heard of within a lease."""
        return sum(not self._is_silent(one) for one in self._checkers)

    @property
    def covered_s(self) -> float:
        """For how long a checker still counts as attached if no further word of it comes."""
        heard = max((c.heard for c in self._checkers), default=-math.inf)
        return heard + LEASE_S - self._clock.monotonic()

    # ── units in ─────────────────────────────────────────────────────────────

    def add(self, unit: Unit, plan: Plan, settings: Any, result: bytes) -> None:
        """A unit whose write is committed; `settings` are the output's, as rendered for it."""
        try:
            rendered = self._render(unit, plan, result)
        except Exception as error:
            if not isinstance(error, PACKET_ERRORS):
                self._log("error", "the check failed unexpectedly", exc_info=error)
            self._refuse_for_now(unit, plan, settings, result, error)
            return
        waiting = Waiting(
            unit=unit,
            plan=plan,
            settings=rendered,
            target=encode(dict(self._role_of(plan).target(settings))),
            result=result,
            written=self._clock.monotonic(),
        )
        # A verdict seldom needs the payload: thousands may wait, and it can be read back.
        unit.data = UNLOADED
        self._waiting[unit.id] = waiting
        self._offer(waiting)

    def _refuse_for_now(
        self, unit: Unit, plan: Plan, settings: Any, result: bytes, error: Exception
    ) -> None:
        """Refuses; after a pause the unit is added anew, with its payload read back."""

        async def add() -> None:
            try:
                await self._load(unit)
            except DataDamaged as damaged:
                self._refuse_for_now(unit, plan, settings, result, damaged)
            else:
                self.add(unit, plan, settings, result)

        self.refuse(
            unit,
            plan,
            result,
            describe(error),
            lambda: self._spawn(add(), name=f"verify {unit.id}"),
        )

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        self._timers.spawn(work, name=name)

    def refuse(
        self, unit: Unit, plan: Plan, result: bytes, message: str, again: Callable[[], None]
    ) -> None:
        """A written unit whose check cannot be asked: it fails like one that was never seen.

        After a pause `again` asks once more.
        """
        waiting = Waiting(unit, plan, b"{}", b"{}", result, self._clock.monotonic(), again=again)
        self._fail(waiting, pb.Verdict(message=message), None)

    def _render(self, unit: Unit, plan: Plan, result: bytes) -> bytes:
        if plan.check_settings.constant is not None:
            return encode(dict(plan.check_settings.constant))
        scope = self._scopes.check(unit, plan, result)
        return encode(dict(plan.check_settings.render(scope)))

    # ── a pause ──────────────────────────────────────────────────────────────

    def pause(self) -> None:
        """None is offered from now on; what a checker has goes on (edge 208)."""
        self._paused = True

    def unpause(self) -> None:
        """What waits is offered, each with its full `within`."""
        self._paused = False
        for waiting in self._unassigned:
            waiting.deadline = None
        self._refill()
        if self._unassigned and not self._checkers:
            self._miss_checker()

    def _verify_again(self, waiting: Waiting) -> None:
        """A unit that was held at its check: it is not written again (edge 209)."""
        self._executor.keep_slot(waiting.unit, waiting.plan)
        if waiting.again is not None:
            waiting.again()
            return
        waiting.written, waiting.deadline = self._clock.monotonic(), None
        self._waiting[waiting.unit.id] = waiting
        self._offer(waiting)

    def _offer(self, waiting: Waiting) -> None:
        if self._paused:
            self._unassigned.append(waiting)
            return
        checker = max(self._checkers, key=lambda c: c.room, default=None)
        if checker is not None and self._is_silent(checker):
            # One that holds nothing has no lease that could run out.
            self._lose(checker)
            self._offer(waiting)
            return
        if checker is None or checker.room <= 0:
            self._unassigned.append(waiting)
            if checker is None:
                self._miss_checker()
            return
        if not checker.held:
            self.heard(checker)
        waiting.offer_no += 1
        waiting.holder = checker
        checker.held[waiting.unit.id] = waiting
        checker.outbox.append(waiting)
        checker.signal.set()
        self._sweep_later()

    def _miss_checker(self) -> None:
        """Warns that none is attached, once, unless one comes in a moment."""
        if not (self._told or self._closed):
            self._told = True
            self._timers.after(ALONE_S, self._tell_alone)

    def _tell_alone(self) -> None:
        self._told = bool(self._waiting) and not self._checkers
        if self._told:
            self._missed = True
            self._log("warning", "no checker attached", action="no_checker")

    def message(self, waiting: Waiting) -> pb.Verification:
        """The offer as it is sent now."""
        within = waiting.plan.pipeline.delivered.within_ms
        now = self._clock.monotonic()
        if waiting.deadline is None:
            waiting.deadline = now + within / 1000.0
        return pb.Verification(
            id=waiting.offer_id,
            check=waiting.plan.check,
            **{"with": waiting.settings},
            result=waiting.result,
            within_left_ms=max(0, round((waiting.deadline - now) * 1000.0)),
            within_ms=round(within),
            output=waiting.plan.pipeline.output.to,
            target=waiting.target,
        )

    # ── checkers ─────────────────────────────────────────────────────────────

    def attach(self, checker_id: str, capacity: int) -> Attached:
        """A checker has said hello; it is offered what waits.

        Raises: Unavailable, at a stop.
        """
        if self._closed:
            raise Unavailable("the pipeline is stopping", hint="attach to its next run")
        checker = Attached(checker_id, max(1, capacity), self._clock.monotonic())
        self._checkers.append(checker)
        self._told = False
        if self._missed:
            self._missed = False
            self._log("info", "checker attached", action="checker_attached", checker=checker_id)
        self._refill()
        self.tell_progress()
        return checker

    def tell_progress(self) -> None:
        """Every checker is to be told how the pipeline gets on."""
        if self.progress is not None:
            for checker in self._checkers:
                checker.progress_due = True
                checker.signal.set()

    def heard(self, checker: Attached) -> None:
        """Any message renews the leases of everything the checker holds."""
        checker.heard = self._clock.monotonic()

    def detach(self, checker: Attached) -> None:
        """The checker's stream has ended, or it was silent too long."""
        if checker.gone:
            return
        checker.gone = True
        checker.signal.set()
        self._checkers.remove(checker)
        if not self._closed:
            self._missed = True
            gone = checker.checker_id
            self._log("info", "checker detached", action="checker_detached", checker=gone)
        held, checker.held = list(checker.held.values()), {}
        checker.outbox.clear()
        for waiting in held:
            waiting.holder = None
            self._offer(waiting)

    def close(self) -> None:
        """Ends every checker's stream; what waits for a verdict is offered by the next run."""
        self._closed = True
        for checker in list(self._checkers):
            self.detach(checker)

    async def offers(self, checker: Attached) -> AsyncIterator[pb.VerificationsReply]:
        """What is sent to one checker, grouped, until it is detached."""
        while not checker.gone:
            await checker.signal.wait()
            checker.signal.clear()
            for reply in self._replies(checker):
                yield reply

    def _replies(self, checker: Attached) -> Iterator[pb.VerificationsReply]:
        """Everything in the outbox, in messages of less than 1 MiB each."""
        outbox, checker.outbox = checker.outbox, []
        withdrawn, checker.withdrawn = checker.withdrawn, []
        if checker.progress_due and self.progress is not None:
            checker.progress_due = False
            yield pb.VerificationsReply(progress=self.progress())
        group: list[pb.Verification] = []
        size = 0
        for waiting in outbox:
            if checker.held.get(waiting.unit.id) is not waiting:
                continue
            length = waiting.bytes
            if group and size + length > MESSAGE_BYTES_LIMIT:
                yield pb.VerificationsReply(verifications=group)
                group, size = [], 0
            group.append(self.message(waiting))
            size += length
        if group or withdrawn:
            yield pb.VerificationsReply(verifications=group, withdrawn=withdrawn)

    def _refill(self) -> None:
        while self._unassigned and not self._paused and any(c.room > 0 for c in self._checkers):
            waiting = self._unassigned.popleft()
            if self._waiting.get(waiting.unit.id) is waiting:
                self._offer(waiting)

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._timers.after(LEASE_S / 4, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for checker in [c for c in self._checkers if c.held and self._is_silent(c)]:
            self._lose(checker)
        if any(c.held for c in self._checkers):
            self._sweep_later()

    def _is_silent(self, checker: Attached) -> bool:
        awaited = checker.held or self.progress is not None
        return checker.heard < self._clock.monotonic() - (LEASE_S if awaited else IDLE_LEASE_S)

    def _lose(self, checker: Attached) -> None:
        self._log("warning", "checker is silent", checker=checker.checker_id)
        self.detach(checker)

    def listen(
        self, checker: Attached, requests: AsyncIterator[pb.VerificationsRequest]
    ) -> asyncio.Task[None]:
        """Takes what a checker says until its stream ends; then it is detached."""
        name = f"verdicts of {checker.checker_id}"
        return self._timers.read(self._listen(checker, requests), name=name)

    async def _listen(
        self, checker: Attached, requests: AsyncIterator[pb.VerificationsRequest]
    ) -> None:
        try:
            async for request in requests:
                self.heard(checker)
                if request.verdicts:
                    self.judge(checker, request.verdicts)
                if request.HasField("stall"):
                    self.on_stall_report(checker.checker_id)
        finally:
            self.detach(checker)

    # ── verdicts ─────────────────────────────────────────────────────────────

    def judge(self, checker: Attached, verdicts: Iterable[pb.Verdict]) -> None:
        """Commits what a checker saw; what is out of date is ignored."""
        passed: list[tuple[Waiting, bytes]] = []
        for verdict in verdicts:
            write_id, _, _ = verdict.id.rpartition(":")
            waiting = self._waiting.get(write_id.rpartition(":")[0])
            if waiting is None or waiting.write_id != write_id:
                continue
            if verdict.outcome == pb.Verdict.OUTCOME_PASSED:
                self._drop(waiting, checker)
                passed.append((waiting, masked_json(verdict.evidence, self._redact)))
            elif verdict.id == waiting.offer_id and waiting.holder is checker:
                self._fail(waiting, verdict, checker)
        if passed:
            at = self._clock.now_ms()
            reach("verdict.before_commit")
            self._journal.submit(
                *(
                    Delivered(w.unit.id, evidence or None, at, check=w.plan.check)
                    for w, evidence in passed
                ),
                done=lambda error: self._after(
                    [w for w, _ in passed], Settlement("delivered"), error
                ),
            )
        self._refill()

    def _drop(self, waiting: Waiting, judge: Attached) -> None:
        """The unit needs no further look; another checker that holds it is told."""
        del self._waiting[waiting.unit.id]
        holder = waiting.holder
        if holder is not None:
            holder.held.pop(waiting.unit.id, None)
            if holder is not judge:
                holder.withdrawn.append(waiting.offer_id)
                holder.signal.set()

    def _fail(self, waiting: Waiting, verdict: pb.Verdict, judge: Attached | None) -> None:
        if judge is not None:
            self._drop(waiting, judge)
        if waiting.unit.data is UNLOADED:
            self._timers.spawn(
                self._fail_loaded(waiting, verdict), name=f"on_fail {waiting.unit.id}"
            )
        else:
            self._commit_failure(waiting, verdict)

    async def _fail_loaded(self, waiting: Waiting, verdict: pb.Verdict) -> None:
        try:
            await self._load(waiting.unit)
        except DataDamaged:
            # It fails anyway; a message template that needs the data falls back to the plain one.
            waiting.unit.data = None
        self._commit_failure(waiting, verdict)

    def _commit_failure(self, waiting: Waiting, verdict: pb.Verdict) -> None:
        unit, plan = waiting.unit, waiting.plan
        elapsed_ms = (self._clock.monotonic() - waiting.written) * 1000.0
        failure = Failure(
            "delivery.unverified",
            "delivered",
            self._redact(verdict.message or f"{plan.check} did not pass"),
            verdict.attempts,
            elapsed_ms,
        )
        error = packet_error(
            failure,
            plan.messages["delivered"],
            lambda: self._scopes.verdict(unit, plan, waiting.result),
            self._redact,
        )
        at = self._clock.now_ms()
        evidence = masked_json(verdict.evidence, self._redact) or None
        unverified = Unverified(
            unit=unit.id,
            error=error,
            evidence=evidence,
            at=at,
            check=plan.check,
            verdict="refused" if verdict.outcome == pb.Verdict.OUTCOME_REFUSED else "failed",
        )
        ending = self._endings.of(
            plan.pipeline.delivered.on_fail.then,
            Failed(unit, error, VERIFY, at, elapsed_ms),
            lambda: self._verify_again(waiting),
        )
        waiting.holder = None
        self._journal.submit(
            unverified,
            *ending.changes,
            done=lambda failed: self._after([waiting], ending.settlement, failed),
        )

    def _after(
        self, waiting: list[Waiting], settlement: Settlement | None, error: BaseException | None
    ) -> None:
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        if settlement is not None:
            self._pending.settled((w.unit.id for w in waiting), settlement)
        slots = 0
        for one in waiting:
            slots += one.unit.holds_slot
            one.unit.holds_slot = False
        if slots:
            self._executor.release(slots)


def _nobody(checker_id: str) -> None:
    """Nobody looks for stalls."""
