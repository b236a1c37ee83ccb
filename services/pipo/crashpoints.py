"""Named points where a test can kill this process for certain.

`reach("accepted.before_commit")` does nothing, unless PIPO_CRASH_AT names the
point (`name` or `name:3` for the third time it is reached): then the process
ends itself with SIGKILL, so that nothing is tidied up. The points are the
string literals in the code; `tests/crash` collects them from there and fails
when one is in no crash test.
"""

from __future__ import annotations

import os
import signal

_ARMED = os.environ.get("PIPO_CRASH_AT", "")


class _Trap:
    def __init__(self, spec: str) -> None:
        self.name, _, count = spec.partition(":")
        self.left = int(count or 1)

    def reach(self, name: str) -> None:
        if name == self.name:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _pass(name: str) -> None:
    """The point as it is outside of crash tests."""


reach = _Trap(_ARMED).reach if _ARMED else _pass
