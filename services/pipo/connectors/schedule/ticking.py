"""The loop of every input that lives by the clock: wait, tick, arm the next.

A tick is armed only once the one before was answered, so that ticks never overlap
(edge 44); what fell due meanwhile is missed, and told in one warning (edge 42). What happens at
nearly every tick of a fast input is told at once, and then counted: a line a minute says it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipo.connectors.contract import Arrival, InputContext, RefusedArrival, RejectedArrival
from pipo.connectors.schedule.timetable import Timetable

# A jump of the wall clock is noticed within this time; an idle process has no busier timer.
SLEEP_MAX_S = 30.0
# The same news of one input comes no more often.
TELL_EVERY_S = 60.0

Pause = Callable[[asyncio.Event, float], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Untaken:
    """A tick that made no packet, and why."""

    level: str
    message: str
    action: str
    reason: str
    due: str


class Ticker(Protocol):
    """One input that ticks."""

    @property
    def name(self) -> str: ...

    def timetable(self) -> Timetable:
        """Its ticks from now on."""

    async def tick(self, due_ms: int) -> Untaken | None:
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
        timetable, news = ticker.timetable(), _News(ticker.name, self._context)
        while not self._stop.is_set():
            left = timetable.wait_s()
            if left > 0:
                await self._pause(self._stop, min(left, SLEEP_MAX_S))
                continue
            untaken = await ticker.tick(timetable.due_ms())
            if untaken is not None:
                news.untaken(untaken)
            news.missed(timetable.advance())
        news.close()


class _News:
    """What is told of the ticks of one input that made no packet."""

    def __init__(self, name: str, context: InputContext) -> None:
        self._name = name
        self._context = context
        # By action: when it was told last, and what was counted since, with the first of them.
        self._told_at: dict[str, float] = {}
        self._left: dict[str, tuple[int, Untaken | None]] = {}

    def untaken(self, tick: Untaken) -> None:
        self._count(tick.action, 1, tick)

    def missed(self, count: int) -> None:
        if count:
            self._count("ticks_missed", count, None)

    def close(self) -> None:
        """What was counted and not told yet is told now."""
        for action in list(self._left):
            self._tell(action)

    def _count(self, action: str, count: int, tick: Untaken | None) -> None:
        before, first = self._left.get(action, (0, tick))
        self._left[action] = before + count, first
        told_at, now = self._told_at.get(action), self._context.clock.monotonic()
        if told_at is None or now - told_at >= TELL_EVERY_S:
            self._told_at[action] = now
            self._tell(action)

    def _tell(self, action: str) -> None:
        count, first = self._left.pop(action)
        if first is None:
            self._context.log(
                "warn",
                "ticks missed: the one before took longer, or the process stood still",
                action=action,
                input=self._name,
                missed=count,
            )
            return
        # Of several, the first one's time and reason.
        self._context.log(
            first.level,
            first.message,
            action=action,
            input=self._name,
            due=first.due,
            reason=first.reason,
            ticks=count,
        )


async def offer(context: InputContext, arrival: Arrival, due: str) -> Untaken | None:
    """Takes the packet of a tick; one that is not taken is dropped, and told of (edge 45)."""
    try:
        (taken,) = await context.intake.take([arrival])
    except Exception as error:
        return Untaken("error", "tick lost", "tick_lost", str(error), due)
    if isinstance(taken, RefusedArrival):
        return Untaken("warn", "tick skipped", "tick_skipped", taken.message, due)
    if isinstance(taken, RejectedArrival):
        return Untaken("warn", "tick rejected", "tick_rejected", taken.message, due)
    return None
