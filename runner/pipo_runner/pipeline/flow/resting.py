"""Waiting until what is in flight has come back, for a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Rest:
    """Something that rests or does not; whoever changes that calls `look`."""

    def __init__(self, rests: Callable[[], bool]) -> None:
        self._rests = rests
        self._waiting: asyncio.Event | None = None

    async def wait(self, timeout_s: float) -> bool:
        """Whether it rests, waiting up to `timeout_s` until it does."""
        if not self._rests():
            self._waiting = asyncio.Event()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiting.wait()
            except TimeoutError:
                pass
            finally:
                self._waiting = None
        return self._rests()

    def look(self) -> None:
        """Ends the wait if it rests now."""
        if self._waiting is not None and self._rests():
            self._waiting.set()

    def give_up(self) -> None:
        """Ends the wait, whatever is still in flight."""
        if self._waiting is not None:
            self._waiting.set()
