"""The one place where a policy's `then` becomes changes (facts §6).

A unit whose step has failed for good ends (`dead_letter`, `drop`), or waits: for the end of a
pause (`pause`), for the next start (`halt`), or for someone who decides (`agent`). What waits
keeps its place in the buffer, holds no slot and holds up no drain (edge 140, 156, 286).
`continue` is no end: a tap's unit goes on to the next step.

The caller journals the changes in one commit, and after it gives the unit's slot back and
tells of the settlement, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, assert_never

from pipo.connectors.contract import Settlement
from pipo.errors import Internal
from pipo.journal.changes import Change, DeadLettered, Dropped, Escalated, Held, PacketError
from pipo.journal.states import plain
from pipo.lang.model import Then
from pipo_runner.pipeline.flow.pausing import Pausing
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.units import OUTPUT, UNLOADED, Unit


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit whose step has failed for good, at `cursor`; `ms` is how long the step took."""

    unit: Unit
    error: PacketError
    cursor: str
    at: int
    ms: float


@dataclass(frozen=True, slots=True)
class Ending:
    """What is journaled, in one commit; `settlement` is None for a unit that waits."""

    changes: tuple[Change, ...]
    settlement: Settlement | None


class Endings:
    """The ends of one pipeline's units. `on_halt` hears why, before the commit."""

    def __init__(self, *, pending: Pending, pausing: Pausing) -> None:
        self._pending = pending
        self._pausing = pausing
        self.on_halt: Callable[[str], None] = _nobody

    def of(self, then: Then, failed: Failed, again: Callable[[], None]) -> Ending:
        """What the policy `then` makes of the unit; `again` runs its step anew after a pause."""
        unit, error, cursor = failed.unit, failed.error, failed.cursor
        if unit.stall is not None:
            # It was handed over while it was in somebody's hands (edge 238).
            then = "agent"
        match then:
            case "dead_letter":
                dead = DeadLettered(
                    unit=unit.id, error=error, node=cursor, at=failed.at, ms=failed.ms
                )
                return Ending((dead,), Settlement("dead_lettered", error.message))
            case "drop":
                dropped = Dropped(
                    unit=unit.id, error=error, node=cursor, at=failed.at, ms=failed.ms
                )
                return Ending((dropped,), Settlement("filtered", error.message))
            case "pause":
                held = self._held(failed, "pause")
                self.hold(unit, again)
                return Ending((held, *self._pausing.begin(f"error at {cursor}")), None)
            case "halt":
                held = self._held(failed, "halt")
                self.on_halt(f"error at {cursor}: {error.message}")
                return Ending((held,), None)
            case "agent":
                return Ending((self._escalated(failed),), None)
            case "continue":
                raise Internal("a step that goes on has not ended", hint="this is a bug")
            case _:
                assert_never(then)

    def handed_over(self, unit: Unit, stall: str, at: int) -> Change:
        """The change of a unit in nobody's hands that a stall hands over (edge 237, 242)."""
        where = plain(unit.cursor)
        error = PacketError("stall", stall, None, where, unit.attempt)
        unit.stall = stall
        # One that is held is the business of who resolves it from now on.
        self._pausing.let_go(unit.id)
        return self._escalated(Failed(unit, error, unit.cursor, at, 0.0))

    def hold(self, unit: Unit, again: Callable[[], None]) -> None:
        """The unit waits for the end of the pause, and `again` runs its step then."""
        self.set_aside(unit)
        self._pausing.hold(unit.id, lambda: self._take_up(unit, again))

    def set_aside(self, unit: Unit) -> None:
        """The unit waits for someone. Its step begins anew then, with all its attempts."""
        unit.moved_on()
        unit.entered = 0.0
        # It may wait for days: its payload is read back when its turn comes.
        unit.data = UNLOADED
        self._pending.set_aside(unit.id)

    def _held(self, failed: Failed, how: Literal["pause", "halt"]) -> Held:
        self.set_aside(failed.unit)
        return Held(
            unit=failed.unit.id, how=how, error=failed.error, node=failed.cursor, at=failed.at
        )

    def _take_up(self, unit: Unit, again: Callable[[], None]) -> None:
        self._pending.back(unit.id)
        again()

    def _escalated(self, failed: Failed) -> Escalated:
        unit, cursor, stall = failed.unit, failed.cursor, failed.unit.stall
        self.set_aside(unit)
        if cursor.startswith("$"):
            # What failed at the output, in a batch or at the check is written again (edge 285).
            unit.cursor = OUTPUT
        return Escalated(
            unit=unit.id,
            error=failed.error,
            reason="error" if stall is None else "stall",
            node=cursor,
            cursor=cursor,
            at=failed.at,
            stall=stall,
        )


def _nobody(reason: str) -> None:
    """Nothing is halted yet."""
