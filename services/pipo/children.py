"""The end of a child process that serves this one over a socket."""

from __future__ import annotations

import contextlib
import os
import select
import signal


def take_end(pid: int, timeout_ms: int) -> None:
    """Takes the child's end, which that of its socket brings about, or force does. It blocks."""
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(timeout_ms):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        finally:
            os.close(pidfd)
