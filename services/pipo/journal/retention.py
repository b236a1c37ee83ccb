"""What age does to settled packets: first their payloads go, then they do.

Both leave no event. `clean_up.py` looks for what is old enough; that it still is, and still
settled, is held here, in the transaction that does it: a rerun may have come between.
Source: edge 331-338, C024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipo.journal.outcomes import Outcome
from pipo.journal.sheet import IllegalChange, Legal, Sheet
from pipo.journal.states import LEGAL


@dataclass(frozen=True, slots=True)
class Cleared:
    """A unit's payload goes: data, result, patches, and what its steps logged and emitted."""

    legal: ClassVar[Legal] = LEGAL["Cleared"]

    unit: str
    settled_before: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        _require_age(sheet, self.unit, self.settled_before, "Cleared")
        sheet.clear(self.unit, self.legal, "Cleared")
        return None


@dataclass(frozen=True, slots=True)
class Expired:
    """A settled packet goes with its copies, its events and the key it was handed over under."""

    legal: ClassVar[Legal] = LEGAL["Expired"]

    unit: str
    settled_before: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        _require_age(sheet, self.unit, self.settled_before, "Expired")
        sheet.remove(self.unit, self.legal, "Expired")
        sheet.forgotten.append(self.unit)
        return None


def _require_age(sheet: Sheet, unit: str, before: int, change: str) -> None:
    """Raises: IllegalChange, for a unit that settled later."""
    row = sheet.find(unit)
    if row is not None and row.settled_at is not None and row.settled_at >= before:
        raise IllegalChange(unit, row.state, change, why="settled anew")
