"""Plain fast counts, and their rendering for Prometheus.

A process observes into `Histogram` objects of its own and keeps no global registry;
at a scrape it hands the families to `render`, which alone imports prometheus_client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds: from a tenth of a millisecond to a minute.
SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)


class Histogram:
    """Counts of observations below each bound; `counts[i]` is not cumulative, the last is +Inf."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def snapshot(self) -> HistogramSample:
        """The cumulative counts as they are now."""
        total = 0
        cumulative: list[int] = []
        for count in self.counts:
            total += count
            cumulative.append(total)
        return HistogramSample(self.bounds, tuple(cumulative[:-1]), total, self.sum)


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """`counts` are cumulative, one for each bound; +Inf is `count`."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    count: int
    sum: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One series: its labels and what it is at."""

    value: float | HistogramSample
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name; a counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[Sample]


def render(families: Iterable[Family]) -> bytes:
    """The text that Prometheus scrapes; families without a series are left out."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.metrics_core import Metric

    class Collected:
        def collect(self) -> Iterable[Metric]:
            for family in families:
                if family.samples:
                    metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
                    for name, labels, value in _lines(family):
                        metric.add_sample(name, dict(labels), value)
                    yield metric

    return generate_latest(Collected())


def _lines(family: Family) -> Iterable[tuple[str, Mapping[str, str], float]]:
    for sample in family.samples:
        match sample.value:
            case HistogramSample() as seen:
                counts = zip(
                    (*map(str, map(float, seen.bounds)), "+Inf"),
                    (*seen.counts, seen.count),
                    strict=True,
                )
                for bound, count in counts:
                    yield f"{family.name}_bucket", {**sample.labels, "le": bound}, count
                yield f"{family.name}_count", sample.labels, seen.count
                yield f"{family.name}_sum", sample.labels, seen.sum
            case value:
                yield family.name, sample.labels, value
