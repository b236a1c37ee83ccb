"""Who is alive: a lock that the kernel releases when its holder dies.

Idea. A pipeline process (and every service) holds an open-file-description lock
(F_OFD_SETLK) on a file of the home for as long as it lives. A pid proves
nothing: it is reused, and it means nothing in another container. The lock goes
with the process, on any container of the same kernel, however it ends.

Rejected. flock(2) cannot be asked about without being taken. Classic POSIX
locks (F_SETLK) vanish when *any* descriptor of the file is closed in the
process. F_OFD_GETLK asks and takes nothing.

Dangers.
- The lock belongs to the open file description: a forked child would hold it
  on. The descriptor is close-on-exec, and no process forks without exec once it
  holds a lease.
- A lease file that was deleted and made again would give two holders. After
  taking a lock the file is compared with the path, and opened anew if they differ.
- The holder's name stands in the file and is written after the lock is taken: a
  reader that comes between sees a held lease of an unnamed holder, or its
  predecessor's name. The name is for messages; the lock alone decides.
- A lock on a network file system may mean nothing; the journal refuses those.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from pipo.clock import Clock
from pipo.errors import Conflict
from pipo.home import permissions

# struct flock: l_type, l_whence, l_start, l_len, l_pid (0 for OFD locks), padding.
_FLOCK = struct.Struct("hhqqi0q")
_BUSY = frozenset({errno.EAGAIN, errno.EACCES})
_POLL_S = 0.05
_NAME_BYTES_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, as it wrote itself; host is empty and pid 0 when it has not yet."""

    host: str
    pid: int
    started_at: int

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}" if self.pid else "another process"


class Lease:
    """A held lease. Not inherited by exec; ends with `release` or with the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def acquire(cls, path: Path, *, clock: Clock, wait_s: float = 2.0) -> Lease:
        """The lease on `path`, waited for up to `wait_s`.

        Blocks its thread: for use before an event loop runs, or off it.
        Raises: Conflict, naming the holder; PipoError, if the file cannot be opened.
        """
        deadline = clock.monotonic() + wait_s
        pause = threading.Event()
        while True:
            lease = cls.try_acquire(path, clock=clock)
            if lease is not None:
                return lease
            if clock.monotonic() >= deadline:
                raise Conflict(
                    f"{path} is held by {holder(path) or 'another process'}",
                    hint="it runs already; stop it there first",
                )
            pause.wait(_POLL_S)

    @classmethod
    def try_acquire(cls, path: Path, *, clock: Clock) -> Lease | None:
        """The lease on `path`, or None when somebody holds it.

        Raises: PipoError, if the file cannot be opened or signed.
        """
        while True:
            fd = _open(path)
            try:
                if not _lock(fd):
                    os.close(fd)
                    return None
                if _stands_at(fd, path):
                    _sign(fd, clock)
                    return cls(path, fd)
            except OSError as error:
                os.close(fd)
                raise permissions.explain(path, error, doing="write") from error
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    @property
    def fd(self) -> int:
        """The descriptor that holds it: whoever has a duplicate holds it on, also after `release`."""
        return self._fd

    def release(self) -> None:
        """Frees the lease; safe twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder(path: Path) -> Holder | None:
    """Who holds the lease on `path`, or None. Takes nothing, waits for nothing.

    Raises: PipoError, if the file is there and cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise permissions.explain(path, error, doing="read") from error
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, question)
        if _FLOCK.unpack(answer)[0] == fcntl.F_UNLCK:
            return None
        return _named(os.pread(fd, _NAME_BYTES_LIMIT, 0))
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    except OSError as error:
        raise permissions.explain(path, error, doing="write") from error


def _lock(fd: int) -> bool:
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


def _stands_at(fd: int, path: Path) -> bool:
    held = os.fstat(fd)
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _sign(fd: int, clock: Clock) -> None:
    name = json.dumps(
        {"host": socket.gethostname(), "pid": os.getpid(), "started_at": clock.now_ms()}
    ).encode()
    # One write, then the cut: a reader meets whole JSON, or trailing rests that it ignores.
    os.pwrite(fd, name + b"\n", 0)
    os.ftruncate(fd, len(name) + 1)


def _named(content: bytes) -> Holder:
    try:
        found = json.loads(content.partition(b"\n")[0])
        return Holder(str(found["host"]), int(found["pid"]), int(found["started_at"]))
    except (ValueError, KeyError, TypeError):
        return Holder("", 0, 0)
