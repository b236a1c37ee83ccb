"""Puts the parts of a pipeline process together; none of them makes another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipo.clock import Clock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import (
    Context,
    Input,
    InputContext,
    InputSpec,
    Output,
    OutputRole,
    Settlement,
)
from pipo.journal import reads, units
from pipo.journal.sqlite_journal import Recovery, SqliteJournal
from pipo.lang.model import Pipeline
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.rendering import Settings
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.definition.versions import Plans
from pipo_runner.pipeline.delivery.acks import Acks
from pipo_runner.pipeline.delivery.downstream import Downstream
from pipo_runner.pipeline.delivery.offers import Offers
from pipo_runner.pipeline.delivery.verification import Verifications
from pipo_runner.pipeline.flow.endings import Endings
from pipo_runner.pipeline.flow.ids import PacketIds
from pipo_runner.pipeline.flow.pausing import Pausing
from pipo_runner.pipeline.flow.rates import MinuteRate
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.statistics import Statistics
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import Unit
from pipo_runner.pipeline.intake.admission import Admission
from pipo_runner.pipeline.intake.body_budget import BodyBudget
from pipo_runner.pipeline.intake.handing import HandOvers
from pipo_runner.pipeline.intake.inbox import Inbox
from pipo_runner.pipeline.intake.intake import PipelineIntake
from pipo_runner.pipeline.intake.pushing import Pushes
from pipo_runner.pipeline.life.lifetime import NO_LIMITS, Lifetime, Limit, Terms
from pipo_runner.pipeline.life.stalling import Stalling
from pipo_runner.pipeline.measures import Measures
from pipo_runner.pipeline.output.batching import Batches
from pipo_runner.pipeline.output.doubts import Doubts
from pipo_runner.pipeline.output.places import Places
from pipo_runner.pipeline.output.preparing import Preparer
from pipo_runner.pipeline.output.results import Results
from pipo_runner.pipeline.output.writing import OutputStage
from pipo_runner.pipeline.steps.executor import Executor

# What restarts the clock of a stall; a dead letter does not (edge 230).
PROGRESS: Final = ("delivered", "filtered")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every part stands on; `context` is the connectors' view of it."""

    journal: SqliteJournal
    scopes: Scopes
    plans: Plans
    output_of: Callable[[Plan], Output]
    timers: Timers
    clock: Clock
    context: Context
    redact: Callable[[str], str]
    load: Callable[[Unit], Awaitable[None]]
    budget: BodyBudget
    terms: Terms = NO_LIMITS
    """How long this run may last."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The moving parts of one pipeline."""

    pending: Pending
    doubts: Doubts
    admission: Admission
    pausing: Pausing
    endings: Endings
    executor: Executor
    batches: Batches
    writing: OutputStage
    offers: Offers
    verifications: Verifications
    acks: Acks
    intake: PipelineIntake
    pushes: Pushes
    hand_overs: HandOvers
    downstream: Downstream
    measures: Measures
    statistics: Statistics
    lifetime: Lifetime
    stalling: Stalling | None
    """None for a pipeline without `delivered.stall`."""


