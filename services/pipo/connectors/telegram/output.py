"""Sends a message for each unit, with a bot of the home or a token of its own.

Nothing makes a message idempotent: a crash between the sending and its commit sends it
again (O047). The token stands in every URL of the Bot API, so no error here names one,
and the token is hidden from all that is printed.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from aiohttp import FormData
from yarl import URL

from pipo import payload
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
from pipo.connectors.telegram.messages import Message
from pipo.errors import InvalidState, PipoError
from pipo.home import bots
from pipo.home.bots import Bot, Bots

TIMEOUT_S = 60.0
RETRIES_MAX = 3
# A longer pause is the policy's: it is journaled, and holds up nobody.
PAUSE_S_MAX = 60.0
UPLOAD_BYTES_MAX = 50 * 1024 * 1024
_ANSWER_BYTES = 64 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9_:.-]+")


def build(context: Context) -> Output:
    return TelegramOutput(context)


@dataclass(frozen=True, slots=True)
class _Account:
    """Who sends: a token, and where its Bot API is."""

    token: str = field(repr=False)
    api: str


class TelegramOutput:
    """Each unit is a place of its own: messages do not wait for each other."""

    def __init__(self, context: Context, *, timeout_s: float = TIMEOUT_S) -> None:
        self._context = context
        self._sender = Sender(timeout_s=timeout_s)
        self._bots: Bots = bots.NO_BOTS
        self._accounts: dict[str, _Account] = {}

    async def open(self, marks: Mapping[str, int]) -> None:
        """Raises: PipoError, for a bots.json that cannot be used."""
        if self._context.home is not None:
            self._bots = await asyncio.to_thread(bots.read, self._context.home)
        await self._sender.open()

    def require(self, settings: Mapping[str, Any]) -> None:
        """Raises: InvalidState, when no bot is set up; PipoError, when its token has no value."""
        if settings.get("token") is None:
            self._account_of(self._bot(settings))

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
            account = await asyncio.to_thread(self._account, unit.settings)
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
        self, account: _Account, message: Message
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

    def _account(self, settings: Mapping[str, Any]) -> _Account:
        """Raises: Refused, InvalidState, PipoError."""
        token = settings.get("token")
        if token is None:
            return self._account_of(self._bot(settings))
        # A bot of the home says where its API is, also when its token is given here.
        known = [self._account_of(bot) for bot in self._bots.bots.values() if self._usable(bot)]
        api = next((one.api for one in known if one.token == token), bots.API)
        return self._checked(_Account(str(token), api))

    def _bot(self, settings: Mapping[str, Any]) -> Bot:
        name = settings.get("bot") or self._bots.default
        found = None if name is None else self._bots.bots.get(name)
        if found is None:
            file = "bots.json" if self._context.home is None else self._context.home.bots_file
            missing = "no bot is set up" if name is None else f"no bot {name!r} is set up"
            raise InvalidState(
                f"{missing} for the output telegram",
                hint=f"add one to {file}, such as "
                '{"telegram": {"default": "main", "bots": {"main": {"token": "env:TELEGRAM_TOKEN"}}}}'
                "; or set `token`",
            )
        return found

    def _usable(self, bot: Bot) -> bool:
        try:
            return bool(self._account_of(bot))
        except (PipoError, ConnectorError):
            return False

    def _account_of(self, bot: Bot) -> _Account:
        """A bot's token is read once; changes take effect at the next start."""
        if bot.name not in self._accounts:
            account = self._checked(_Account(bot.token(os.environ), bot.api))
            self._accounts[bot.name] = account
        return self._accounts[bot.name]

    def _checked(self, account: _Account) -> _Account:
        self._context.hide(account.token)
        if not _TOKEN.fullmatch(account.token):
            raise Refused("the bot's token is none", hint="a token looks like 123456:ABC-DEF")
        return account


def _request(account: _Account, message: Message, file: BinaryIO | None) -> Request:
    url = URL(f"{account.api}/bot{account.token}/{message.method}", encoded=True)
    shown = f"{message.method} at {account.api}"
    if message.upload is None or file is None:
        headers = {"Content-Type": "application/json"}
        return Request("POST", url, headers, payload.encode(dict(message.fields)), shown)
    form = FormData()
    for name, value in message.fields.items():
        form.add_field(name, str(value))
    form.add_field(message.upload[0], file, filename=Path(message.upload[1]).name)
    return Request("POST", url, {}, form, shown)


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
