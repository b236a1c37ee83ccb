"""What the journal of an ended pipeline says, asked read-only by its host."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pipo.errors import PipoError
from pipo.home import PipelineHome
from pipo.journal import tip
from pipo.journal.endings import last_ending
from pipo.journal.readonly import open_journal_readonly
from pipo.telemetry.logs import logger
from pipo_runner.host.policy import Ending

_log = logger("host.last_word")


async def last_word(files: PipelineHome, since_ms: int) -> Ending | None:
    """How the run that began at `since_ms` or later ended; None when it left no word.

    A journal that cannot be read has none to give either: what is wrong with it is
    the next start's to say.
    """
    try:
        if not await asyncio.to_thread(_has_a_word, files):
            return None
        rows = await open_journal_readonly(files.journal)
        try:
            found = await last_ending(rows)
        finally:
            await rows.close()
    except PipoError as error:
        _log.warning(error.message, action="journal.read", pipeline=files.name)
        return None
    if found is None or found.at < since_ms:
        return None
    return Ending(found.kind, found.reason)


def _has_a_word(files: PipelineHome) -> bool:
    """Whether reading may tell anything, and may be done.

    Opening a journal whose write-ahead log was lost would make an empty one in its place,
    and so hide the loss from the next start (decision 44).
    """
    if not files.journal.is_file():
        return False
    last = tip.read(files.folder)
    return Path(f"{files.journal}-wal").exists() or (last is not None and last.clean)
