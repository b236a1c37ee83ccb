"""One write to one place: never two at a time, whoever asks.

Groups and batches of several versions may lead to one database or file. Whatever a
connector raises comes back as the result of each unit, so that one policy decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pipo.connectors.contract import ConnectorError, Flush, Refused, RetryAfter, WriteFailed
from pipo.crashpoints import reach
from pipo_runner.pipeline.definition.failures import PACKET_ERRORS, describe
from pipo_runner.pipeline.output.preparing import Prepared


class Places:
    """The places that are being written to."""

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, int] = {}

    async def write(self, group: Sequence[Prepared], *, atomic: bool) -> Flush:
        """What the output made of a group of one place; a failed call is each unit's own failure.

        Cancelled: the write may or may not have happened.
        """
        place = group[0].place
        lock = self._locks.setdefault(place, asyncio.Lock())
        self._wanted[place] = self._wanted.get(place, 0) + 1
        try:
            async with lock:
                return await self._write(group, atomic)
        finally:
            self._wanted[place] -= 1
            if not self._wanted[place]:
                del self._wanted[place], self._locks[place]

    async def _write(self, group: Sequence[Prepared], atomic: bool) -> Flush:
        reach("output.before_write")
        try:
            flush = await group[0].output.write([p.write_unit() for p in group], atomic=atomic)
        except Exception as error:
            if not isinstance(error, PACKET_ERRORS):
                self._log("error", "the write failed unexpectedly", exc_info=error)
            flush = Flush(results=[_as_result(error)] * len(group))
        reach("output.after_write")
        return flush


def _as_result(error: Exception) -> WriteFailed | RetryAfter | Refused:
    if isinstance(error, (WriteFailed, RetryAfter, Refused)):
        return error
    if isinstance(error, ConnectorError):
        return WriteFailed(error.message, hint=error.hint)
    return WriteFailed(describe(error))
