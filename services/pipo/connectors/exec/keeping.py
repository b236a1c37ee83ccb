"""The pipeline's side of the process that keeps its programs (`keeper.py`).

This process forks nothing: it has threads, open databases and the pipeline's lease. The keeper
comes by `posix_spawn`, which shares nothing and inherits only what is named; programs are the
keeper's children.

A keeper that dies takes no step down for good: its runs fail, those of its programs that still
live are killed, and the next run starts another.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipo.children import take_end
from pipo.clock import Clock
from pipo.connectors.contract import WriteFailed
from pipo.connectors.exec import keeper
from pipo.errors import Conflict
from pipo.home.leases import Lease

# Longer than a keeper of an earlier run takes to end what it keeps.
LEASE_WAIT_S = 30.0
# Each has six descriptors here; further ones wait, and their timeout has not begun.
PROGRAMS_MAX = 64
_END_WAIT_MS = 10_000
_PACKET_BYTES = 4096
# Above the numbers that the keeper's own descriptors get: none is overwritten by another.
_CLEAR_OF = 16


@dataclass(frozen=True, slots=True)
class Order:
    """One run as the keeper takes it; `path` is absolute."""

    path: str
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout_s: float

    def encoded(self) -> bytes:
        return json.dumps(
            {
                "path": self.path,
                "argv": self.argv,
                "cwd": self.cwd,
                "env": dict(self.env),
                "timeout_s": self.timeout_s,
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Why a program did not start: the system's error, with `cwd` or `command`."""

    errno: int
    at: str


@dataclass(frozen=True, slots=True)
class Exit:
    code: int | None
    signal: int | None
    timed_out: bool


class _Run:
    """One run: its end, and the program while it lives."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Exit | NotStarted] = asyncio.get_running_loop().create_future()
        self.pid = 0
        self.pidfd = -1

    def forget_pid(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def kill(self) -> None:
        """Ends the group of a program that lives: its leader's number is no other's then."""
        if self.pidfd >= 0 and not select.select([self.pidfd], [], [], 0)[0]:
            keeper.signal_group(self.pid, signal.SIGKILL)


def keeper_at(lease: Path | None, clock: Clock) -> Keeper:
    """The keeper of a pipeline in this process: the steps of all its versions share it.

    `lease` is what it holds: two could not; None, without a home, shares nothing.
    """
    if lease is None:
        return Keeper(None, clock)
    return _KEEPERS.setdefault(lease, Keeper(lease, clock))


class Keeper:
    """Starts the keeper when it is needed."""

    def __init__(self, lease: Path | None, clock: Clock) -> None:
        self._lease = lease
        self._clock = clock
        self._socket: socket.socket | None = None
        self._pid = 0
        self._turn = asyncio.Lock()
        self._slots = asyncio.Semaphore(PROGRAMS_MAX)
        self._runs: dict[int, _Run] = {}
        self._next = 1

    @property
    def pid(self) -> int:
        """Of the keeper, once it was started."""
        return self._pid

    async def open(self) -> None:
        """Starts it, once no program of an earlier process of the pipeline is left.

        Raises: Conflict, when those do not end; PipoError, for a lease that cannot be had.
        """
        async with self._turn:
            if self._socket is None:
                await asyncio.to_thread(self._start)
                assert self._socket is not None
                asyncio.get_running_loop().add_reader(self._socket.fileno(), self._heard)

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Room for one more program, while it is held."""
        async with self._slots:
            yield

    async def run(self, order: Order, streams: tuple[int, int, int]) -> Exit | NotStarted:
        """How a program ended; `streams` are its standard input, output and error.

        Raises: WriteFailed, when the keeper died meanwhile; what `open` raises.
        Cancelled: the program is being ended, with its group; nobody waits for it.
        """
        await self.open()
        id, self._next = self._next, self._next + 1
        run = self._runs[id] = _Run()
        try:
            self._send(id, order, streams)
            return await run.ended
        except asyncio.CancelledError:
            self._tell({"end": id})
            raise
        finally:
            run.forget_pid()
            self._runs.pop(id, None)

    async def close(self) -> None:
        """Ends the keeper, and with it every program; safe twice and before `open`."""
        async with self._turn:
            if self._socket is not None:
                self._let_go()
                await asyncio.to_thread(take_end, self._pid, _END_WAIT_MS)

    def _start(self) -> None:
        lease = None if self._lease is None else self._taken(self._lease)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            held = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if lease is None else lease.fd
            given = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _CLEAR_OF) for fd in (theirs, held)]
            if lease is None:
                os.close(held)
            try:
                self._pid = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-I", "-S", "-X", "utf8", keeper.__file__],
                    os.environ,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, fd, number)
                        for fd, number in zip(
                            given, (keeper.PIPELINE_FD, keeper.LEASE_FD), strict=True
                        )
                    ],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=keeper.DEFAULTS,
                )
            finally:
                for fd in given:
                    os.close(fd)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if lease is not None:
                lease.release()
        ours.setblocking(False)
        self._socket = ours

    def _taken(self, path: Path) -> Lease:
        try:
            return Lease.acquire(path, clock=self._clock, wait_s=LEASE_WAIT_S)
        except Conflict as error:
            raise Conflict(
                f"programs of an earlier run do not end: {error.message}",
                hint="end them by hand, then start it again",
            ) from error

    def _send(self, id: int, order: Order, streams: tuple[int, int, int]) -> None:
        assert self._socket is not None
        order_fd = os.memfd_create("order", os.MFD_CLOEXEC)
        try:
            with open(order_fd, "wb", closefd=False) as file:
                file.write(order.encoded())
            fds = array.array("i", [order_fd, *streams])
            message = json.dumps({"run": id}).encode()
            self._socket.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except BlockingIOError as error:
            raise WriteFailed("too many programs are being started at once") from error
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _gone() from error
        finally:
            os.close(order_fd)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._socket is not None:
            # One that is gone has ended everything; one that is behind ends it by its clock.
            with contextlib.suppress(OSError):
                self._socket.send(json.dumps(message).encode())

    def _heard(self) -> None:
        assert self._socket is not None
        try:
            room = socket.CMSG_LEN(array.array("i").itemsize)
            packet, extra, _, _ = self._socket.recvmsg(_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            packet, extra = b"", []
        if not packet:
            self._lost()
            return
        fds = array.array("i")
        for _, _, content in extra:
            fds.frombytes(content)
        message = json.loads(packet)
        run = self._runs.get(message["id"])
        if run is None or run.ended.done():
            for fd in fds:
                os.close(fd)
        elif "pid" in message:
            run.pid, run.pidfd = message["pid"], fds[0]
        elif "errno" in message:
            run.ended.set_result(NotStarted(message["errno"], message["at"]))
        else:
            ended = Exit(message.get("code"), message.get("signal"), message["timed_out"])
            run.ended.set_result(ended)

    def _lost(self) -> None:
        """The keeper died."""
        self._let_go()
        for run in self._runs.values():
            run.kill()
            if not run.ended.done():
                run.ended.set_exception(_gone())
        asyncio.get_running_loop().run_in_executor(None, take_end, self._pid, _END_WAIT_MS)

    def _let_go(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None


_KEEPERS: dict[Path, Keeper] = {}


def _gone() -> WriteFailed:
    return WriteFailed(
        "the process that keeps the programs of this pipeline has ended",
        hint="whether the program did its work is not known",
    )
