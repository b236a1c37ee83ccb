"""Verdicts and stall reports on their way out: many a message under load, one at once when idle."""

from __future__ import annotations

import asyncio
from collections import deque

from pipo.rpc.stubs.checker_pb2 import StallReport, Verdict

GROUP_BYTES_MAX = 512 * 1024
GROUP_VERDICTS_MAX = 2_000


class Outbox:
    """A queue with one reader; whoever fills it is bounded by the checker's capacity.

    While a message is being written others gather here, so the groups grow with the
    load and nobody waits for a timer.
    """

    def __init__(self) -> None:
        self._waiting: deque[Verdict] = deque()
        self._stall: StallReport | None = None
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, verdict: Verdict) -> None:
        self._waiting.append(verdict)
        self._filled.set()

    def report_stall(self, quiet_ms: int) -> None:
        """Nothing has got through for `quiet_ms`; an older report that waits is replaced."""
        self._stall = StallReport(quiet_ms=quiet_ms)
        self._filled.set()

    def rouse(self) -> None:
        """Ends the reader's wait though nothing waits for it: how long it may wait has changed."""
        self._filled.set()

    def clear(self) -> None:
        """Forgets what waits: its stream is gone, and the pipeline will offer again."""
        self._waiting.clear()
        self._stall = None

    async def filled(self, timeout_s: float) -> bool:
        """Whether something waits: as soon as it does, when roused, at the latest after `timeout_s`."""
        if not self._anything:
            self._filled.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._filled.wait()
            except TimeoutError:
                pass
        return self._anything

    @property
    def _anything(self) -> bool:
        return bool(self._waiting) or self._stall is not None

    def take_stall(self) -> StallReport | None:
        """The stall report that waits, if one does."""
        report, self._stall = self._stall, None
        return report

    def take(self) -> list[Verdict]:
        """The oldest that fit one message, oldest first; empty when nothing waits."""
        group: list[Verdict] = []
        size = 0
        while self._waiting and len(group) < GROUP_VERDICTS_MAX:
            size += self._waiting[0].ByteSize() + 8
            if group and size > GROUP_BYTES_MAX:
                break
            group.append(self._waiting.popleft())
        return group
