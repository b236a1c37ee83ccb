"""What age does to settled packets: first their payloads go, then they do.

Both leave no event. Which packets are old enough is their caller's to know; that they are
settled is held here, in the transaction that does it.
Source: edge 331-338, C024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipo.journal.outcomes import Outcome
from pipo.journal.sheet import Legal, Sheet
from pipo.journal.states import LEGAL


@dataclass(frozen=True, slots=True)
class Cleared:
    """A unit's payload goes: data, result, patches, and what its steps logged and emitted."""

    legal: ClassVar[Legal] = LEGAL["Cleared"]

    unit: str

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.clear(self.unit, self.legal, "Cleared")
        return None


@dataclass(frozen=True, slots=True)
class Expired:
    """A settled packet goes with its copies, its events and the key it was handed over under."""

    legal: ClassVar[Legal] = LEGAL["Expired"]

    unit: str

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.remove(self.unit, self.legal, "Expired")
        sheet.forgotten.append(self.unit)
        return None
