"""The judge of every loss test: what was answered, written and synced outside of Pipo.

A line is on disk before the driver counts its answer, so that no crash of
anything can make the ledger promise less than was promised.
"""

from __future__ import annotations

import os
from pathlib import Path


class Ledger:
    """An append-only file of names, synced in groups before they count."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._waiting: list[str] = []
        self.count = 0

    def note(self, name: str) -> None:
        """An answer has come; it counts after the next `sync`."""
        self._waiting.append(name)

    def sync(self) -> None:
        """Everything noted is on disk and counts."""
        if self._waiting:
            os.write(self._fd, "".join(f"{name}\n" for name in self._waiting).encode())
            os.fdatasync(self._fd)
            self.count += len(self._waiting)
            self._waiting.clear()

    def close(self) -> None:
        self.sync()
        os.close(self._fd)


def read(path: Path) -> list[str]:
    """Every name in a ledger, in order."""
    return path.read_text().split()
