"""The checker as a service: followers of all running pipelines, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pipo.connectors.contract import CheckContext
from pipo.errors import Internal
from pipo.health import HealthListener
from pipo.home import tokens
from pipo.home.directory import Entries
from pipo.home.registry import Entry
from pipo.service import ServiceShell
from pipo.telemetry.metrics import render
from pipo_checker.follower import Follower
from pipo_checker.meters import families
from pipo_checker.roster import Roster
from pipo_checker.targets import Connectors, InstalledConnectors


class Checker:
    """A running checker. It serves no calls: it dials the pipelines."""

    address = ""

    def __init__(
        self, shell: ServiceShell, http_port: int, connectors: Connectors | None = None
    ) -> None:
        self._shell = shell
        self._http_port = http_port
        self._connectors = connectors or InstalledConnectors(CheckContext(shell.clock, shell.home))
        self._roster = Roster(Entries(shell.home), self._follower)
        self._health = HealthListener(
            shell.kind, shell.id, facts=self._facts, metrics=self._metrics
        )
        self._following: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def http_address(self) -> str:
        return self._shell.dialable(self._health.port)

    async def start(self) -> None:
        """Returns when it answers on its HTTP port and follows pipelines.

        Raises: Conflict, if the port is taken.
        """
        tokens.internal_token(self._shell.home)
        await self._health.start(self._shell.config.bind, self._http_port)
        self._following = asyncio.create_task(self._follow(), name="roster")

    async def stop(self) -> None:
        """Ends everything; safe twice.

        1. Health says 503.
        2. The streams end; what was held goes to other checkers, or waits.
        3. The HTTP port closes.
        """
        self._stopped = True
        self._health.healthy = False
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
        await self._health.stop()

    async def _follow(self) -> None:
        try:
            await self._roster.run()
        except Exception as error:
            self._shell.fail(Internal(f"following the pipelines failed: {error}: this is a bug"))

    def _follower(self, entry: Entry, lost: Callable[[], None]) -> Follower:
        return Follower(
            entry,
            checker_id=self._shell.id,
            token=partial(tokens.internal_token, self._shell.home),
            connectors=self._connectors,
            clock=self._shell.clock,
            lost=lost,
        )

    def _facts(self) -> dict[str, int]:
        meters = self._roster.meters().values()
        return {
            "pipelines": len(meters),
            "attached": sum(m.attached for m in meters),
            "held": sum(len(m.held) for m in meters),
        }

    def _metrics(self) -> bytes:
        return render(families(self._roster.meters()))


async def start(kind: type[Checker], http_port: int, shell: ServiceShell) -> Checker:
    """A checker of this kind that has started."""
    checker = kind(shell, http_port)
    await checker.start()
    return checker
