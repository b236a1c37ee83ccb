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
        self._waits: dict[str, list[asyncio.Future[Settlement]]] = {}
        self._look_up = look_up
        self._emptied: asyncio.Event | None = None
        self.on_settled: Callable[[list[Unit], Settlement], None] = _nobody

    def __len__(self) -> int:
        return len(self._units)

    def add(self, unit: Unit) -> None:
        self._units[unit.id] = unit

    def settled(self, unit_ids: Iterable[str], settlement: Settlement) -> None:
        """These units have ended and their end is durable."""
        ended: list[Unit] = []
        for unit_id in unit_ids:
            unit = self._units.pop(unit_id, None)
            if unit is not None:
                ended.append(unit)
            for wait in self._waits.pop(unit_id, ()):
                if not wait.done():
                    wait.set_result(settlement)
        self.on_settled(ended, settlement)
        if not self._units:
            self.give_up_waiting()

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
        """Whether nothing is pending any more, waiting up to `timeout_s`."""
        if self._units:
            self._emptied = asyncio.Event()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._emptied.wait()
            except TimeoutError:
                pass
            finally:
                self._emptied = None
        return not self._units


def _nobody(ended: list[Unit], settlement: Settlement) -> None:
    """Nobody has asked to hear of it."""
