"""How a pipeline's last run ended, by the journal's own word.

A run that ended in order writes one of `ENDINGS` as good as last; a crash writes
nothing. So the newest few events tell them apart, without a scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipo.journal.changes import Completed, Failed, Started, Stopped
from pipo.journal.rows import Rows
from pipo.payload import decode

ENDINGS: Final = {Stopped.event: "stopped", Completed.event: "completed", Failed.event: "failed"}
# A pause that outlives the stop is journaled behind it (edge 306).
_NEWEST: Final = 16

# The newest events, newest first.
NEWEST: Final = "SELECT at, type, CAST(detail AS BLOB) FROM events ORDER BY seq DESC LIMIT ?"


@dataclass(frozen=True, slots=True)
class Ending:
    """`kind` is stopped, completed or failed; `reason` is why, empty where none is given."""

    kind: str
    reason: str
    at: int


async def last_ending(rows: Rows) -> Ending | None:
    """How the last run ended; None while it runs and after a crash."""
    for at, event, detail in await rows.rows(NEWEST, (_NEWEST,)):
        if event == Started.event:
            return None
        if event in ENDINGS:
            found = decode(detail) if detail else {}
            return Ending(ENDINGS[event], str(found.get("reason", "")), at)
    return None
