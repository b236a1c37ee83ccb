"""Reads what a program prints, without end and in bounded memory.

Only the end of a stream is kept, so a program that prints for ever costs what one does that
is silent, and never waits for its reader.
"""

from __future__ import annotations

import asyncio
import os

from pipo.connectors.exec.outcome import Stream

CHUNK_BYTES = 64 * 1024


class Capture:
    """One stream of one program; `write_fd` is the program's end of it."""

    def __init__(self, bytes_kept: int) -> None:
        self._kept = bytes_kept
        self._end = bytearray()
        self._total = 0
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        # The reader's end only: a program's own must not be surprised by EAGAIN.
        os.set_blocking(self._read_fd, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_fd, self._take)

    def finish(self) -> Stream:
        """What there is once the program has ended. Whoever else has the stream is not waited for."""
        left = 2 * CHUNK_BYTES
        while left > 0 and (taken := self._take()):
            left -= taken
        self.close()
        return Stream(bytes(self._end[-self._kept :]), self._total)

    def close(self) -> None:
        """Reads no more; safe twice."""
        if self._read_fd >= 0:
            self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            os.close(self.write_fd)
            self._read_fd = self.write_fd = -1

    def _take(self) -> int:
        """Takes one piece; how many bytes it had."""
        if self._read_fd < 0:
            return 0
        try:
            piece = os.read(self._read_fd, CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if not piece:
            self.close()
            return 0
        self._end += piece
        self._total += len(piece)
        if len(self._end) > self._kept + max(self._kept, CHUNK_BYTES):
            del self._end[: -self._kept]
        return len(piece)
