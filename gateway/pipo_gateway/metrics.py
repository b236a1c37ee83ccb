"""`/metrics`: every pipeline of the home, running or not, and this gateway.

What is counted comes from the journal, so that a restart resets nothing; what only
a process knows (histograms, attached checkers) from the process, all pipelines in
parallel, each within two seconds. A pipeline that is too slow is missing what it
alone knows, never the page.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pipo.access.stopped import Numbers
from pipo.clock import Clock
from pipo.errors import PipoError
from pipo.journal.changes import PENDING
from pipo.rpc.stubs import pipeline_pb2
from pipo.telemetry.logs import logger
from pipo.telemetry.metrics import Family, HistogramSample, Sample, render
from pipo_gateway.families import CHECKS_PREFIX, COUNTED, FAMILIES, STATES, STATUS_CLASSES, Kind

PARALLEL_MAX = 16
NUMBERS_TIMEOUT_S = 2.0
STATE = "pipo_pipeline_state"
JAMMED = "pipo_pipeline_jammed"

_log = logger("gateway.metrics")


class Directory(Protocol):
    """What metrics ask of `pipo.home.directory`."""

    def names(self) -> list[str]: ...


class Pipelines(Protocol):
    """What metrics ask of `pipo.access.Access`."""

    @property
    def directory(self) -> Directory: ...

    async def metrics(self, name: str) -> pipeline_pb2.MetricsReply | None: ...

    async def numbers(self, name: str) -> Numbers: ...

    async def silent_state(self, name: str) -> str: ...

    def room_left(self) -> int: ...


@dataclass(slots=True)
class Traffic:
    """What this gateway counts itself; plain numbers, for the hot path."""

    answered: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(1, 10), 0))
    in_flight: int = 0


class Metrics:
    """Renders the page."""

    def __init__(self, pipelines: Pipelines, traffic: Traffic, clock: Clock) -> None:
        self._pipelines = pipelines
        self._traffic = traffic
        self._clock = clock
        # Why something is missing from the page, by pipeline; of the home's disk under "".
        self._missing: dict[str, str] = {}

    async def text(self, sees: Callable[[str], bool]) -> bytes:
        """The Prometheus text of the pipelines that the reader may see."""
        known = self._pipelines.directory.names()
        for gone in self._missing.keys() - {*known, ""}:
            del self._missing[gone]
        names = [name for name in known if sees(name)]
        places = asyncio.Semaphore(PARALLEL_MAX)

        async def one(name: str) -> list[Series]:
            async with places:
                return await self._of(name)

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(one(n), name=f"metrics of {n}") for n in names]
        found = [series for task in asked for series in task.result()]
        return render(_families([*found, *_of_gateway(self._traffic), *self._of_home()]))

    async def _of(self, name: str) -> list[Series]:
        reply, numbers = await asyncio.gather(self._pipelines.metrics(name), self._numbers(name))
        own = [] if reply is None else _of_process(name, reply)
        made = numbers if isinstance(numbers, Numbers) else None
        return [
            *own,
            *([] if made is None else _of_journal(name, made, self._clock.now_ms())),
            *_of_state(name, _status(reply) or await self._silent_state(name, numbers)),
            Series(JAMMED, {"pipeline": name}, float(_jammed(reply))),
        ]

    def _of_home(self) -> list[Series]:
        try:
            made = [Series("pipo_home_free_bytes", {}, self._pipelines.room_left())]
        except OSError as error:
            if self._is_news("", str(error)):
                _log.warning(
                    "the home's disk says nothing", action="metrics.home", reason=str(error)
                )
            return []
        if self._is_news("", ""):
            _log.info("the home's disk is read again", action="metrics.home")
        return made

    async def _silent_state(self, name: str, numbers: Numbers | PipoError | None) -> str:
        """As `pipo status` has it, which calls one failed whose journal cannot be read."""
        if isinstance(numbers, PipoError):
            return "failed"
        try:
            return await self._pipelines.silent_state(name)
        except PipoError:
            return "failed"

    async def _numbers(self, name: str) -> Numbers | PipoError | None:
        """None when the journal is too slow, the error when it cannot be read."""
        try:
            async with asyncio.timeout(NUMBERS_TIMEOUT_S):
                made = await self._pipelines.numbers(name)
        except (TimeoutError, PipoError) as error:
            reason = str(error) or f"its journal is not read within {NUMBERS_TIMEOUT_S:g} s"
            if self._is_news(name, reason):
                _log.warning(
                    "numbers missing", action="metrics.missing", pipeline=name, reason=reason
                )
            return error if isinstance(error, PipoError) else None
        if self._is_news(name, ""):
            _log.info("numbers are back", action="metrics.back", pipeline=name)
        return made

    def _is_news(self, name: str, reason: str) -> bool:
        """Whether the log has not heard it yet: a scrape comes every few seconds. "" is all well."""
        before = self._missing.pop(name, "")
        if reason:
            self._missing[name] = reason
        return reason != before


@dataclass(frozen=True, slots=True)
class Series:
    """One series under its family's name."""

    name: str
    labels: Mapping[str, str]
    value: float | HistogramSample


