"""The verifications of one pipeline, from offer to verdict.

Idea. Every place at the destination (a database, a file) is a lane with a task of
its own. All units that are due at a place go into one look; what arrives during a
look goes into the next one, so the groups grow with the load and a lone unit is
looked at at once. Lanes know nothing of each other: a locked database delays the
units of that database only.

Bounds. `capacity` verifications are held at once, verdicts that wait to be sent
included; beyond it the stream is not read, and the pipeline feels it. `LOOKS_MAX`
looks are in flight. A place whose last look was slow shares `SLOW_LOOKS_MAX` other
slots, so that many hanging places cannot use up all of them.

Failure. A stream that ends takes its verifications with it (`clear`): the pipeline
offers them again, with what is left of their `within`. The verdict is lost or sent
once; the pipeline ignores whatever is older than its current offer.

Rejected: one scheduler over all places with a set of workers. It needs the same
bookkeeping, and a place that is busy would have to be skipped at every turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Self

from pipo.clock import Clock, iso
from pipo.connectors.contract import CheckError, Checks, Judgement, Seen, Target
from pipo.rpc.stubs.checker_pb2 import Verdict, Verification
from pipo.telemetry.logs import logger
from pipo_checker import rhythm
from pipo_checker.held import Held, refusal, settle
from pipo_checker.lane import Lane
from pipo_checker.meters import Meters
from pipo_checker.mishaps import Mishaps
from pipo_checker.outbox import Outbox
from pipo_checker.targets import Connectors, Targets, Unjudgeable

CAPACITY = 4096
LOOKS_MAX = 64
SLOW_LOOKS_MAX = 32
STUCK_PAUSE_S = 1.0
CLOSE_TIMEOUT_S = 1.0

_log = logger("checker.verifier")


class Verifier:
    """Looks until a check passes or its time is over; verdicts go to `outbox`.

    A context manager: it owns the lanes' tasks and the connectors' checks.
    """

    def __init__(
        self,
        connectors: Connectors,
        *,
        clock: Clock,
        meters: Meters,
        capacity: int = CAPACITY,
    ) -> None:
        self.outbox = Outbox()
        self._clock = clock
        self._meters = meters
        self._capacity = capacity
        self._targets = Targets(connectors)
        self._mishaps = Mishaps()
        self._held: dict[str, Held] = {}
        meters.held = self._held
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._tasks = asyncio.TaskGroup()
        self._driven: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(LOOKS_MAX)
        self._slow_slots = asyncio.Semaphore(SLOW_LOOKS_MAX)
        self._eased = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()
        for task in self._driven:
            task.cancel()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            for checks in self._targets.built():
                await self._close(checks)

    @property
    def held_count(self) -> int:
        """Verifications without a verdict."""
        return len(self._held)

    def offer(self, offers: Iterable[Verification]) -> None:
        """Takes verifications; each is looked at at once."""
        now = self._clock.monotonic()
        for offer in offers:
            if offer.id not in self._held:
                self._take(offer, now)

    def withdraw(self, ids: Iterable[str]) -> None:
        """Drops verifications that need no look any more; unknown ids are ignored."""
        for id in ids:
            held = self._held.pop(id, None)
            if held is not None:
                held.gone = True
        self._eased.set()

    def clear(self) -> None:
        """Drops everything, unsent verdicts included."""
        self.withdraw(list(self._held))
        self.outbox.clear()

    def verdicts(self) -> list[Verdict]:
        """The verdicts of one message, for whoever sends them now."""
        self._eased.set()
        return self.outbox.take()

    async def room(self) -> None:
        """Returns when no more is held than was agreed."""
        while self.held_count + len(self.outbox) > self._capacity:
            self._eased.clear()
            await self._eased.wait()

    def _take(self, offer: Verification, now: float) -> None:
        try:
            checks, target = self._targets.target(offer)
            place = checks.place(target)
        except Unjudgeable as error:
            self._conclude(refusal(offer.id, str(error)))
            return
        except Exception as error:
            self._conclude(refusal(offer.id, self._mishaps.text(error, "place")))
            return
        held = Held(
            id=offer.id,
            target=target,
            rhythm=rhythm.begin(
                offer.check, now, within_left_ms=offer.within_left_ms, within_ms=offer.within_ms
            ),
            taken=now,
            spent_ms=max(0, offer.within_ms - max(0, offer.within_left_ms)),
        )
        self._held[held.id] = held
        self._lane(offer.output, place, checks).add(held, now)

    def _lane(self, output: str, place: str, checks: Checks) -> Lane:
        lane = self._lanes.get((output, place))
        if lane is None:
            lane = self._lanes[output, place] = Lane(place, checks, self._mishaps)
            task = self._tasks.create_task(
                self._drive((output, place), lane, checks), name=f"looks at {place}"
            )
            self._driven.add(task)
            task.add_done_callback(self._driven.discard)
        return lane

    async def _drive(self, key: tuple[str, str], lane: Lane, checks: Checks) -> None:
        """Looks at one place for as long as something waits there, or a look hangs there."""
        while (due := lane.next_due()) is not None or lane.stuck:
            wait_s = STUCK_PAUSE_S if due is None else due - self._clock.monotonic()
            if wait_s > 0:
                await lane.added(wait_s)
                continue
            async with self._slow_slots if lane.slow else self._slots:
                group = lane.take(self._clock.monotonic())
                if group:
                    await self._look(lane, checks, group)
        del self._lanes[key]

    async def _look(self, lane: Lane, checks: Checks, group: list[Held]) -> None:
        started = self._clock.monotonic()
        found = await lane.look([held.target for held in group])
        finished = self._clock.monotonic()
        lane.took(len(group), finished - started)
        self._meters.looked(len(group), finished - started)
        at = iso(self._clock.now_ms())
        for held, seen in zip(group, found, strict=True):
            if held.gone:
                continue
            settled = settle(held, self._judged(checks, held.target, seen), finished, at)
            if isinstance(settled, Verdict):
                del self._held[held.id]
                self._conclude(settled)
            else:
                lane.add(held, settled)
                if held.news is not None:
                    held.news.add_done_callback(partial(self._told, lane, held))

    def _told(self, lane: Lane, held: Held, news: asyncio.Future[None]) -> None:
        """The destination has news; a look since then may have seen it already."""
        if held.news is news:
            lane.hasten(held, self._clock.monotonic())

    def _conclude(self, verdict: Verdict) -> None:
        self._meters.concluded(verdict.outcome)
        self.outbox.put(verdict)

    def _judged(
        self, checks: Checks, target: Target, seen: Seen | CheckError
    ) -> Judgement | CheckError:
        if isinstance(seen, CheckError):
            return seen
        try:
            return checks.judge(target, seen)
        except Exception as error:
            return CheckError(self._mishaps.text(error, "judge"))

    async def _close(self, checks: Checks) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await checks.close()
        except TimeoutError:
            _log.warning("a destination did not close in time", action="check.close")
        except Exception as error:
            self._mishaps.text(error, "close")
