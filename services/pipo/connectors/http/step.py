"""What the http tap and the http transform share: one request for each run of a step.

At least once. The idempotency key is the step's own, and the same each time it runs on a
packet (edge 105); the receiver must honour it.
"""

from __future__ import annotations

from pipo.connectors.contract import Context, StepCall
from pipo.connectors.http import outgoing, statuses
from pipo.connectors.http.failures import failure
from pipo.connectors.http.outgoing import Request
from pipo.connectors.http.output import TIMEOUT_S
from pipo.connectors.http.sending import Answer, Sender


class StepRequests:
    """One pool of connections; `open` before use."""

    def __init__(self, context: Context, *, timeout_s: float = TIMEOUT_S) -> None:
        self._mask = context.mask
        self._clock = context.clock
        self._sender = Sender(timeout_s=timeout_s)

    async def open(self) -> None:
        await self._sender.open()

    async def close(self) -> None:
        await self._sender.close()

    async def send(self, call: StepCall) -> None:
        """The request was answered as the settings want it.

        Raises: Refused, NoAnswer, WriteFailed, RetryAfter.
        """
        request = self._request(call)
        self._judge(call, request, await self._sender.send(request))

    async def ask(self, call: StepCall, *, body_limit: int) -> tuple[Request, Answer]:
        """The request and its answer, with up to `body_limit` bytes of its body.

        Raises: as `send`.
        """
        request = self._request(call)
        answer = await self._sender.ask(request, body_limit=body_limit)
        self._judge(call, request, answer)
        return request, answer

    def _request(self, call: StepCall) -> Request:
        key = outgoing.own_key(call.settings) or call.key
        return outgoing.request(call.settings, call.data, key)

    def _judge(self, call: StepCall, request: Request, answer: Answer) -> None:
        if not statuses.accepted(call.settings.get("success", statuses.DEFAULT), answer.status):
            raise failure(request, answer, mask=self._mask, now_ms=self._clock.now_ms())
