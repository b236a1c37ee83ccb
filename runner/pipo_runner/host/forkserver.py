"""The process that pipeline processes are forked from.

Idea. Importing what a pipeline needs costs 0.5 s and 40 MB. This process, started
by exec at the host's birth, imports it once; a pipeline process is then a fork
that shares those pages: 15 ms and a dozen MB of its own.

Rules. It has one thread and creates no channel, server or event loop: forking is
only sound so. (Measured with grpcio 1.85: importing grpc before the fork is safe
and saves each child 8 MB; its core is initialised by the first channel or
server, which is the child's own.) It keeps no state: when it dies the host starts
another, and the children live on.

Wire. A SOCK_SEQPACKET pair. The host sends `spawn` with three descriptors: a memfd
that holds the request as JSON, and the write ends of the report pipe and of
nothing else. Answers are small JSON packets:

    {"spawned": pid}            with a pidfd
    {"unspawned": why}
    {"exited": pid, "code": n} or {"exited": pid, "signal": n}

End of file on the socket ends it: the host is gone.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from pipo_runner.host.child import Request, become

PRELOADED = ("pipo_runner.pipeline.main", "pipo.rpc.server", "pipo.rpc.channels", "uvloop")
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(host: socket.socket) -> None:
    """Forks until the host is gone."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _noted)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
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


def main() -> None:
    """`python -m pipo_runner.host.forkserver FD [MODULE…]`."""
    host = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(host.fileno(), False)
    gc.disable()
    for module in sys.argv[2:] or PRELOADED:
        importlib.import_module(module)
    gc.collect()
    # What is loaded now is never collected: the collector would write to shared pages.
    gc.freeze()
    _send(host, {"ready": os.getpid()})
    serve(host)


if __name__ == "__main__":
    main()
