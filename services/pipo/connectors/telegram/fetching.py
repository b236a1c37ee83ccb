"""Fetches the files of messages into the pipeline's own folder.

A file is in memory while it is fetched, 20 MB at most, and one at a time for each input. It is
written under a name that is the same each time: a fetch that is repeated after a crash leaves
one file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from pipo.connectors.contract import ConnectorError, InputContext
from pipo.connectors.http.outgoing import Request
from pipo.connectors.http.sending import Answer, Sender
from pipo.connectors.telegram import answers
from pipo.connectors.telegram.accounts import Account
from pipo.connectors.telegram.answers import Failed
from pipo.connectors.telegram.updates import File
from pipo.errors import PipoError
from pipo.home import atomic
from pipo.home.paths import PipelineHome

# What a bot may fetch (Bot API, getFile).
BYTES_MAX = 20 * 1024 * 1024
TIMEOUT_S = 60.0
TRIES = 4
_FIRST_PAUSE_S = 0.5
_PAUSE_S_MAX = 60.0
_ANSWER_BYTES = 64 * 1024
_NAME_BYTES = 160
_UNIQUE = re.compile(r"[^A-Za-z0-9_-]")
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")


class _Unfetched(Exception):
    """Why there is no file. `pause_s` is for a fetch that may fare better later."""

    def __init__(self, why: str, *, pause_s: float | None = None) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class Files:
    """Where the files of one pipeline's messages come to lie."""

    def __init__(
        self,
        context: InputContext,
        folder: PipelineHome,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._context = context
        self._folder = folder
        self._pause = pause
        self._sender = Sender(timeout_s=timeout_s)

    async def open(self) -> None:
        """Makes the folder, without what a crash has left half written."""
        await asyncio.to_thread(self._ready)
        await self._sender.open()

    async def close(self) -> None:
        await self._sender.close()

    async def fetch(self, account: Account, file: File) -> str | None:
        """The absolute path of a file; None, with a warning, when it cannot be had.

        Cancelled: the file may be there; the next fetch writes it anew.
        """
        for attempt in range(TRIES):
            try:
                return await self._fetched(account, file)
            except _Unfetched as failure:
                why, pause_s = str(failure), failure.pause_s
            if pause_s is None or attempt == TRIES - 1:
                break
            await self._pause(min(max(pause_s, _FIRST_PAUSE_S * 4**attempt), _PAUSE_S_MAX))
        self._context.log(
            "warn",
            "file not fetched",
            action="file_not_fetched",
            file=file.name,
            size=file.size,
            reason=self._context.mask(why),
        )
        return None

    async def _fetched(self, account: Account, file: File) -> str:
        if file.size is not None and file.size > BYTES_MAX:
            raise _Unfetched(f"it has {file.size} bytes, more than the 20 MB that a bot may fetch")
        answer = await self._asked(account.call("getFile", {"file_id": file.id}), _ANSWER_BYTES)
        found = self._read(answer)
        where = found.get("file_path") if isinstance(found, dict) else None
        # A Bot API server of one's own may name a path of its machine.
        if not isinstance(where, str) or not where or {"", ".."} & set(where.split("/")):
            raise _Unfetched("getFile names no path that can be fetched")
        body = await self._asked(account.file(where), BYTES_MAX)
        if body.status != 200:
            raise self._failure(Failed(body.status, "the file is not there"))
        if not body.whole:
            raise _Unfetched("it has more than the 20 MB that a bot may fetch")
        return await asyncio.to_thread(self._keep, name_of(file), body.body)

    async def _asked(self, request: Request, limit: int) -> Answer:
        try:
            return await self._sender.ask(request, body_limit=limit)
        except ConnectorError as error:
            raise _Unfetched(error.message, pause_s=0.0) from error

    def _read(self, answer: Answer) -> object:
        found = answers.read(answer, mask=self._context.mask, now_ms=self._context.clock.now_ms())
        if isinstance(found, Failed):
            raise self._failure(found)
        return found.value

    def _failure(self, failed: Failed) -> _Unfetched:
        passes = failed.status == 429 or failed.status >= 500
        pause_s = failed.pause_s or 0.0 if passes else None
        return _Unfetched(f"Telegram answered {failed.status}: {failed.why}", pause_s=pause_s)

    def _keep(self, name: str, content: bytes) -> str:
        path = self._folder.files / name
        try:
            atomic.replace(path, content, durable=True)
        except PipoError as error:
            raise _Unfetched(error.message, pause_s=0.0) from error
        return str(path)

    def _ready(self) -> None:
        self._folder.ensure_files()
        for spare in self._folder.files.glob(".*.tmp"):
            spare.unlink(missing_ok=True)


def name_of(file: File) -> str:
    """The name of a file on disk: what a sender wrote leads nowhere else, and is not too long."""
    unique = _UNIQUE.sub("_", file.unique_id)[:64]
    shown = _UNSAFE.sub("_", file.name).encode("utf-8", "replace")
    return f"{unique}-{_cut(shown)}"


def _cut(name: bytes) -> str:
    """The name, at most `_NAME_BYTES` long, with the end of it: that is what tells its type."""
    if len(name) <= _NAME_BYTES:
        return name.decode()
    stem, dot, extension = name.rpartition(b".")
    tail = dot + extension if dot and len(extension) <= 16 else b""
    kept = (stem if tail else name)[: _NAME_BYTES - len(tail)]
    return kept.decode("utf-8", "ignore") + tail.decode("utf-8", "ignore")
