"""What is left on the disk that a home lies on."""

from __future__ import annotations

import os

from pipo.home.paths import Home

# Less does not hold the write-ahead logs of a busy pipeline or two.
LOW_BYTES = 16 * 1024 * 1024


def left(home: Home) -> int:
    """The bytes that may still be written there. Raises: OSError."""
    return _free(os.statvfs(home.root))


def trouble(home: Home) -> str:
    """Why the home takes nothing more, and what helps; empty while it does.

    It says what keeps pipelines down that cannot write it down themselves.
    """
    try:
        found = os.statvfs(home.root)
    except OSError as error:
        return f"the home {home.root} cannot be read: {error.strerror or error}"
    if found.f_flag & os.ST_RDONLY:
        return f"the file system of the home {home.root} is read-only: mount it read-write"
    free = _free(found)
    if free < LOW_BYTES:
        return f"the disk of the home {home.root} has {free / 1e6:.1f} MB left: make room on it"
    return ""


def _free(found: os.statvfs_result) -> int:
    return found.f_bavail * found.f_frsize
