"""The Telegram bots of a home, from `bots.json`.

    {"telegram": {"default": "ops", "bots": {"ops": {"token": "env:OPS_BOT", "allow": [1],
     "poll_every": "25s", "api": "https://api.telegram.org"}}}}

A token is written out or a reference, as a secret is; it stands in no message here.
The file is for its owner alone (0600); rights of others are taken away where that is possible.
A bot is read by one process of a home, which holds a lease on it (`claim`).
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pipo.clock import Clock
from pipo.errors import BadRequest, Conflict
from pipo.home import leases, permissions, secrets
from pipo.home.leases import Holder, Lease
from pipo.home.paths import Home
from pipo.home.quantities import duration_s

API = "https://api.telegram.org"
POLL_EVERY_S = 25.0
_POLL_EVERY_S_MIN = 1.0
_MODE = 0o600
_BYTES_LIMIT = 1024 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_REFERENCE = re.compile(r"(env:|file:|op://)")
_KEYS = ("token", "allow", "poll_every", "api")


@dataclass(frozen=True, slots=True)
class Bot:
    """One bot. `allow` is the chats and users it hears; None means that none is named."""

    name: str
    token_ref: str
    allow: tuple[int, ...] | None
    poll_every_s: float
    api: str

    def token(self, environ: Mapping[str, str]) -> str:
        """The token itself. Blocks while it reads a file or runs `op`.

        Raises: BadRequest, naming the bot, when the reference leads to none.
        """
        if not _REFERENCE.match(self.token_ref):
            return self.token_ref
        token = secrets.resolve({f"token of bot {self.name}": self.token_ref}, environ)
        (value,) = token.values()
        if not value.strip():
            raise BadRequest(f"the token of bot {self.name!r} ({self.token_ref}) is empty")
        return value.strip()


@dataclass(frozen=True, slots=True)
class Bots:
    """All bots by name, and the one that is meant where none is named."""

    default: str | None
    bots: Mapping[str, Bot]


NO_BOTS = Bots(None, {})


def read(home: Home) -> Bots:
    """The bots of a home; NO_BOTS without a file.

    Raises: BadRequest, with the number of problems and each of them; PipoError, when the
        file cannot be read.
    """
    path = home.bots_file
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                with suppress(OSError):
                    os.fchmod(file.fileno(), _MODE)
            raw = file.read(_BYTES_LIMIT + 1)
    except FileNotFoundError:
        return NO_BOTS
    except OSError as error:
        raise permissions.explain(path, error, doing="read") from error
    if len(raw) > _BYTES_LIMIT:
        raise BadRequest(f"{path} is larger than 1 MiB")
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "its text"
        raise BadRequest(f"{path} is no JSON: {where} cannot be read") from None
    reading = _Reading()
    bots = reading.bots(value)
    if reading.problems:
        count = len(reading.problems)
        raise BadRequest(
            f"{path} has {count} problem{'s' if count > 1 else ''}: {'; '.join(reading.problems)}",
            hint="mend the file; changes take effect at a pipeline's next start",
        )
    return bots


def claim(home: Home, bot_id: str, *, clock: Clock) -> Lease:
    """The right to read a bot's updates, which one process of a home has at a time.

    Blocks its thread for up to 2 s. A process that ends, however it does, frees it.
    Raises: Conflict, naming the pipeline that reads it and its process; PipoError.
    """
    path = home.run / f"telegram-{bot_id}.lease"
    try:
        return Lease.acquire(path, clock=clock)
    except Conflict:
        holder = leases.holder(path)
        names = (name for name in home.pipeline_names() if _runs(home, name, holder))
        reader = next((f"pipeline {name!r}" for name in names), "another pipeline")
        raise Conflict(
            f"Telegram bot {bot_id} is read by {reader} ({holder or 'which has just ended'})",
            hint="a bot has one reader: stop that pipeline first, or use another bot",
        ) from None


def _runs(home: Home, name: str, holder: Holder | None) -> bool:
    """Whether the process that holds a bot is that of a pipeline, which holds a lease of its own."""
    found = leases.holder(home.pipeline(name).lease)
    if found is None or holder is None:
        return False
    return (found.host, found.pid) == (holder.host, holder.pid)


class _Reading:
    """One pass over the file's value that collects what is wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def bots(self, value: Any) -> Bots:
        telegram = self._object(self._object(value, "the file").get("telegram", {}), "telegram")
        entries = self._object(telegram.get("bots", {}), "telegram.bots")
        made = {name: self._bot(name, entry) for name, entry in entries.items()}
        default = telegram.get("default")
        if default is not None and default not in entries:
            known = ", ".join(sorted(entries)) or "none"
            self.problems.append(f"telegram.default is no bot here; there are: {known}")
        return Bots(default, made)

    def _bot(self, name: str, value: Any) -> Bot:
        where = f"telegram.bots.{name}"
        if not _NAME.fullmatch(name):
            self.problems.append(f"{where}: a name is made of a-z, 0-9, - and _")
        entry = self._object(value, where)
        for key in entry.keys() - set(_KEYS):
            self.problems.append(f"{where}.{key} is not known; there are: {', '.join(_KEYS)}")
        token = entry.get("token")
        if not isinstance(token, str) or not token.strip():
            self.problems.append(f"{where}.token is empty")
        return Bot(
            name=name,
            token_ref=str(token).strip(),
            allow=self._allow(entry.get("allow"), f"{where}.allow"),
            poll_every_s=self._poll_every(entry.get("poll_every"), f"{where}.poll_every"),
            api=self._api(entry.get("api", API), f"{where}.api"),
        )

    def _object(self, value: Any, where: str) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self.problems.append(f"{where} is not an object")
        return {}

    def _allow(self, value: Any, where: str) -> tuple[int, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list) or any(type(one) is not int for one in value):
            self.problems.append(f"{where} is not a list of chat or user ids")
            return None
        return tuple(value)

    def _poll_every(self, value: Any, where: str) -> float:
        if value is None:
            return POLL_EVERY_S
        try:
            found = duration_s(value)
        except (ValueError, TypeError):
            self.problems.append(f"{where} is no duration such as 25s")
            return POLL_EVERY_S
        if found < _POLL_EVERY_S_MIN:
            self.problems.append(f"{where} is shorter than 1s")
        return found

    def _api(self, value: Any, where: str) -> str:
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        except (ValueError, AttributeError, TypeError):
            usable = False
        if not usable:
            self.problems.append(f"{where} is no http:// or https:// address")
        return str(value).rstrip("/")
