"""The host's side of the forkserver: one `Child` for each pipeline process it forked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pipo.children import take_end
from pipo.errors import Internal, Unavailable
from pipo.telemetry.logs import logger
from pipo_runner.host.child import Request
from pipo_runner.host.policy import Exit

_log = logger("host.spawning")
_READY_TIMEOUT_S = 30.0
_SPAWN_TIMEOUT_S = 10.0
# The forkserver tells an exit at once, on a busy machine a little later; one that is gone is noticed.
_EXIT_TOLD_TIMEOUT_S = 10.0
_REPORT_BYTES_LIMIT = 1024 * 1024
_PACKET_BYTES_LIMIT = 4096
_END_TIMEOUT_MS = 2000


class _Lost(Unavailable):
    """The forkserver died; another one may do."""


class Child:
    """A process that this host started. It may outlive the host."""

    own = True

    def __init__(self, pid: int, pidfd: int, report_fd: int) -> None:
        self.pid = pid
        self.told: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._pidfd = pidfd
        self._report_fd = report_fd
        self._exit: asyncio.Task[Exit] = asyncio.create_task(self._watch(), name=f"exit of {pid}")

    async def report(self) -> dict[str, Any] | None:
        """What the process says of its start; None when it ended without a word.

        Cancelled: the report is lost; the process is not touched.
        """
        content = bytearray()
        try:
            while part := await _read(self._report_fd):
                content += part
                if len(content) > _REPORT_BYTES_LIMIT:
                    break
        finally:
            os.close(self._report_fd)
        return json.loads(content) if content else None

    async def exited(self) -> Exit:
        """How it ended, once it has. Cancelled: nothing is lost."""
        return await asyncio.shield(self._exit)

    @property
    def gone(self) -> bool:
        return self._exit.done()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to this very process, by pidfd; nothing once it is gone."""
        if not self.gone:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def forget(self) -> None:
        """Stops watching; the process runs on."""
        self._exit.cancel()

    async def _watch(self) -> Exit:
        try:
            await _readable(self._pidfd)
            async with asyncio.timeout(_EXIT_TOLD_TIMEOUT_S):
                return await self.told
        except TimeoutError:
            return Exit()
        finally:
            os.close(self._pidfd)


class ForkServer:
    """The forkserver and its children. A dead one is replaced at the next spawn.

    `born` is one that was forked off already (`forkserver.fork_off`).
    """

    def __init__(
        self, preload: Sequence[str] = (), *, born: tuple[int, socket.socket] | None = None
    ) -> None:
        self._preload = tuple(preload)
        self._born = born
        self.pid: int | None = None
        """Of the forkserver, while it is there."""
        self._socket: socket.socket | None = None
        self._answer: asyncio.Future[tuple[dict[str, Any], list[int]]] | None = None
        self._turn = asyncio.Lock()
        self._children: dict[int, Child] = {}

    async def start(self) -> None:
        """Ready to fork when it returns; safe when it is running.

        Raises: Internal, if it cannot come up (its own words are on standard error).
        """
        async with self._turn:
            await self._start()

    async def spawn(self, request: Request) -> Child:
        """A new process. Raises: Unavailable, if it could not be forked.

        Cancelled: the process may come into being; it will find its lease or end.
        """
        async with self._turn:
            try:
                return await self._spawn(request)
            except _Lost:
                # It died since the last fork; one that had just forked leaves a child
                # that the lease keeps apart from the next.
                return await self._spawn(request)

    async def _spawn(self, request: Request) -> Child:
        if self._socket is None:
            await self._start()
        report_read, report_write = os.pipe2(os.O_CLOEXEC)
        try:
            pid, pidfd = await self._fork(request, report_write)
        except BaseException:
            os.close(report_read)
            raise
        finally:
            os.close(report_write)
        child = Child(pid, pidfd, report_read)
        self._children[pid] = child
        return child

    async def stop(self) -> None:
        """Ends the forkserver; its children live on. Safe twice."""
        for child in self._children.values():
            child.forget()
        self._children.clear()
        self._close()
        await self._bury()

    async def _start(self) -> None:
        if self._socket is not None:
            return
        await self._bury()
        born, self._born = self._born, None
        self.pid, self._socket = born or _execute(self._preload)
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._heard)
        answer, _ = await self._ask(_READY_TIMEOUT_S)
        if "ready" not in answer:
            self._lost()
            raise Internal("the forkserver did not come up", hint="its log says why")

    async def _bury(self) -> None:
        """Takes the end of a forkserver whose socket is closed."""
        pid, self.pid = self.pid, None
        if pid is not None:
            await asyncio.to_thread(take_end, pid, _END_TIMEOUT_MS)

    async def _fork(self, request: Request, report_fd: int) -> tuple[int, int]:
        assert self._socket is not None
        request_fd = _memory_file(json.dumps(asdict(request)).encode())
        try:
            socket.send_fds(self._socket, [b"spawn"], [request_fd, report_fd])
        except OSError as error:
            self._lost()
            raise _Lost(f"the forkserver does not answer: {error.strerror}") from error
        finally:
            os.close(request_fd)
        answer, fds = await self._ask(_SPAWN_TIMEOUT_S)
        if "spawned" in answer and fds:
            return answer["spawned"], fds[0]
        if "unspawned" in answer:
            raise Unavailable(
                f"no process could be started: {answer['unspawned']}",
                hint="the machine may be out of memory or processes",
            )
        raise _Lost("the forkserver ended instead of forking")

    async def _ask(self, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        self._answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError:
            self._lost()
            return {}, []
        finally:
            self._answer = None

    def _heard(self) -> None:
        assert self._socket is not None
        try:
            packet, fds, _, _ = socket.recv_fds(self._socket, _PACKET_BYTES_LIMIT, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        if not packet:
            self._lost()
            return
        message = json.loads(packet)
        if "exited" in message:
            self._told(message)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result((message, fds))
        else:
            for fd in fds:
                os.close(fd)

    def _told(self, message: dict[str, Any]) -> None:
        child = self._children.pop(message["exited"], None)
        if child is not None and not child.told.done():
            child.told.set_result(Exit(message.get("code"), message.get("signal")))

    def _lost(self) -> None:
        """The forkserver is gone or given up; its children are watched by pidfd alone."""
        if self._socket is not None:
            _log.warning("the forkserver is gone", action="forkserver.lost", pid=self.pid)
        self._close()
        for child in self._children.values():
            if not child.told.done():
                child.told.set_result(Exit())
        self._children.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(({}, []))

    def _close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None


def _execute(preload: Sequence[str]) -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        os.set_inheritable(theirs.fileno(), True)
        command = [sys.executable, "-m", "pipo_runner.host.forkserver", str(theirs.fileno())]
        pid = os.posix_spawn(sys.executable, [*command, *preload], os.environ)
    return pid, ours


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    return fd


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, note)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def _read(fd: int) -> bytes:
    await _readable(fd)
    return os.read(fd, 65536)
