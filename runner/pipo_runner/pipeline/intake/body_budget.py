"""How many bytes of arriving bodies this process may hold at once (decision 40)."""

from __future__ import annotations

from typing import Final

# Bodies in flight in this process, as a multiple of the packet limit (decision 40).
BODIES_LIMIT: Final = 8


class BodyBudget:
    """How many bytes of bodies all streams of this process may hold."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        self._left += size
