"""The loop of every input that lives by the clock: wait, tick, arm the next.

A tick is armed only once the one before was answered, so that ticks never overlap
(edge 44); what fell due meanwhile is missed, and told in one warning (edge 42).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pipo.connectors.contract import Arrival, InputContext, RefusedArrival, RejectedArrival
from pipo.connectors.schedule.timetable import Timetable

# A jump of the wall clock is noticed within this time; an idle process has no busier timer.
SLEEP_MAX_S = 30.0

Pause = Callable[[asyncio.Event, float], Awaitable[bool]]


class Ticker(Protocol):
    """One input that ticks."""

    @property
    def name(self) -> str: ...

    def timetable(self) -> Timetable:
        """Its ticks from now on."""

    async def tick(self, due_ms: int) -> None:
        """One tick, once what came of it is answered. Never raises for a packet's reasons."""


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Whether `stop` is set, waiting up to `seconds` for it."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True


class Ticks:
    """All tickers of one kind in a pipeline; each has a task of its own (contract.Input)."""

    def __init__(
        self, tickers: Sequence[Ticker], context: InputContext, *, pause: Pause = stopped_within
    ) -> None:
        self._tickers = tickers
        self._context = context
        self._pause = pause
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts the clocks: `every` counts from here."""
        if self._running is None:
            self._running = asyncio.create_task(self._run_all(), name="ticks")

    async def close(self) -> None:
        """Returns when no tick is being taken any more (edge 51)."""
        self._stop.set()
        running, self._running = self._running, None
        if running is not None:
            await running

    async def _run_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for ticker in self._tickers:
                group.create_task(self._run(ticker), name=f"ticks of {ticker.name}")

    async def _run(self, ticker: Ticker) -> None:
        timetable = ticker.timetable()
        while not self._stop.is_set():
            left = timetable.wait_s()
            if left > 0:
                await self._pause(self._stop, min(left, SLEEP_MAX_S))
                continue
            await ticker.tick(timetable.due_ms())
            missed = timetable.advance()
            if missed:
                self._context.log(
                    "warn",
                    "ticks missed: the one before took longer, or the process stood still",
                    action="ticks_missed",
                    input=ticker.name,
                    missed=missed,
                )


async def offer(context: InputContext, arrival: Arrival, due: str) -> None:
    """Takes the packet of a tick; one that is not taken is logged and dropped (edge 45)."""

    def log(level: str, message: str, action: str, reason: str) -> None:
        context.log(level, message, action=action, input=arrival.input, due=due, reason=reason)

    try:
        (taken,) = await context.intake.take([arrival])
    except Exception as error:
        log("error", "tick lost", "tick_lost", str(error))
        return
    if isinstance(taken, RefusedArrival):
        log("warn", "tick skipped", "tick_skipped", taken.message)
    elif isinstance(taken, RejectedArrival):
        log("warn", "tick rejected", "tick_rejected", taken.message)
