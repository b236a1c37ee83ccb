"""A request and its answer, judged by `success`: the same in the output, the tap and the transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipo.connectors.contract import Context, StepCall
from pipo.connectors.http import outgoing, statuses
from pipo.connectors.http.failures import failure
from pipo.connectors.http.outgoing import Request
from pipo.connectors.http.sending import Answer, Sender

TIMEOUT_S = 30.0


class Exchange:
    """One pool of connections; `open` before use."""

    def __init__(self, context: Context, *, timeout_s: float) -> None:
        self._mask = context.mask
        self._clock = context.clock
        self._sender = Sender(timeout_s=timeout_s)

    async def open(self) -> None:
        await self._sender.open()

    async def close(self) -> None:
        await self._sender.close()

    async def send(self, settings: Mapping[str, Any], data: Any, key: str) -> Answer:
        """The answer to the request that rendered settings ask for, when it is a success.

        Raises: Refused, NoAnswer, WriteFailed, RetryAfter.
        """
        request = outgoing.request(settings, data, key)
        answer = await self._sender.send(request)
        self._judge(settings, request, answer)
        return answer

    async def ask(
        self, settings: Mapping[str, Any], data: Any, key: str, *, body_limit: int
    ) -> tuple[Request, Answer]:
        """The request and its answer, with up to `body_limit` bytes of its body.

        Raises: as `send`.
        """
        request = outgoing.request(settings, data, key)
        answer = await self._sender.ask(request, body_limit=body_limit)
        self._judge(settings, request, answer)
        return request, answer

    def _judge(self, settings: Mapping[str, Any], request: Request, answer: Answer) -> None:
        if not statuses.accepted(settings.get("success", statuses.DEFAULT), answer.status):
            raise failure(request, answer, mask=self._mask, now_ms=self._clock.now_ms())


def step_key(call: StepCall) -> str:
    """The author's own key, or the step's: the same each time it runs on a packet (edge 105)."""
    return outgoing.own_key(call.settings) or call.key
