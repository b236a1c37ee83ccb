"""Posts numbered sign-ups over keep-alive connections, with as little work per request as possible.

A bare protocol instead of a client library: the driver shares two cores with
what it measures. Each connection has one request in flight.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.load.ledger import Ledger

Body = Callable[[int], bytes]


@dataclass(slots=True)
class Outcome:
    """What a run of posts led to. `statuses` counts answers, `lost` connections that broke."""

    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    seconds: float = 0.0


def signup(number: int) -> bytes:
    """A sign-up of about 300 bytes; `n` names it."""
    return (
        b'{"n": %d, "name": "Ada Lovelace", "email": "ada%d@example.com", "age": 36, '
        b'"address": {"street": "12 St James Square", "city": "London", "country": "gb"}, '
        b'"tags": ["analyst", "engine", "first"], "note": "%s"}' % (number, number, b"x" * 90)
    )


class _Post(asyncio.Protocol):
    """One connection: sends a request, reads its answer, sends the next."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._buffer = b""
        self._number: int | None = None
        self.transport: asyncio.Transport | None = None
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = _content_length(head)
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        assert self._number is not None
        self._run.answered(self._number, int(head[9:12]))
        self._number = None
        if b"connection: close" in head.lower():
            assert self.transport is not None
            self.transport.close()
        elif self._run.pause_s:
            asyncio.get_running_loop().call_later(self._run.pause_s, self._next)
        else:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._number is not None:
            self._run.broke(self._number)
        if not self.ended.done():
            self.ended.set_result(None)

    def _next(self) -> None:
        assert self.transport is not None
        if self.transport.is_closing():
            return
        number = self._run.take()
        if number is None:
            self.transport.close()
            return
        self._number = number
        body = self._run.body(number)
        self.transport.write(self._run.head % len(body) + body)


class _Run:
    def __init__(
        self,
        numbers: Iterator[int],
        *,
        host: str,
        path: str,
        body: Body,
        ledger: Ledger | None,
        headers: str,
        pause_s: float,
        stop: threading.Event,
    ) -> None:
        self.pause_s = pause_s
        self._stop = stop
        self._numbers = numbers
        self._again: list[int] = []
        self.body = body
        self.ledger = ledger
        self.outcome = Outcome()
        self.head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{headers}"
            "Content-Length: %d\r\n\r\n"
        ).encode()

    def take(self) -> int | None:
        if self._stop.is_set():
            return None
        if self._again:
            return self._again.pop()
        return next(self._numbers, None)

    def answered(self, number: int, status: int) -> None:
        self.outcome.statuses[status] += 1
        if status == 202 and self.ledger is not None:
            self.ledger.note(str(number))

    def broke(self, number: int) -> None:
        self.outcome.broken += 1

    @property
    def left(self) -> bool:
        number = self.take()
        if number is None:
            return False
        self._again.append(number)
        return True


async def post(
    count: int,
    *,
    port: int,
    path: str,
    connections: int = 64,
    first: int = 0,
    ledger: Ledger | None = None,
    body: Body = signup,
    deadline_s: float = 120.0,
    headers: str = "",
    pause_s: float = 0.0,
    stop: threading.Event | None = None,
) -> Outcome:
    """Posts sign-ups `first` to `first + count - 1`, each once, to 127.0.0.1:`port`.

    A connection that breaks is opened again while numbers are left; the request in
    flight on it is counted as broken and not repeated: its fate is unknown. With
    `pause_s` each connection rests between its requests; `stop` ends the run early.
    """
    numbers = iter(range(first, first + count))
    run = _Run(
        numbers,
        host=f"127.0.0.1:{port}",
        path=path,
        body=body,
        ledger=ledger,
        headers=headers,
        pause_s=pause_s,
        stop=stop or threading.Event(),
    )
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def connection() -> None:
        while run.left and loop.time() - began < deadline_s:
            try:
                _, protocol = await loop.create_connection(lambda: _Post(run), "127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            await protocol.ended

    async def syncing() -> None:
        while True:
            await asyncio.sleep(0.02)
            if ledger is not None:
                ledger.sync()

    syncer = asyncio.ensure_future(syncing())
    try:
        async with asyncio.timeout(deadline_s + 30):
            await asyncio.gather(*(connection() for _ in range(connections)))
    finally:
        syncer.cancel()
        if ledger is not None:
            ledger.sync()
    run.outcome.seconds = loop.time() - began
    return run.outcome


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
