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
        """The process of a receiver. It connects at the first call.

        Raises: Absent.
        """
        entry = self._directory.entry(name)
        if entry is None:
            raise _absent(name)
        return self._connections.peer(entry)

    def forget(self, name: str) -> None:
        """A call to it has ended: the registry is read again before the next one."""
        self._directory.forget(name)

    def failed(self, name: str, error: PipoError) -> Absent | PipoError:
        """What is to be said of a call that failed: that nobody runs there, if that is so by now."""
        self.forget(name)
        there = self._directory.entry(name) is not None
        # The next call looks once more: a receiver that starts again has another address.
        self.forget(name)
        return error if there else _absent(name)

    async def close(self) -> None:
        """Ends every channel. Safe twice."""
        await self._connections.close()


def _absent(name: str) -> Absent:
    return Absent(f"pipeline {name!r} is not running", hint=f"start it with: pipo start {name}")
