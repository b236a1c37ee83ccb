"""Sends a request for each packet that passes, at least once; the receiver must honour its key."""

from __future__ import annotations

from typing import Literal

from pipo.connectors.contract import Context, Step, StepCall
from pipo.connectors.http.exchange import TIMEOUT_S, Exchange, step_key


def build(context: Context) -> Step:
    return HttpTap(context)


class HttpTap:
    """Of the answer only the status counts."""

    pure: Literal[False] = False

    def __init__(self, context: Context, *, timeout_s: float = TIMEOUT_S) -> None:
        self._requests = Exchange(context, timeout_s=timeout_s)

    async def open(self) -> None:
        await self._requests.open()

    async def run(self, call: StepCall) -> None:
        await self._requests.send(call.settings, call.data, step_key(call))

    async def close(self) -> None:
        await self._requests.close()
