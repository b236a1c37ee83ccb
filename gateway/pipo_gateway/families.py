"""The metric families of design §9: their kinds and help texts.

Names and labels come from here or from a pipeline's own code, never from data: no
label holds an id, a path, a port or an error text (R45).
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

FAMILIES: dict[str, tuple[Kind, str]] = {
    "pipo_packets_accepted_total": ("counter", "Packets accepted; each is on disk."),
    "pipo_packets_delivered_total": ("counter", "Deliveries seen at the destination."),
    "pipo_packets_filtered_total": ("counter", "Packets that a filter or a route ended."),
    "pipo_packets_rejected_total": ("counter", "Packets that an input's rules rejected."),
    "pipo_packets_dead_lettered_total": ("counter", "Packets set aside after their last error."),
    "pipo_intake_refused_total": ("counter", "Packets not taken in, by reason; nothing was kept."),
    "pipo_packets_pending": ("gauge", "Accepted packets that are not settled."),
    "pipo_packets_escalated": ("gauge", "Packets that wait for somebody to resolve them."),
    "pipo_dead_letters": ("gauge", "Dead letters that wait for a replay or a purge."),
    "pipo_oldest_pending_age_seconds": (
        "gauge",
        "Age of the oldest pending packet; 0 without one.",
    ),
    "pipo_last_delivery_timestamp_seconds": ("gauge", "When a packet was delivered last."),
    "pipo_step_duration_seconds": ("histogram", "Time that a step took."),
    "pipo_delivery_duration_seconds": ("histogram", "Time from acceptance to delivered."),
    "pipo_checks_total": ("counter", "Verdicts of delivery checks."),
    "pipo_check_duration_seconds": ("histogram", "Time from the first look to the verdict."),
    "pipo_journal_commit_duration_seconds": ("histogram", "Time that a commit took."),
    "pipo_journal_group_size": ("histogram", "Changes in one commit."),
    "pipo_pipeline_state": ("gauge", "1 for the state that the pipeline is in, 0 for the others."),
    "pipo_pipeline_jammed": ("gauge", "1 while nothing moves that should."),
    "pipo_checkers_attached": ("gauge", "Checkers attached to the running pipeline."),
    "pipo_gateway_requests_total": ("counter", "Requests to /in, by the class of their answer."),
    "pipo_gateway_requests_in_flight": ("gauge", "Requests to /in that wait for their answer."),
    "pipo_home_free_bytes": ("gauge", "Room on the disk that the journals lie on."),
}

# Counter of the journal → family (design §5, §9).
COUNTED = {
    "total.packet.accepted": "pipo_packets_accepted_total",
    "total.packet.delivered": "pipo_packets_delivered_total",
    "total.packet.filtered": "pipo_packets_filtered_total",
    "total.packet.rejected": "pipo_packets_rejected_total",
    "total.packet.dead_lettered": "pipo_packets_dead_lettered_total",
    "now.escalated": "pipo_packets_escalated",
    "now.dead_lettered": "pipo_dead_letters",
}
CHECKS_PREFIX = "total.check."

# Every state, so that the number of series never depends on what happens (R45).
STATES = (
    "starting",
    "active",
    "paused",
    "jammed",
    "draining",
    "stopping",
    "stopped",
    "completed",
    "failed",
    "crashed",
    "backoff",
    "unreachable",
)
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
