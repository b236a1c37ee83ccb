"""The least that takes a body over HTTP and answers once it is on disk: what ingest is measured beside.

One process: an aiohttp application with one handler, and one thread that puts whatever waits into
one transaction (apsw, WAL, synchronous=FULL). No rule, no route of a pipeline, no event, no state.

    python -m tests.bench.bare_handler DATABASE PORT
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
from pathlib import Path

import apsw
import uvloop
from aiohttp import web

Waiting = list[tuple[str, bytes, asyncio.Future[None]]]


class GroupCommit:
    """One writer thread; a row is durable once `stored` returns."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = apsw.Connection(str(path))
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE packets (id TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID",
        ):
            self._connection.execute(statement).fetchall()
        self._loop = loop
        self._waiting: Waiting = []
        self._work = threading.Condition()
        threading.Thread(target=self._write, name="writer", daemon=True).start()

    async def stored(self, id: str, body: bytes) -> None:
        """Returns once the row is on disk."""
        durable = self._loop.create_future()
        with self._work:
            self._waiting.append((id, body, durable))
            self._work.notify()
        await durable

    def _write(self) -> None:
        while True:
            with self._work:
                while not self._waiting:
                    self._work.wait()
                group, self._waiting = self._waiting, []
            rows = [(id, body) for id, body, _ in group]
            with self._connection:
                self._connection.executemany("INSERT INTO packets VALUES (?, ?)", rows)
            self._loop.call_soon_threadsafe(_tell, group)


def _tell(group: Waiting) -> None:
    for _, _, durable in group:
        if not durable.done():
            durable.set_result(None)


async def serve(path: Path, port: int) -> None:
    """Answers `POST /in` until it is cancelled."""
    storing = GroupCommit(path, asyncio.get_running_loop())

    async def take(request: web.Request) -> web.Response:
        id = secrets.token_hex(13)
        await storing.stored(id, await request.read())
        return web.json_response({"packet_id": id, "state": "accepted"}, status=202)

    application = web.Application()
    application.router.add_post("/in", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
