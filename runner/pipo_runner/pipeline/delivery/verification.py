"""Verdicts on written units: what is asked of the checkers, and what comes of their answers.

Idea. A written unit becomes a `Waiting` with its check rendered once (edge 206), and is put on
offer (`offers`, where it is said which verdict counts). What a checker saw is committed here:
*delivered*, or *unverified* together with what `on_fail` makes of the unit.

Failure cases. A check whose settings cannot be rendered fails like one that was never seen, at
once. A failed unit's payload is read back for its message; where it is damaged the unit fails
with the plain one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from pipo.clock import Clock
from pipo.connectors.contract import OutputRole, Settlement
from pipo.crashpoints import reach
from pipo.journal.changes import Delivered, Unverified
from pipo.payload import encode
from pipo.rpc.stubs import checker_pb2 as pb
from pipo_runner.pipeline.definition.failures import (
    PACKET_ERRORS,
    DataDamaged,
    Failure,
    describe,
    packet_error,
)
from pipo_runner.pipeline.definition.masking import masked_json
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.delivery.offers import Attached, Offers, Waiting
from pipo_runner.pipeline.flow.endings import Endings, Failed
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import UNLOADED, VERIFY, Unit
from pipo_runner.pipeline.steps.executor import Executor


class Verifications:
    """Asks for the check of each written unit, and commits what the checkers saw."""

    def __init__(
        self,
        *,
        journal: Ledger,
        executor: Executor,
        offers: Offers,
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
        self._offers = offers
        self._scopes = scopes
        self._pending = pending
        self._endings = endings
        self._timers = timers
        self._clock = clock
        self._role_of = role_of
        self._load = load
        self._redact = redact
        self._log = log

    # ── asking ───────────────────────────────────────────────────────────────

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
        self._offers.put(waiting)

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
        self._fail(waiting, pb.Verdict(message=message))

    def _render(self, unit: Unit, plan: Plan, result: bytes) -> bytes:
        if plan.check_settings.constant is not None:
            return encode(dict(plan.check_settings.constant))
        scope = self._scopes.check(unit, plan, result)
        return encode(dict(plan.check_settings.render(scope)))

    def _verify_again(self, waiting: Waiting) -> None:
        """A unit that was held at its check: it is not written again (edge 209)."""
        self._executor.keep_slot(waiting.unit, waiting.plan)
        if waiting.again is not None:
            waiting.again()
            return
        waiting.written, waiting.deadline = self._clock.monotonic(), None
        self._offers.put(waiting)

    # ── verdicts ─────────────────────────────────────────────────────────────

    def judge(self, checker: Attached, verdicts: Iterable[pb.Verdict]) -> None:
        """Commits what a checker saw; what is out of date is ignored."""
        passed: list[tuple[Waiting, bytes]] = []
        for waiting, verdict in self._offers.counted(checker, verdicts):
            if verdict.outcome == pb.Verdict.OUTCOME_PASSED:
                passed.append((waiting, masked_json(verdict.evidence, self._redact)))
            else:
                self._fail(waiting, verdict)
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
        self._offers.refill()

    def _fail(self, waiting: Waiting, verdict: pb.Verdict) -> None:
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
