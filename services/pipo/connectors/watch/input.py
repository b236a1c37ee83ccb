"""Makes packets of files that appear, change or go.

What counts is the comparison of the folder with a snapshot of it, which the journal holds: an
entry for each file, moved in the transaction of the packet that tells of it. So a change is one
packet wherever a crash comes, and what happened while the pipeline was down is found by the
first look. Notices of the system only say when to look, and where; every `rescan_s` everything
is looked at all the same, since they do not cross every mount.

Modules: `globs` (which files are meant), `folder` (what is there), `snapshot` (what is known,
and when a difference counts), `notices`, `reading` (content), `watching` (one input).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pipo.connectors.contract import Input, InputContext, InputSpec
from pipo.connectors.watch.notices import Notices
from pipo.connectors.watch.watching import Timing, Watching


def build(specs: Sequence[InputSpec], context: InputContext) -> Input:
    return WatchInputs(specs, context)


class WatchInputs:
    """All watch inputs of a pipeline; each looks on a thread of its own, and all share the notices."""

    def __init__(
        self, specs: Sequence[InputSpec], context: InputContext, *, timing: Timing | None = None
    ) -> None:
        self._context = context
        self._notices = Notices()
        self._stop = asyncio.Event()
        made = timing or Timing()
        self._inputs = [Watching(s, context, self._notices, self._stop, made) for s in specs]
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts to watch; on the first start what is there is known then, and makes no packet.

        Raises: PipoError, for a glob that means nothing or a folder whose first state is unknown.
        """
        if self._running is not None:
            return
        try:
            self._notices.open()
        except OSError as error:
            self._context.log(
                "warn",
                "changes of files are found by looking only: the system gives no notices",
                action="no_notices",
                reason=error.strerror,
            )
        try:
            for one in self._inputs:
                await one.open()
        except BaseException:
            self._let_go()
            raise
        self._running = asyncio.create_task(self._run_all(), name="watch inputs")

    async def close(self) -> None:
        """Returns when no change is being taken any more; a look at a dead mount is left alone."""
        self._stop.set()
        for one in self._inputs:
            one.wake()
        running, self._running = self._running, None
        if running is not None:
            await running
        self._let_go()

    async def _run_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for one in self._inputs:
                group.create_task(one.run(), name=f"watch {one.name}")

    def _let_go(self) -> None:
        for one in self._inputs:
            one.close()
        self._notices.close()
