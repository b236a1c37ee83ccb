"""What options take, with what is said about a wrong one (edge 403)."""

from __future__ import annotations

from typing import Any

import click

from pipo.home.ports import PORT_MAX


class Port(click.ParamType[int]):
    """A port to listen on. A gateway's leaves room for gRPC on the port above."""

    name = "port"

    def __init__(self, *, most: int = PORT_MAX) -> None:
        self._most = most

    def convert(self, value: Any, parameter: Any, context: click.Context | None) -> int:
        try:
            port = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a port: use 1-{self._most}", parameter, context)
        if not 1 <= port <= PORT_MAX:
            self.fail(f"{port} is no port to listen on: use 1-{self._most}", parameter, context)
        if port > self._most:
            self.fail(
                f"{port} leaves no port above for gRPC: use 1-{self._most}", parameter, context
            )
        return port


GATEWAY_PORT = Port(most=PORT_MAX - 1)
