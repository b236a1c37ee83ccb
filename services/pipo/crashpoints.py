"""Named points where a test can kill this process for certain.

`reach("accepted.before_commit")` does nothing, unless PIPO_CRASH_AT names the
point (`name`, or `name:3` for the third time it is reached): then the process
ends itself with SIGKILL, so that nothing is tidied up. With PIPO_CRASH_ONCE, the
path of a file that the trap makes first, the next process lives: while the file is there
nobody is killed, and a test that takes it away sets the trap again. A `*` in it stands for
the process's own name, so that several may die once each.

Or PIPO_CRASH_TRAPS names a folder: a file `<process>@<point>` in it kills that process at
that point, and is gone then. So one stack serves many tests. The points are
the string literals in the code; `tests/crash` collects them from there and fails
when one is in no crash test.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path


class Trap:
    """Kills its process when its point is reached for the `count`-th time, or later."""

    def __init__(self, spec: str, once: str) -> None:
        self._name, _, count = spec.partition(":")
        self._left = int(count or 1)
        self._once = once

    def reach(self, name: str) -> None:
        """The process has come to the point `name`."""
        if name != self._name:
            return
        self._left -= 1
        if self._left <= 0 and self._sprung():
            os.kill(os.getpid(), signal.SIGKILL)

    def _sprung(self) -> bool:
        if not self._once:
            return True
        try:
            once = self._once.replace("*", Path("/proc/self/comm").read_text().strip())
            os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True


class Traps:
    """Kills its process at each point for which the folder holds a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def reach(self, name: str) -> None:
        """The process has come to the point `name`."""
        process = Path("/proc/self/comm").read_text().strip()
        try:
            os.unlink(f"{self._folder}/{process}@{name}")
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _pass(name: str) -> None:
    """The point as it is outside of crash tests."""


def _armed() -> Callable[[str], None]:
    if traps := os.environ.get("PIPO_CRASH_TRAPS"):
        return Traps(traps).reach
    if point := os.environ.get("PIPO_CRASH_AT"):
        return Trap(point, os.environ.get("PIPO_CRASH_ONCE", "")).reach
    return _pass


reach = _armed()
