"""system: samples of the machine."""

from __future__ import annotations

from pipo.connectors.contract import Manifest, Role
from pipo.connectors.schema import choices, closed, duration

METRICS = ("cpu", "memory", "disk", "battery", "network")

MANIFEST = Manifest(
    name="system",
    summary="Samples the machine: processor, memory, disk, battery, network.",
    input=Role(
        closed(
            required=("every",),
            every=duration("The time between two samples, from the start.", least="1ms"),
            metrics=choices("What a sample holds.", *METRICS, default=list(METRICS)),
        )
    ),
)
