"""The clean-up of a running pipeline: at its start, then every ten minutes (L051).

It runs beside everything else and never twice at once. What stops it in its midst is made up
for by the next pass: a batch is one commit, and what is old stays old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from pipo.errors import Unavailable
from pipo.journal.clean_up import CleanUp, NoRoom
from pipo.lang.model import Retention
from pipo_runner.pipeline.flow.timers import Timers

EVERY_S: Final = 600.0


class Tidying:
    """Passes of the clean-up under the retention in force, from `begin` to `end`."""

    def __init__(
        self,
        clean_up: CleanUp,
        keep: Callable[[], Retention],
        *,
        timers: Timers,
        log: Callable[..., None],
    ) -> None:
        """`log(level, message, **keys)` is told of what a pass removed or put off."""
        self._clean_up = clean_up
        self._keep = keep
        self._timers = timers
        self._log = log
        self._pass: asyncio.Task[Any] | None = None
        self._ended = False

    def begin(self) -> None:
        """Starts a pass; the next one follows ten minutes after its end."""
        if not self._ended:
            self._pass = self._timers.spawn(self._run(), name="clean-up")

    def end(self) -> None:
        """No pass goes on or begins any more. Safe twice, and before `begin`."""
        self._ended = True
        if self._pass is not None:
            self._pass.cancel()

    async def _run(self) -> None:
        try:
            cleaned = await self._clean_up.run(self._keep())
            if cleaned.cleared or cleaned.deleted:
                self._log(
                    "info",
                    "old packets were cleaned up",
                    cleared=cleaned.cleared,
                    deleted=cleaned.deleted,
                )
            if await self._clean_up.compact():
                self._log("info", "the journal was compacted")
        except NoRoom as error:
            self._log("warning", error.message, hint=error.hint)
        except Unavailable:
            # A journal that is too busy puts the pass off, silently (edge 340); one that failed
            # ends the process elsewhere.
            pass
        self._timers.after(EVERY_S, self.begin)
