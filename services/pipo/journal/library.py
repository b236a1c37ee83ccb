"""Which SQLite may hold a journal, and on which file systems.

SQLite 3.7.0 to 3.51.2 can corrupt a WAL database when two connections write or
checkpoint at the same instant (fixed in 3.51.3, and in 3.50.7 and 3.44.6). A WAL
needs memory that all its processes share, so it lives on a local file system or nowhere.
"""

from __future__ import annotations

import os
from pathlib import Path

from pipo.errors import InvalidState

_FIXED = (3, 51, 3)
_BACKPORTS = {(3, 50): 7, (3, 44): 6}
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
    }
)


class UnsafeStorage(InvalidState):
    """The library or the file system cannot keep a journal whole."""


def refuse_affected(version: str, name: str) -> None:
    """Passes for a SQLite that carries the fix. Raises: UnsafeStorage."""
    parts = tuple(int(part) for part in version.split("."))
    backport = _BACKPORTS.get((parts[0], parts[1]))
    if parts >= _FIXED or (backport is not None and parts[2] >= backport):
        return
    raise UnsafeStorage(
        f"{name} carries SQLite {version}, which can corrupt a journal",
        hint=f"install a {name} with SQLite {'.'.join(map(str, _FIXED))} or newer, "
        "as requirements.lock does",
    )


def refuse_network(folder: Path, mounts: str | None = None) -> None:
    """Passes for a folder on a local file system. Raises: UnsafeStorage, naming the mount.

    `mounts` is the text of `/proc/self/mountinfo`; a system without it is taken as local.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            return
    place, kind = _mount_of(os.path.realpath(folder), mounts)
    if kind in _NETWORK:
        raise UnsafeStorage(
            f"{folder} is on a network file system ({kind}, mounted at {place})",
            hint="keep the home on a local disk or volume: set PIPO_HOME or --home",
        )


def _mount_of(path: str, mounts: str) -> tuple[str, str]:
    """The mount point that holds an absolute path, and its type (proc(5), mountinfo)."""
    best = ("", "")
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides the earlier one.
        if inside and len(point) >= len(best[0]):
            best = (point, after.split(" ", 1)[0])
    return best


def _unescape(text: str) -> str:
    """Undoes the octal escapes of blanks, tabs, line ends and backslashes."""
    for code in ("040", "011", "012", "134"):
        text = text.replace("\\" + code, chr(int(code, 8)))
    return text
