"""What policies and people do to a packet from outside its steps.

Held and escalated units wait for someone: a hold ends with the pause that it belongs to, an
escalation with `Resolved`. A dead letter waits for `Replayed` or `Purged`. `Rerun` takes a
packet up that ended well. `Acked` confirms a write from outside.

Source: edge 137-139, 213-227, 253-298.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import msgspec

from pipo import payload
from pipo.journal import families
from pipo.journal.families import detail_with_error, refuse_split
from pipo.journal.outcomes import Acknowledged, Outcome
from pipo.journal.sheet import IllegalChange, Legal, Sheet, UnitRow
from pipo.journal.states import (
    BATCH,
    DEAD_LETTER,
    DEAD_LETTERED,
    DELIVERED,
    DROP,
    ESCALATED,
    FILTERED,
    LEGAL,
    LOOP_MAX,
    OUTPUT,
    PURGED_EVENT,
    RETRY,
    VERIFY,
    VERIFYING,
    PacketError,
    plain,
    state_at,
)

# What a person says of themselves and of why is kept up to so many characters (edge 227, 297).
BY_CHARS: Final = 200
REASON_CHARS: Final = 2000


# ── set aside ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Held:
    """A step failed and its policy is `pause` or `halt`: the unit waits where it stands.

    Its error is no error of the row. It goes on with all its attempts and, at the check, with
    a fresh window (edge 137, 139, 209, 215).
    """

    event: ClassVar[str] = "packet.held"
    legal: ClassVar[Legal] = LEGAL["Held"]

    unit: str
    how: Literal["pause", "halt"]
    error: PacketError
    node: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Held", None, self.at)
        row.held = self.how
        row.attempt = 0
        row.retry_at = None
        row.deadline_at = None
        detail = detail_with_error({"how": self.how}, self.error.json())
        sheet.event(self.at, self.event, self.unit, plain(self.node), None, detail)
        return None


@dataclass(frozen=True, slots=True)
class Unheld:
    """The pause is over for a held unit. Any change that moves it says the same.

    It has no event; a unit that is not held stays as it is.
    """

    legal: ClassVar[Legal] = LEGAL["Unheld"]

    unit: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.enter(self.unit, self.legal, "Unheld", None, self.at)
        return None


@dataclass(frozen=True, slots=True)
class Escalated:
    """Someone is to decide: the unit waits before the step at `cursor`, with its error.

    `reason` is error, stall or rejected; `stall` is the text of the stall that did it. What
    failed at the output, in a batch or at the check waits at the output (edge 210, 285).
    """

    event: ClassVar[str] = "packet.escalated"
    legal: ClassVar[Legal] = LEGAL["Escalated"]

    unit: str
    error: PacketError
    reason: str
    node: str
    cursor: str
    at: int
    stall: str | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Escalated", ESCALATED, self.at, same_step=True)
        row.cursor = OUTPUT if self.cursor in (BATCH, VERIFY) else self.cursor
        row.deadline_at = None
        row.error = self.error.json()
        facts: dict[str, object] = {"reason": self.reason}
        if self.stall is not None:
            facts["stall"] = self.stall
        detail = detail_with_error(facts, row.error)
        sheet.event(self.at, self.event, self.unit, plain(self.node), ESCALATED, detail)
        return None


@dataclass(frozen=True, slots=True)
class Resolved:
    """Someone decided over an escalated unit: it runs again, is dead-lettered or dropped.

    What waits at the output cannot be dropped: it may have been written (edge 290).
    `queue_seq` is its new place for a retry, and None else.
    """

    event: ClassVar[str] = "packet.resolved"
    legal: ClassVar[Legal] = LEGAL["Resolved"]

    unit: str
    action: Literal["retry", "dead_letter", "drop"]
    by: str
    by_kind: str
    reason: str | None
    at: int
    queue_seq: int | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        found = sheet.find(self.unit)
        cursor = found.cursor if found is not None else None
        if self.action == DROP and found is not None and cursor == OUTPUT:
            raise IllegalChange(
                self.unit,
                found.state,
                "Resolved",
                why="waits at the output and cannot be dropped",
                hint="retry it, or dead_letter it",
            )
        to = {DEAD_LETTER: DEAD_LETTERED, DROP: FILTERED}.get(self.action) or state_at(cursor or "")
        row = sheet.enter(self.unit, self.legal, "Resolved", to, self.at, same_step=True)
        node = plain(cursor or "")
        detail = detail_with_error(self._facts(), row.current_error)
        if self.action == RETRY:
            sheet.event(self.at, self.event, self.unit, node, to, detail)
            _take_up(row, cursor, self.queue_seq)
            return None
        sheet.event(self.at, self.event, self.unit, node, None, detail)
        event = "packet.dropped" if self.action == DROP else "packet.dead_lettered"
        sheet.event(self.at, event, self.unit, node, to, row.current_error)
        families.ended(sheet, row, self.at)
        return None

    def _facts(self) -> dict[str, object]:
        reason = (self.reason or "").strip()[:REASON_CHARS]
        return {
            "action": self.action,
            "by": self.by[:BY_CHARS],
            "by_kind": self.by_kind,
            "reason": reason or None,
        }


# ── taken up again ───────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Replayed:
    """A dead letter goes back to the step it failed at, `cursor`, with the data it had there.

    Of a split packet its dead copies are replayed, in one commit; what they came of is
    branched again, with a `dlq.replayed` of its own (edge 263). After a loop's limit its passes
    count anew (edge 133).
    """

    event: ClassVar[str] = "dlq.replayed"
    legal: ClassVar[Legal] = LEGAL["Replayed"]

    unit: str
    cursor: str
    by: str
    at: int
    queue_seq: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        refuse_split(sheet, self.unit, "Replayed")
        to = state_at(self.cursor)
        row = sheet.enter(self.unit, self.legal, "Replayed", to, self.at)
        facts: dict[str, object] = {"by": self.by[:BY_CHARS]}
        detail = detail_with_error(facts, row.current_error)
        sheet.event(self.at, self.event, self.unit, plain(self.cursor), to, detail)
        _take_up(row, self.cursor, self.queue_seq)
        families.reopened(sheet, row, DEAD_LETTERED, self.at, self.event, facts)
        return None


@dataclass(frozen=True, slots=True)
class Rerun:
    """A packet that ended well goes back to `node`, with the data it first had there.

    `cursor` is the node, or `$output`; `iteration` is what it was at that time. `version`
    pins it anew. Of a split packet the copies that passed the node are rerun, in one commit;
    what they came of is branched again, with a `packet.rerun` of its own.
    Source: edge 273, 277-283, R038.
    """

    event: ClassVar[str] = "packet.rerun"
    legal: ClassVar[Legal] = LEGAL["Rerun"]

    unit: str
    cursor: str
    data: bytes
    by: str
    at: int
    queue_seq: int
    iteration: int = 0
    version: int | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        refuse_split(sheet, self.unit, "Rerun")
        found = sheet.find(self.unit)
        was = found.state if found is not None else ""
        to = state_at(self.cursor)
        row = sheet.enter(self.unit, self.legal, "Rerun", to, self.at)
        node = plain(self.cursor)
        facts = self._facts(row, node, was)
        version = self.version or row.version
        sheet.require_version(self.unit, version)
        # The fold of the patches from here on starts at this value.
        patch = f'{{"value":{self.data.decode()}}}'
        detail = payload.encode(facts).decode()
        sheet.event(self.at, self.event, self.unit, node, to, detail, patch)
        _take_up(row, self.cursor, self.queue_seq)
        row.patched = 0
        row.iteration = self.iteration
        row.version = version
        families.reopened(sheet, row, was, self.at, self.event, facts)
        return None

    def _facts(self, row: UnitRow, node: str, was: str) -> dict[str, object]:
        version = self.version or row.version
        facts: dict[str, object] = {
            "by": self.by[:BY_CHARS],
            "from": node,
            "version": version,
            "was": was,
        }
        if version != row.version:
            facts["from_version"] = row.version
        return facts


def _take_up(row: UnitRow, cursor: str | None, queue_seq: int | None) -> None:
    """The unit moves again, without its error and with all its attempts.

    After a loop's limit its passes count anew (edge 133).
    """
    error = row.current_error
    if error is not None and msgspec.json.decode(error)["code"] == LOOP_MAX:
        row.iteration = 0
    row.cursor = cursor
    row.queue_seq = queue_seq
    row.attempt = 0
    row.clear_error()


@dataclass(frozen=True, slots=True)
class Purged:
    """A dead letter goes for good, with its copies and events; this one event stays (edge 266)."""

    event: ClassVar[str] = PURGED_EVENT
    legal: ClassVar[Legal] = LEGAL["Purged"]

    unit: str
    by: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.remove(self.unit, self.legal, "Purged")
        facts: dict[str, object] = {
            "by": self.by[:BY_CHARS],
            "version": row.version,
            "received_at": row.received_at,
        }
        detail = detail_with_error(facts, row.current_error)
        sheet.event(self.at, self.event, self.unit, None, None, detail)
        return None


# ── confirmed from outside ───────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Acked:
    """Someone confirms the write that was made or, before it, the write to come.

    It moves no state: `Delivered` does. The outcome says whether it stood already, and then
    nothing is journaled; a delivered unit answers so, if it was acked (decision 12).
    """

    event: ClassVar[str] = "packet.acked"
    legal: ClassVar[Legal] = LEGAL["Acked"]

    unit: str
    by: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.find(self.unit)
        write_no = 0
        if row is not None:
            write_no = row.write_no + (row.state not in (VERIFYING, DELIVERED))
            if row.acked_write_no == write_no and (
                row.state == DELIVERED or row.state in self.legal
            ):
                return Acknowledged(row.state, already=True)
        row = sheet.enter(self.unit, self.legal, "Acked", None, self.at, keep_held=True)
        row.acked_write_no = write_no
        row.ack_by = self.by[:BY_CHARS]
        detail = payload.encode({"by": row.ack_by}).decode()
        sheet.event(self.at, self.event, self.unit, None, None, detail)
        return Acknowledged(row.state, already=False)
