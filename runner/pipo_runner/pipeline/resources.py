"""What this process takes of its machine, with its helpers and the programs that it runs.

Read from /proc when somebody asks, so that nobody who asks for nothing pays for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipo.clock import Clock, SystemClock
from pipo.rpc.stubs import pipo_pb2

PROC = Path("/proc")
# A look sooner than this after another finds too few clock ticks to tell a share of a core.
_AGAIN_S = 1.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/<pid>/stat, counted from 0 behind the name: proc(5).
_TIMES = slice(11, 15)
_RSS = 21


@dataclass(frozen=True, slots=True)
class Taken:
    """Of one process or several: processor seconds with those of its waited-for children, and
    resident bytes; a page that several share counts for each."""

    cpu_s: float
    rss: int
    procs: int = 1


def taken(stat: str) -> Taken:
    """What a line of /proc/<pid>/stat says; the name in it may hold anything."""
    fields = stat.rpartition(")")[2].split()
    ticks = sum(map(int, fields[_TIMES]))
    return Taken(ticks / _TICKS_PER_S, int(fields[_RSS]) * _PAGE_BYTES)


class Resources:
    """The resources of a process and of everything below it."""

    def __init__(self, pid: int, *, clock: Clock | None = None, proc: Path = PROC) -> None:
        self._pid = pid
        self._clock = clock or SystemClock()
        self._proc = str(proc)
        self._looked = self._clock.monotonic()
        self._cpu_s = 0.0
        self._percent: float | None = None

    def message(self) -> pipo_pb2.Resources:
        """What they take now; `cpu` is since the last look, and at the first one since the start."""
        each = [one for pid in self._family(self._pid) if (one := self._of(pid)) is not None]
        cpu_s = sum(one.cpu_s for one in each)
        now = self._clock.monotonic()
        if self._percent is None or now - self._looked >= _AGAIN_S:
            passed_s = max(now - self._looked, 1 / _TICKS_PER_S)
            # One that ended and that nobody waited for takes its seconds along.
            self._percent = max(0.0, cpu_s - self._cpu_s) / passed_s * 100.0
            self._looked, self._cpu_s = now, cpu_s
        return pipo_pb2.Resources(
            cpu=round(self._percent, 1),
            rss=sum(one.rss for one in each),
            procs=sum(one.procs for one in each),
        )

    def _family(self, pid: int) -> Iterator[int]:
        """The process and those below it, as far as they can be seen."""
        yield pid
        threads = f"{self._proc}/{pid}/task"
        try:
            listed = os.listdir(threads)
        except OSError:
            return
        for thread in listed:
            for child in (_read(f"{threads}/{thread}/children") or b"").split():
                yield from self._family(int(child))

    def _of(self, pid: int) -> Taken | None:
        stat = _read(f"{self._proc}/{pid}/stat")
        return None if stat is None else taken(stat.decode("utf-8", "replace"))


def _read(file: str) -> bytes | None:
    """A file of /proc; None once what it tells of has ended.

    By system calls alone: a listing of hundreds of pipelines reads a dozen of them in each.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = b""
        while part := os.read(fd, 65536):
            content += part
        return content
    except OSError:
        return None
    finally:
        os.close(fd)
