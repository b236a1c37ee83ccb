"""Ports on 127.0.0.1 that a pipeline serves itself: taken by it, or by whom."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from pipo.errors import BadRequest, Conflict, Forbidden, PipoError
from pipo.home.paths import Home

if TYPE_CHECKING:
    from pipo.home.port_holders import Holder

HOST = "127.0.0.1"
PORT_MAX = 65535
PORT_HINT = f"use 1-{PORT_MAX}"
_BACKLOG = 1024
# How far away another port is looked for.
_NEAR = 20


def reserve(port: int, home: Home | None) -> socket.socket:
    """A socket that listens on the port: who connects waits until it is served.

    Raises: Conflict, naming the holder; Forbidden or BadRequest, if the port cannot be used.
    """
    reserved = socket.socket()
    try:
        # A port whose last connections still time out is free.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, port))
        reserved.listen(_BACKLOG)
    except OSError as error:
        reserved.close()
        raise _refusal(port, error, home) from error
    reserved.setblocking(False)
    return reserved


def refuse_taken(port: int, home: Home) -> None:
    """Passes when nobody listens on the port. Raises: as `reserve`."""
    reserve(port, home).close()


def holder(port: int, home: Home | None) -> Holder:
    """Who listens on a port, as exactly as this process may know."""
    # Needed when something is wrong, and carried along otherwise.
    from pipo.home.port_holders import look

    return look(port, home)


def _refusal(port: int, error: OSError, home: Home | None) -> PipoError:
    if error.errno == errno.EADDRINUSE:
        found = holder(port, home)
        free = f"{found.hint}, or " if found.hint else ""
        return Conflict(
            f"port {port} on {HOST} is taken by {found.name}",
            hint=f"{free}choose another port: --listen {_other(port)}",
        )
    message = f"cannot listen on {HOST}:{port}: {error.strerror or error}"
    if error.errno == errno.EACCES:
        return Forbidden(message, hint="ports below 1024 need root; choose another with --listen")
    return BadRequest(message, hint=PORT_HINT)


def _other(port: int) -> int:
    """A port near this one that is free now: behind a gateway's stands its gRPC port."""
    behind = range(port + 1, min(port + _NEAR, PORT_MAX) + 1)
    before = range(port - 1, max(0, port - _NEAR), -1)
    return next(filter(_is_free, (*behind, *before)), port + 1)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
        return True
