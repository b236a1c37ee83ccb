"""Printing that never holds up the supervisor: a terminal that was stopped (Ctrl-S), or a
reader that does not read, blocks only the thread that writes."""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Literal

Stream = Literal["out", "err"]

WAITING_LINES_MAX = 10_000


class Screen:
    """Lines for stdout and stderr, written in order by a thread of their own."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[Stream, str] | None] = queue.Queue(WAITING_LINES_MAX)
        self._lost = 0
        self._thread = threading.Thread(target=self._write, name="screen", daemon=True)
        self._thread.start()

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches stderr."""
        return sys.stderr.isatty()

    @property
    def has_room(self) -> bool:
        """Whether a caller who can wait should hand over more."""
        return self._waiting.qsize() < WAITING_LINES_MAX // 2

    def out(self, line: str) -> None:
        """A line for stdout."""
        self._put("out", line)

    def err(self, line: str) -> None:
        """A line for stderr."""
        self._put("err", line)

    def close(self, timeout_s: float) -> None:
        """Waits until everything is written, at most `timeout_s`."""
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _put(self, stream: Stream, line: str) -> None:
        try:
            self._waiting.put_nowait((stream, line))
        except queue.Full:
            self._lost += 1

    def _write(self) -> None:
        while (item := self._waiting.get()) is not None:
            stream, line = item
            if self._lost:
                line, self._lost = f"{line}\n({self._lost} lines were not shown)", 0
            try:
                _print(stream, line)
            except OSError:
                # Nobody reads this stream any more; the other one may go on.
                continue


def _print(stream: Stream, line: str) -> None:
    target = sys.stdout if stream == "out" else sys.stderr
    data = (line + "\n").encode(target.encoding or "utf-8", errors="replace")
    fd = target.fileno()
    while data:
        data = data[os.write(fd, data) :]
