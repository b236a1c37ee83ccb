"""Which database file a path means now, and whether it was cut short meanwhile."""

from __future__ import annotations

import os
from typing import NamedTuple


class Standing(NamedTuple):
    """Device, inode and size (bytes) of a database file."""

    device: int
    inode: int
    size: int

    def follows(self, before: Standing) -> bool:
        """Whether a connection opened at `before` still sees what is on disk.

        SQLite notices another file's bytes by itself with a rollback journal. With a WAL it
        trusts its pages, so a file that became shorter is opened anew: nobody then takes what
        only memory holds for stored. A VACUUM of another program costs one such reopening.
        """
        return self[:2] == before[:2] and self.size >= before.size


def standing(path: str) -> Standing | None:
    """How the file that a path leads to stands, or None when there is none. Raises: OSError."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return Standing(found.st_dev, found.st_ino, found.st_size)
