"""One writer at a time for a file that is read before it is written to.

The lock is flock(2), on a handle: the kernel gives it back when the process dies.
"""

from __future__ import annotations

import errno
import fcntl
from threading import Event
from typing import Final

TRIES_MAX: Final = 500
PAUSE_S: Final = 0.01


def take(handle: int, path: str) -> None:
    """Locks an open file against other writers of the same path, waiting up to 5 s (as edge 168).

    Raises: OSError, when somebody else holds it all that time.
    """
    pause = Event()
    for _ in range(TRIES_MAX):
        if try_to_take(handle):
            return
        pause.wait(PAUSE_S)
    raise OSError(errno.EAGAIN, "another process is writing to it and does not end", path)


def try_to_take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def give_back(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_UN)
