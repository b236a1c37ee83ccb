"""The process that pipeline processes are forked from.

Idea. Importing what a pipeline needs costs 0.5 s and 40 MB. This process imports
it once; a pipeline process is then a fork that shares those pages: 60 ms and a
dozen MB of its own.

Birth. The host forks it off as its own first act, while it has one thread and
nothing else: so all three share the pages. When it dies, the host, which has threads by
then, starts another by exec. The children of the first live on.

Rules. It has one thread and creates no channel, server or event loop: forking is
only sound so. (Measured with grpcio 1.85: importing grpc before the fork is safe
and saves each child 8 MB; its core is initialised by the first channel or
server, which is the child's own.) It keeps no state.

Wire. A SOCK_SEQPACKET pair. The host sends `spawn` with two descriptors: a memfd
that holds the request as JSON, and the write end of the report pipe. Answers are
small JSON packets:

    {"ready": pid}              once
    {"spawned": pid}            with a pidfd
    {"unspawned": why}
    {"exited": pid, "code": n} or {"exited": pid, "signal": n}

End of file on the socket ends it: the host is gone.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from pipo_runner.host.child import Request, become, descriptor_limit, name_process
from pipo_runner.host.warming import warm

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(host: socket.socket) -> None:
    """Forks until the host is gone."""
    _send(host, {"ready": os.getpid()})
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _noted)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # A host that is PID 1 may be born with them blocked (`pipo.service`); no child may be.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    poll = select.poll()
    poll.register(host, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake_read in ready:
            os.read(wake_read, 4096)
            _tell_exits(host)
        if host.fileno() in ready and not _serve_one(host):
            return


def _noted(*_: object) -> None:
    """A handler must stand for the wake-up to be written."""


def _serve_one(host: socket.socket) -> bool:
    """Handles one request; False at the host's end."""
    packet, fds, _, _ = socket.recv_fds(host, 64, 2)
    if not packet:
        return False
    request_fd, report_fd = fds
    try:
        with open(request_fd, "rb") as file:
            file.seek(0)
            request = Request(**json.loads(file.read()))
        pid = os.fork()
        if pid == 0:
            become(request, report_fd)
    except (OSError, ValueError, TypeError) as error:
        _send(host, {"unspawned": str(error)})
    else:
        pidfd = os.pidfd_open(pid)
        socket.send_fds(host, [json.dumps({"spawned": pid}).encode()], [pidfd])
        os.close(pidfd)
    finally:
        os.close(report_fd)
    return True


def _tell_exits(host: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        end = {"signal": -code} if code < 0 else {"code": code}
        _send(host, {"exited": pid, **end})


def _send(host: socket.socket, message: dict[str, Any]) -> None:
    try:
        host.send(json.dumps(message).encode())
    except (BrokenPipeError, ConnectionResetError):
        # The host is gone; the end of file follows.
        return


def fork_off(modules: Sequence[str] = ()) -> tuple[int, socket.socket]:
    """Warms this process and forks a forkserver off it: its pid, and the host's socket.

    Only while this process has one thread.
    """
    warm(modules)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread runs: forking is not sound"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _alone(theirs.fileno())
            serve(theirs)
        finally:
            # Not sys.exit: the host's frames and exit handlers are not this process's.
            os._exit(0)
    theirs.close()
    gc.enable()
    return pid, ours


def main() -> None:
    """`python -m pipo_runner.host.forkserver FD [MODULE…]`."""
    host = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(host.fileno(), False)
    warm(sys.argv[2:])
    assert len(os.listdir("/proc/self/task")) == 1, "a thread runs: forking is not sound"
    _alone(host.fileno())
    serve(host)


def _alone(keep: int) -> None:
    """A session and a name of its own; no descriptor but the standard ones and `keep`."""
    os.setsid()
    name_process("forkserver")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(3, keep)
    os.closerange(keep + 1, descriptor_limit())


if __name__ == "__main__":
    main()
