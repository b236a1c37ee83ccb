"""The variable `stats`: what a pipeline has done so far, for status, messages and conditions.

Counts come from the journal's counters, so they survive restarts; `uptime` is this run's (L013,
L014, decision 36). What was accepted in the last minute is counted here, from what the journal
says of the minute before the run.
"""

from __future__ import annotations

from typing import Final, Protocol

from pipo.clock import Clock
from pipo.journal import reads
from pipo.rpc import to_proto
from pipo.rpc.stubs import pipo_pb2
from pipo_runner.pipeline.flow.rates import WINDOW_S, MinuteRate

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
    rows: reads.Rows


class Statistics:
    """The numbers of one run; `recall` brings what happened before it."""

    def __init__(self, journal: Journal, rate: MinuteRate, clock: Clock) -> None:
        self._journal = journal
        self._rate = rate
        self._clock = clock
        self._began = clock.monotonic()
        self.last_delivery_at: int | None = None
        """When a packet was delivered last, wall time; None for never."""

    async def recall(self) -> None:
        """What the journal says of the minute before this run, and of the last delivery."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        accepted = await reads.accepted_since(self._journal.rows, now_ms - WINDOW_S * 1000)
        for second, count in accepted.items():
            # What was stamped by a clock that was set back since is of no known moment.
            if 0 <= (age_s := now_ms / 1000 - second) < WINDOW_S:
                self._rate.add(count, now_s - age_s)
        self.last_delivery_at = await reads.last_delivery_at(self._journal.rows)

    def message(self) -> pipo_pb2.Stats:
        """The numbers as `pipo status` shows them, without the oldest packet."""
        stats = to_proto.stats(self._journal.counters)
        stats.uptime = int(self._clock.monotonic() - self._began)
        stats.in_per_min = self._rate.total(self._clock.monotonic())
        if self.last_delivery_at is not None:
            stats.last_delivery_at = self.last_delivery_at
        return stats

    def scope(self) -> dict[str, int | None]:
        """The variable `stats` of an expression or a template; `uptime` is whole seconds."""
        stats = self.message()
        seen: dict[str, int | None] = {name: getattr(stats, name) for name in NAMES}
        return seen | {"last_delivery_at": self.last_delivery_at}
