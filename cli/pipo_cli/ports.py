"""Whether the gateway's ports are free, and who holds one that is not (decision 31)."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from pipo.errors import BadRequest, Conflict, Forbidden, PipoError
from pipo.home import Home, registry
from pipo.home.port_holders import listening_pid, program
from pipo.home.ports import PORT_MAX
from pipo_cli.gateway import Gateway

# Something that listens and says nothing is no gateway.
ASK_TIMEOUT_S = 0.5


def refuse_taken(bind: str, listen: int, home: Home) -> None:
    """Passes when both of the gateway's ports, HTTP `listen` and gRPC the one above, are free.

    Raises: Conflict, naming the holder and `--listen`; BadRequest or Forbidden, if `bind` or
        the port cannot be used at all.
    """
    if not 1 <= listen < PORT_MAX:
        raise BadRequest(
            f"the gateway cannot listen on port {listen}",
            hint=f"use 1 to {PORT_MAX - 1}: gRPC takes the port above",
        )
    for port in (listen, listen + 1):
        error = _refusal(bind, port)
        if error is None:
            continue
        if error.errno != errno.EADDRINUSE:
            raise _unusable(bind, port, error)
        raise Conflict(
            f"{what(port, listen)} is taken by {holder(port, home)}",
            hint=f"end it, or choose another port with --listen, such as --listen {listen + 10}",
        )


def what(port: int, listen: int) -> str:
    """`port 8788 (gRPC, always the one above 8787)`."""
    return f"port {port}" if port == listen else f"port {port} (gRPC, the one above {listen})"


def holder(port: int, home: Home) -> str:
    """Who listens on a port, as exactly as this process may know."""
    pid = listening_pid(port)
    # It may be a gateway's HTTP port, or the gRPC port of the one below.
    for http_port in (port, port - 1):
        health = Gateway(f"http://127.0.0.1:{http_port}").health(ASK_TIMEOUT_S)
        if health is not None:
            return _gateway(health, pid, home)
    return program(pid)


def _gateway(health: Mapping[str, object], pid: int | None, home: Home) -> str:
    where = str(health.get("home") or "")
    if not where:
        ours = any(e.pid == pid for e in registry.services(home, "gateway"))
        where = str(home.root) if ours else "another home"
    number = f" (pid {pid})" if pid is not None else ""
    return f"the Pipo gateway of {where}{number}"


def _refusal(bind: str, port: int) -> OSError | None:
    """What the kernel says to somebody who wants to listen there."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            # A port whose last connections still time out is free.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen(1)
    except OSError as error:
        return error
    return None


def _unusable(bind: str, port: int, error: OSError) -> PipoError:
    message = f"cannot listen on {bind}:{port}: {error.strerror or error}"
    if error.errno == errno.EACCES:
        return Forbidden(message, hint="ports below 1024 need root; choose another with --listen")
    return BadRequest(message, hint="set engine.bind to an address of this machine")
