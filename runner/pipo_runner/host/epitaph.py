"""A process that journals a stop which the pipeline's own process could not.

The host opens no journal for writing, so it has this forked instead: it takes the
lease, writes `pipeline.stopped` and ends. A pause that a crashed run was in outlives this
stop, and is journaled behind it (edge 306).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipo.clock import SystemClock
from pipo.errors import PipoError
from pipo.home import Home
from pipo.home.leases import Lease
from pipo.journal.changes import Change, Paused, Stopped
from pipo.journal.recover import pause_reason
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.telemetry.logs import logger
from pipo_runner.host.child import described
from pipo_runner.spec import ProcessSpec

# The reason of a stop that nobody's drain came before.
CRASHED = "crashed"


def run(spec: ProcessSpec, report: Callable[[dict[str, Any]], None]) -> int:
    """Journals the stop, with the reason in the options; 0 when it is on disk."""
    try:
        reason = str(spec.options["reason"])
        asyncio.run(_journal(Home(Path(spec.home)), spec.name, reason))
    except PipoError as error:
        logger("host.epitaph").warning(error.message, action="pipeline.epitaph")
        report({"error": described(error)})
        return 1
    report({"ok": True})
    return 0


async def _journal(home: Home, name: str, reason: str) -> None:
    clock = SystemClock()
    files = home.pipeline(name)
    if not files.journal.is_file():
        return
    lease = Lease.acquire(files.lease, clock=clock)
    try:
        journal = SqliteJournal.open(files.folder, pipeline=name, clock=clock)
        try:
            at = clock.now_ms()
            changes: list[Change] = [Stopped(reason, at)]
            paused = await pause_reason(journal.rows)
            if paused is not None and reason == CRASHED:
                changes.append(Paused(paused, at))
            await journal.commit(*changes)
        finally:
            await journal.close(clean=True)
    finally:
        lease.release()
