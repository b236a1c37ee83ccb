"""A model of the machine in plain Python: what every change does to states, by `LEGAL` alone.

It keeps no tally: a split unit is judged by looking at all its copies, every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pipo.journal.changes import (
    LEGAL,
    SETTLED,
    Accepted,
    Acked,
    AwaitingAck,
    Change,
    Escalated,
    Expired,
    FannedOut,
    Held,
    Looped,
    Purged,
    Replayed,
    Rerun,
    Resolved,
    Stepped,
    Written,
)

ENDS = {"delivered", "filtered", "dead_lettered"}


@dataclass
class Thing:
    state: str
    parent: str | None = None
    cursor: str = ""
    written: int = 0
    acked: int | None = None
    deadline: bool = False
    held: str | None = None
    iteration: int = 0
    copies: list[str] = field(default_factory=list)


class Model:
    """The state of every unit."""

    def __init__(self) -> None:
        self.units: dict[str, Thing] = {}

    @property
    def states(self) -> dict[str, str]:
        return {unit: thing.state for unit, thing in self.units.items()}

    def take(self, changes: Sequence[Change]) -> bool:
        """Whether a caller's changes are all legal; only then they count."""
        before = deepcopy(self.units)
        for change in changes:
            if not self._one(change):
                self.units = before
                return False
        return True

    def _one(self, change: Any) -> bool:
        name, unit = type(change).__name__, change.unit
        thing = self.units.get(unit)
        if isinstance(change, Acked) and self._acked_before(thing):
            return True
        found = thing.state if thing else None
        if found not in LEGAL[name]:
            return False
        if thing is None:
            self.units[unit] = Thing(LEGAL[name][None][0], cursor=getattr(change, "cursor", ""))
            if isinstance(change, Accepted) and change.copies:
                self._split(unit, change.copies)
            return True
        return self._moved(change, thing, unit, LEGAL[name][found])

    def _acked_before(self, thing: Thing | None) -> bool:
        if thing is None or thing.state in ("filtered", "dead_lettered", "rejected", "branched"):
            return False
        return thing.acked == self._write_acked(thing)

    def _write_acked(self, thing: Thing) -> int:
        return thing.written + (thing.state not in ("verifying", "delivered"))

    def _moved(self, change: Any, thing: Thing, unit: str, targets: tuple[str, ...]) -> bool:
        if isinstance(change, AwaitingAck) and thing.deadline:
            return False
        if isinstance(change, Resolved) and change.action == "drop" and thing.cursor == "$output":
            return False
        if isinstance(change, (Replayed, Rerun)) and thing.copies:
            return False
        if isinstance(change, (Purged, Expired)):
            return self._remove(unit, thing)
        if isinstance(change, Acked):
            thing.acked = self._write_acked(thing)
            return True
        was = thing.state
        thing.held = change.how if isinstance(change, Held) else None
        self._place(change, thing)
        if isinstance(change, FannedOut):
            self._split(unit, change.copies)
            return True
        thing.state = self._target(change, thing, targets)
        if thing.state in ENDS and thing.state != was:
            thing.deadline, thing.cursor = False, ""
            self._settle(thing.parent)
        elif was in ENDS and thing.state not in ENDS:
            self._reopen(thing.parent)
        return True

    def _place(self, change: Any, thing: Thing) -> None:
        if isinstance(change, (Stepped, Replayed, Rerun, Escalated)):
            thing.cursor = "$output" if change.cursor in ("$batch", "$verify") else change.cursor
        if isinstance(change, Stepped) and change.cursor == "$batch":
            thing.cursor = "$batch"
        if isinstance(change, Looped):
            thing.cursor = change.back_to
            thing.iteration += 1
        if isinstance(change, Rerun):
            thing.iteration = change.iteration
        if isinstance(change, Written):
            thing.written += 1
        if isinstance(change, AwaitingAck):
            thing.deadline = True
        if isinstance(change, (Held, Escalated)):
            thing.deadline = False

    def _target(self, change: Any, thing: Thing, targets: tuple[str, ...]) -> str:
        to_output = "writing" if thing.cursor in ("$output", "$batch") else "processing"
        if isinstance(change, (Stepped, Replayed, Rerun)):
            return to_output
        if isinstance(change, Resolved):
            ends = {"dead_letter": "dead_lettered", "drop": "filtered"}
            return ends.get(change.action, to_output)
        return targets[0]

    def _split(self, unit: str, copies: Sequence[Any]) -> None:
        thing = self.units[unit]
        thing.state, thing.cursor = "branched", ""
        packet = unit.partition(":")[0]
        for copy in copies:
            state = "writing" if copy.cursor == "$output" else "processing"
            made = Thing(state, unit, copy.cursor, iteration=thing.iteration)
            made.acked = 1 if thing.acked == thing.written + 1 else None
            self.units[f"{packet}:{copy.branch}"] = made
            thing.copies.append(f"{packet}:{copy.branch}")

    def _settle(self, parent: str | None) -> None:
        if parent is None:
            return
        thing = self.units[parent]
        states = {self.units[copy].state for copy in thing.copies}
        if states <= set(SETTLED):
            order = ("dead_lettered", "delivered", "filtered")
            thing.state = next(state for state in order if state in states)
            self._settle(thing.parent)

    def _reopen(self, parent: str | None) -> None:
        while parent is not None:
            thing = self.units[parent]
            thing.state, parent = "branched", thing.parent

    def _remove(self, unit: str, thing: Thing) -> bool:
        if thing.parent is not None:
            return False
        for one in [unit, *(u for u in self.units if u.startswith(f"{unit}:"))]:
            del self.units[one]
        return True
