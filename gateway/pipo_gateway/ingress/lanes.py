"""The open lane of each pipeline, opened at the first request and again after each end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from pipo.clock import Clock
from pipo.errors import InvalidState, NotFound, PipoError, Unavailable
from pipo.home.registry import Entry
from pipo.rpc.connections import Peer
from pipo.rpc.errors import calling
from pipo.rpc.stubs import pipeline_pb2
from pipo.telemetry.logs import logger
from pipo_gateway.ingress.lane import Lane

OPEN_TIMEOUT_S = 5.0
# A pipeline that could not be reached is not dialled again for this long.
PAUSE_S = 0.25

_log = logger("gateway.lanes")


class Pipelines(Protocol):
    """What lanes need of `pipo.access.Access`."""

    def entry(self, name: str) -> Entry | None: ...

    def forget(self, name: str) -> None: ...

    async def peer(self, name: str) -> Peer: ...


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why there is no lane: until a moment, or for one process."""

    error: PipoError
    until: float
    entry: Entry | None


class Lanes:
    """Lanes by pipeline. `ready` is for the hot path, `opened` for the rest."""

    def __init__(self, pipelines: Pipelines, clock: Clock) -> None:
        self._pipelines = pipelines
        self._clock = clock
        self._lanes: dict[str, tuple[Lane, Entry]] = {}
        self._refused: dict[str, _Refused] = {}
        self._opening: dict[str, asyncio.Task[Lane]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def ready(self, name: str) -> Lane | None:
        """The open lane to the process that the registry names now, if there is one."""
        found = self._lanes.get(name)
        if found is None:
            return None
        lane, entry = found
        if lane.closed:
            del self._lanes[name]
            self._pipelines.forget(name)
            return None
        now = self._pipelines.entry(name)
        return lane if now is None or same_process(now, entry) else None

    async def opened(self, name: str) -> Lane:
        """A lane, opened if need be; many callers share one attempt.

        Raises: NotFound, for an unknown pipeline or one without an http input; Unavailable.
        """
        lane = self.ready(name)
        if lane is not None:
            return lane
        self._refuse_again(name)
        opening = self._opening.get(name)
        if opening is None:
            opening = asyncio.create_task(self._open(name), name=f"open lane to {name}")
            self._opening[name] = opening
            opening.add_done_callback(lambda _: self._opening.pop(name, None))
        # The attempt belongs to all who wait for it: one that leaves does not end it.
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if not opening.cancelled():
                raise
            raise Unavailable("the gateway is stopping", hint="try again in a moment") from None

    async def close(self) -> None:
        """Ends every lane; what waits counts as not answered. Safe twice."""
        tasks = [*self._opening.values(), *self._running]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def quiet(self, timeout_s: float) -> bool:
        """Whether every request got its answer within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                for lane, _ in list(self._lanes.values()):
                    await lane.quiet()
        except TimeoutError:
            return False
        return True

    async def _open(self, name: str) -> Lane:
        entry = self._pipelines.entry(name)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                peer = await self._peer(name)
                lane = await self._begin(name, peer)
        except TimeoutError:
            error: PipoError = Unavailable(f"pipeline {name!r} does not answer", hint="try again")
            raise self._remember(name, error, entry) from None
        except InvalidState as error:
            # For a sender a stopped pipeline is one that may come back (doors.md, 503).
            gone = Unavailable(error.message, hint=error.hint)
            raise self._remember(name, gone, entry) from error
        except Unavailable as error:
            raise self._remember(name, error, entry) from error
        self._refused.pop(name, None)
        return lane

    async def _peer(self, name: str) -> Peer:
        try:
            return await self._pipelines.peer(name)
        except NotFound as error:
            # This door is public: its answers do not list the home's other pipelines.
            raise NotFound(
                error.message, hint="check the address: it is /in/<pipeline>/<path>"
            ) from error

    async def _begin(self, name: str, peer: Peer) -> Lane:
        with calling(peer.whom):
            info = await peer.stub.Status(pipeline_pb2.StatusRequest())
            if not any(found.via == "http" for found in info.inputs):
                error = NotFound(
                    f"pipeline {name!r} has no http input",
                    hint="packets reach it another way; pipo status shows how",
                )
                raise self._remember(name, error, peer.entry)
            call = peer.stub.Ingest()
            await call.wait_for_connection()
        lane = Lane(call, peer.whom, self._clock)
        self._lanes[name] = (lane, peer.entry)
        running = asyncio.create_task(lane.run(), name=f"lane to {name}")
        self._running.add(running)
        running.add_done_callback(self._ended)
        return lane

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        if not running.cancelled() and (error := running.exception()) is not None:
            _log.error("a lane ended by a bug", action="lane.bug", exc_info=error)

    def _remember(self, name: str, error: PipoError, entry: Entry | None) -> PipoError:
        """Keeps the refusal: a short while, or as long as the process is the same."""
        if entry is not None or not isinstance(error, NotFound):
            until = self._clock.monotonic() + PAUSE_S
            self._refused[name] = _Refused(error, until, entry)
        return error

    def _refuse_again(self, name: str) -> None:
        refused = self._refused.get(name)
        if refused is None:
            return
        now = self._pipelines.entry(name)
        unchanged = _identity(now) == _identity(refused.entry)
        lasting = isinstance(refused.error, NotFound) and now is not None
        if unchanged and (lasting or self._clock.monotonic() < refused.until):
            raise refused.error
        del self._refused[name]


def same_process(left: Entry, right: Entry) -> bool:
    return _identity(left) == _identity(right)


def _identity(entry: Entry | None) -> tuple[str, int, int, int] | None:
    """What changes with a process, and with a version that may have other inputs."""
    if entry is None:
        return None
    return entry.address, entry.pid, entry.started_at, entry.version
