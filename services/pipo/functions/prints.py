"""What a helper's code prints, as lines of the pipeline's log: whole, masked, and not too many.

Bounds: a line is cut, a call has so many lines and bytes, and all calls of a pipeline together
so many lines a second. What is left out is counted and told once. Whatever comes is read, so
that code which prints too much is not held up by it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pipo.clock import Clock
from pipo.functions.helper.wire import LEVEL_END, LEVEL_MARK, LINE_BREAK

LINE_CHARS: Final = 4_000
CALL_LINES: Final = 200
CALL_BYTES: Final = 64 * 1024
LINES_PER_S: Final = 200.0
LINES_BURST: Final = 2_000.0
_READ_BYTES: Final = 64 * 1024
# At the end of a call what is in the pipe is read; a thread of the code may write on and on.
_DRAIN_READS: Final = 32
_LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warning", "error": "error"}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose call a helper is in: what its lines in the log are marked with."""

    node: str
    packet: str


class PrintedLog:
    """The pipeline's log, as all helpers of a pipeline share it."""

    def __init__(self, log: Callable[..., None], mask: Callable[[str], str], clock: Clock) -> None:
        self._log = log
        self._mask = mask
        self._clock = clock
        self._allowance = LINES_BURST
        self._at = clock.monotonic()
        self._left_out = 0

    def line(self, level: str, text: str, caller: Caller | None) -> None:
        """One line, or one text of `logging` in several."""
        now = self._clock.monotonic()
        earned = (now - self._at) * LINES_PER_S
        self._allowance, self._at = min(LINES_BURST, self._allowance + earned), now
        if self._allowance < 1.0:
            self._left_out += 1
            return
        self._allowance -= 1.0
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self.left_out(count, None)
        # Half a secret is one too: what is cut is masked first.
        text = self._mask(text)
        if len(text) > LINE_CHARS:
            text = f"{text[:LINE_CHARS]}…"
        self._write(level, text, caller)

    def left_out(self, count: int, caller: Caller | None) -> None:
        """Tells how many lines are not in the log."""
        self._write("warning", f"functions printed {count} more lines than are kept", caller)

    def _write(self, level: str, text: str, caller: Caller | None) -> None:
        about: dict[str, Any] = {"action": "fn.printed"}
        if caller is not None:
            about |= {"node": caller.node, "packet": caller.packet}
        self._log(level, text, **about)


class Prints:
    """The pipe of one helper. `caller` is whose call it is in."""

    def __init__(self, fd: int, log: PrintedLog) -> None:
        self._fd = fd
        self._log = log
        self.over = False
        """Nobody writes any more."""
        self._rest = b""
        # Of a line that is too long to be kept, what follows up to its end.
        self._skips = False
        self._caller: Caller | None = None
        self._lines = 0
        self._bytes = 0
        self._left_out = 0

    def begin(self, caller: Caller) -> None:
        """A call begins; what was read before is nobody's, and no part of its share."""
        self._close_share()
        self._caller = caller

    def end(self) -> None:
        """The call is over: what it printed is in the log."""
        self.drain()
        if self._rest:
            self._take(self._rest)
            self._rest = b""
        self._close_share()
        self._caller = None

    def _close_share(self) -> None:
        if self._left_out:
            self._log.left_out(self._left_out, self._caller)
        self._lines = self._bytes = self._left_out = 0

    def drain(self) -> None:
        """Takes what is in the pipe now."""
        for _ in range(_DRAIN_READS):
            if not self.read():
                return

    def close(self) -> None:
        """The descriptor is another's from now on."""
        self.over, self._fd = True, -1

    def read(self) -> bool:
        """Takes some of what is in the pipe; False when there is nothing."""
        if self.over:
            return False
        try:
            raw = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not raw:
            self.over = True
            return False
        if self._lines >= CALL_LINES:
            self._count(raw)
            return True
        *lines, self._rest = (self._rest + raw).split(b"\n")
        for line in lines:
            if self._skips:
                self._skips = False
            else:
                self._take(line)
        if len(self._rest) > _READ_BYTES:
            if not self._skips:
                self._take(self._rest)
            self._rest, self._skips = b"", True
        return True

    def _count(self, raw: bytes) -> None:
        """Lines beyond the share, of which nothing is looked at."""
        ended = raw.count(b"\n")
        self._lines += ended
        self._left_out += ended - (self._skips and ended > 0)
        self._skips = self._skips and not ended
        rest = raw.rpartition(b"\n")[2] if ended else self._rest + raw
        self._rest = b"" if self._skips else rest[:_READ_BYTES]

    def _take(self, line: bytes) -> None:
        self._lines += 1
        self._bytes += min(len(line), LINE_CHARS)
        if self._lines > CALL_LINES or self._bytes > CALL_BYTES:
            self._left_out += 1
            return
        text = line.decode("utf-8", "backslashreplace")
        printed, mark, logged = text.partition(LEVEL_MARK)
        if printed := printed.rstrip():
            self._log.line("info", printed, self._caller)
        if mark:
            level, _, said = logged.partition(LEVEL_END)
            shown = said.replace(LINE_BREAK, "\n")
            self._log.line(_LEVELS.get(level, "error"), shown, self._caller)
