"""Sends a request for each packet; what is answered becomes its data (facts §4.3)."""

from __future__ import annotations

from typing import Any, Literal

from pipo import payload
from pipo.connectors.contract import Context, Refused, Step, StepCall, WriteFailed
from pipo.connectors.http.bodies import says_json, text_of
from pipo.connectors.http.exchange import TIMEOUT_S, Exchange, step_key
from pipo.connectors.http.inflating import NotInflated, inflated
from pipo.connectors.http.outgoing import Request
from pipo.connectors.http.sending import Answer


def build(context: Context) -> Step:
    return HttpTransform(context)


class HttpTransform:
    """A body is read up to `engine.packet_limit`, also when it is packed."""

    pure: Literal[False] = False

    def __init__(self, context: Context, *, timeout_s: float = TIMEOUT_S) -> None:
        self._requests = Exchange(context, timeout_s=timeout_s)
        self._limit = context.packet_limit

    async def open(self) -> None:
        await self._requests.open()

    async def run(self, call: StepCall) -> Any:
        request, answer = await self._requests.ask(
            call.settings, call.data, step_key(call), body_limit=self._limit
        )
        body = self._body(request, answer)
        if not says_json(answer.headers):
            return text_of(body, answer.headers)
        try:
            return payload.decode(body)
        except payload.BadPayload as error:
            raise WriteFailed(
                f"{request.shown} answered {answer.status} with a body that is no JSON: {error}",
                hint="its Content-Type says that it is",
            ) from error

    async def close(self) -> None:
        await self._requests.close()

    def _body(self, request: Request, answer: Answer) -> bytes:
        try:
            body = inflated(answer.body, answer.headers.get("Content-Encoding", ""), self._limit)
        except NotInflated as error:
            raise WriteFailed(f"{request.shown}: {error}") from error
        if not answer.whole or len(body) > self._limit:
            raise Refused(
                f"{request.shown} answered with more than engine.packet_limit ({self._limit} bytes)",
                hint="ask for less, or raise engine.packet_limit",
            )
        return body
