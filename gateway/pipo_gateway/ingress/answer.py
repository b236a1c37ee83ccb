"""A finished answer as bytes: what aiohttp asks of a response, and nothing more.

`web.Response` builds a case-insensitive multidict, fills in defaults and serializes
it again for every request. An answer to `/in` has a status, a few headers and a
JSON body, all known, so it is written in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time

JSON_TYPE = b"Content-Type: application/json\r\n"
# Behind every JSON body: a terminal's next prompt stands on a line of its own.
LINE_END = b"\n"

_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_BODYLESS = frozenset({204, 304})


class Answer:
    """One response. `headers` are lines with their ends; length, date and connection are added."""

    __slots__ = ("_body", "_closing", "_headers", "_status", "keep_alive")

    def __init__(self, status: int, body: bytes, headers: bytes = JSON_TYPE) -> None:
        self._status = status
        self._body = body
        self._headers = headers
        self.keep_alive = True
        self._closing = False

    @property
    def status(self) -> int:
        return self._status

    async def prepare(self, request: web.BaseRequest) -> None:
        """Writes everything. Raises: ConnectionResetError, when the client is gone."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        transport.write(self.encoded(request))

    def close(self) -> None:
        """The connection ends after this answer."""
        self._closing = True

    async def write_eof(self) -> None:
        """Everything is written already."""

    def encoded(self, request: web.BaseRequest) -> bytes:
        """The whole response for this request."""
        status, body = self._status, self._body
        if self._closing or not request.keep_alive:
            self.keep_alive = False
            connection = b"Connection: close\r\n\r\n"
        elif request.version.minor == 0:
            connection = b"Connection: keep-alive\r\n\r\n"
        else:
            connection = b"\r\n"
        line = _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        date = b"Date: " + rfc822_formatted_time().encode() + b"\r\n"
        if status in _BODYLESS:
            return line + self._headers + date + connection
        length = b"Content-Length: %d\r\n" % len(body)
        whole = line + self._headers + length + date + connection
        return whole if request.method == "HEAD" else whole + body


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """Headers of a pipeline's answer as lines; the ones that `Answer` writes itself are left out.

    A line break inside a value would forge a header: it becomes a space.
    """
    lines: list[str] = []
    typed = False
    for name, value in headers:
        lower = name.lower()
        if lower in ("content-length", "connection", "date", "transfer-encoding"):
            continue
        typed = typed or lower == "content-type"
        lines.append(f"{_one_line(name)}: {_one_line(value)}\r\n")
    made = "".join(lines).encode("latin-1", "replace")
    return made if typed else JSON_TYPE + made


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
