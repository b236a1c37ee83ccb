"""A file of the registry that its owner keeps as it wrote it.

Idea. Who is not in the registry cannot be called, however well it runs: one damaged file would turn
away the webhooks of a pipeline, or leave an engine that no command finds. So the owner looks after
its file for as long as it holds its lease, and writes it again when somebody cut it, deleted
it or put an older one back.

Dangers.
- A process that was replaced must not write over its successor: the lease says who may.
- Looking costs one `stat`; only a file that has changed costs more.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

from pipo.errors import PipoError
from pipo.home import leases
from pipo.telemetry.logs import logger

LOOK_S = 2.0
_log = logger("home.standing")
_Signature = tuple[int, int, int]


class Standing:
    """One file, and how it is written. Use it on one thread."""

    def __init__(self, path: Path, lease: Path, write: Callable[[], None]) -> None:
        self._path = path
        self._lease = lease
        self._write = write
        self._seen: _Signature | None = None
        self._failing = False

    def write(self) -> None:
        """The file stands, whole, as it should be now. Raises: PipoError, if it cannot be written."""
        self._seen = None
        self._write()
        self._seen = _signature(self._path)

    def renew(self) -> None:
        """The same; where it cannot be written the log says so, and the next look tries again."""
        try:
            self.write()
        except PipoError as error:
            if not self._failing:
                _log.warning(error.message, action="registry.write", hint=error.hint)
            self._failing = True
        else:
            self._failing = False

    def look(self) -> None:
        """Writes the file again if it is not what was written, and this process holds the lease."""
        if self._seen is not None and _signature(self._path) == self._seen:
            return
        try:
            holder = leases.holder(self._lease)
        except PipoError:
            return
        ours = (socket.gethostname(), os.getpid())
        if holder is not None and (holder.host, holder.pid) == ours:
            self.renew()

    async def keep(self) -> None:
        """Looks every two seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()


def _signature(path: Path) -> _Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
