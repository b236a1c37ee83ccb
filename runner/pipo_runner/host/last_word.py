"""What the journal of an ended pipeline says, asked read-only by its host."""

from __future__ import annotations

import asyncio

from pipo.errors import PipoError
from pipo.home import PipelineHome
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
        if not await asyncio.to_thread(files.journal.is_file):
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
