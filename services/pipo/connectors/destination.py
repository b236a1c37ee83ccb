"""Files that Pipo writes: which one a path means right now, and the folders above it."""

from __future__ import annotations

import os
from pathlib import Path

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
