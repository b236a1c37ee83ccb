"""Units that may stand at the destination without the journal's knowing of it.

Two kinds: those that an earlier run left, and those whose write failed, which says nothing of
what is there. Where a record of theirs can be is looked for from the output's last note on (its
marks, decision 003). So a note moves on only when nobody is in doubt any more: else the next crash
would leave one behind the note, where nobody looks, and it would be written twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pipo_runner.pipeline.flow.units import VERIFY, Unit


class Pending(Protocol):
    """What is asked of the units that are not settled."""

    def find(self, unit_id: str) -> Unit | None: ...

    def holds(self, packet_id: str) -> bool: ...


class Doubts:
    """The units in doubt; whoever has been written or has ended is none any more."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._units: set[str] = set()

    def add(self, unit: Unit) -> None:
        """Its write may have happened. One that is looked for everywhere is no matter of notes."""
        if unit.repeat == "recovered":
            self._units.add(unit.id)

    def to_note(self, marks: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """What of the marks may be noted now. To forget one is always safe: all is looked at then."""
        if not self._any():
            return marks
        return {name: mark for name, mark in marks.items() if mark is None}

    def _any(self) -> bool:
        while self._units:
            one = next(iter(self._units))
            if self._is_in_doubt(one):
                return True
            self._units.discard(one)
        return False

    def _is_in_doubt(self, unit_id: str) -> bool:
        unit = self._pending.find(unit_id)
        # One that has split since may have copies in its place.
        return self._pending.holds(unit_id) if unit is None else unit.cursor != VERIFY
