"""Sends requests, many at once, over connections that are kept for a moment.

Bounds. One request takes at most `timeout_s`, from the first byte to what is wanted
of the answer; waiting for one of the `REQUESTS_MAX` slots is not counted. Of a body no
more is read than was asked for: a longer one costs its connection, not memory.

Redirects are never followed: after one a POST may arrive as a GET, and credentials
at a host that the author did not name.

Nothing is decompressed here, and nothing compressed is asked for: a small body that
grows by a thousand is the caller's to bound.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType

import aiohttp
from multidict import CIMultiDict

from pipo.connectors.contract import ConnectorError
from pipo.connectors.http.outgoing import Request

REQUESTS_MAX = 256
# A server closes what rests: the shorter it is kept, the rarer a request meets the closing.
KEEP_ALIVE_S = 3.0
EXCERPT_BYTES = 4096
EXCERPT_WAIT_S = 1.0
_HEADERS = {"User-Agent": "pipo", "Accept": "*/*", "Accept-Encoding": "identity"}


class NoAnswer(ConnectorError):
    """Nobody answered, or not in time: whether the request was carried out is not known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `whole` says whether `body` is all of it; header names have any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


class Sender:
    """One pool of connections; `open` before use."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(REQUESTS_MAX)

    async def open(self) -> None:
        """Makes the pool; connects to nobody yet."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers=_HEADERS,
            )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(self, request: Request) -> Answer:
        """The status, and the start of the body, which nobody waits for longer than a second.

        Raises: NoAnswer.
        Cancelled: the receiver may or may not act on the request.
        """
        async with self._slots:
            response = await self._answered(request)
            body = bytearray()
            whole = False
            try:
                async with asyncio.timeout(EXCERPT_WAIT_S):
                    whole = await _read(response, body, EXCERPT_BYTES)
            except (TimeoutError, aiohttp.ClientError, OSError):
                pass
            finally:
                _let_go(response, whole)
            return _answer(response, body, whole)

    async def ask(self, request: Request, *, body_limit: int) -> Answer:
        """The status and the body, up to `body_limit` bytes of it, all within the time limit.

        Raises: NoAnswer, also for a body that breaks off.
        Cancelled: the receiver may or may not act on the request.
        """
        body = bytearray()
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_s):
                    response = await self._started(request)
                    whole = False
                    try:
                        whole = await _read(response, body, body_limit)
                    finally:
                        _let_go(response, whole)
            except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
                raise self._no_answer(request, error) from error
            return _answer(response, body, whole)

    async def _answered(self, request: Request) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._started(request)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise self._no_answer(request, error) from error

    async def _started(self, request: Request) -> aiohttp.ClientResponse:
        assert self._session is not None, "a sender is opened before it sends"
        return await self._session.request(
            request.method,
            request.url,
            headers=CIMultiDict(request.headers),
            data=BytesIO(request.body) if isinstance(request.body, bytes) else request.body,
            allow_redirects=False,
        )

    def _no_answer(self, request: Request, error: Exception) -> NoAnswer:
        why, hint = _explained(error, self._timeout_s)
        return NoAnswer(f"{request.shown} failed: {why}", hint=hint)


async def _read(response: aiohttp.ClientResponse, body: bytearray, limit: int) -> bool:
    """Fills `body` up to `limit`; whether that is all of it."""
    while chunk := await response.content.read(max(1, limit - len(body))):
        if len(body) + len(chunk) > limit:
            return False
        body += chunk
    return True


def _let_go(response: aiohttp.ClientResponse, whole: bool) -> None:
    if whole:
        response.release()
    else:
        response.close()


def _answer(response: aiohttp.ClientResponse, body: bytearray, whole: bool) -> Answer:
    headers = MappingProxyType(CIMultiDict(response.headers))
    return Answer(response.status, headers, bytes(body), whole)


def _explained(error: Exception, timeout_s: float) -> tuple[str, str]:
    """What a person reads in place of the driver's error, which would name the whole URL."""
    match error:
        case TimeoutError():
            return f"no answer within {timeout_s:g} s", "whether it was received is not known"
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "")
            return f"the certificate is not trusted{f': {reason}' if reason else ''}", ""
        case aiohttp.ClientSSLError():
            return f"no TLS connection: {_reason(error.os_error)}", "does the port speak TLS?"
        case aiohttp.ClientConnectorDNSError():
            return "the name of the host is not known", "check the URL and the name server"
        case aiohttp.ClientConnectorError():
            reason = _reason(error.os_error)
            return f"no connection: {reason}", "check that the receiver runs and the URL is right"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed without an answer", ""
        case aiohttp.ClientPayloadError():
            return "the answer broke off", ""
        case aiohttp.ClientResponseError():
            return "the answer is no HTTP", "check the port of the URL"
        case OSError():
            return f"the connection broke: {_reason(error)}", ""
        case _:
            return f"it could not be sent: {type(error).__name__}", ""


def _reason(error: OSError) -> str:
    """The system's own words, without the address that Python puts around them."""
    if error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(getattr(error, "reason", None) or type(error).__name__).replace("_", " ").lower()
