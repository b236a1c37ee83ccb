"""Takes up what an earlier run left, as `recovery` decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from pipo.connectors.contract import ConnectorError, Settlement
from pipo.errors import Internal
from pipo.journal import reads
from pipo.journal.changes import ESCALATED, Delivered
from pipo.journal.recover import PendingUnit
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.payload import BadPayload, decode
from pipo_runner.pipeline.assembly import Parts, Surroundings
from pipo_runner.pipeline.definition.failures import PACKET_ERRORS, DataDamaged, describe
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.flow.settling import split_of
from pipo_runner.pipeline.flow.units import BATCH, OUTPUT, UNLOADED, VERIFY, Unit
from pipo_runner.pipeline.life.recovery import Decision, Finding, decide, unit_of


def loader(journal: SqliteJournal) -> Callable[[Unit], Awaitable[None]]:
    """Brings a payload back that was left in the journal. It raises DataDamaged."""

    async def load(unit: Unit) -> None:
        if unit.data is UNLOADED:
            try:
                raw = await reads.data_of(journal.rows, unit.id)
                if raw is None:
                    # A copy may be born in a commit that is under way.
                    await journal.commit()
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


@dataclass(slots=True)
class _Written:
    """Written units, found in the order of the queue."""

    delivered: list[tuple[str, str]] = field(default_factory=list)
    """Those that their write has settled, with their check."""
    unseen: list[tuple[Unit, Plan, bytes]] = field(default_factory=list)
    """Those whose check begins anew, with the result of the write."""
    without_window: list[Unit] = field(default_factory=list)
    """Those that are acked, and those whose wait for an ack begins anew."""


async def take_up(found: Sequence[PendingUnit], around: Surroundings, parts: Parts) -> Counter[str]:
    """Every pending unit goes on; how many each row of the table took.

    In a run that begins paused what would move at once waits for the resume.
    """
    rows: Counter[str] = Counter()
    written = _Written()
    for row in found:
        unit, plan = unit_of(row), around.plans.of(row.version)
        if row.copies is None:
            parts.pending.add(unit)
            parts.doubts.add(unit)
        left_ms = _wait_left_ms(unit, plan, around.clock.now_ms())
        decided = decide(_finding(row, unit, plan, left_ms, parts))
        rows[decided.label] += 1
        _carry_out(decided.decision, row, unit, plan, left_ms, written, around, parts)
    if parts.pausing.reason is None:
        await _go_on(written, around, parts)
    else:
        parts.pausing.later(
            lambda: _spawned(around, _go_on(written, around, parts), "take up what was written")
        )
    return rows


def _finding(row: PendingUnit, unit: Unit, plan: Plan, left_ms: float, parts: Parts) -> Finding:
    return Finding(
        written=unit.cursor == VERIFY,
        settled_by_write=plan.settled_by_write,
        wait_left=left_ms > 0,
        held=row.held is not None and parts.pausing.reason is not None,
        escalated=row.state == ESCALATED,
        parks=plan.parks,
        window=unit.deadline_at is not None and not unit.acked,
        split=row.copies is not None,
    )


def _carry_out(
    decision: Decision,
    row: PendingUnit,
    unit: Unit,
    plan: Plan,
    left_ms: float,
    written: _Written,
    around: Surroundings,
    parts: Parts,
) -> None:
    # How long the step took is counted from here: the earlier run's clock is gone.
    unit.entered = around.clock.monotonic()
    match decision:
        case Decision.RUN:
            parts.executor.enqueue(unit)
        case Decision.WAIT:
            # Its slot stays its own, as before the restart (edge 106).
            parts.executor.hold()
            around.timers.after(left_ms / 1000.0, parts.executor.resume, unit)
        case Decision.DELIVER:
            written.delivered.append((unit.id, plan.check))
        case Decision.VERIFY:
            parts.executor.keep_slot(unit, plan)
            written.unseen.append((unit, plan, row.result or b"null"))
        case Decision.PARK:
            parts.acks.park(unit)
        case Decision.CONFIRM:
            written.without_window.append(unit)
        case Decision.HOLD:
            result = row.result or b"null"
            parts.endings.hold(unit, lambda: _begin_anew(unit, plan, result, around, parts))
        case Decision.LEAVE:
            parts.endings.set_aside(unit)
        case Decision.SPLIT:
            assert row.copies is not None, unit.id
            parts.pending.add_split(split_of(unit, row.copies))
        case _:
            assert_never(decision)


async def _go_on(written: _Written, around: Surroundings, parts: Parts) -> None:
    parts.acks.open(written.without_window)
    for unit, plan, result in written.unseen:
        await _verify_again(unit, plan, result, around, parts)
    if written.delivered:
        at = around.clock.now_ms()
        await around.journal.commit(
            *(Delivered(one, None, at, check=check) for one, check in written.delivered)
        )
        settled = (one for one, _ in written.delivered)
        parts.pending.settled(settled, Settlement("delivered"))


def _begin_anew(unit: Unit, plan: Plan, result: bytes, around: Surroundings, parts: Parts) -> None:
    """The step of a unit that was held: a check is asked again, everything else runs again."""
    if unit.cursor == VERIFY and plan.parks:
        parts.acks.open([unit])
    elif unit.cursor == VERIFY:
        parts.executor.keep_slot(unit, plan)
        _spawned(around, _verify_again(unit, plan, result, around, parts), f"verify {unit.id}")
    else:
        parts.executor.enqueue(unit)


def _spawned(around: Surroundings, work: Coroutine[Any, Any, None], name: str) -> None:
    around.timers.spawn(work, name=name)


def _wait_left_ms(unit: Unit, plan: Plan, now_ms: int) -> float:
    """What is left of its wait: no more than its policy can ask for, whatever the clock did."""
    if unit.retry_at is None or unit.cursor in (BATCH, VERIFY):
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
        parts.verifications.refuse(
            unit,
            plan,
            result,
            describe(error),
            lambda: _spawned(
                around, _verify_again(unit, plan, result, around, parts), f"verify {unit.id}"
            ),
        )
        return
    try:
        # A crash may have left a hot journal beside the database; a read-only checker
        # cannot roll it back.
        await around.output_of(plan).recover(settings)
    except ConnectorError as error:
        around.context.log("warning", "the destination was not looked at", error=error.message)
    parts.verifications.add(unit, plan, settings, result)
