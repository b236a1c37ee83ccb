"""The watched folder as it is on disk. Blocking: it runs on a thread of the input's own.

Whatever cannot be told (a folder without permission, a share that does not answer, a mount that
is gone) is left as it was last known: only a folder that can be read says that a file is gone.

Links to files are followed where they end inside the watched folder (decision 23), links to
folders never: no loop, and no file twice.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipo.connectors.watch.globs import Glob
from pipo.connectors.watch.snapshot import Stamp

_MOUNTS = Path("/proc/self/mountinfo")
# A link that leads to itself is no file.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(slots=True)
class Seen:
    """What one look saw: in `found` the files asked for, or those that differ; None is gone.

    `closed` are folders that could not be read, with the reasons; `untold` files of which
    nothing is known now; `outside` links that lead out of the folder. All by name. `mount` is
    the mount point that the folder is on, told where something is gone.
    """

    found: dict[str, Stamp | None] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    count: int = 0
    mount: str | None = None

    def hides(self, name: str) -> bool:
        """Whether nothing can be told of a file."""
        if name in self.untold:
            return True
        return any(not top or name.startswith(f"{top}/") for top in self.closed)


class Folder:
    """Looks at the files that a glob means. `on_folder` hears of each folder before it is read."""

    def __init__(self, glob: Glob, on_folder: Callable[[str], object]) -> None:
        self._glob = glob
        self._on_folder = on_folder

    def look(self, names: Iterable[str]) -> Seen:
        """What is there under these names."""
        seen = Seen()
        for name in names:
            if self._glob.takes(name):
                known, stamp = self._stamp(name, seen)
                if known:
                    seen.found[name] = stamp
        if None in seen.found.values():
            seen.mount = mount_of(self._glob.root)
        return seen

    def compare(self, told: Mapping[str, Stamp]) -> Seen:
        """Every file that differs from what is told of it."""
        seen = Seen()
        there = self._walk(told, seen)
        seen.count = len(there)
        seen.mount = mount_of(self._glob.root)
        for name in told.keys() - there:
            if not seen.hides(name):
                seen.found[name] = None
        return seen

    def _walk(self, told: Mapping[str, Stamp], seen: Seen) -> set[str]:
        """The names of all files; those that differ are found."""
        there: set[str] = set()

        def take(name: str, stamp: Stamp | None) -> None:
            if stamp is not None:
                there.add(name)
                if told.get(name) != stamp:
                    seen.found[name] = stamp

        left = [""]
        while left:
            folder = left.pop()
            path = self._glob.path(folder)
            seen.folders.add(path)
            self._on_folder(path)
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        name = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            if self._glob.enters(name):
                                left.append(name)
                        elif self._glob.takes(name):
                            take(name, self._stamp(name, seen)[1])
            except OSError as error:
                if error.errno not in _ABSENT:
                    seen.closed[folder] = error.strerror or str(error)
                elif not folder and self._glob.plain:
                    take("", self._stamp("", seen)[1])
        return there

    def _stamp(self, name: str, seen: Seen) -> tuple[bool, Stamp | None]:
        """Whether it is known what is there, and what: None where there is no file."""
        path = self._glob.path(name)
        try:
            about = os.lstat(path)
            linked = stat.S_ISLNK(about.st_mode)
            stamp = stamp_of(os.stat(path) if linked else about)
        except OSError as error:
            if error.errno in _ABSENT:
                return True, None
            seen.untold.add(name)
            return False, None
        # A path that is itself a link is the author's own.
        if linked and name and stamp and not is_inside(self._glob.root, os.path.realpath(path)):
            seen.outside.add(name)
            return True, None
        return True, stamp


def stamp_of(about: os.stat_result) -> Stamp | None:
    """What tells this state of a file; None for what is none: a folder, a pipe, a device."""
    return Stamp(about.st_mtime_ns, about.st_size) if stat.S_ISREG(about.st_mode) else None


def is_inside(root: str, real: str) -> bool:
    """Whether a path without links lies below a folder."""
    return real.startswith(os.path.realpath(root).rstrip("/") + "/")


def mount_of(path: str) -> str:
    """The mount point that a path lies on, whether it exists or not; `/` where none is known."""
    real = os.path.realpath(path)
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).splitlines()
    except OSError:
        return "/"
    points = (_unescaped(line.split(" ")[4]) for line in lines)
    return max((one for one in points if _holds(one, real)), key=len, default="/")


def is_unmounted(was: str, now: str | None) -> bool:
    """Whether a folder that was on one mount point is on one above it: its own is gone."""
    return now is not None and was != now and _holds(now, was)


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    """A path as the kernel lists it: blanks and the like are octal."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text
