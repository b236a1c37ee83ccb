"""What a folder may look like after a kill or a power cut at any moment of a write.

`Disk` watches the calls of `os` that change files of one folder. A kill leaves what
was written so far, cut at any byte. A power cut leaves, for each file, what its last
sync left, or what was written since, a part of it, or zeros in its place; and, for
the folder, its names of the last sync or those of now.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

Files = Mapping[str, bytes]
WATCHED = ("open", "write", "ftruncate", "fdatasync", "fsync", "rename", "unlink", "fchmod")


@dataclass(frozen=True)
class Moment:
    """The folder between two calls: name → inode, inode → bytes; now, and as of the last syncs."""

    names: Mapping[str, int]
    synced_names: Mapping[str, int]
    contents: Mapping[int, bytes]
    synced: Mapping[int, bytes]

    def after_a_kill(self) -> Files:
        return {name: self.contents[inode] for name, inode in self.names.items()}

    def after_a_power_cut(self) -> Iterator[Files]:
        for names in (self.names, self.synced_names):
            choices = [self._survivors(inode) for inode in names.values()]
            for chosen in product(*choices):
                yield dict(zip(names, chosen, strict=True))

    def _survivors(self, inode: int) -> list[bytes]:
        now, synced = self.contents.get(inode, b""), self.synced.get(inode, b"")
        if now == synced:
            return [now]
        if not now.startswith(synced):
            return [synced, now]
        added = len(now) - len(synced)
        return [synced, now, now[: len(synced) + added // 2], synced + b"\0" * added]


class Disk:
    """Collects `moments` of a folder, and `torn`: what a kill inside a write leaves.

    Without `names_synced` the files that stand there at first have names in memory only.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, names_synced: bool = True
    ) -> None:
        self.moments: list[Moment] = []
        self.torn: list[Files] = []
        self._folder = folder
        self._synced: dict[int, bytes] = {}
        self._contents: dict[int, bytes] = {}
        self._synced_names = self._names()
        for name, inode in self._synced_names.items():
            self._synced[inode] = (folder / name).read_bytes()
        if not names_synced:
            self._synced_names = {}
        self._note()
        for call in WATCHED:
            monkeypatch.setattr(os, call, self._watching(getattr(os, call), call))

    def files(self) -> list[Files]:
        """Every state that a kill or a power cut can leave, each once, always in one order."""
        every = [moment.after_a_kill() for moment in self.moments]
        every += self.torn
        every += [files for moment in self.moments for files in moment.after_a_power_cut()]
        return [dict(items) for items in sorted({tuple(sorted(files.items())) for files in every})]

    def _watching(self, real: Callable[..., Any], call: str) -> Callable[..., Any]:
        def watching(first: Any, *rest: Any, **more: Any) -> Any:
            if not self._is_ours(first):
                return real(first, *rest, **more)
            if call == "write":
                self._tear(first, bytes(rest[0]))
            made = real(first, *rest, **more)
            if call in ("fdatasync", "fsync"):
                self._sync(first)
            self._note()
            return made

        return watching

    def _is_ours(self, target: Any) -> bool:
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
        return path == str(self._folder) or Path(path).parent == self._folder

    def _tear(self, handle: int, data: bytes) -> None:
        inode = os.fstat(handle).st_ino
        files = self.moments[-1].after_a_kill()
        name = next(name for name, found in self.moments[-1].names.items() if found == inode)
        for cut in range(1, len(data)):
            self.torn.append({**files, name: files[name] + data[:cut]})

    def _sync(self, handle: int) -> None:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            self._synced_names = self._names()
        else:
            self._synced[found.st_ino] = self._content(handle)

    def _content(self, handle: int) -> bytes:
        return os.pread(handle, os.fstat(handle).st_size, 0)

    def _names(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self._folder.iterdir()}

    def _note(self) -> None:
        names = self._names()
        for name, inode in names.items():
            self._contents[inode] = (self._folder / name).read_bytes()
        self.moments.append(
            Moment(names, self._synced_names, dict(self._contents), dict(self._synced))
        )


def restore(folder: Path, files: Files) -> None:
    """Makes the folder hold these files and no others."""
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
