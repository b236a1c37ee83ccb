"""As PID 1, a process inherits every orphan of its container: it has to take their ends."""

from __future__ import annotations

import asyncio
import os

# uvloop keeps SIGCHLD to itself; a zombie harms nobody for this long.
REAP_EVERY_S = 1.0


class Reaper:
    """Takes the ends of inherited children, where this process is PID 1; else does nothing."""

    def __init__(self, *, first: bool | None = None, every_s: float = REAP_EVERY_S) -> None:
        self._first = os.getpid() == 1 if first is None else first
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Needs a running loop."""
        if self._first:
            self._task = asyncio.create_task(self._reap_forever(), name="reaper")

    def stop(self) -> None:
        """Safe twice, and before `start`."""
        if self._task is not None:
            self._task.cancel()

    async def _reap_forever(self) -> None:
        while True:
            reap()
            await asyncio.sleep(self._every_s)


def reap() -> None:
    """Takes the end of every child that has ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
