"""An HTTP port of the pipeline's own, on 127.0.0.1, with or without a gateway.

It answers on the inputs' own paths, and on those of a gateway, `/in/<pipeline><path>`, so that a
sender need not know which of the two it talks to.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

from aiohttp import hdrs, web

from pipo.connectors.contract import Arrival, HttpAnswer, HttpInput, HttpRequest, InputContext
from pipo.connectors.http.answers import refusal, too_large
from pipo.connectors.http.gathering import Gathering

BODY_TIMEOUT_S = 60.0
# Bodies in flight, as a multiple of the packet limit (decision 40).
BODIES_LIMIT = 8
REQUESTS_GRACE_S = 2.0
UNKNOWN = 404


class Listener:
    """Hands requests to an http input and sends its answers back; `reserved` listens already."""

    def __init__(self, target: HttpInput, reserved: socket.socket, context: InputContext) -> None:
        self.port: int = reserved.getsockname()[1]
        self._target = target
        self._gathering = Gathering(target)
        self._reserved = reserved
        self._as_gateways = f"/in/{context.pipeline}"
        self._limit = context.packet_limit
        self._room = BODIES_LIMIT * context.packet_limit
        self._log = context.log
        self._runner: web.ServerRunner | None = None

    async def open(self) -> None:
        """Serves whoever waits there already, and all who come."""
        # A signature covers the bytes that were sent, so nothing is decompressed here.
        server = web.Server(self._handle, auto_decompress=False, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=REQUESTS_GRACE_S)
        await runner.setup()
        await web.SockSite(runner, self._reserved).start()
        self._runner = runner

    async def close(self) -> None:
        """Stops listening; requests in flight get about 2 s (edge 37)."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        head = self._asked(request)
        held = 0
        try:
            answer = self._target.early(head) or self._too_long(request)
            if answer is None:
                await _send_continue(request)
                body = bytearray()
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    async for chunk in request.content.iter_any():
                        held += len(chunk)
                        self._room -= len(chunk)
                        if held > self._limit:
                            return _response(too_large(self._limit), close=True)
                        if self._room < 0:
                            return _response(_busy(), close=True)
                        body += chunk
                return _response(await self._answer(_with_body(head, bytes(body))))
            return _response(answer, close=request.can_read_body)
        except TimeoutError:
            return _response(_too_slow(), close=True)
        finally:
            self._room += held

    def _asked(self, request: web.BaseRequest) -> HttpRequest:
        """The request with the path that an input knows it by."""
        head = _head(request)
        path = head.path.removeprefix(self._as_gateways)
        if path == head.path or path[:1] not in ("", "/"):
            return head
        # An input's own path may look like that, too.
        early = self._target.early(head)
        unknown = early is not None and early.status == UNKNOWN
        return replace(head, path=path or "/") if unknown else head

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        quick = self._target.arrival(request)
        if quick is None:
            return await self._target.answer(request)
        return await self._gathering.answer(quick) if isinstance(quick, Arrival) else quick

    def _too_long(self, request: web.BaseRequest) -> HttpAnswer | None:
        length = request.content_length
        return too_large(self._limit) if length is not None and length > self._limit else None


def _head(request: web.BaseRequest) -> HttpRequest:
    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in request.raw_headers]
    return HttpRequest(
        method=request.method,
        path=request.path,
        query=request.rel_url.raw_query_string,
        headers=headers,
        peer=request.remote or "",
        body=b"",
    )


def _with_body(head: HttpRequest, body: bytes) -> HttpRequest:
    return HttpRequest(head.method, head.path, head.query, head.headers, head.peer, body)


async def _send_continue(request: web.BaseRequest) -> None:
    """Tells a client that waits for it to send the body (RFC 9110 section 10.1.1)."""
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        assert request.transport is not None, "a request that is read has a transport"
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _response(answer: HttpAnswer, *, close: bool = False) -> web.Response:
    response = web.Response(status=answer.status, body=answer.body, content_type="application/json")
    for name, value in answer.headers:
        response.headers[name] = value
    response.headers[hdrs.SERVER] = "pipo"
    if close:
        response.force_close()
    return response


def _busy() -> HttpAnswer:
    return refusal(503, "too many bodies at once", "try again in a moment", Retry_After="1")


def _too_slow() -> HttpAnswer:
    return refusal(408, f"the body did not arrive in {BODY_TIMEOUT_S:.0f} s", "send it again")
