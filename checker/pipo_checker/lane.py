"""One place at a destination: what waits for a look there, and the one look at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

from pipo.connectors.contract import CheckError, Checks, Seen, Target
from pipo_checker.held import Held
from pipo_checker.mishaps import Mishaps

# What a connector allows a request (5 s), with room for its own bookkeeping.
LOOK_TIMEOUT_S = 7.0
# The time of a look is counted in so many parts, each once however long it lasted: a look that
# was frozen with its process (a busy host, a suspended machine) has not hung at its destination.
LOOK_TIMEOUT_PARTS = 14
CANCEL_GRACE_S = 1.0
# A look takes as many units as lately fitted well into its time: from the first number,
# doubled after a quick look and halved after a slow one (an author's query may take long).
GROUP_UNITS_FIRST = 32
GROUP_UNITS_MAX = 512
SLOW_S = 1.0
QUICK_S = 0.25


class Lane:
    """Held verifications of one place, by when they are due."""

    def __init__(self, place: str, checks: Checks, mishaps: Mishaps) -> None:
        self.place = place
        self.slow = False
        """Whether the last look took long; such places share slots of their own."""
        self._group_max = GROUP_UNITS_FIRST
        self._checks = checks
        self._mishaps = mishaps
        self._due: list[tuple[float, int, Held]] = []
        self._order = count()
        self._added = asyncio.Event()
        self._look: asyncio.Task[list[Seen | CheckError]] | None = None

    def add(self, held: Held, due: float) -> None:
        held.place = next(self._order)
        heappush(self._due, (due, held.place, held))
        self._added.set()

    def hasten(self, held: Held, now: float) -> None:
        """There is news of one that waits here: its look is due. Not for one without a place."""
        if held.place is not None and not held.gone:
            self.add(held, now)

    @property
    def stuck(self) -> bool:
        """Whether a look that was given up still runs; another must not overlap it."""
        return self._look is not None and not self._look.done()

    def next_due(self) -> float | None:
        """When the next look is due; None when nothing waits here."""
        while self._due and not _stands(self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def take(self, now: float) -> list[Held]:
        """What is due at `now`, longest due first, as many as one look takes."""
        group: list[Held] = []
        while len(group) < self._group_max and self._due and self._due[0][0] <= now:
            first = heappop(self._due)
            if _stands(first):
                first[2].place = None
                group.append(first[2])
        return group

    def took(self, unit_count: int, seconds: float) -> None:
        """What the next look learns from one that served `unit_count` in `seconds`."""
        self.slow = seconds > SLOW_S
        if self.slow:
            self._group_max = max(1, unit_count // 2)
        elif seconds < QUICK_S:
            self._group_max = min(GROUP_UNITS_MAX, self._group_max * 2)

    async def added(self, timeout_s: float) -> None:
        """Returns when something was added, and at the latest after `timeout_s`."""
        self._added.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._added.wait()
        except TimeoutError:
            pass

    async def look(self, targets: Sequence[Target]) -> list[Seen | CheckError]:
        """What one look found for each target; a look that fails or hangs is an error for each.

        A look that ignores its cancellation is left alone, and the place is not looked at
        again before it has ended: looks at one place never overlap.
        Cancelled: the look is cancelled too, and waited for a moment.
        """
        if self.stuck:
            return _all(targets, f"an earlier look at {self.place} has not ended")
        self._look = look = asyncio.create_task(
            self._called(targets), name=f"one look at {self.place}"
        )
        try:
            for _ in range(LOOK_TIMEOUT_PARTS):
                await asyncio.wait({look}, timeout=LOOK_TIMEOUT_S / LOOK_TIMEOUT_PARTS)
                if look.done():
                    break
        finally:
            if not look.done():
                look.cancel()
                await asyncio.wait({look}, timeout=CANCEL_GRACE_S)
        if look.done() and not look.cancelled():
            return look.result()
        return _all(targets, f"the look at {self.place} did not end within {LOOK_TIMEOUT_S:g} s")

    async def _called(self, targets: Sequence[Target]) -> list[Seen | CheckError]:
        try:
            found = await self._checks.look(self.place, targets)
            if len(found) != len(targets):
                raise RuntimeError(f"{len(found)} answers for {len(targets)} targets")
        except Exception as error:
            return _all(targets, self._mishaps.text(error, "look"))
        return found


def _stands(entry: tuple[float, int, Held]) -> bool:
    """Whether it is still where it stands in the line: not withdrawn, and not moved ahead."""
    _, place, held = entry
    return held.place == place and not held.gone


def _all(targets: Sequence[Target], why: str) -> list[Seen | CheckError]:
    return [CheckError(why) for _ in targets]
