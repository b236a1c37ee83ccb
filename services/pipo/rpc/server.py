"""One way to serve gRPC: token, error mapping, health and reflection included."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pipo.errors import Conflict
from pipo.rpc import wire
from pipo.rpc.errors import Redact
from pipo.rpc.interceptors import ErrorMapping, InternalToken

STUBS = "pipo.rpc.stubs."


class _CallsThatEnded(logging.Filter):
    """Drops what gRPC logs, with a traceback each, of calls that their client has reset.

    Clients come and go, and none of them may fill a log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        # Its class is gRPC's own affair, and has no public name.
        return kind is None or kind.__name__ != "ExecuteBatchError"


logging.getLogger("grpc._cython.cygrpc").addFilter(_CallsThatEnded())


@dataclass
class RunningServer:
    """A server that takes calls on `port`."""

    port: int
    _server: grpc.aio.Server
    _health: health.aio.HealthServicer
    _stopped: bool = field(default=False)

    async def stop(self, grace_s: float) -> None:
        """Ends: no new calls at once, those under way are cancelled after `grace_s`. Safe twice."""
        if self._stopped:
            await self._server.wait_for_termination(grace_s + 1)
            return
        self._stopped = True
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


async def serve(
    *servicers: object,
    bind: str,
    port: int,
    internal_token: str | None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    redact: Redact | None = None,
) -> RunningServer:
    """A started server for servicers of the generated classes; port 0 lets the kernel choose.

    Raises: Conflict, if the port is taken.
    """
    token = (InternalToken(internal_token),) if internal_token else ()
    server = grpc.aio.server(
        interceptors=(ErrorMapping(redact), *token, *interceptors), options=wire.SERVER
    )
    names = [_register(servicer, server) for servicer in servicers]
    watched = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(watched, server)
    reflection.enable_server_reflection(
        (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    bound = _bind(server, bind, port)
    try:
        await server.start()
        for name in names:
            await watched.set(name, health_pb2.HealthCheckResponse.SERVING)
    except BaseException:
        await server.stop(0)
        raise
    return RunningServer(bound, server, watched)


def _register(servicer: object, server: grpc.aio.Server) -> str:
    """Adds a servicer through its generated class; returns the full service name."""
    for cls in type(servicer).__mro__:
        if cls.__module__.startswith(STUBS) and cls.__name__.endswith("Servicer"):
            stubs: Any = sys.modules[cls.__module__]
            getattr(stubs, f"add_{cls.__name__}_to_server")(servicer, server)
            return f"pipo.v1.{cls.__name__.removesuffix('Servicer')}"
    raise TypeError(f"{type(servicer).__name__} extends no generated servicer")


def _bind(server: grpc.aio.Server, bind: str, port: int) -> int:
    host = f"[{bind}]" if ":" in bind else bind
    try:
        if port:
            _probe(bind, port)
        return int(server.add_insecure_port(f"{host}:{port}"))
    except (RuntimeError, OSError) as error:
        taken = f"gRPC port {port} on {bind} is taken"
        raise Conflict(taken, hint="choose another port") from error


def _probe(bind: str, port: int) -> None:
    """Raises: OSError, if the port is taken; gRPC would write about it to standard error too."""
    family, kind, protocol, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(address)
