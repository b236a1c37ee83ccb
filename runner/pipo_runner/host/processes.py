"""The two ways a host knows a running pipeline process.

`Child` (spawning.py) is one that it started: it sees its exit and may signal it.
`Adopted` is one that another host, or its own predecessor, started: it is known
by its lease alone and is never signalled, since a pid proves nothing.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Protocol

from pipo.home import leases
from pipo_runner.host.policy import Exit

# An end is noticed this late; hundreds may have been adopted.
LEASE_POLL_S = 1.0


class Process(Protocol):
    """A running pipeline process."""

    @property
    def own(self) -> bool:
        """Whether this host started it."""

    async def exited(self) -> Exit:
        """How it ended, once it has."""

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal, where it is this host's own; nothing else."""

    def forget(self) -> None:
        """Stops watching; the process runs on."""


class Adopted:
    """A process that holds the lease of its pipeline and is nobody's child here."""

    own = False

    def __init__(self, lease: Path, *, poll_s: float = LEASE_POLL_S) -> None:
        self._lease = lease
        self._poll_s = poll_s

    async def exited(self) -> Exit:
        # The kernel tells nobody that a lock is free: asking is the only way.
        while leases.holder(self._lease) is not None:  # noqa: ASYNC110
            await asyncio.sleep(self._poll_s)
        return Exit()

    def signal(self, number: signal.Signals) -> None:
        pass

    def forget(self) -> None:
        pass
