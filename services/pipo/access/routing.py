"""The way to a pipeline: its process when one answers, its journal for reads when none does.

What needs the process says how to start it (decision 1). Nothing is ever sent twice:
an operation whose answer is missing may have been done, and its error says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pipo.errors import InvalidState, PipoError, Unavailable
from pipo.home.desired import ENDED
from pipo.home.directory import Directory
from pipo.rpc.connections import Connections, Peer
from pipo.rpc.errors import Unanswered, calling

# Supervision states in which a pipeline will soon be there.
COMING = frozenset({"starting", "backoff"})
STOPPING = "stopping"

R = TypeVar("R")
Call = Callable[[Peer], Awaitable[R]]


class Routing:
    """Finds the process behind a name and carries calls to it."""

    def __init__(self, directory: Directory, connections: Connections) -> None:
        self._directory = directory
        self._connections = connections

    def require(self, name: str) -> None:
        """Raises: NotFound, for a pipeline that the home does not know."""
        if not self._directory.exists(name):
            raise self._directory.unknown(name)

    def forget(self, name: str) -> None:
        """A call to `name` has failed: the registry is read again, the process greeted again."""
        self._connections.doubt(name)
        self._directory.forget(name)

    async def peer(self, name: str) -> Peer:
        """The process of a pipeline that must run, by the registry as it is at this moment.

        Whoever was told that it has stopped must not be sent to the process that has left: its
        silence would read as an operation that may have been done.
        Raises: NotFound; InvalidState, if it is stopped; Unavailable, while it starts or is
            out of reach.
        """
        self._directory.doubt(name)
        self.require(name)
        peer = await self.running(name)
        if peer is None:
            raise self.absent(name)
        return peer

    async def running(self, name: str) -> Peer | None:
        """The process, greeted, or None when nobody answers under the name."""
        entry = self._directory.entry(name)
        if entry is None:
            return None
        try:
            return await self._connections.to(entry)
        except Unanswered:
            self.forget(name)
            return None

    async def ask(self, name: str, call: Call[R]) -> R:
        """The answer of a process that must run.

        Raises: as `peer`; Unavailable, if the answer is missing.
        """
        peer = await self.peer(name)
        try:
            with calling(peer.whom):
                return await call(peer)
        except Unanswered as error:
            self.forget(name)
            raise Unavailable(
                error.message, hint="the operation may have been done: look before you repeat it"
            ) from error

    async def try_ask(self, name: str, call: Call[R]) -> R | None:
        """The answer of the process, or None when nobody answers."""
        peer = await self.running(name)
        if peer is None:
            return None
        try:
            with calling(peer.whom):
                return await call(peer)
        except Unanswered:
            self.forget(name)
            return None

    async def read(self, name: str, call: Call[R], otherwise: Callable[[], Awaitable[R]]) -> R:
        """The answer of the process, or that of `otherwise` when nobody answers."""
        self.require(name)
        answer = await self.try_ask(name, call)
        return answer if answer is not None else await otherwise()

    def absent(self, name: str) -> PipoError:
        """Why nobody answers for a pipeline that the home knows."""
        wanted = self._directory.desired(name)
        state = wanted.state if wanted is not None else "stopped"
        alive = self._directory.alive(name)
        if alive and state == STOPPING:
            return Unavailable(
                f"pipeline {name!r} is stopping", hint=f"once it has stopped: pipo start {name}"
            )
        if alive and state not in COMING:
            return Unavailable(
                f"pipeline {name!r} runs and does not answer",
                hint="try again; pipo status shows it",
            )
        if state in COMING or (
            wanted is not None and wanted.desired == "running" and state not in ENDED
        ):
            # A host that has not looked yet still says `running` of a process that just died.
            word = "starting" if state == "starting" else "waiting to be started again"
            again = "try again in a moment"
            if not self._directory.claimed(name):
                again += (
                    f"; where no engine runs, `pipo attach {name}` brings it up, in containers the "
                    "start of the runner service"
                )
            return Unavailable(f"pipeline {name!r} is {word}", hint=again)
        why = f" ({state})" if state in ENDED - {"stopped"} else ""
        hint = f"start it with: pipo start {name}"
        if state == "stopped" and wanted is not None and wanted.desired == "running":
            why = " (suspended)"
            hint = f"it goes on with the next engine or runner; or {hint}"
        if state == "completed":
            # Decision 6: a start whose limits are reached completes again.
            hint += "; where lifetime.max_packets or lifetime.until ended it, change that first"
        return InvalidState(f"pipeline {name!r} is not running{why}", hint=hint)
