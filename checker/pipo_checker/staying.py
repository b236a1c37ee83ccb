"""The checker of detached pipelines once their engine is gone (design §2).

An embedded checker ends with its engine, in order or at the end of its supervisor's pipe. Where
a detached pipeline lives then, it first starts a successor: this same command in a session of its
own, nobody's child, under a name and a lease of its own. That one serves until no detached
pipeline lives, or the checker of a new engine is there; both may serve for a while.

One that is started while its predecessor still stays waits for longer than a look takes: by then
the predecessor has either seen that it is needed, or gone.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

from pipo.clock import Clock
from pipo.errors import Internal
from pipo.home import Home, engine, leases, registry
from pipo_checker.checker import Checker

ID = "staying"
# A detached pipeline's end is seen within 10 s (design §2).
LOOK_EVERY_S = 5.0
PREDECESSOR_S = 4 * LOOK_EVERY_S
_POLL_S = 0.2


class Embedded(Checker):
    """A checker beneath an engine: what outlives that keeps a checker."""

    async def stop(self) -> None:
        """As any checker's, after a successor has been started where one is needed."""
        home = self._shell.home
        if not self._stopped:
            kept = await asyncio.to_thread(engine.living_detached, home)
            if kept:
                await asyncio.to_thread(_succeed, home)
                self._shell.log.info("a checker stays", action="staying", detached=", ".join(kept))
        await super().stop()


class Staying(Checker):
    """A checker that serves for as long as it is needed."""

    _looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._looking = asyncio.create_task(self._until_done(), name="still needed")

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await super().stop()

    async def _until_done(self) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                if why := await asyncio.to_thread(why_done, self._shell.home):
                    self._shell.end(why)
                    return
        except Exception as error:
            self._shell.fail(Internal(f"looking for detached pipelines failed: {error}"))


def why_done(home: Home) -> str:
    """Why nobody needs a staying checker any more; empty while one is."""
    if not engine.living_detached(home):
        return "no detached pipeline is left"
    # One that stops has no address any more.
    others = registry.services(home, "checker")
    if any(other.id == engine.INSTANCE and other.http_address for other in others):
        return "the engine has a checker again"
    return ""


def await_turn(home: Home, clock: Clock) -> None:
    """Returns once no other checker stays, or has stayed for so long that it goes on.

    Blocks its thread: for use before an event loop runs.
    """
    path = registry.service_lease(home, "checker", ID)
    deadline = clock.monotonic() + PREDECESSOR_S
    pause = threading.Event()
    while leases.holder(path) is not None and clock.monotonic() < deadline:
        pause.wait(_POLL_S)


def _succeed(home: Home) -> None:
    with open(home.service_logs / f"checker-{ID}.log", "ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "pipo_checker.main", "--home", str(home.root), "--stay"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
