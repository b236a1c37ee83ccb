"""Sends one request for each unit.

Every unit is a place of its own, so that as many requests run at once as there are
units at the output (`concurrency`), and a slow one holds up no other. Units with one
key follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipo.connectors.contract import (
    Context,
    Flush,
    Output,
    Refused,
    RetryAfter,
    WriteFailed,
    WriteUnit,
)
from pipo.connectors.http import outgoing
from pipo.connectors.http.exchange import TIMEOUT_S, Exchange
from pipo.connectors.http.sending import NoAnswer


def build(context: Context) -> Output:
    return HttpOutput(context)


class HttpOutput:
    """An idempotency key goes with each request; the receiver must honour it (O035)."""

    def __init__(self, context: Context, *, timeout_s: float = TIMEOUT_S) -> None:
        self._requests = Exchange(context, timeout_s=timeout_s)

    async def open(self, marks: Mapping[str, int]) -> None:
        await self._requests.open()

    def place(self, settings: Mapping[str, Any], key: str) -> str:
        return key

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        return outgoing.own_key(settings)

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> None:
        outgoing.head(settings, key)

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        return Flush([await self._sent(unit) for unit in units])

    async def recover(self, settings: Mapping[str, Any]) -> None:
        """A crash leaves nothing here: the request is sent again, with its key."""

    async def close(self) -> None:
        await self._requests.close()

    async def _sent(
        self, unit: WriteUnit
    ) -> Mapping[str, Any] | WriteFailed | RetryAfter | Refused:
        try:
            answer = await self._requests.send(unit.settings, unit.data, unit.key)
        except (Refused, WriteFailed, RetryAfter) as failed:
            return failed
        except NoAnswer as error:
            return WriteFailed(error.message, hint=error.hint)
        return {"status": answer.status}
