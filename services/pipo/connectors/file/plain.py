"""Plain files by their paths: which one a path means now, opening, appending."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from pipo.connectors.destination import Identity

CHUNK_BYTES = 1024 * 1024


def found_at(path: str) -> os.stat_result | None:
    """The plain file that a path means now, or None when there is none.

    Raises: OSError, for a folder and whatever else is no plain file.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    require_plain(path, found)
    return found


def require_plain(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a plain file", path)


def identity_of(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def is_at(handle: int | None, path: str) -> bool:
    """Whether the open file is the one that a path means now."""
    found = found_at(path)
    if found is None or handle is None:
        return False
    return identity_of(found) == identity_of(os.fstat(handle))


def open_to_append(path: str) -> int:
    """A handle that reads anywhere and writes at the end; the file is made when it is missing.

    Raises: OSError, also for what is no plain file.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(path, flags, 0o666)
    try:
        require_plain(path, os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return handle


def close_quietly(handle: int | None) -> None:
    if handle is not None:
        with suppress(OSError):
            os.close(handle)


def write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def extend(handle: int, size: int, data: bytes) -> None:
    """Appends to a file of that size.

    Durable: on return the bytes survive a power cut.
    Raises: OSError; the file is then cut back to `size`, unless that failed as well or
        somebody else appended meanwhile.
    """
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(handle, view) :]
        os.fdatasync(handle)
    except OSError:
        with suppress(OSError):
            if os.fstat(handle).st_size == size + len(data) - len(view):
                os.ftruncate(handle, size)
        raise


def ends_line(handle: int, size: int) -> bool:
    return size == 0 or os.pread(handle, 1, size - 1) == b"\n"


def chunks(handle: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes between two offsets, in bounded pieces; fewer when the file ends before."""
    while start < end and (chunk := os.pread(handle, min(CHUNK_BYTES, end - start), start)):
        start += len(chunk)
        yield chunk
