"""The variable `stats`: what a pipeline has done so far, for status, messages and conditions.

Counts come from the journal's counters, so they survive restarts; `uptime` and `in_per_min`
are this run's (L013, L014, decision 36).
"""

from __future__ import annotations

from typing import Final, Protocol

from pipo.clock import Clock
from pipo.rpc import to_proto
from pipo.rpc.stubs import pipo_pb2
from pipo_runner.pipeline.rates import MinuteRate

# What a template or a condition sees (facts 5.1).
NAMES: Final = (
    "accepted",
    "delivered",
    "pending",
    "escalated",
    "dead_lettered",
    "uptime",
    "in_per_min",
)


class Journal(Protocol):
    counters: dict[str, int]


class Statistics:
    """The numbers of one run. `last_delivery_at` is what the journal says when it begins."""

    def __init__(self, journal: Journal, rate: MinuteRate, clock: Clock) -> None:
        self._journal = journal
        self._rate = rate
        self._clock = clock
        self._began = clock.monotonic()
        self.last_delivery_at: int | None = None
        """When a packet was delivered last, wall time; None for never."""

    def message(self) -> pipo_pb2.Stats:
        """The numbers as `pipo status` shows them, without the oldest packet."""
        stats = to_proto.stats(self._journal.counters)
        stats.uptime = int(self._clock.monotonic() - self._began)
        stats.in_per_min = self._rate.total(self._clock.now_ms())
        if self.last_delivery_at is not None:
            stats.last_delivery_at = self.last_delivery_at
        return stats

    def scope(self) -> dict[str, int | None]:
        """The variable `stats` of an expression or a template; `uptime` is whole seconds."""
        stats = self.message()
        seen: dict[str, int | None] = {name: getattr(stats, name) for name in NAMES}
        return seen | {"last_delivery_at": self.last_delivery_at}
