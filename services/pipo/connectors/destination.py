"""Files that Pipo writes: which one a path means right now, and the folders above it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pipo.connectors.contract import WriteFailed
from pipo.home import permissions

_REFUSED = frozenset({errno.EACCES, errno.EPERM})
_HINTS = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some of the quota",
    errno.EROFS: "the file system is mounted read-only",
    errno.EBUSY: "a file that is mounted by itself cannot be replaced: mount its folder",
}

Identity = tuple[int, int]


def identity(path: str) -> Identity | None:
    """Device and inode of the file that a path leads to, or None when there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def make_folder(path: str) -> None:
    """Makes the folder that a file stands in, with all above it.

    Durable: on return the new folders survive a power cut.
    Raises: OSError.
    """
    missing = []
    folder = Path(path).parent
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(exist_ok=True)
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(path: str, error: OSError) -> WriteFailed:
    """Why a destination's file cannot be written, with whose it is and what mends it (R46)."""
    named = error.filename if isinstance(error.filename, str) else path
    if error.errno in _REFUSED:
        refusal = permissions.refused(Path(named), doing="write")
        return WriteFailed(refusal.message, hint=refusal.hint)
    return WriteFailed(f"{named}: {error.strerror or error}", hint=_HINTS.get(error.errno or 0, ""))


def cannot_open(path: str) -> WriteFailed | None:
    """The same for a library that says no more than that it cannot; None when the modes allow it."""
    place = path if os.path.exists(path) else os.path.dirname(path)
    if os.access(place, os.W_OK):
        return None
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return cannot_write(path, OSError(errno.EROFS, os.strerror(errno.EROFS), path))
    return cannot_write(path, PermissionError(errno.EACCES, "Permission denied", path))
