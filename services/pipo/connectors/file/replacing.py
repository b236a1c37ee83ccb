"""A file that another takes the place of: whole, or not at all.

The new file is written beside the old one under a name of its own, synced, and
renamed. That name is also the lock: whoever holds the lock of the file under it
writes, others wait. So two pipelines that rewrite one file lose nothing of each
other, and what a crash left behind belongs to nobody and is removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pipo.connectors.destination import (
    Identity,
    cannot_write,
    identity,
    make_folder,
    sync_folder,
)
from pipo.connectors.file import locking, plain
from pipo.connectors.file.records import Record

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Replacement:
    """The file that takes the place of the one at a path; a link there keeps leading to it.

    `handle` is the new file's; `old` is what stood there when its lock was taken. Without `commit` the
    old file stays. Raises: OSError, from every method.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._new = name_of_new(self._path)
        self.handle = -1
        self.old: os.stat_result | None = None

    def __enter__(self) -> Replacement:
        plain.found_at(self._path)
        make_folder(self._path)
        self.handle = _open_alone(self._new)
        try:
            self.old = plain.found_at(self._path)
        except OSError:
            self._drop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.handle >= 0:
            self._drop()

    def commit(self) -> os.stat_result:
        """The new file, now in the old one's place, with its mode and, where allowed, its owner.

        Durable: on return it survives a power cut; a crash before leaves the old file.
        """
        if self.old is not None:
            with suppress(OSError):
                os.fchown(self.handle, self.old.st_uid, self.old.st_gid)
            os.fchmod(self.handle, stat.S_IMODE(self.old.st_mode))
        os.fsync(self.handle)
        os.rename(self._new, self._path)
        made = os.fstat(self.handle)
        handle, self.handle = self.handle, -1
        os.close(handle)
        sync_folder(Path(self._path).parent)
        return made

    def _drop(self) -> None:
        with suppress(OSError):
            os.unlink(self._new)
        handle, self.handle = self.handle, -1
        plain.close_quietly(handle)


class ReplacedFile:
    """`mode: write`: each write replaces the file; the last record of a group wins (edge 159)."""

    marks: Mapping[str, int] = {}

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, records: Sequence[Record], *, atomic: bool) -> list[Mapping[str, Any]]:
        """Where the content went; the same for all, since all count as written.

        Durable: on return the file survives a power cut.
        Raises: WriteFailed; the file is then as it was, unless only the last sync failed.
        """
        text = records[-1].text
        try:
            with Replacement(self._path) as new:
                plain.write_all(new.handle, text)
                new.commit()
        except OSError as error:
            raise cannot_write(self._path, error) from error
        done = {"path": self._path, "written": True, "offset": 0, "length": len(text) - 1}
        return [done] * len(records)

    def mend(self) -> None:
        remove_remains(self._path)

    def close(self) -> None: ...


def name_of_new(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.pipo-new")


def remove_remains(path: str) -> None:
    """Removes what a crash left of a replacement; one that is being written stays.

    Raises: WriteFailed.
    """
    try:
        _remove_unlocked(name_of_new(os.path.realpath(path)))
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_write(path, error) from error


def _remove_unlocked(new: str) -> None:
    handle = os.open(new, _FLAGS)
    try:
        if locking.try_to_take(handle) and _identity(handle) == identity(new):
            os.unlink(new)
    finally:
        os.close(handle)


def _open_alone(new: str) -> int:
    """A fresh file under that name, locked; waits while somebody else writes one."""
    while True:
        try:
            handle, is_ours = os.open(new, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            try:
                handle, is_ours = os.open(new, _FLAGS), False
            except FileNotFoundError:
                continue
        try:
            locking.take(handle, new)
            is_there = _identity(handle) == identity(new)
            if is_ours and is_there:
                return handle
            if is_there:
                os.unlink(new)
        except OSError:
            os.close(handle)
            raise
        os.close(handle)


def _identity(handle: int) -> Identity:
    return plain.identity_of(os.fstat(handle))
