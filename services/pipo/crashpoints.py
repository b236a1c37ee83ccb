"""Named points where a test can kill this process for certain.

`reach("accepted.before_commit")` does nothing, unless PIPO_CRASH_AT names the
point (`name`, or `name:3` for the third time it is reached): then the process
ends itself with SIGKILL, so that nothing is tidied up. With PIPO_CRASH_ONCE, the
path of a file that the trap makes first, the next process lives: while the file is there
nobody is killed, and a test that takes it away sets the trap again. A `*` in it stands for
the process's own name, so that several may die once each. The points are
the string literals in the code; `tests/crash` collects them from there and fails
when one is in no crash test.
"""

from __future__ import annotations

import os
import signal
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


def _pass(name: str) -> None:
    """The point as it is outside of crash tests."""


_ARMED = os.environ.get("PIPO_CRASH_AT", "")
reach = Trap(_ARMED, os.environ.get("PIPO_CRASH_ONCE", "")).reach if _ARMED else _pass
