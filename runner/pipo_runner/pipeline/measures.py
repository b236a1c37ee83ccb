"""What this process says about itself: its status, and its numbers for /metrics.

Counts come from the journal's counters, so a restart does not reset them;
histograms are this run's (design §9).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pipo.home.registry import Entry
from pipo.journal import reads, units
from pipo.lang.model import Pipeline
from pipo.rpc import to_proto
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2
from pipo.telemetry.metrics import Histogram
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.flow.statistics import Statistics
from pipo_runner.pipeline.life.lifetime import Lifetime
from pipo_runner.pipeline.resources import Resources

GROUP_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)


class Journal(Protocol):
    counters: dict[str, int]
    rows: reads.Rows

    @property
    def last_seq(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the journal said when its last event was `last_seq`, or a later one."""

    last_seq: int
    plan: Plan
    awaiting_ack: int
    oldest: reads.OldestPending | None
    latency: list[reads.NodeLatency]


class Measures:
    """The numbers of one pipeline process."""

    def __init__(self, journal: Journal, statistics: Statistics) -> None:
        self._journal = journal
        self._statistics = statistics
        self._resources = Resources(os.getpid())
        self._seen: _Seen | None = None
        self.commit_s = Histogram()
        self.group_size = Histogram(GROUP_SIZES)
        self.delivery_s = Histogram()

    def committed(self, group_size: int, seconds: float) -> None:
        """One commit of the journal."""
        self.commit_s.observe(seconds)
        self.group_size.observe(group_size)

    def delivered(self, seconds: float) -> None:
        """One packet, from acceptance to delivered."""
        self.delivery_s.observe(seconds)

    async def info(
        self,
        entry: Entry,
        *,
        plan: Plan,
        checkers: int,
        verifying: int,
        now_ms: int,
        routes: Mapping[str, str],
        paused_reason: str | None,
        held: int,
        stalled_at: str | None,
        lifetime: Lifetime,
    ) -> pipo_pb2.PipelineInfo:
        """The pipeline as `pipo status` shows it."""
        stats = self._statistics.message()
        seen = await self._of_journal(plan)
        awaiting_ack, oldest, latency = seen.awaiting_ack, seen.oldest, seen.latency
        if oldest is not None:
            stats.oldest_pending_received_at = oldest.received_at
            stats.oldest_pending_ms = max(0, now_ms - oldest.received_at)
        notes = []
        if paused_reason is not None:
            notes.append(_paused(entry.pipeline, paused_reason, held))
        if stalled_at is not None:
            notes.append(f"stalled at '{stalled_at}'")
        if lifetime.reached is not None:
            notes.append(f"its lifetime is over: {lifetime.reached}")
        if verifying and not checkers:
            notes.append(f"no checker attached; {verifying} written packet(s) wait for one")
        return pipo_pb2.PipelineInfo(
            name=entry.pipeline,
            file=entry.file,
            state=entry.state,
            status=entry.status,
            pid=entry.pid,
            host=entry.host,
            version=entry.version,
            listen=entry.listen,
            detached=entry.detached,
            ttl=entry.ttl,
            lifetime=_shown(lifetime, now_ms),
            started_at=entry.started_at,
            restarts=entry.restarts,
            runner=entry.runner,
            stats=stats,
            checkers=checkers,
            notes=notes,
            latency=[to_proto.message(pipo_pb2.NodeLatency, one) for one in latency],
            inputs=[
                pipo_pb2.InputInfo(
                    name=one.name,
                    via=one.via,
                    address=_public(entry.pipeline, routes.get(one.name, "")),
                    format=one.format,
                    auth="auth" in one.settings,
                )
                for one in plan.pipeline.inputs
            ],
            last_seq=self._journal.last_seq,
            paused_reason=paused_reason,
            held=held,
            awaiting_ack=awaiting_ack,
            chain=_chain(plan.pipeline),
            resources=self._resources.message(),
        )

    async def _of_journal(self, plan: Plan) -> _Seen:
        """What only the journal knows; read again once something has happened."""
        last_seq, kept = self._journal.last_seq, self._seen
        if kept is not None and kept.last_seq == last_seq and kept.plan is plan:
            return kept
        rows = self._journal.rows
        nodes = [node.id for node in plan.pipeline.nodes] + ["$output"]
        self._seen = _Seen(
            last_seq=last_seq,
            plan=plan,
            awaiting_ack=await units.awaiting_ack(rows),
            oldest=await reads.oldest_pending(rows),
            latency=await reads.latency(rows, nodes),
        )
        return self._seen

    def series(
        self, *, status: str, jammed: bool, checkers: int, refused: Counter[tuple[str, str]]
    ) -> list[pipeline_pb2.MetricSeries]:
        """Everything for /metrics that only this process knows (design §9).

        What the journal counts is read from its counters by the gateway's one mapping.
        """
        made = [
            _value("pipo_checkers_attached", checkers),
            _value("pipo_pipeline_state", 1, state=status),
            _value("pipo_pipeline_jammed", jammed),
            _histogram("pipo_journal_commit_duration_seconds", self.commit_s),
            _histogram("pipo_journal_group_size", self.group_size),
            _histogram("pipo_delivery_duration_seconds", self.delivery_s),
        ]
        made += [
            _value("pipo_intake_refused_total", count, input=name, reason=reason)
            for (name, reason), count in sorted(refused.items())
        ]
        return made


def _chain(pipeline: Pipeline) -> pipo_pb2.Chain:
    """The pipelines at its ends."""
    output = pipeline.output
    taken = ((one.via, one.settings) for one in pipeline.inputs)
    return to_proto.chain(output.to, output.settings, taken)


def _shown(lifetime: Lifetime, now_ms: int) -> pipo_pb2.Lifetime | None:
    """Its limits; the end of a ttl moves with the wall clock, what is left of it does not."""
    terms, left_ms = lifetime.terms, lifetime.left_ms
    if not terms.limits:
        return None
    made = pipo_pb2.Lifetime(max_packets=terms.max_packets)
    if left_ms is not None:
        made.ttl, made.ends_at, made.remaining_ms = terms.ttl, now_ms + left_ms, left_ms
    if terms.until is not None:
        made.until = terms.until.text.strip()
    if lifetime.reached is not None:
        made.reached = lifetime.reached.reason
    return made


def _paused(pipeline: str, reason: str, held: int) -> str:
    """What a person needs to know of a pause."""
    packets = f"; {held} packet(s) held" if held else ""
    return f"paused: {reason}{packets}; it goes on with: pipo resume {pipeline}"


def _public(pipeline: str, route: str) -> str:
    """`POST /in/signups/a` for the route `POST /a`; empty for an input without one."""
    method, _, path = route.partition(" ")
    return f"{method} /in/{pipeline}{path.rstrip('/')}" if path else ""


def _value(name: str, value: float, **labels: str) -> pipeline_pb2.MetricSeries:
    return pipeline_pb2.MetricSeries(name=name, labels=labels, value=value)


def _histogram(name: str, seen: Histogram) -> pipeline_pb2.MetricSeries:
    sample = seen.snapshot()
    return pipeline_pb2.MetricSeries(
        name=name,
        histogram=pipeline_pb2.MetricHistogram(
            bounds=sample.bounds, counts=sample.counts, count=sample.count, sum=sample.sum
        ),
    )
