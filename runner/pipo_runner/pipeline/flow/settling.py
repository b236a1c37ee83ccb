"""Units that are not settled yet, and those who wait for them.

It hears of an end only once the end is on disk. A packet that has split waits for its
copies: the end of the last one is its own, and is told as such; the journal has settled
both in one commit, by the same rule (`pipo.journal.families`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from pipo.connectors.contract import Settlement
from pipo.journal.families import dead_branch_error, dead_branch_text
from pipo.journal.sheet import Copies
from pipo_runner.pipeline.flow.units import UNLOADED, Unit


@dataclass(slots=True)
class Split:
    """A unit that waits for its copies, and how those that have ended, ended (edge 114).

    `dead` is what the unit says if it dies: the message of its first copy that did.
    """

    unit: Unit
    open: int
    delivered: bool = False
    dead: str | None = None

    def ended(self, branch: str, settlement: Settlement, *, was_split: bool) -> None:
        """One copy fewer is open; what a copy says that had split itself, stands as it is."""
        self.open -= 1
        if settlement.state == "delivered":
            self.delivered = True
        elif settlement.state == "dead_lettered" and self.dead is None:
            error = settlement.error
            self.dead = error if was_split else dead_branch_text(branch, error)

    @property
    def settlement(self) -> Settlement:
        """What the unit becomes with the end of its last copy."""
        if self.dead is not None:
            return Settlement("dead_lettered", self.dead)
        return Settlement("delivered" if self.delivered else "filtered")


def split_of(unit: Unit, copies: Copies) -> Split:
    """A unit that an earlier run left split, as the journal counts its copies."""
    dead = dead_branch_error(*copies.dead[0]).message if copies.dead else None
    return Split(unit, copies.open, copies.delivered > 0, dead)


class Pending:
    """Every pending unit by its id, with the waits of `respond: delivered`.

    Its length is the number of packets: copies are none, and split packets wait with them.
    """

    def __init__(self, look_up: Callable[[str], Awaitable[Settlement]]) -> None:
        self._units: dict[str, Unit] = {}
        self._split: dict[str, Split] = {}
        self._packets = 0
        self._aside: set[str] = set()
        self._waits: dict[str, list[asyncio.Future[Settlement]]] = {}
        self._look_up = look_up
        self._emptied: asyncio.Event | None = None
        self.on_settled: Callable[[list[Unit], Settlement], None] = _nobody
        """Hears of packets, never of copies."""
        self.on_moving: Callable[[], None] = _nobody_asks
        """Hears when something is on its way after nothing was, and the other way round."""
        self._any_moving = False

    def __len__(self) -> int:
        return self._packets

    def add(self, unit: Unit) -> None:
        self._units[unit.id] = unit
        self._packets += not unit.branch
        self._look_at_moving()

    def split(self, unit: Unit, copies: Sequence[Unit]) -> None:
        """A unit that was added has split: its copies move from now on, and it waits for them."""
        del self._units[unit.id]
        self._wait_for_copies(Split(unit, len(copies)))
        for copy in copies:
            self.add(copy)

    def add_split(self, split: Split) -> None:
        """A unit that an earlier run left split; its open copies are added on their own."""
        self._packets += not split.unit.branch
        self._wait_for_copies(split)

    def _wait_for_copies(self, split: Split) -> None:
        # It moves no more, and its copies have payloads of their own.
        split.unit.data = UNLOADED
        self._split[split.unit.id] = split

    def find(self, unit_id: str) -> Unit | None:
        """A unit that is not settled and has not split; None for any other."""
        return self._units.get(unit_id)

    def holds(self, packet_id: str) -> bool:
        """Whether the packet is pending, split or not."""
        return packet_id in self._units or packet_id in self._split

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
        packets: list[Unit] = []
        for unit_id in unit_ids:
            unit = self._units.pop(unit_id, None)
            self._aside.discard(unit_id)
            if unit is None:
                continue
            if unit.branch:
                self._copy_ended(unit, settlement, was_split=False)
            else:
                packets.append(unit)
        self._packets_ended(packets, settlement)
        self._look_whether_empty()

    def _copy_ended(self, copy: Unit, settlement: Settlement, *, was_split: bool) -> None:
        split = self._split[copy.parent_id]
        split.ended(copy.branch, settlement, was_split=was_split)
        if split.open:
            return
        del self._split[copy.parent_id]
        if split.unit.branch:
            self._copy_ended(split.unit, split.settlement, was_split=True)
        else:
            self._packets_ended([split.unit], split.settlement)

    def _packets_ended(self, packets: list[Unit], settlement: Settlement) -> None:
        self._packets -= len(packets)
        for packet in packets:
            for wait in self._waits.pop(packet.id, ()):
                if not wait.done():
                    wait.set_result(settlement)
        self.on_settled(packets, settlement)

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
        if not self.holds(unit_id):
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
