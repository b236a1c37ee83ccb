"""Takes up what an earlier run left, as `recovery` decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from pipo.connectors.contract import ConnectorError, Settlement
from pipo.errors import Internal
from pipo.journal import reads
from pipo.journal.changes import Delivered
from pipo.journal.recover import PendingUnit
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.payload import BadPayload, decode
from pipo_runner.pipeline.assembly import Parts, Surroundings
from pipo_runner.pipeline.failures import PACKET_ERRORS, DataDamaged, describe
from pipo_runner.pipeline.plan import Plan
from pipo_runner.pipeline.recovery import Decision, Finding, decide, unit_of
from pipo_runner.pipeline.units import OUTPUT, UNLOADED, VERIFY, Unit


def loader(journal: SqliteJournal) -> Callable[[Unit], Awaitable[None]]:
    """Brings a payload back that was left in the journal. It raises DataDamaged."""

    async def load(unit: Unit) -> None:
        if unit.data is UNLOADED:
            try:
                raw = await reads.data_of(journal.rows, unit.id)
                if raw is None:
                    raise Internal(
                        f"the journal has no data of {unit.id}", hint="please report this"
                    )
                unit.data = decode(raw)
                # A restart does not hand over the size of what it leaves in the journal.
                unit.size = len(raw)
            except BadPayload as error:
                raise DataDamaged(f"its data in the journal is damaged: {error}") from error

    return load


async def take_up(found: Sequence[PendingUnit], around: Surroundings, parts: Parts) -> Counter[str]:
    """Every pending unit goes on; how many each row of the table took."""
    delivered: list[tuple[str, str]] = []
    rows: Counter[str] = Counter()
    for row in found:
        unit, plan = unit_of(row), around.plans.of(row.version)
        # How long the step took is counted from here: the earlier run's clock is gone.
        unit.entered = around.clock.monotonic()
        parts.pending.add(unit)
        left_ms = _wait_left_ms(unit, plan, around.clock.now_ms())
        finding = Finding(
            written=unit.cursor == VERIFY,
            settled_by_write=plan.settled_by_write,
            wait_left=left_ms > 0,
        )
        decided = decide(finding)
        rows[decided.label] += 1
        match decided.decision:
            case Decision.RUN:
                parts.executor.enqueue(unit)
            case Decision.WAIT:
                # Its slot stays its own, as before the restart (edge 106).
                parts.executor.hold()
                around.timers.after(left_ms / 1000.0, parts.executor.resume, unit)
            case Decision.DELIVER:
                delivered.append((unit.id, plan.check))
            case Decision.VERIFY:
                if around.plans.current().pipeline.concurrency == 1:
                    unit.holds_slot = True
                    parts.executor.hold()
                await _verify_again(unit, plan, row.result or b"null", around, parts)
    if delivered:
        at = around.clock.now_ms()
        await around.journal.commit(
            *(Delivered(one, None, at, check=check) for one, check in delivered)
        )
        parts.pending.settled((one for one, _ in delivered), Settlement("delivered"))
    return rows


def _wait_left_ms(unit: Unit, plan: Plan, now_ms: int) -> float:
    """What is left of its wait: no more than its policy can ask for, whatever the clock did."""
    if unit.retry_at is None or unit.cursor == VERIFY:
        return 0.0
    to_output = unit.cursor == OUTPUT
    policy = plan.pipeline.output.on_error if to_output else plan.nodes[unit.cursor].policy
    return min(unit.retry_at - now_ms, policy.max_delay_ms)


async def _verify_again(
    unit: Unit, plan: Plan, result: bytes, around: Surroundings, parts: Parts
) -> None:
    """A written unit is not written again: its check starts anew (edge 207)."""
    try:
        await around.load(unit)
        scope = around.scopes.step(unit, "output", with_meta=False)
        scope["meta"] = around.scopes.meta(unit, "output", key=unit.key)
        settings = plan.output_settings.render(scope)
    except PACKET_ERRORS as error:
        parts.verifications.refuse(unit, plan, result, describe(error))
        return
    try:
        # A crash may have left a hot journal beside the database; a read-only checker
        # cannot roll it back.
        await around.output_of(plan).recover(settings)
    except ConnectorError as error:
        around.context.log("warning", "the destination was not looked at", error=error.message)
    parts.verifications.add(unit, plan, settings, result)
