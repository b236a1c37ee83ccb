"""What other pipelines have handed over: one packet for each sender and key.

The journal's inbox decides, and it is asked before the gates: a repeat is answered with its
packet even where the buffer is full or a rule has changed meanwhile (edge 244). Between that
question and the commit a key belongs to one call; another with the same key, such as the
retry of a sender that waited no longer, comes after it and finds the packet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pipo.connectors.contract import Accepted

Key = tuple[str, str]
"""A sender and the key that it gave."""

LookUp = Callable[[Sequence[Key]], Awaitable[Mapping[Key, tuple[str, str]]]]


class Inbox:
    """The keys that are being taken in, and the packets of those that came before."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._claimed: dict[Key, asyncio.Future[None]] = {}

    async def claim(self, keys: Sequence[Key]) -> dict[Key, Accepted]:
        """The packets that these keys made; the keys are the caller's until `release`.

        Cancelled: nothing is claimed.
        """
        while taken := {self._claimed[key] for key in keys if key in self._claimed}:
            await asyncio.wait(taken)
        claim: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for key in keys:
            self._claimed[key] = claim
        try:
            found = await self._look_up(keys)
        except BaseException:
            self.release(keys)
            raise
        return {
            key: Accepted(packet, duplicate=True, state=state)
            for key, (packet, state) in found.items()
        }

    def release(self, keys: Sequence[Key]) -> None:
        """Lets others have these keys: what became of them is on disk, or never will be."""
        for key in keys:
            claim = self._claimed.pop(key, None)
            if claim is not None and not claim.done():
                claim.set_result(None)
