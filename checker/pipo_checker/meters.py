"""What the checker counts: plain numbers, and their Prometheus families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sized

from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo.telemetry.metrics import Family, Histogram, Sample

_OUTCOMES = {
    Verdict.OUTCOME_PASSED: "passed",
    Verdict.OUTCOME_FAILED: "failed",
    Verdict.OUTCOME_REFUSED: "refused",
}


class Meters:
    """The counts of one pipeline's verifications.

    Verdicts are counted as the checker gives them; what the pipeline made of them is in
    its journal's own counters (`pipo_checks_total`).
    """

    def __init__(self) -> None:
        self.looks = 0
        self.look_units = 0
        self.look_seconds = Histogram()
        self.verdicts: Counter[int] = Counter()
        self.attached = False
        self.held: Sized = ()

    def looked(self, unit_count: int, seconds: float) -> None:
        """One look at one place is over; it served `unit_count` verifications."""
        self.looks += 1
        self.look_units += unit_count
        self.look_seconds.observe(seconds)

    def concluded(self, outcome: Verdict.Outcome.ValueType) -> None:
        self.verdicts[outcome] += 1


def families(meters: dict[str, Meters]) -> list[Family]:
    """The families of every pipeline that is followed now; the label is its name."""

    def each(value: Callable[[Meters], float]) -> list[Sample]:
        return [Sample(value(m), {"pipeline": name}) for name, m in meters.items()]

    return [
        Family(
            "pipo_checker_looks_total",
            "counter",
            "Looks at a place; one look serves many packets.",
            each(lambda m: m.looks),
        ),
        Family(
            "pipo_checker_look_units_total",
            "counter",
            "Packets that were looked for, each as often as it was looked for.",
            each(lambda m: m.look_units),
        ),
        Family(
            "pipo_checker_look_duration_seconds",
            "histogram",
            "How long one look took.",
            [Sample(m.look_seconds.snapshot(), {"pipeline": n}) for n, m in meters.items()],
        ),
        Family(
            "pipo_checker_verdicts_total",
            "counter",
            "Verdicts given; the pipeline's journal says which it took.",
            [
                Sample(m.verdicts[outcome], {"pipeline": name, "verdict": word})
                for name, m in meters.items()
                for outcome, word in _OUTCOMES.items()
            ],
        ),
        Family(
            "pipo_checker_verifications_held",
            "gauge",
            "Verifications without a verdict in this checker.",
            each(lambda m: len(m.held)),
        ),
        Family(
            "pipo_checker_streams_attached",
            "gauge",
            "Pipelines that this checker is attached to.",
            [Sample(sum(m.attached for m in meters.values()))],
        ),
    ]
