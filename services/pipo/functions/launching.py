"""Starts a helper: one process, in a session and a process group of its own.

By exec, never by a bare fork: the pipeline process holds a lease and an open database. What a
helper gets is three descriptors, and those variables of the environment that programs need to
find their files, with what the operator allows by name: no other, so no secret of a pipeline.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pipo.functions.helper.wire import LOST_PIPE, OUT_OF_MEMORY
from pipo.functions.outline import MEMORY_BYTES

_PROGRAM: Final = "pipo.functions.helper"
_ENVIRONMENT: Final = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONHOME"),
        *("PYTHONPATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ", "USER"),
        "VIRTUAL_ENV",
    }
)


_OWN_STATUS: Final = {
    LOST_PIPE: "it closed the pipe to Pipo",
    OUT_OF_MEMORY: "it ran out of memory",
}


class NotStarted(Exception):
    """A helper could not be started; the text says why."""


@dataclass(slots=True)
class Launched:
    """A helper that was started. Closing `life` kills it and its group.

    `log` is what it prints; -1 when that goes nowhere.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    life: int
    log: int

    def kill(self) -> None:
        """Ends every process of its group. Safe until it is reaped."""
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Closes what leads to it. Safe twice."""
        self.control.close()
        for fd in (self.life, self.log):
            if fd >= 0:
                os.close(fd)
        self.life = self.log = -1


def environment(environ: Mapping[str, str], allowed: Iterable[str] = ()) -> dict[str, str]:
    """What a helper gets of an environment; `allowed` are the names that the operator gives away."""
    names = _ENVIRONMENT | set(allowed)
    return {k: v for k, v in environ.items() if k in names or k.startswith("LC_")}


def launch(
    environ: Mapping[str, str],
    *,
    result_limit: int,
    memory_bytes: int = MEMORY_BYTES,
    prints: bool = True,
) -> Launched:
    """A helper that starts; it tells when it is ready. Without `prints` they go nowhere.

    Raises: NotStarted.
    """
    opened: list[int] = []
    sockets: list[socket.socket] = []
    try:
        sockets = list(socket.socketpair())
        ours, theirs = sockets
        opened += (life := os.pipe())
        log = os.pipe() if prints else (-1, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
        opened += [fd for fd in log if fd >= 0]
        level = logging.getLogger().getEffectiveLevel()
        words = (theirs.fileno(), life[0], memory_bytes, result_limit, level)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=log[1],
            stderr=log[1],
            pass_fds=(theirs.fileno(), life[0]),
            start_new_session=True,
            cwd="/",
            env=dict(environ),
        )
    except OSError as error:
        for fd in opened:
            os.close(fd)
        for end in sockets:
            end.close()
        raise NotStarted(f"a process for functions cannot be started: {error}") from error
    theirs.close()
    os.close(life[0])
    os.close(log[1])
    return Launched(process, ours, life[1], log[0])


def ended_how(returncode: int) -> str:
    """What the end of a helper's process says: `exit status 3`, `SIGKILL`."""
    if returncode in _OWN_STATUS:
        return _OWN_STATUS[returncode]
    if returncode >= 0:
        return f"exit status {returncode}"
    with suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"
