"""Says where something may have happened in a folder, by inotify; never what.

Whatever it misses (a full queue, more folders than the system lets one watch, a change that
another machine made on a share) is found by the next look at everything. There is one for a
pipeline: a user has few of them. Nothing here wakes a process in whose folders nothing happens.

The calls are made through ctypes: packages for inotify look for the C library by running
`ldconfig`, and a pipeline process does not fork (design §7); watchfiles wakes its thread twenty
times a second.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

# A flood of changes is read so often and not each by itself.
REST_S = 0.1
_READ_BYTES, _READS = 64 * 1024, 16
_EVENT = struct.Struct("iIII")

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT = 0x400, 0x800, 0x2000
_OVERFLOW, _IGNORED, _ISDIR, _ONLYDIR = 0x4000, 0x8000, 0x40000000, 0x01000000
_FILES = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_SELF = _DELETE_SELF | _MOVE_SELF | _UNMOUNT


class Listener(Protocol):
    """Who hears of folders; called on the event loop."""

    def noticed(self, folder: str, name: str) -> None:
        """Something happened to the file `name` of a folder."""

    def noticed_anywhere(self) -> None:
        """Something happened somewhere, or to a folder."""


class Notice(NamedTuple):
    """One event of the kernel."""

    watch: int
    mask: int
    name: str


class Notices:
    """The watched folders of all listeners."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        # Guards the folders: they are added by the listeners' threads and read by the loop.
        self._lock = threading.Lock()
        self._folders: dict[int, dict[Listener, str]] = {}
        self._later: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Raises: OSError, where the system gives no more of these."""
        self._fd = self._call(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def close(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
            if self._later is not None:
                self._later.cancel()
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def watch(self, listener: Listener, folder: str) -> bool:
        """Whether there is a folder; its changes are noticed from now on. On any thread.

        Raises: OSError, where the system lets one watch no more.
        """
        with self._lock:
            if self._fd < 0:
                return True
            made = self._libc.inotify_add_watch(
                self._fd, os.fsencode(folder), _FILES | _SELF | _ONLYDIR
            )
            try:
                watch = self._call(made)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.ENOMEM):
                    raise
                return error.errno not in (errno.ENOENT, errno.ENOTDIR)
            self._folders.setdefault(watch, {})[listener] = folder
            return True

    def keep(self, listener: Listener, folders: set[str]) -> None:
        """Lets every other folder of a listener go. On any thread."""
        with self._lock:
            for watch, heard in list(self._folders.items()):
                if listener in heard and heard[listener] not in folders:
                    del heard[listener]
                    self._drop_unheard(watch)

    def _drop_unheard(self, watch: int) -> None:
        if not self._folders[watch]:
            del self._folders[watch]
            self._libc.inotify_rm_watch(self._fd, watch)

    def _call(self, result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(result)

    # ── events ───────────────────────────────────────────────────────────────

    def _read(self) -> None:
        """Hands on what has queued, then rests a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        self._later = loop.call_later(REST_S, self._read_again)
        with suppress(BlockingIOError):
            for _ in range(_READS):
                for notice in parse(os.read(self._fd, _READ_BYTES)):
                    self._hand_on(notice)

    def _read_again(self) -> None:
        self._later = None
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def _hand_on(self, notice: Notice) -> None:
        with self._lock:
            if notice.mask & _OVERFLOW:
                heard = {listener: "" for some in self._folders.values() for listener in some}
            else:
                heard = dict(self._folders.get(notice.watch, {}))
            if notice.mask & _IGNORED:
                self._folders.pop(notice.watch, None)
            elif notice.mask & _MOVE_SELF and notice.watch in self._folders:
                # It goes on telling of the folder under a name that is no longer its own.
                self._folders[notice.watch] = {}
                self._drop_unheard(notice.watch)
        for listener, folder in heard.items():
            if notice.mask & (_OVERFLOW | _IGNORED | _SELF | _ISDIR):
                listener.noticed_anywhere()
            else:
                listener.noticed(folder, notice.name)


def parse(events: bytes) -> Iterator[Notice]:
    """The events of one read, as inotify(7) lays them out."""
    at = 0
    while at < len(events):
        watch, mask, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size + length
        name = events[at - length : at].split(b"\0", 1)[0]
        yield Notice(watch, mask, os.fsdecode(name))
