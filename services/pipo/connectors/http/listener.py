"""An HTTP port of the pipeline's own, on 127.0.0.1, with or without a gateway."""

from __future__ import annotations

import asyncio
import errno

from aiohttp import hdrs, web

from pipo.connectors.contract import Arrival, HttpAnswer, HttpInput, HttpRequest, InputContext
from pipo.connectors.http.answers import refusal, too_large
from pipo.connectors.http.gathering import Gathering
from pipo.errors import Conflict

HOST = "127.0.0.1"
BODY_TIMEOUT_S = 60.0
# Bodies in flight, as a multiple of the packet limit (decision 40).
BODIES_LIMIT = 8
REQUESTS_GRACE_S = 2.0


class Listener:
    """Hands requests to an http input and sends its answers back."""

    def __init__(self, target: HttpInput, port: int, context: InputContext) -> None:
        self._target = target
        self._gathering = Gathering(target)
        self._port = port
        self._limit = context.packet_limit
        self._room = BODIES_LIMIT * context.packet_limit
        self._log = context.log
        self._runner: web.ServerRunner | None = None

    async def open(self) -> None:
        """Raises: Conflict, when the port is taken."""
        # A signature covers the bytes that were sent, so nothing is decompressed here.
        server = web.Server(self._handle, auto_decompress=False, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=REQUESTS_GRACE_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, self._port).start()
        except OSError as error:
            await runner.cleanup()
            if error.errno != errno.EADDRINUSE:
                raise
            raise Conflict(
                f"port {self._port} on {HOST} is taken",
                hint="set another `listen`, or stop the program that holds it",
            ) from error
        self._runner = runner

    async def close(self) -> None:
        """Stops listening; requests in flight get about 2 s (edge 37)."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        head = _head(request)
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
