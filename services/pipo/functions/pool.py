"""The helpers of one pipeline: as many as its calls need at once, up to a limit.

They are started when a call finds none free, and ended when they have been idle for a while.
The one that was used last is used next, so that those which a burst needed grow idle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipo.clock import Clock
from pipo.functions.calling import Call, FunctionFailed, Helper, Limits, ended_all
from pipo.functions.launching import NotStarted
from pipo.functions.prints import PrintedLog

SIZE_LIMIT: Final = 8
IDLE_S: Final = 120.0
_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Idle:
    """A helper that waits for a call, and since when."""

    helper: Helper
    since: float


class Pool:
    """At most `size` helpers. `environ` is what they get of the environment."""

    def __init__(
        self,
        *,
        size: int,
        limits: Limits,
        environ: Mapping[str, str],
        log: PrintedLog,
        clock: Clock,
        idle_s: float = IDLE_S,
    ) -> None:
        self._size = min(size, SIZE_LIMIT)
        self._limits = limits
        self._environ = environ
        self._log = log
        self._clock = clock
        self._idle_s = idle_s
        self._idle: list[Idle] = []
        self._all: set[Helper] = set()
        # Helpers that are being started count as well.
        self._count = 0
        self._waiting: deque[asyncio.Future[Helper | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def count(self) -> int:
        """How many helpers there are."""
        return self._count

    async def run(self, call: Call) -> bytes:
        """The result's JSON text; empty for a call that wants none.

        Raises: FunctionFailed. Cancelled: the function may have run, in part or whole.
        """
        helper = await self._free_helper(call.function)
        try:
            return await helper.run(call)
        finally:
            self._give_back(helper)

    async def close(self) -> None:
        """Ends every helper. Safe twice."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await ended_all([*self._all], _CLOSE_S)

    # ── who is free ──────────────────────────────────────────────────────────

    async def _free_helper(self, function: str) -> Helper:
        while self._idle:
            helper = self._idle.pop().helper
            if helper.alive:
                return helper
            self._gone()
        if self._count >= self._size:
            # As long as the calls before it take, each of which has its own limit.
            waiter: asyncio.Future[Helper | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                given = await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._hand_on(waiter.result())
                raise
            if given is not None:
                return given
        else:
            self._count += 1
        return await self._started(function)

    async def _started(self, function: str) -> Helper:
        """A new helper, in a place that is counted already."""
        helper = Helper(self._limits, self._log)
        try:
            if self._closed:
                raise NotStarted("the pipeline is stopping")
            helper.launch(self._environ)
            self._all.add(helper)
            helper.on_end(lambda: self._all.discard(helper))
            await helper.start()
        except (NotStarted, FunctionFailed) as error:
            self._gone()
            raise FunctionFailed(f"fn.{function} has no process to run in: {error}") from error
        except BaseException:
            self._gone()
            raise
        return helper

    def _give_back(self, helper: Helper) -> None:
        if not helper.alive:
            self._gone()
        else:
            self._hand_on(helper)

    def _gone(self) -> None:
        """A helper's place is free; whoever waits for one starts another in it."""
        self._hand_on(None)

    def _hand_on(self, helper: Helper | None) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(helper)
                return
        if helper is None:
            self._count -= 1
        else:
            self._idle.append(Idle(helper, self._clock.monotonic()))
            self._look_later()

    # ── who is idle ──────────────────────────────────────────────────────────

    def _look_later(self) -> None:
        if self._timer is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._idle_s, self._end_idle)

    def _end_idle(self) -> None:
        """Ends those that have been idle for long enough, and looks again if there are others."""
        self._timer = None
        until = self._clock.monotonic() - self._idle_s
        for idle in [*self._idle]:
            if idle.since <= until or not idle.helper.alive:
                self._idle.remove(idle)
                idle.helper.kill("was idle")
                self._gone()
        if self._idle:
            self._look_later()
