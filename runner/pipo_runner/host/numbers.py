"""The host's own numbers for Prometheus; the pipelines' come from their processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pipo.telemetry.metrics import Family, Sample

STATES = ("starting", "running", "backoff", "stopping", "unreachable")


def families(states: Iterable[str], *, crash_restarts: int, children: int) -> list[Family]:
    """What this host supervises, by state, and what it had to restart."""
    found = Counter(states)
    return [
        Family(
            "pipo_runner_pipelines",
            "gauge",
            "Pipelines under this runner, by state.",
            [Sample(found[state], {"state": state}) for state in STATES],
        ),
        Family(
            "pipo_runner_children",
            "gauge",
            "Pipeline processes that this runner started itself.",
            [Sample(children)],
        ),
        Family(
            "pipo_runner_crash_restarts_total",
            "counter",
            "Restarts after crashes since this runner began.",
            [Sample(crash_restarts)],
        ),
    ]
