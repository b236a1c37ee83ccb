"""Which bot a `with:` means: one of the home by its name, the home's default, or a token of its own.

The token stands in every URL of the Bot API, so no message here names one, and each is
hidden from all that is printed.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yarl import URL

from pipo import payload
from pipo.connectors.contract import ConnectorError, Context, Refused
from pipo.connectors.http.outgoing import Request
from pipo.errors import BadRequest, InvalidState, PipoError
from pipo.home import bots
from pipo.home.bots import Bot, Bots

if TYPE_CHECKING:
    from aiohttp import FormData

_TOKEN = re.compile(r"[A-Za-z0-9_:.-]+")


@dataclass(frozen=True, slots=True)
class Account:
    """A token, where its Bot API is, and the bot of the home that has it."""

    token: str = field(repr=False)
    api: str
    bot: Bot | None = None

    @property
    def id(self) -> str:
        """The bot's own number, which a new token does not change; empty when the token has none."""
        number, colon, _ = self.token.partition(":")
        return number if colon and number.isascii() and number.isdecimal() else ""

    def call(self, method: str, fields: Mapping[str, Any] | FormData) -> Request:
        """A call of the Bot API; what people see of it has no token."""
        url = URL(f"{self.api}/bot{self.token}/{method}", encoded=True)
        shown = f"{method} at {self.api}"
        if isinstance(fields, Mapping):
            json = {"Content-Type": "application/json"}
            return Request("POST", url, json, payload.encode(dict(fields)), shown)
        return Request("POST", url, {}, fields, shown)

    def file(self, path: str) -> Request:
        """A fetch of a file by the path that `getFile` named."""
        url = URL(f"{self.api}/file/bot{self.token}") / path
        return Request("GET", url, {}, None, f"a file at {self.api}")


class Accounts:
    """The accounts of one pipeline; `what` is who asks, such as `the output telegram`."""

    def __init__(self, context: Context, what: str) -> None:
        self._context = context
        self._what = what
        self._bots: Bots = bots.NO_BOTS
        self._known: dict[str, Account] = {}

    async def open(self) -> None:
        """Reads the home's bots. Raises: PipoError, for a bots.json that cannot be used."""
        if self._context.home is not None:
            self._bots = await asyncio.to_thread(bots.read, self._context.home)

    def require(self, settings: Mapping[str, Any]) -> None:
        """Passes when settings, not rendered, have their bot; a token is known once it is rendered.

        Raises: InvalidState, when no bot is set up; PipoError, when its token is none.
        """
        if settings.get("token") is None:
            try:
                self._of(self._bot(settings))
            except Refused as error:
                raise BadRequest(error.message, hint=error.hint) from error

    def of(self, settings: Mapping[str, Any]) -> Account:
        """The account that rendered settings mean. Blocks: it may read a file or run `op`.

        Raises: Refused, for what is no token; InvalidState, PipoError.
        """
        token = settings.get("token")
        if token is None:
            return self._of(self._bot(settings))
        # A bot of the home says where its API is, also when its token is given here.
        known = (self._usable(bot) for bot in self._bots.bots.values())
        same = next((one for one in known if one is not None and one.token == token), None)
        return same or self._checked(Account(str(token), bots.API))

    def _bot(self, settings: Mapping[str, Any]) -> Bot:
        name = settings.get("bot") or self._bots.default
        found = None if name is None else self._bots.bots.get(name)
        if found is None:
            file = "bots.json" if self._context.home is None else self._context.home.bots_file
            missing = "no bot is set up" if name is None else f"no bot {name!r} is set up"
            raise InvalidState(
                f"{missing} for {self._what}",
                hint=f"add one to {file}, such as "
                '{"telegram": {"default": "main", "bots": {"main": {"token": "env:TELEGRAM_TOKEN"}}}}'
                "; or set `token`",
            )
        return found

    def _usable(self, bot: Bot) -> Account | None:
        try:
            return self._of(bot)
        except (PipoError, ConnectorError):
            return None

    def _of(self, bot: Bot) -> Account:
        """A bot's token is read once; changes take effect at the next start."""
        if bot.name not in self._known:
            self._known[bot.name] = self._checked(Account(bot.token(os.environ), bot.api, bot))
        return self._known[bot.name]

    def _checked(self, account: Account) -> Account:
        self._context.hide(account.token)
        if not _TOKEN.fullmatch(account.token):
            raise Refused("the bot's token is none", hint="a token looks like 123456:ABC-DEF")
        return account
