"""Stopping pipelines through the gateway: drained, or at once when the person asks twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from pipo.clock import Clock
from pipo.errors import NotFound, PipoError, Unavailable
from pipo.home import Home, desired, engine
from pipo_cli.gateway import Gateway
from pipo_cli.threads import beside

POLL_S = 0.25
# A drain is bounded by the pipeline's own drain_timeout; this bounds a gateway that says nothing.
SILENCE_S = 60.0
NOW_TIMEOUT_S = 5.0
TELL_EVERY_S = 5.0
# What it says of a process that holds its lease and does not answer: no word of a drain.
MUTE = "unreachable"


class Teller(Protocol):
    """Where lines go."""

    @property
    def is_terminal(self) -> bool: ...

    def err(self, line: str) -> None: ...


class Draining:
    """The end of the pipelines of one run; `twice` is set when the person asks again."""

    def __init__(
        self, gateway: Gateway, twice: asyncio.Event, screen: Teller, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._twice = twice
        self._screen = screen
        self._clock = clock

    async def all(self, names: Sequence[str]) -> list[str]:
        """Returns once each pipeline is done, or nothing more can be learnt of it: those names."""
        async with asyncio.TaskGroup() as group:
            ends = {
                name: group.create_task(self._stop(name), name=f"stop {name}") for name in names
            }
        return [name for name, end in ends.items() if not end.result()]

    async def attached(self, home: Home) -> None:
        """The same for every pipeline of the home's engine that is not detached (L025).

        The engine must have said that it stops: what is just being started is waited for, and
        drained as well (edge 445).
        """
        given_up: set[str] = set()
        while names := [n for n in engine.going(home).attached if n not in given_up]:
            given_up.update(await self.all(names))
            await asyncio.sleep(POLL_S)

    async def _stop(self, name: str) -> bool:
        draining = asyncio.create_task(self._drain(name), name=f"drain {name}")
        twice = asyncio.create_task(self._twice.wait(), name=f"second signal for {name}")
        try:
            await asyncio.wait({draining, twice}, return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                return draining.result()
            with suppress(PipoError, TimeoutError):
                async with asyncio.timeout(NOW_TIMEOUT_S):
                    await self._call("POST", f"/api/pipelines/{name}/stop", {"now": True})
            return False
        finally:
            draining.cancel()
            twice.cancel()

    async def _drain(self, name: str) -> bool:
        """Whether it has ended."""
        heard = told = self._clock.monotonic()
        asked = False
        while (now := self._clock.monotonic()) - heard < SILENCE_S:
            try:
                if not asked:
                    await self._call("POST", f"/api/pipelines/{name}/stop", {})
                    asked = True
                entry = await self._call("GET", f"/api/pipelines/{name}")
            except NotFound:
                return True
            except Unavailable:
                # The gateway or the runner is being started again.
                entry = {"state": MUTE}
            except PipoError as error:
                self._screen.err(f"{name}: {error.message}")
                return False
            if entry.get("state") in desired.ENDED:
                return True
            if entry.get("state") != MUTE:
                heard = now
                if now - told >= TELL_EVERY_S:
                    told = now
                    self._tell(name, entry)
            await asyncio.sleep(POLL_S)
        self._screen.err(f"{name}: nobody has said anything for {SILENCE_S:g}s")
        return False

    def _tell(self, name: str, entry: Mapping[str, Any]) -> None:
        pending = (entry.get("stats") or {}).get("pending")
        if self._screen.is_terminal and pending:
            self._screen.err(f"{name}: {pending} packet(s) still on their way")

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return await beside(lambda: self._gateway.call(method, path, body), f"{method} {path}")
