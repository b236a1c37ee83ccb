"""How a run comes to its end: who asks for one, which of them wins, and what is journaled last.

A plain state machine: no clock, no I/O; whoever carries an end out waits for it (`wait`) and
says how far that has come (`move_to`).

    starting ── active ─┬─ draining ─┬─ stopping
                        └────────────┘

An end is asked for in one of four ways:

    drain     intake ends, what was accepted is worked off, then the rest of the end follows
    now       at once; what is in hand gets a moment
    suspend   at once; what is in hand finishes, and the next run goes on where this one was
    halt      as suspend, asked for by a policy: the pipeline has failed

Which of them wins, where another end was asked for already:

    a drain       changes nothing, except that a restart follows the end of a lifetime
    a lifetime    changes nothing: the run ends anyway, and with its own word
    now, suspend  overtake a drain; once the run stops they cut short what it waits for
    a halt        overtakes a drain; once the run stops it comes too late

The last word is that of the end that won. A lifetime whose end nobody overtook is `completed`.

Source: design §2 'Three ends', decision 7, edge 140, 308, 311.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from pipo.journal.changes import RESTARTED, Change, Completed, Failed, Stopped

Kind = Literal["drain", "now", "suspend", "halt"]
Phase = Literal["starting", "active", "draining", "stopping"]

# From each phase, the ones that may follow.
NEXT: Final[dict[Phase, tuple[Phase, ...]]] = {
    "starting": ("active", "stopping"),
    "active": ("draining", "stopping"),
    "draining": ("stopping",),
    "stopping": (),
}


@dataclass(frozen=True, slots=True)
class End:
    """How a run ends; `reason` is journaled. `completes`: its lifetime is over."""

    kind: Kind
    reason: str
    completes: bool = False

    def last_word(self, at: int) -> Change:
        """What the journal says last of the run."""
        if self.completes:
            return Completed(self.reason, at)
        return Failed(self.reason, at) if self.kind == "halt" else Stopped(self.reason, at)


class Effect(Enum):
    """What follows from asking for an end."""

    BEGINS = auto()
    """The first one: it is carried out."""
    OVERTAKES = auto()
    """It is carried out in place of a drain, which waits for nothing any more."""
    HURRIES = auto()
    """The run stops already, and waits for nothing any more."""
    NONE = auto()


class Ends:
    """The ends that one run was asked for."""

    def __init__(self) -> None:
        self.phase: Phase = "starting"
        self._end: End | None = None
        self._asked = asyncio.Event()

    @property
    def end(self) -> End | None:
        """How the run ends, as things stand; None while nobody has asked for it."""
        return self._end

    @property
    def works(self) -> bool:
        """Whether packets move: in a run that goes on, and in one that works them off."""
        return self._end is None or self._end.kind == "drain"

    def ask(self, end: End) -> Effect:
        """Somebody wants the run to end this way."""
        if self._end is None:
            self._end = end
            self._asked.set()
            return Effect.BEGINS
        if end.completes:
            return Effect.NONE
        if end.kind == "drain":
            if end.reason == RESTARTED and self._end.completes and self.phase != "stopping":
                # It ends already; what follows is what was asked for last.
                self._end = End(self._end.kind, RESTARTED)
            return Effect.NONE
        if self.phase == "stopping":
            return Effect.NONE if end.kind == "halt" else Effect.HURRIES
        if self._end.kind != "drain":
            return Effect.NONE
        self._end = end
        return Effect.OVERTAKES

    async def wait(self) -> End:
        """How the run ends, once somebody has asked for it."""
        await self._asked.wait()
        assert self._end is not None
        return self._end

    def move_to(self, phase: Phase) -> None:
        """The run has come so far."""
        assert phase in NEXT[self.phase], f"{phase} after {self.phase}"
        self.phase = phase