def assemble(pipeline: Pipeline, around: Surroundings, recovery: Recovery) -> Parts:
    """Every part, connected; nothing runs yet."""
    rows = around.journal.rows

    async def settlement(packet_id: str) -> Settlement:
        return Settlement(*await reads.standing_of(rows, packet_id) or ("accepted",))

    async def input_state(input_name: str) -> Mapping[str, str]:
        return await reads.input_state(rows, input_name)

    pending = Pending(settlement)
    doubts = Doubts(pending)
    quota = around.terms.max_packets
    admission = Admission(
        buffer_max=pipeline.buffer_max,
        pending=recovery.packets,
        quota=quota,
        accepted=_accepted(around.journal),
        used_up=Limit("max_packets", str(quota)).refusal(pipeline.name),
    )
    rate = MinuteRate()
    statistics = Statistics(around.journal, rate, around.clock)
    lifetime = Lifetime(
        around.terms,
        accepted=lambda: _accepted(around.journal),
        scope=lambda: around.scopes.lifetime(statistics.scope()),
        journal=around.journal,
        timers=around.timers,
        clock=around.clock,
        redact=around.redact,
        log=around.context.log,
    )
    pausing = Pausing(
        journal=around.journal,
        clock=around.clock,
        log=around.context.log,
        reason=recovery.pause_reason,
    )
    endings = Endings(pending=pending, pausing=pausing)
    common: dict[str, Any] = {
        "journal": around.journal,
        "scopes": around.scopes,
        "pending": pending,
        "endings": endings,
        "timers": around.timers,
        "clock": around.clock,
        "redact": around.redact,
        "log": around.context.log,
    }
    executor = Executor(
        **common,
        plan_of=around.plans.of,
        concurrency=pipeline.concurrency,
        packet_limit=around.context.packet_limit,
        load=around.load,
    )
    offers = Offers(timers=around.timers, clock=around.clock, log=around.context.log)
    verifications = Verifications(
        **common, executor=executor, offers=offers, role_of=_output_role, load=around.load
    )
    offers.on_verdicts = verifications.judge
    acks = Acks(
        **common,
        name=pipeline.name,
        plan_of=around.plans.of,
        paused=lambda: pausing.reason is not None,
        load=around.load,
    )
    results = Results(
        journal=around.journal,
        executor=executor,
        scopes=around.scopes,
        pending=pending,
        doubts=doubts,
        endings=endings,
        clock=around.clock,
        redact=around.redact,
        verify=verifications.add,
        acks=acks,
    )
    writes: dict[str, Any] = {
        "journal": around.journal,
        "executor": executor,
        "preparer": Preparer(output_of=around.output_of, scopes=around.scopes),
        "places": Places(around.context.log),
        "results": results,
        "timers": around.timers,
        "clock": around.clock,
    }
    batches = Batches(**writes, load=around.load)
    writing = OutputStage(**writes, batches=batches, log=around.context.log)
    executor.output = writing
    # A write that has not begun goes back before anybody flushes what is left.
    pausing.on_pause += [executor.pause, offers.pause, writing.give_back, batches.hasten]
    pausing.on_resume += [batches.collect, offers.unpause, acks.unpause, executor.unpause]
    if pausing.reason is not None:
        executor.pause()
        offers.pause()

    def accepted(count: int) -> None:
        rate.add(count, around.clock.monotonic())
        lifetime.moved()

    intake = PipelineIntake(
        journal=around.journal,
        admission=admission,
        pending=pending,
        plan=around.plans.current,
        scopes=around.scopes,
        ids=PacketIds(after=recovery.newest_packet),
        clock=around.clock,
        enqueue=executor.enqueue,
        next_queue_seq=recovery.next_queue_seq,
        packet_limit=around.context.packet_limit,
        redact=around.redact,
        input_state=input_state,
        inbox=Inbox(lambda keys: reads.handed_over(rows, keys)),
        on_accepted=accepted,
    )
    pushes = Pushes(
        name=pipeline.name,
        inputs=pipeline.inputs,
        intake=intake,
        packet_limit=around.context.packet_limit,
        timers=around.timers,
        budget=around.budget,
    )
    hand_overs = HandOvers(
        name=pipeline.name,
        packet_limit=around.context.packet_limit,
        timers=around.timers,
        budget=around.budget,
    )
    downstream = Downstream(
        name=pipeline.name,
        pending=pending,
        standing_of=lambda packet_id: reads.standing_of(rows, packet_id),
        timers=around.timers,
    )
    measures = Measures(around.journal, statistics)
    stalling: Stalling | None = None
    if pipeline.delivered.stall is not None:
        stalling = Stalling(
            pipeline,
            journal=around.journal,
            pending=pending,
            pausing=pausing,
            endings=endings,
            checkers=offers,
            statistics=statistics,
            scopes=around.scopes,
            version=lambda: around.plans.current().version,
            free=lambda: executor.take_queued() + acks.take_parked(),
            recall=lambda unit_id: units.last_error_of(rows, unit_id),
            timers=around.timers,
            clock=around.clock,
            redact=around.redact,
            log=around.context.log,
        )
        pending.on_moving = stalling.moving
        offers.progress = stalling.progress
        offers.on_stall_report = stalling.reported
        pausing.on_pause.append(stalling.paused)
        pausing.on_resume.append(stalling.resumed)

    def landed(group_size: int, seconds: float) -> None:
        measures.committed(group_size, seconds)
        executor.turn()

    around.journal.commit_observer = landed

    def settled(ended: list[Unit], settlement: Settlement) -> None:
        admission.give_back(len(ended))
        if settlement.state == "delivered":
            now, now_ms = around.clock.monotonic(), around.clock.now_ms()
            for unit in ended:
                # An earlier run took it: only the wall clock knows how long ago.
                waited_s = max(0.0, (now_ms - unit.received_at) / 1000.0)
                measures.delivered(now - unit.accepted if unit.accepted else waited_s)
            if ended:
                statistics.last_delivery_at = now_ms
        if stalling is not None and ended and settlement.state in PROGRESS:
            stalling.progressed()
        if ended:
            lifetime.moved()

    pending.on_settled = settled
    return Parts(
        pending=pending,
        doubts=doubts,
        admission=admission,
        pausing=pausing,
        endings=endings,
        executor=executor,
        batches=batches,
        writing=writing,
        offers=offers,
        verifications=verifications,
        acks=acks,
        intake=intake,
        pushes=pushes,
        hand_overs=hand_overs,
        downstream=downstream,
        measures=measures,
        statistics=statistics,
        lifetime=lifetime,
        stalling=stalling,
    )


def _accepted(journal: SqliteJournal) -> int:
    """How many packets were ever accepted: `stats.accepted` (decision 36)."""
    return journal.counters.get("all.accepted", 0)


def build_inputs(pipeline: Pipeline, around: Surroundings, context: InputContext) -> list[Input]:
    """One object for each kind of input, its settings rendered."""
    kinds: dict[str, list[InputSpec]] = {}
    for entry in pipeline.inputs:
        role = connectors.manifests()[entry.via].input
        assert role is not None, entry.via
        settings = Settings(entry.settings, role.schema, context.folder)
        spec = InputSpec(
            entry.name,
            settings.render(around.scopes.inputs()),
            entry.format,
            entry.on_invalid.respond,
        )
        kinds.setdefault(entry.via, []).append(spec)
    return [connectors.build_inputs(via, specs, context) for via, specs in kinds.items()]


def _output_role(plan: Plan) -> OutputRole:
    role = connectors.manifests()[plan.pipeline.output.to].output
    assert role is not None, plan.pipeline.output.to
    return role
