"""The end of a run, from whoever asks for it to the last word: what follows in which order.

Which end it is and what overtakes it is decided in `ends`; here is only what comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipo.clock import Clock
from pipo.connectors.contract import HandOverInput, HttpInput, Input
from pipo.crashpoints import reach
from pipo.home import Home, registry
from pipo.home.config import Config
from pipo.journal.changes import Draining, LifetimeEnded
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.lang.model import Lifetime
from pipo.payload import encode
from pipo.rpc.server import RunningServer
from pipo.telemetry.logs import logger
from pipo_runner.pipeline.assembly import Parts
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.ground import Ground
from pipo_runner.pipeline.life.ends import Effect, End, Ends, Kind
from pipo_runner.pipeline.life.lifetime import Limit
from pipo_runner.pipeline.life.tidying import Tidying

# How long a stop waits for requests that are being answered (edge 37).
REQUESTS_GRACE_S: Final = 2.0
# `stop --now` waits this long for a write in flight (decision 2).
NOW_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything that a run has open."""

    name: str
    home: Home
    config: Config
    clock: Clock
    journal: SqliteJournal
    timers: Timers
    tidying: Tidying
    ground: Ground
    parts: Parts
    inputs: Sequence[Input]
    server: RunningServer | None

    @property
    def drain_timeout_s(self) -> float:
        """How long a drain may take: the file's word, by the version in force."""
        lifetime = self.ground.plans.current().pipeline.lifetime or Lifetime()
        return lifetime.drain_timeout_ms / 1000.0


