"""The steps of a stop that takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable

from pipo.errors import PipoError
from pipo.telemetry.logs import logger
from pipo_runner.host.processes import Process

_log = logger("host.insistence")
# The waits between questions to a process that does not answer: doubled, up to the longest.
ASK_AGAIN_S = 1.0
ASK_AGAIN_S_MAX = 30.0


class Insistence:
    """Ends one pipeline's process with means that get harsher; one at a time.

    `ask_now` asks the pipeline itself to end at once; `step_s` is what each step may take.
    """

    def __init__(self, name: str, ask_now: Callable[[], Awaitable[object]], step_s: float) -> None:
        self._name = name
        self._ask_now = ask_now
        self._step_s = step_s
        self._task: asyncio.Task[None] | None = None

    def begin(self, process: Process, grace_s: float, *, asked: bool) -> None:
        """From `grace_s` on, in place of what was begun before; `asked` when `now` was."""
        self.end()
        self._task = asyncio.create_task(
            self._insist(process, grace_s, asked=asked), name=f"stop of {self._name}"
        )

    def ask_until_heard(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Asks, and again while nobody answers, in place of what was begun before."""
        self.end()
        self._task = asyncio.create_task(self._repeat(ask), name=f"stop of {self._name}, again")

    def end(self) -> None:
        """The process is gone. Safe twice, and before `begin`."""
        if self._task is not None:
            self._task.cancel()

    async def _insist(self, process: Process, grace_s: float, *, asked: bool) -> None:
        """1. `now`, unless that was asked for; 2. SIGTERM; 3. SIGKILL (own processes only)."""
        await asyncio.sleep(grace_s)
        if not asked:
            with contextlib.suppress(PipoError):
                await self._ask_now()
            await asyncio.sleep(self._step_s)
        process.signal(signal.SIGTERM)
        await asyncio.sleep(self._step_s)
        _log.warning("killed", action="pipeline.kill", pipeline=self._name)
        process.signal(signal.SIGKILL)

    async def _repeat(self, ask: Callable[[], Awaitable[object]]) -> None:
        pause_s = ASK_AGAIN_S
        while True:
            try:
                await ask()
                return
            except PipoError:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, ASK_AGAIN_S_MAX)
