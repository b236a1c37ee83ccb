"""Units that are not settled yet, and those who wait for them.

It hears of an end only once the end is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from pipo.connectors.contract import Settlement
from pipo_runner.pipeline.units import Unit


class Pending:
    """Every pending root by its id, with the waits of `respond: delivered`."""

    def __init__(self, look_up: Callable[[str], Awaitable[Settlement]]) -> None:
        self._units: dict[str, Unit] = {}
        self._aside: set[str] = set()
        self._waits: dict[str, list[asyncio.Future[Settlement]]] = {}
        self._look_up = look_up
        self._emptied: asyncio.Event | None = None
        self.on_settled: Callable[[list[Unit], Settlement], None] = _nobody
        self.on_moving: Callable[[], None] = _nobody_asks
        """Hears when something is on its way after nothing was, and the other way round."""
        self._any_moving = False

    def __len__(self) -> int:
        return len(self._units)

    def add(self, unit: Unit) -> None:
        self._units[unit.id] = unit
        self._look_at_moving()

    def find(self, unit_id: str) -> Unit | None:
        """A unit that is not settled; None for any other."""
        return self._units.get(unit_id)

    @property
    def moving(self) -> int:
        """How many are on their way: neither held nor escalated."""
        return len(self._units) - len(self._aside)

    def on_their_way(self) -> list[Unit]:
        """The units that are neither held nor escalated, in the order in which they came."""
        return [unit for unit in self._units.values() if unit.id not in self._aside]

    def set_aside(self, unit_id: str) -> None:
        """The unit waits for someone: it stays pending and holds up no drain (edge 156, 286)."""
        if unit_id in self._units:
            self._aside.add(unit_id)
            self._look_whether_empty()

    def back(self, unit_id: str) -> Unit | None:
        """The unit moves again; None when it is not pending."""
        self._aside.discard(unit_id)
        self._look_at_moving()
        return self._units.get(unit_id)

    def settled(self, unit_ids: Iterable[str], settlement: Settlement) -> None:
        """These units have ended and their end is durable."""
        ended: list[Unit] = []
        for unit_id in unit_ids:
            unit = self._units.pop(unit_id, None)
            self._aside.discard(unit_id)
            if unit is not None:
                ended.append(unit)
            for wait in self._waits.pop(unit_id, ()):
                if not wait.done():
                    wait.set_result(settlement)
        self.on_settled(ended, settlement)
        self._look_whether_empty()

    def _look_whether_empty(self) -> None:
        self._look_at_moving()
        if not self.moving:
            self.give_up_waiting()

    def _look_at_moving(self) -> None:
        if (self.moving > 0) is not self._any_moving:
            self._any_moving = not self._any_moving
            self.on_moving()

    def give_up_waiting(self) -> None:
        """Ends `emptied`, whatever is still pending."""
        if self._emptied is not None:
            self._emptied.set()

    async def wait(self, unit_id: str, timeout_s: float) -> Settlement:
        """How a packet ended, or that it is still on its way after `timeout_s`."""
        if unit_id not in self._units:
            return await self._look_up(unit_id)
        wait: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
        self._waits.setdefault(unit_id, []).append(wait)
        try:
            async with asyncio.timeout(timeout_s):
                return await wait
        except TimeoutError:
            return Settlement(state="accepted")
        finally:
            left = self._waits.get(unit_id, [])
            if wait in left:
                left.remove(wait)
                if not left:
                    del self._waits[unit_id]

    def release_waits(self) -> None:
        """Ends every wait as `accepted`: the process stops (edge 32)."""
        for waits in self._waits.values():
            for wait in waits:
                if not wait.done():
                    wait.set_result(Settlement(state="accepted"))
        self._waits.clear()

    async def emptied(self, timeout_s: float) -> bool:
        """Whether nothing is on its way any more, waiting up to `timeout_s`."""
        if self.moving:
            self._emptied = asyncio.Event()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._emptied.wait()
            except TimeoutError:
                pass
            finally:
                self._emptied = None
        return not self.moving


def _nobody(ended: list[Unit], settlement: Settlement) -> None:
    """Nobody has asked to hear of it."""


def _nobody_asks() -> None:
    """Nobody has asked to hear of it."""
