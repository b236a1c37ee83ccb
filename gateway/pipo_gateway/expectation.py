"""`Expect: 100-continue` (RFC 9110 section 10.1.1)."""

from __future__ import annotations

from aiohttp import web

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def go_on(request: web.BaseRequest) -> None:
    """Asks a client that waits to be asked to send its body."""
    waits = request.headers.get("Expect", "").lower() == "100-continue"
    if waits and request.version.minor and not request.content.is_eof():
        await request.writer.write(_CONTINUE)
