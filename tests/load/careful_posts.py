"""Sign-ups over HTTP, each sent until its fate is known, and the ledger that judges them.

Where `http_posts` is quick, this one is careful: a refused sign-up is sent again, and one
whose answer was cut off is set aside, so that every row at the destination is accounted for.

The ledger is a file outside Pipo. A `202` counts only once its line is on disk there, so a row
that is missing for a line in it is a loss, whatever died in between.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

REQUEST_LIMIT_S = 120.0
CONNECT_LIMIT_S = 60.0
PAUSE_S = 0.2


class Ledger:
    """One line `<key> <packet id>` for each acknowledged sign-up, synced in groups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._flush_lock = asyncio.Lock()
        self._open: list[tuple[str, asyncio.Future[None]]] = []
        self._grown = asyncio.Event()
        self.count = 0
        """The lines that are on disk."""

    async def add(self, key: str, packet_id: str) -> None:
        """Returns once the line is on disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open.append((f"{key} {packet_id}\n", done))
        async with self._flush_lock:
            if not done.done():
                await self._flush()

    async def reached(self, count: int) -> None:
        """Returns once that many lines are on disk."""
        while self.count < count:
            self._grown.clear()
            await self._grown.wait()

    async def _flush(self) -> None:
        group, self._open = self._open, []
        await asyncio.to_thread(self._write, "".join(line for line, _ in group).encode())
        self.count += len(group)
        self._grown.set()
        for _, done in group:
            done.set_result(None)

    def _write(self, lines: bytes) -> None:
        self._file.write(lines)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def read(self) -> dict[str, str]:
        """Key to packet id, as it stands on disk."""
        lines = self.path.read_text().splitlines()
        found = dict(line.split(" ") for line in lines)
        assert len(found) == len(lines), "one key was acknowledged twice"
        return found


@dataclass
class Tally:
    """What the sender saw, besides the ledger."""

    refused: int = 0
    """Answers 503 and refused connections; each was sent again."""
    unknown: set[str] = field(default_factory=set)
    """Keys whose request was cut off or answered 502: accepted or not, nobody can say."""
    without_retry_after: int = 0
    """Answers 503 that do not say when to come again."""
    slowest_s: float = 0.0
    """The longest time from a request to its answer, or to its end without one."""


class Connection:
    """One keep-alive connection; `post` opens it when it is not."""

    def __init__(self, port: int) -> None:
        self.headers: dict[str, str] = {}
        """Of the last answer."""
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        if self._streams is None:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer.

        Raises: OSError, EOFError, TimeoutError, if the connection broke after the request went.
        """
        assert self._streams is not None, "open() comes first"
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with asyncio.timeout(REQUEST_LIMIT_S):
            writer.write(head.encode() + body)
            await writer.drain()
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            self.headers = headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in answer[1:])
            }
            content = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(answer[0].split(" ")[1]), content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def signup(key: str) -> bytes:
    return json.dumps({"email": key, "name": f"Person {key}"}).encode()


async def send(
    keys: Iterable[str], *, port: int, path: str, connections: int, ledger: Ledger, limit_s: float
) -> Tally:
    """Posts each key once, over that many connections; what was refused is sent again.

    Raises: AssertionError at an answer that is none of 202, 502, 503; TimeoutError after `limit_s`.
    """
    left, tally = iter(keys), Tally()
    async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
        for number in range(connections):
            sender = _sender(left, Connection(port), path, ledger, tally)
            group.create_task(sender, name=f"sender {number}")
    return tally


async def _sender(
    left: Iterator[str], connection: Connection, path: str, ledger: Ledger, tally: Tally
) -> None:
    try:
        for key in left:
            while not await _sent(key, connection, path, ledger, tally):
                tally.refused += 1
                await asyncio.sleep(PAUSE_S)
    finally:
        connection.close()


async def _sent(key: str, connection: Connection, path: str, ledger: Ledger, tally: Tally) -> bool:
    """Whether the key is done with; False when it was certainly not accepted."""
    try:
        await connection.open()
    except (OSError, TimeoutError):
        return False
    began = time.monotonic()
    try:
        status, content = await connection.post(path, signup(key))
    except (OSError, EOFError, TimeoutError):
        connection.close()
        tally.unknown.add(key)
        return True
    finally:
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - began)
    if status == 503:
        tally.without_retry_after += "retry-after" not in connection.headers
        return False
    if status == 502:
        tally.unknown.add(key)
        return True
    assert status == 202, f"{key}: {status} {content!r}"
    answer = json.loads(content)
    assert answer["state"] == "accepted", answer
    await ledger.add(key, answer["packet_id"])
    return True


def faults(acknowledged: set[str], unknown: set[str], rows: dict[str, int]) -> list[str]:
    """What is wrong with the rows that each key has at the destination; empty when nothing is."""
    found = [f"{key} was acknowledged and is no row" for key in acknowledged - rows.keys()]
    found += [f"{key} is {count} rows" for key, count in rows.items() if count != 1]
    found += [f"{key} is a row that nobody sent" for key in rows.keys() - acknowledged - unknown]
    return sorted(found)
