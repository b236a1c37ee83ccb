"""Large items of a stream, put together from the pieces they arrive in.

What is held counts in the process's budget. Beyond the packet limit bytes are only counted,
so that whoever sends too much is told how much it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipo.errors import BadRequest, Unavailable
from pipo_runner.pipeline.intake.body_budget import BodyBudget


@dataclass(slots=True)
class _Item:
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    refused: bool = False


class Pieces:
    """The items of one stream that are still arriving, by their number."""

    def __init__(self, limit: int, budget: BodyBudget) -> None:
        self._limit = limit
        self._budget = budget
        self._items: dict[int, _Item] = {}
        self._held = 0

    def join(self, number: int, data: bytes, *, more: bool) -> bytes | None:
        """The whole item; None while more pieces of it follow.

        Raises: BadRequest, for an item that is too large; Unavailable, when too much is held.
        """
        if not more and number not in self._items:
            return data
        item = self._items.setdefault(number, _Item())
        if item.size <= self._limit and not self._budget.take(len(data)):
            item.refused = True
        elif item.size <= self._limit:
            self._held += len(data)
            item.parts.append(data)
        item.size += len(data)
        if more:
            return None
        del self._items[number]
        kept = sum(map(len, item.parts))
        self._held -= kept
        self._budget.give_back(kept)
        if item.refused:
            raise busy()
        if item.size > self._limit:
            raise too_large(item.size, self._limit)
        return b"".join(item.parts)

    def close(self) -> None:
        """The stream has ended: what was still arriving is given back. Safe twice."""
        self._budget.give_back(self._held)
        self._held = 0
        self._items.clear()


def too_large(size: int, limit: int) -> BadRequest:
    """The error for a packet beyond the limit (decision 40)."""
    return BadRequest(
        f"the packet has {size} bytes, more than engine.packet_limit ({limit})",
        hint="send less, or raise engine.packet_limit",
    )


def busy() -> Unavailable:
    """The error when this process holds as many bytes as it may."""
    return Unavailable("too many large packets at once", hint="try again in a moment")
