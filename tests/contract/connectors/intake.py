"""An intake for tests of inputs: it takes, rejects, refuses and settles as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipo.clock import Clock, SystemClock
from pipo.connectors.contract import (
    Accepted,
    Arrival,
    InputContext,
    RefusedArrival,
    RejectedArrival,
    Settlement,
    Taken,
)


class FakeIntake:
    """`judge` says what becomes of an arrival; packets are called p1, p2, …"""

    def __init__(self, judge: Callable[[Arrival], str] = lambda arrival: "accept") -> None:
        self.judge = judge
        self.arrivals: list[Arrival] = []
        self.ends: dict[str, Settlement] = {}
        self.waits: list[tuple[str, float]] = []
        self.hold: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.failure: Exception | None = None
        self.states: dict[str, dict[str, str]] = {}
        """Each input's durable state."""
        self.remembered = 0

    @property
    def data(self) -> list[Any]:
        return [arrival.data for arrival in self.arrivals]

    async def take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
        self.reached.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.failure is not None:
            raise self.failure
        return [self._one(arrival) for arrival in arrivals]

    def _one(self, arrival: Arrival) -> Taken:
        verdict = self.judge(arrival)
        if verdict == "refuse":
            return RefusedArrival("buffer full (2 packets pending)", "raise `buffer.max`")
        self.arrivals.append(arrival)
        self._move(arrival.input, arrival.state)
        name = f"p{len(self.arrivals)}"
        return Accepted(name) if verdict == "accept" else RejectedArrival(name, "too young", "age")

    async def settled(self, packet_id: str, timeout_s: float) -> Settlement:
        self.waits.append((packet_id, timeout_s))
        if packet_id not in self.ends:
            await asyncio.sleep(timeout_s)
        return self.ends.get(packet_id, Settlement("processing"))

    async def state(self, input_name: str) -> Mapping[str, str]:
        return dict(self.states.get(input_name, {}))

    async def remember(self, input_name: str, state: Mapping[str, str | None]) -> None:
        self.remembered += 1
        self._move(input_name, state)

    def _move(self, input_name: str, state: Mapping[str, str | None]) -> None:
        held = self.states.setdefault(input_name, {})
        for key, value in state.items():
            if value is None:
                held.pop(key, None)
            else:
                held[key] = value


def input_context(
    intake: FakeIntake,
    *,
    clock: Clock | None = None,
    log: Callable[..., None] = lambda *a, **k: None,
    packet_limit: int = 1000,
    **more: Any,
) -> InputContext:
    return InputContext(
        pipeline="p",
        folder=Path(),
        clock=clock or SystemClock(),
        log=log,
        packet_limit=packet_limit,
        intake=intake,
        **more,
    )
