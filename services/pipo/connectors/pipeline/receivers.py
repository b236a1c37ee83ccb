"""The pipelines of this home that packets are handed to, as their registry entries name them."""

from __future__ import annotations

from pipo.clock import Clock
from pipo.connectors.contract import ConnectorError
from pipo.errors import PipoError
from pipo.home import Home, tokens
from pipo.home.directory import Directory
from pipo.rpc.connections import Connections, Peer


class Absent(ConnectorError):
    """The receiver does not run."""


class Receivers:
    """Finds receivers and keeps a channel to each. Made where a loop runs."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._directory = Directory(home, clock)
        self._connections = Connections(tokens.internal_token(home))

    def find(self, name: str) -> Peer:
        """The process of a receiver, by the registry as it is at this moment.

        One that has just restarted would else be looked for where it was, and a packet fail for
        that. It connects at the first call.
        Raises: Absent.
        """
        self._directory.doubt(name)
        entry = self._directory.entry(name)
        if entry is None:
            raise _absent(name)
        return self._connections.peer(entry)

    def failed(self, name: str, error: PipoError) -> Absent | PipoError:
        """What is to be said of a call that failed: that nobody runs there, if that is so by now."""
        self._directory.forget(name)
        return error if self._directory.entry(name) is not None else _absent(name)

    async def close(self) -> None:
        """Ends every channel. Safe twice."""
        await self._connections.close()


def _absent(name: str) -> Absent:
    return Absent(f"pipeline {name!r} is not running", hint=f"start it with: pipo start {name}")