def _of_process(pipeline: str, reply: pipeline_pb2.MetricsReply) -> list[Series]:
    return [
        Series(s.name, {"pipeline": pipeline, **s.labels}, _value(s))
        for s in reply.series
        if s.name not in (STATE, JAMMED)
    ]


def _value(series: pipeline_pb2.MetricSeries) -> float | HistogramSample:
    if not series.HasField("histogram"):
        return series.value
    seen = series.histogram
    return HistogramSample(tuple(seen.bounds), tuple(seen.counts), seen.count, seen.sum)


def _of_journal(pipeline: str, numbers: Numbers, now_ms: int) -> list[Series]:
    own = {"pipeline": pipeline}
    counters = numbers.counters
    made = [Series(family, own, counters.get(name, 0)) for name, family in COUNTED.items()]
    pending = sum(counters.get(f"now.{state}", 0) for state in PENDING)
    oldest = numbers.oldest_received_at
    age_s = 0.0 if oldest is None else max(0, now_ms - oldest) / 1000
    made.append(Series("pipo_packets_pending", own, pending))
    made.append(Series("pipo_oldest_pending_age_seconds", own, age_s))
    if numbers.last_delivery_at is not None:
        at_s = numbers.last_delivery_at / 1000
        made.append(Series("pipo_last_delivery_timestamp_seconds", own, at_s))
    for name, count in counters.items():
        if name.startswith(CHECKS_PREFIX):
            check, _, verdict = name[len(CHECKS_PREFIX) :].rpartition(".")
            labels = {**own, "check": check, "verdict": verdict}
            made.append(Series("pipo_checks_total", labels, count))
    return made


def _of_state(pipeline: str, state: str) -> list[Series]:
    return [
        Series(STATE, {"pipeline": pipeline, "state": one}, float(one == state)) for one in STATES
    ]


def _status(reply: pipeline_pb2.MetricsReply | None) -> str | None:
    """The state that a process says it is in."""
    series = () if reply is None else reply.series
    for one in series:
        if one.name == STATE and one.value:
            return one.labels["state"]
    return None if reply is None else "active"


def _jammed(reply: pipeline_pb2.MetricsReply | None) -> bool:
    """Whether a process says that nothing moves; it may be paused besides (edge 234)."""
    series = () if reply is None else reply.series
    return any(one.name == JAMMED and one.value for one in series)


def _of_gateway(traffic: Traffic) -> list[Series]:
    made = [
        Series("pipo_gateway_requests_total", {"class": one}, traffic.answered[int(one[0])])
        for one in STATUS_CLASSES
    ]
    return [*made, Series("pipo_gateway_requests_in_flight", {}, traffic.in_flight)]


def _families(series: Iterable[Series]) -> list[Family]:
    """Families in the order of the table, then what a newer process brings, by name."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for one in series:
        samples[one.name].append(Sample(one.value, one.labels))
    unknown = sorted(name for name in samples if name not in FAMILIES)
    return [
        Family(name, *FAMILIES.get(name, (_guess(name, samples[name]), name)), samples[name])
        for name in (*FAMILIES, *unknown)
        if name in samples
    ]


def _guess(name: str, samples: list[Sample]) -> Kind:
    if name.endswith("_total"):
        return "counter"
    return "histogram" if isinstance(samples[0].value, HistogramSample) else "gauge"
