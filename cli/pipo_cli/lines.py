"""Text that arrives in pieces, cut into lines; and what kind of line a log line is."""

from __future__ import annotations

import re

# A longer line is handed on in pieces.
LINE_BYTES_MAX = 1024 * 1024
# Worth a person's attention at a terminal, of what the services say.
WORTH_SHOWING = frozenset({"warn", "error", "fatal"})

_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\w+) ")


class Lines:
    """Takes pieces of bytes, gives whole lines of text without their ends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[str]:
        """The lines that this piece completes."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", errors="replace") for line in whole]

    def rest(self) -> list[str]:
        """What stands behind the last line end, once no more will come."""
        last, self._rest = self._rest, b""
        return [last.decode("utf-8", errors="replace")] if last else []


def level(line: str) -> str | None:
    """The level of a log line such as `2026-10-10T21:13:48.263Z warn  …`; None for other text."""
    found = _LOG_LINE.match(line)
    return found[1] if found else None


def worth_showing(line: str) -> bool:
    """Whether a service's line is a warning, an error, or no log line at all."""
    found = level(line)
    return found is None or found in WORTH_SHOWING
