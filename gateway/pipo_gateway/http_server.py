"""The gateway's HTTP listener: aiohttp's protocol without its application.

An application routes each request through middlewares and a table of patterns.
Here one prefix, `/in/`, carries nearly all requests and is told from the rest by
six characters; `pages` answers the others.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import InvalidURLError

from pipo.errors import BadRequest, Conflict, Internal
from pipo.telemetry.logs import logger
from pipo_gateway.ingress.answer import Answer
from pipo_gateway.metrics import Traffic
from pipo_gateway.refusals import refusal
from pipo_gateway.targets import PREFIX, origin_form

# Between two requests on one connection; above what proxies in front commonly use.
KEEPALIVE_S = 75.0
# How long a refused body is read and dropped, so that its sender meets the answer.
LINGER_S = 10.0
HEADER_BYTES_MAX = 16 * 1024
HEADERS_MAX = 100

_log = logger("gateway.http")

Handler = Callable[[web.BaseRequest, str], Awaitable[Answer]]
"""A request and its target (RFC 9112 section 3.2), always in origin form."""


class _Connection(web.RequestHandler):
    """aiohttp's protocol, with our errors for what never reaches a handler."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> Any:
        if status < 500:
            text = (message or "the request is not HTTP").split("\n")[0].rstrip(":. ")
            if isinstance(exc, InvalidURLError):
                text = f"the target {text[:100]!r} is no valid URL"
            made = refusal(BadRequest(text, hint="send HTTP/1.1 (RFC 9112)"), status=status)
        else:
            _log.error("an exception nobody meant", action="http.bug", exc_info=exc)
            kind = type(exc).__name__ if exc is not None else "an error"
            error = Internal(
                f"{kind} in the gateway: this is a bug in Pipo",
                hint="the gateway's log holds the traceback; please report it with that",
            )
            made = refusal(error)
        made.close()
        return made


class _Server(web.Server):
    def __call__(self) -> Any:
        return _Connection(self, loop=self._loop, **self._kwargs)


class HttpServer:
    """Listens, and hands each request to `ingress` or `pages`."""

    def __init__(self, ingress: Handler, pages: Handler, traffic: Traffic) -> None:
        self.port = 0
        self._listening: asyncio.Server | None = None
        answered = traffic.answered

        async def dispatch(request: web.BaseRequest) -> Any:
            target = request.raw_path
            if not target.startswith("/"):
                target = origin_form(target)
            if not target.startswith(PREFIX):
                return await pages(request, target)
            traffic.in_flight += 1
            try:
                answer = await ingress(request, target)
            finally:
                traffic.in_flight -= 1
            answered[answer.status // 100] += 1
            return answer

        self._server = _Server(
            dispatch,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=LINGER_S,
            max_field_size=HEADER_BYTES_MAX,
            max_line_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
        )

    async def listen(self, bind: str, port: int) -> None:
        """Takes requests on `port` from now on; 0 lets the kernel choose.

        Raises: Conflict, if the port is taken.
        """
        loop = asyncio.get_running_loop()
        try:
            # In two steps, so that a start that is cancelled knows the socket that it must close.
            self._listening = await loop.create_server(
                self._server, bind, port, backlog=1024, start_serving=False
            )
            await self._listening.start_serving()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Conflict(f"port {port} on {bind} is taken") from error
        self.port = self._listening.sockets[0].getsockname()[1]

    def refuse_new(self) -> None:
        """No new connections from now on. Safe twice."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def close(self, grace_s: float) -> None:
        """Requests under way get `grace_s`; idle connections end now. Safe twice."""
        self.refuse_new()
        self._server.pre_shutdown()
        await self._server.shutdown(grace_s)
