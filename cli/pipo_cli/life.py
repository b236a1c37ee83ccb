"""The life of an engine: its entry in the registry, its lifetime, and being asked to end."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from typing import Literal

from pipo.clock import Clock
from pipo.errors import PipoError
from pipo.home import Home, engine, registry
from pipo.home.config import Config
from pipo.home.engine import Engine
from pipo_cli.engine_log import say

Over = Literal["asked", "ttl"]


class Life:
    """One engine's life, for the process that holds the engine's lease.

    Use it on the running loop: `begin`, `ready`, perhaps `stopping`, and `close` at the end.
    """

    def __init__(self, home: Home, config: Config, clock: Clock, *, foreground: bool) -> None:
        self._home = home
        self._ttl_s = config.ttl_s
        self._clock = clock
        self._asked = asyncio.Event()
        self._begun = asyncio.Event()
        self._entry = Engine(
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=clock.now_ms(),
            listen=config.listen,
            foreground=foreground,
        )
        self._standing = registry.kept_service(
            home, engine.KIND, engine.INSTANCE, lambda: engine.write(home, self._entry)
        )
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """From now on it can be asked to end. Raises: PipoError, if its entry cannot be written."""
        asyncio.get_running_loop().add_signal_handler(engine.ASKED, self._asked.set)
        self._standing.write()
        self._keeping = asyncio.create_task(self._standing.keep(), name="keep the engine's entry")

    def ready(self) -> None:
        """All of it is up: its lifetime begins (L024). Raises: as `begin`."""
        ends_at = None
        if self._ttl_s is not None:
            ends_at = self._clock.now_ms() + round(self._ttl_s * 1000)
        self._say(replace(self._entry, ready=True, ttl_expires_at=ends_at))
        self._begun.set()

    def stopping(self) -> None:
        """No start is taken any more (edge 445).

        Where that cannot be written, the end goes on all the same.
        """
        self._note(stopping=True)

    def going_on(self) -> None:
        """Starts are taken again."""
        self._note(stopping=False)

    async def over(self) -> Over:
        """Waits until somebody asks for the end, or its lifetime is over.

        The lifetime is measured on the loop's monotonic clock: setting the time changes nothing.
        """
        asked = asyncio.create_task(self._asked.wait(), name="asked to stop")
        ended = asyncio.create_task(self._lifetime(), name="lifetime of the engine")
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            return "asked" if asked.done() else "ttl"
        finally:
            asked.cancel()
            ended.cancel()

    def close(self) -> None:
        """Its entry is gone; the lease is the caller's to release."""
        asyncio.get_running_loop().remove_signal_handler(engine.ASKED)
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            registry.remove_service_entry(self._home, engine.KIND, engine.INSTANCE)
        except PipoError as error:
            # An entry without a living lease says nothing.
            say(error.message)

    async def _lifetime(self) -> None:
        await self._begun.wait()
        if self._ttl_s is None:
            await asyncio.Event().wait()
            return
        await asyncio.sleep(self._ttl_s)

    def _note(self, *, stopping: bool) -> None:
        try:
            self._say(replace(self._entry, stopping=stopping))
        except PipoError as error:
            say(error.message)

    def _say(self, entry: Engine) -> None:
        before, self._entry = self._entry, entry
        try:
            self._standing.write()
        except PipoError:
            self._entry = before
            raise
