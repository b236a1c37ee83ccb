"""Sends a message for each unit, with a bot of the home or a token of its own.

Nothing makes a message idempotent: a crash between the sending and its commit sends it
again (O047).
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from aiohttp import FormData

from pipo.connectors.contract import (
    ConnectorError,
    Context,
    Flush,
    Output,
    Refused,
    RetryAfter,
    WriteFailed,
    WriteUnit,
)
from pipo.connectors.http.outgoing import Request
from pipo.connectors.http.sending import Sender
from pipo.connectors.telegram import messages
from pipo.connectors.telegram.accounts import Account, Accounts
from pipo.connectors.telegram.messages import Message
from pipo.errors import PipoError

TIMEOUT_S = 60.0
RETRIES_MAX = 3
# A longer pause is the policy's: it is journaled, and holds up nobody.
PAUSE_S_MAX = 60.0
UPLOAD_BYTES_MAX = 50 * 1024 * 1024
_ANSWER_BYTES = 64 * 1024


def build(context: Context) -> Output:
    return TelegramOutput(context)


class TelegramOutput:
    """Each unit is a place of its own: messages do not wait for each other."""

    def __init__(
        self,
        context: Context,
        *,
        timeout_s: float = TIMEOUT_S,
        what: str = "the output telegram",
    ) -> None:
        self._context = context
        self._sender = Sender(timeout_s=timeout_s)
        self._accounts = Accounts(context, what)

    async def open(self, marks: Mapping[str, int]) -> None:
        """Raises: PipoError, for a bots.json that cannot be used."""
        await self._accounts.open()
        await self._sender.open()

    def require(self, settings: Mapping[str, Any]) -> None:
        """Raises: InvalidState, when no bot is set up; PipoError, when its token is none."""
        self._accounts.require(settings)

    def place(self, settings: Mapping[str, Any], key: str) -> str:
        return key

    def explicit_key(self, settings: Mapping[str, Any]) -> str | None:
        return None

    def prepare(self, data: Any, settings: Mapping[str, Any], key: str) -> None:
        """What a message needs is known at the sending: it may take its chat from the packet."""

    async def write(self, units: Sequence[WriteUnit], *, atomic: bool) -> Flush:
        return Flush([await self._sent(unit) for unit in units])

    async def recover(self, settings: Mapping[str, Any]) -> None:
        """A crash leaves nothing here."""

    async def close(self) -> None:
        await self._sender.close()

    async def _sent(
        self, unit: WriteUnit
    ) -> Mapping[str, Any] | WriteFailed | RetryAfter | Refused:
        try:
            account = await asyncio.to_thread(self._accounts.of, unit.settings)
            message = messages.message(unit)
            for _ in range(RETRIES_MAX):
                result = await self._called(account, message)
                if not isinstance(result, RetryAfter) or result.seconds > PAUSE_S_MAX:
                    return result
                await asyncio.sleep(result.seconds)
            return await self._called(account, message)
        except (Refused, WriteFailed) as failure:
            return failure
        except (ConnectorError, PipoError) as error:
            return WriteFailed(error.message, hint=error.hint)

    async def _called(
        self, account: Account, message: Message
    ) -> Mapping[str, Any] | WriteFailed | RetryAfter:
        file = (
            None if message.upload is None else await asyncio.to_thread(_opened, message.upload[1])
        )
        try:
            request = _request(account, message, file)
            answer = await self._sender.ask(request, body_limit=_ANSWER_BYTES)
        finally:
            if file is not None:
                file.close()
        return messages.outcome(
            message, answer, mask=self._context.mask, now_ms=self._context.clock.now_ms()
        )


def _request(account: Account, message: Message, file: BinaryIO | None) -> Request:
    if message.upload is None or file is None:
        return account.call(message.method, message.fields)
    form = FormData()
    for name, value in message.fields.items():
        form.add_field(name, str(value))
    form.add_field(message.upload[0], file, filename=Path(message.upload[1]).name)
    return account.call(message.method, form)


def _opened(path: str) -> BinaryIO:
    """A file that may be sent. Raises: Refused, WriteFailed."""
    try:
        # Without waiting: a pipe would hold up the thread for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise WriteFailed(f"{path}: {error.strerror or error}") from error
    found = os.fstat(handle)
    why = ""
    if not stat.S_ISREG(found.st_mode):
        why = "is no regular file"
    elif found.st_size > UPLOAD_BYTES_MAX:
        why = f"has {found.st_size} bytes, more than the 50 MiB that a bot may send"
    if why:
        os.close(handle)
        raise Refused(f"{path} {why}")
    return os.fdopen(handle, "rb")