class Closing:
    """Brings one run to its end. `standing` tells what it has open, once it has."""

    def __init__(self, ends: Ends, standing: Callable[[], Standing]) -> None:
        self._ends = ends
        self._standing = standing
        self._log = logger("pipeline")
        self._lifetime_ended: LifetimeEnded | None = None
        self._crash: BaseException | None = None

    # ── asking ───────────────────────────────────────────────────────────────

    def ask(self, end: End) -> Effect:
        """Somebody wants this end; what the run waits for, it may wait for no longer."""
        effect = self._ends.ask(end)
        phase = self._ends.phase
        if phase == "draining" and effect is Effect.OVERTAKES:
            self._standing().parts.pending.give_up_waiting()
        elif phase == "stopping" and effect is Effect.HURRIES:
            parts = self._standing().parts
            parts.executor.give_up_waiting()
            parts.writing.give_up_waiting()
        return effect

    def halt(self, reason: str) -> None:
        """A policy halts the pipeline: nothing more begins, what is in hand finishes."""
        if self._ends.phase == "stopping":
            return
        parts = self._standing().parts
        parts.pausing.end()
        parts.executor.close()
        parts.writing.give_back()
        self.ask(End("halt", reason))

    def lifetime_over(self, limit: Limit) -> None:
        """A limit of the lifetime is reached: intake ends with it (edge 5)."""
        run = self._standing()
        lifetime = run.parts.lifetime
        run.parts.admission.end_lifetime(limit.refusal(run.name))
        # What is in hand finishes either way: nobody waits for a stop of this kind.
        kind: Kind = "drain" if lifetime.terms.drains else "suspend"
        end = End(kind, limit.reason, completes=True)
        if self.ask(end) is not Effect.BEGINS:
            return
        run.parts.pausing.end()
        self._lifetime_ended = LifetimeEnded(
            reason=limit.reason,
            limit=str(limit),
            stats=encode(run.parts.statistics.scope()),
            at=run.clock.now_ms(),
        )

    def crashed(self, error: BaseException) -> None:
        """A part failed in a way that is a bug: the process starts anew from disk."""
        if self._crash is None:
            # Once: a journal that fails is told to everyone who waits for it.
            self._log.error("a part of the pipeline failed", exc_info=error)
            self._crash = error
        self.ask(End("now", "crashed"))

    # ── carrying out ─────────────────────────────────────────────────────────

    async def run_to_end(self) -> int:
        """Waits for an end and carries it out; the exit code, 1 for a halt.

        Raises: what made the process fail, if a part of it did.
        """
        await self._ends.wait()
        self._raise_crash()
        run = self._standing()
        if self._lifetime_ended is not None:
            # Here, and not where it was reached: that may be before the run was up.
            drains = run.parts.lifetime.terms.drains
            self._log.info(
                f"lifetime {self._lifetime_ended.limit} reached;"
                f" {'draining' if drains else 'stopping'}",
                action=LifetimeEnded.event,
            )
            reach("lifetime.before_commit")
            await run.journal.commit(self._lifetime_ended)
            reach("lifetime.after_commit")
        if self._ends.works:
            drained = await self._drain(run)
            self._raise_crash()
            if not drained and self._ends.works:
                self._log.warning("the drain timed out", pending=len(run.parts.pending))
        end = await self._ends.wait()
        await self._close(run, end)
        if end.kind == "halt":
            self._log.error("pipeline halted", action="pipeline.failed", reason=end.reason)
            return 1
        word = "completed" if end.completes else "stopped"
        self._log.info(f"pipeline {word}", action=f"pipeline.{word}", reason=end.reason)
        return 0

    def _raise_crash(self) -> None:
        if self._crash is not None:
            raise self._crash

    async def _drain(self, run: Standing) -> bool:
        """Works off what was accepted; False at the time limit, and when another end overtakes.

        Order: 1 intake, 2 the pause, 3 batches, 4 the event, 5 whatever is on its way, which may
        wait for a retry, a checker or an ack (decision 8). What is held or escalated waits for
        somebody, and holds nothing up. A pause ends, and nothing pauses the run again (edge 307).

        Inputs that fetch are closed. Those that are asked go on answering, with why they take
        nothing more (edge 38).
        """
        parts = run.parts
        self._ends.move_to("draining")
        _end_looking(parts)
        parts.pausing.end()
        parts.admission.close("draining")
        for made in run.inputs:
            if not isinstance(made, HttpInput | HandOverInput):
                await made.close()
        await parts.pausing.resume()
        parts.batches.hasten()
        # What intake had in hand when it closed was handed over before this, and lands with it.
        await run.journal.commit(Draining(run.clock.now_ms()))
        reach("draining.after_commit")
        return self._ends.works and await parts.pending.emptied(run.drain_timeout_s)

    async def _close(self, run: Standing, end: End) -> None:
        """Ends the run; what is in hand has a while for it.

        Order: 1 intake, 2 steps in hand, 3 waits given back, 4 the last word, 5 registry,
        6 streams, 7 server, 8 destination, 9 journal. The registry comes before the streams:
        whoever loses one finds that nobody is to be dialled any more.
        """
        parts = run.parts
        self._ends.move_to("stopping")
        _end_looking(parts)
        run.tidying.end()
        parts.admission.close("stopped")
        for made in run.inputs:
            await made.close()
        parts.executor.close()
        parts.acks.close()
        run.timers.cancel_waits()
        parts.batches.wind_up()
        grace_s = NOW_GRACE_S if end.kind == "now" else run.config.stop_timeout_s
        rested = all(
            await asyncio.gather(parts.executor.idle(grace_s), parts.writing.idle(grace_s))
        )
        parts.pending.release_waits()
        reach("ended.before_commit")
        await run.journal.commit(end.last_word(run.clock.now_ms()))
        reach("ended.after_commit")
        registry.remove(run.home, run.name)
        parts.offers.close()
        run.timers.end_reading()
        if run.server is not None:
            await run.server.stop(REQUESTS_GRACE_S)
        await run.timers.close(REQUESTS_GRACE_S if rested else 0.0)
        await run.ground.close(rested=rested)
        await run.journal.close(clean=True)


def _end_looking(parts: Parts) -> None:
    """No stall and no limit of the lifetime is looked for any more."""
    parts.lifetime.end()
    if parts.stalling is not None:
        parts.stalling.end()
