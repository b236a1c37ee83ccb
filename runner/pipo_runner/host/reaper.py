"""As PID 1, a process inherits every orphan of its container: it has to take their ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class Reaper:
    """Calls `own` at each SIGCHLD, then, as PID 1, takes the ends of all other children."""

    def __init__(self, own: Callable[[], None], *, first: bool | None = None) -> None:
        self._own = own
        self._first = os.getpid() == 1 if first is None else first

    def start(self) -> None:
        """Needs a running loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def stop(self) -> None:
        """Safe twice."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def reap(self) -> None:
        """Takes what ended."""
        self._own()
        while self._first:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
