"""What a person needs to know when a file or folder of the home cannot be used (R46)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from pipo.errors import Forbidden, PipoError, Unavailable

_PERMISSION = frozenset({errno.EACCES, errno.EPERM})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def explain(path: Path, error: OSError, *, doing: str) -> PipoError:
    """One error that names path, process, owner, mode and the command that mends it.

    `doing` is a verb such as "write" or "read".
    """
    if error.errno == errno.EROFS:
        return Unavailable(
            f"cannot {doing} {path}: its file system is read-only",
            hint="mount the home read-write, or name another one with --home or PIPO_HOME",
        )
    if error.errno in _PERMISSION:
        return refused(path, doing=doing)
    if error.errno in _FULL:
        return Unavailable(
            f"cannot {doing} {path}: {error.strerror or error}",
            hint="make room on its disk, and try again",
        )
    return Unavailable(f"cannot {doing} {path}: {error.strerror or error}")


def unusable(path: Path, *, doing: str) -> PipoError:
    """Why `os.access` refuses a path: its file system is read-only, or the modes are against it."""
    if os.statvfs(_nearest(path)).f_flag & os.ST_RDONLY:
        return explain(path, OSError(errno.EROFS, os.strerror(errno.EROFS)), doing=doing)
    return refused(path, doing=doing)


def refused(path: Path, *, doing: str) -> Forbidden:
    """The same for a path that the file modes refuse to this process."""
    place = _nearest(path)
    found = place.stat()
    uid, gid = os.geteuid(), os.getegid()
    mode = stat.S_IMODE(found.st_mode)
    where = str(path) if place == path else f"{path}, since {place}"
    return Forbidden(
        f"cannot {doing} {where}: this process runs as {uid}:{gid}, "
        f"the path belongs to {found.st_uid}:{found.st_gid} with mode {mode:04o}",
        hint=f"mend it with: {_mending(place, found, uid, gid)}",
    )


def _mending(place: Path, found: os.stat_result, uid: int, gid: int) -> str:
    """The least command that lets this process in: group rights first, ownership else."""
    folder = stat.S_ISDIR(found.st_mode)
    if found.st_gid in {gid, *os.getgroups()} and found.st_uid != uid:
        return f"sudo chmod -R g+rwX {place}" if folder else f"sudo chmod g+rw {place}"
    if found.st_uid == uid:
        return f"chmod -R u+rwX {place}" if folder else f"chmod u+rw {place}"
    return f"sudo chown -R {uid}:{gid} {place}" if folder else f"sudo chown {uid}:{gid} {place}"


def _nearest(path: Path) -> Path:
    """The path itself, or the ancestor that hides it or would have to hold it."""
    for place in (path, *path.parents):
        try:
            place.stat()
        except OSError:
            continue
        return place
    return Path("/")
