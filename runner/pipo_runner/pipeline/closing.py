"""Carries the end of a run out: the order in which its parts rest, say their last word and close.

Which end it is and what overtakes it is decided in `ends`; here is only what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipo.clock import Clock
from pipo.connectors.contract import Input
from pipo.crashpoints import reach
from pipo.home import Home, registry
from pipo.journal.changes import Draining
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.rpc.server import RunningServer
from pipo_runner.pipeline.assembly import Parts
from pipo_runner.pipeline.ends import Effect, End, Ends
from pipo_runner.pipeline.functions import Functions
from pipo_runner.pipeline.outputs import Outputs
from pipo_runner.pipeline.steps import Steps
from pipo_runner.pipeline.tidying import Tidying
from pipo_runner.pipeline.timers import Timers

# How long a stop waits for requests that are being answered (edge 37).
REQUESTS_GRACE_S: Final = 2.0
# `stop --now` waits this long for a write in flight (decision 2).
NOW_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Everything that a run has open."""

    name: str
    home: Home
    clock: Clock
    journal: SqliteJournal
    parts: Parts
    timers: Timers
    tidying: Tidying
    inputs: Sequence[Input]
    steps: Steps
    functions: Functions
    outputs: Outputs
    server: RunningServer | None


async def drain(run: Standing, ends: Ends, timeout_s: float) -> bool:
    """Works off what was accepted; False at the time limit, and when another end overtakes.

    Order: 1 intake, 2 the pause, 3 batches, 4 the event, 5 whatever is on its way, which may
    wait for a retry, a checker or an ack (decision 8). What is held or escalated waits for
    somebody, and holds nothing up. A pause ends, and nothing pauses the run again (edge 307).

    Inputs that fetch are closed. Those that are asked go on answering, with why they take
    nothing more (edge 38).
    """
    parts = run.parts
    ends.move_to("draining")
    _end_looking(parts)
    parts.pausing.end()
    parts.admission.close("draining")
    for made in run.inputs:
        if not _is_asked(made):
            await made.close()
    await parts.pausing.resume()
    parts.batches.hasten()
    # What intake had in hand when it closed was handed over before this, and is on disk with it.
    await run.journal.commit(Draining(run.clock.now_ms()))
    reach("draining.after_commit")
    end = ends.end
    if end is None or end.kind != "drain":
        return False
    return await parts.pending.emptied(timeout_s)


async def close(run: Standing, ends: Ends, end: End, grace_s: float) -> None:
    """Ends the run; what is in hand has up to `grace_s`.

    Order: 1 intake, 2 steps in hand, 3 waits given back, 4 the last word, 5 registry,
    6 streams, 7 server, 8 destination, 9 journal. The registry comes before the streams:
    whoever loses one finds that nobody is to be dialled any more.
    """
    parts = run.parts
    ends.move_to("stopping")
    _end_looking(parts)
    run.tidying.end()
    parts.admission.close("stopped")
    for made in run.inputs:
        await made.close()
    parts.executor.close()
    parts.acks.close()
    run.timers.cancel_waits()
    parts.batches.wind_up()
    rested = all(await asyncio.gather(parts.executor.idle(grace_s), parts.writing.idle(grace_s)))
    parts.pending.release_waits()
    reach("ended.before_commit")
    await run.journal.commit(end.last_word(run.clock.now_ms()))
    reach("ended.after_commit")
    registry.remove(run.home, run.name)
    parts.verifications.close()
    run.timers.end_reading()
    if run.server is not None:
        await run.server.stop(REQUESTS_GRACE_S)
    await run.timers.close(REQUESTS_GRACE_S if rested else 0.0)
    await run.functions.close()
    if rested:
        await run.outputs.close()
        await run.steps.close()
    # Else a destination holds a write up, and closing it would wait for that: it is left
    # as a kill leaves it, and the keys tell the next start what was written (O074).
    await run.journal.close(clean=True)


def give_up_waiting(parts: Parts, effect: Effect) -> None:
    """Another end was asked for: what `drain` or `close` waits for is waited for no longer."""
    if effect is Effect.OVERTAKES:
        parts.pending.give_up_waiting()
    elif effect is Effect.HURRIES:
        parts.executor.give_up_waiting()
        parts.writing.give_up_waiting()


def _is_asked(made: Input) -> bool:
    """Whether others ask it, in place of it asking others."""
    return hasattr(made, "answer") or hasattr(made, "deliver")


def _end_looking(parts: Parts) -> None:
    """No stall and no limit of the lifetime is looked for any more."""
    parts.lifetime.end()
    if parts.stalling is not None:
        parts.stalling.end()
