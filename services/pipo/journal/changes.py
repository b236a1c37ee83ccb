"""Everything that can happen to a packet or a pipeline: the state machine of Pipo.

Rules of this file: every transition lives here and in the files it names, and nowhere
else; no clock, no I/O; a change takes exactly what it needs and applies itself to a
transaction's draft (`sheet.py`), which is what reaches the disk. Times are milliseconds
handed in by the caller; JSON is bytes; text in an error or a note is redacted before it
comes here.

There are two machines. The *unit* (a packet or one of its copies) has the states below,
and `LEGAL` (`states.py`) says which change leads from where to where. The *pipeline* has no
guarded states in the journal: its changes (`lifecycle.py`) are a record, made by the one
process that holds the lease.

Who sees a change: nobody before the commit that holds it. In one transaction changes
apply in the order they were handed over, so a unit may be accepted, written and
delivered in one. Conflicts end in two ways: `IllegalChange`, for its caller alone,
when the state found allows no such change; a duplicate, when an accepted packet's
key was taken in before. An event carries the unit's state only where the change moved
its state or its place; a note, a log line or a retry moves neither.

    ──► accepted ──► processing ──► writing ──► verifying ──► delivered
            │             │            │            │
            ├─────────────┼──► filtered│            │       Filtered, Dropped
            ├─────────────┼──► branched│            │       FannedOut, Accepted with copies
            ├─────────────┼────────────┼────────────┼──► dead_lettered
            └─────────────┴────────────┴────────────┴──► escalated
    ──► rejected

    branched ──► delivered, filtered, dead_lettered         the end of its last copy
    escalated ──► processing, writing                       Resolved: retry
    escalated ──► dead_lettered, filtered                   Resolved: dead_letter, drop
    dead_lettered ──► processing, writing                   Replayed
    delivered, filtered ──► processing, writing             Rerun
    delivered, filtered, dead_lettered ──► branched         a copy of it that moves again
    dead_lettered ──► gone                                  Purged
    delivered, filtered, dead_lettered, rejected ──► gone   Expired

Beside the states: a unit may be *held* where it stands (`Held`, until it moves again), and a
written one may wait for an ack with a deadline (`AwaitingAck`). A split packet is `branched`
while a copy is open (`families.py`). What people and policies do to a packet from outside
its steps stands in `interventions.py`; what age does to it, in `retention.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pipo import payload
from pipo.clock import iso
from pipo.journal import families, patches
from pipo.journal.families import Copy
from pipo.journal.interventions import (
    Acked,
    Escalated,
    Held,
    Purged,
    Replayed,
    Rerun,
    Resolved,
    Unheld,
)
from pipo.journal.lifecycle import (
    RESTARTED,
    SUSPENDED,
    BatchSplit,
    Compacted,
    Completed,
    Draining,
    Failed,
    InputMoved,
    LifetimeEnded,
    LifetimeError,
    Marked,
    Paused,
    PipelineChange,
    PipelineEscalated,
    Resumed,
    Stalled,
    Started,
    Stopped,
    Unjammed,
    VersionAdded,
    VersionApplied,
)
from pipo.journal.outcomes import Duplicate, Outcome
from pipo.journal.retention import Cleared, Expired
from pipo.journal.sheet import IllegalChange, Legal, Sheet, UnitRow
from pipo.journal.states import (
    ACCEPTED,
    BATCH,
    BRANCHED,
    DEAD_LETTERED,
    DELIVERED,
    ESCALATED,
    FILTERED,
    LEGAL,
    OUTPUT,
    PENDING,
    PROCESSING,
    REJECTED,
    SETTLED,
    STATES,
    VERIFY,
    VERIFYING,
    WRITING,
    PacketError,
    plain,
    state_at,
)
from pipo.records import record

__all__ = [
    "ACCEPTED",
    "BATCH",
    "BRANCHED",
    "DEAD_LETTERED",
    "DELIVERED",
    "ESCALATED",
    "FILTERED",
    "LEGAL",
    "OUTPUT",
    "PENDING",
    "PROCESSING",
    "REJECTED",
    "RESTARTED",
    "SAME",
    "SETTLED",
    "STATES",
    "SUSPENDED",
    "VERIFY",
    "VERIFYING",
    "WRITING",
    "Accepted",
    "Acked",
    "AwaitingAck",
    "BatchSplit",
    "Batched",
    "Change",
    "Cleared",
    "Compacted",
    "Completed",
    "Copy",
    "DeadLettered",
    "Delivered",
    "Draining",
    "Dropped",
    "Escalated",
    "Expired",
    "Failed",
    "FannedOut",
    "Filtered",
    "Held",
    "InputMoved",
    "LifetimeEnded",
    "LifetimeError",
    "Looped",
    "Marked",
    "PacketError",
    "Paused",
    "PipelineChange",
    "PipelineEscalated",
    "Purged",
    "Rejected",
    "Replayed",
    "Rerun",
    "Resolved",
    "Resumed",
    "Retried",
    "Stalled",
    "Started",
    "Stepped",
    "Stopped",
    "Unheld",
    "UnitChange",
    "Unjammed",
    "Unverified",
    "VersionAdded",
    "VersionApplied",
    "Writing",
    "Written",
]


class _Same:
    """The type of SAME: the step left its data as it was."""

    def __repr__(self) -> str:
        return "SAME"


SAME: Final = _Same()


# ── a packet comes in ────────────────────────────────────────────────────────


@record
class Accepted:
    """A packet is taken in; the sender may be told once this is durable.

    `cursor` is its first step. With `copies` the input fans out: they are born with it in
    the same transaction, and the cursor means nothing. `state` are entries of the input's
    own memory that commit with it. With a `key`, a packet that `source` handed over under it before wins: then
    nothing is written and the outcome names that packet.
    """

    event: ClassVar[str] = "packet.accepted"
    legal: ClassVar[Legal] = LEGAL["Accepted"]

    unit: str
    version: int
    input: str
    trigger: str
    source: str
    data: bytes
    cursor: str
    queue_seq: int
    at: int
    state: Mapping[str, str | None]
    key: str | None = None
    upstream: bytes | None = None
    copies: Sequence[Copy] = ()

    def apply(self, sheet: Sheet) -> Outcome | None:
        if self.key is not None:
            first = sheet.packet_of(self.source, self.key)
            if first is not None:
                return Duplicate(first)
        sheet.require_version(self.unit, self.version)
        row = UnitRow(
            self.unit,
            ACCEPTED,
            self.version,
            self.input,
            self.trigger,
            self.source,
            self.at,
            self.at,
            self.cursor,
            self.queue_seq,
            data=self.data.decode(),
            upstream=_text(self.upstream),
        )
        sheet.bear(row, self.legal, "Accepted")
        if self.key is not None:
            sheet.inbox[self.source, self.key] = (self.unit, self.input, self.at)
        for key, value in self.state.items():
            sheet.input_state[self.input, key] = value
        sheet.event(self.at, self.event, self.unit, self.input, ACCEPTED)
        sheet.count("all.accepted")
        if self.copies:
            families.split(sheet, self.unit, families.INPUT, self.copies, self.data, self.at)
        return None


@record
class Rejected:
    """An input's rule refused the packet; it is kept with its reason and never runs.

    With `escalate`, `packet.escalated` tells of it; nothing waits for an answer (edge 20).
    """

    event: ClassVar[str] = "packet.rejected"
    legal: ClassVar[Legal] = LEGAL["Rejected"]

    unit: str
    version: int
    input: str
    trigger: str
    source: str
    data: bytes
    error: PacketError
    at: int
    state: Mapping[str, str | None]
    escalate: bool = False
    upstream: bytes | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.require_version(self.unit, self.version)
        error = self.error.json()
        row = UnitRow(
            self.unit,
            REJECTED,
            self.version,
            self.input,
            self.trigger,
            self.source,
            self.at,
            self.at,
            data=self.data.decode(),
            error=error,
            settled_at=self.at,
            upstream=_text(self.upstream),
        )
        sheet.bear(row, self.legal, "Rejected")
        for key, value in self.state.items():
            sheet.input_state[self.input, key] = value
        sheet.event(self.at, self.event, self.unit, self.input, REJECTED, error)
        if self.escalate:
            detail = families.detail_with_error({"reason": "rejected", "waiting": False}, error)
            sheet.event(self.at, Escalated.event, self.unit, self.input, None, detail)
        return None


# ── a packet moves ───────────────────────────────────────────────────────────


@record
class Stepped:
    """A node ran; the packet stands before `cursor` now.

    `before` and `after` are the step's data, SAME where it left it as it was; neither may
    be altered once the change is handed over. `notes` are events of the step, (type,
    detail as a mapping or JSON bytes), that stand just before it in the trail.
    """

    event: ClassVar[str] = "node.done"
    legal: ClassVar[Legal] = LEGAL["Stepped"]

    unit: str
    node: str
    cursor: str
    at: int
    ms: float
    before: Any
    after: Any
    notes: tuple[tuple[str, Mapping[str, Any] | bytes], ...] = ()

    def apply(self, sheet: Sheet) -> Outcome | None:
        to = state_at(self.cursor)
        row = sheet.enter(self.unit, self.legal, "Stepped", to, self.at)
        row.cursor = self.cursor
        _journal_step(sheet, row, self, to)
        return None


@record
class Looped:
    """A looping node ran and sends the packet back to `back_to`, with its result.

    The fields are those of Stepped. It raises `iteration` by one (edge 132).
    """

    event: ClassVar[str] = "node.looped"
    legal: ClassVar[Legal] = LEGAL["Looped"]

    unit: str
    node: str
    back_to: str
    at: int
    ms: float
    before: Any
    after: Any
    notes: tuple[tuple[str, Mapping[str, Any] | bytes], ...] = ()

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Looped", PROCESSING, self.at)
        row.cursor = self.back_to
        row.iteration += 1
        detail = payload.encode({"back_to": self.back_to, "iteration": row.iteration})
        _journal_step(sheet, row, self, PROCESSING, detail.decode())
        return None


def _journal_step(
    sheet: Sheet, row: UnitRow, step: Stepped | Looped, to: str, detail: str | None = None
) -> None:
    """The events of a node that ran: its notes, then its own with the patch of its data."""
    row.hops += 1
    patch = None
    if step.after is not SAME:
        whole = row.patched + 1 >= patches.PATCHES_MAX
        made = patches.make(step.before, step.after, whole=whole)
        if made is not None:
            patch, is_whole = made
            row.patched = 0 if is_whole else row.patched + 1
    for type_, note in step.notes:
        text = note if isinstance(note, bytes) else payload.encode(note)
        sheet.event(step.at, type_, step.unit, step.node, None, text.decode())
    sheet.event(step.at, step.event, step.unit, step.node, to, detail, patch, step.ms)


@record
class FannedOut:
    """The packet splits at `node`: it waits from now on, and its `copies` go on with `data`.

    The node's Stepped stands just before it in the same commit, with the node itself as its
    cursor; `data` is what the node left. The copies inherit everything else (edge 110, 120).
    """

    event: ClassVar[str] = families.FANNED_OUT
    legal: ClassVar[Legal] = LEGAL["FannedOut"]

    unit: str
    node: str
    copies: Sequence[Copy]
    data: bytes
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        families.split(sheet, self.unit, self.node, self.copies, self.data, self.at)
        return None


@record
class Retried:
    """A step failed and will run again at `retry_at`; a restart goes on waiting.

    The event's `wait` is milliseconds, with a fraction only where there is one. `batch` is
    the size of the batch that failed as a whole (edge 136).
    """

    event: ClassVar[str] = "step.retry"
    legal: ClassVar[Legal] = LEGAL["Retried"]

    unit: str
    node: str
    attempt: int
    wait_ms: float
    retry_at: int
    error: str
    at: int
    batch: int | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Retried", None, self.at)
        row.attempt = self.attempt
        row.retry_at = self.retry_at
        facts: dict[str, Any] = {
            "attempt": self.attempt,
            "wait": int(self.wait_ms) if self.wait_ms == int(self.wait_ms) else self.wait_ms,
            "error": self.error,
        }
        if self.batch is not None:
            facts["batch"] = self.batch
        detail = payload.encode(facts).decode()
        sheet.event(self.at, self.event, self.unit, plain(self.node), None, detail)
        return None


@record
class Batched:
    """The packet waits for the others of its batch (edge 146)."""

    event: ClassVar[str] = "output.batched"
    legal: ClassVar[Legal] = LEGAL["Batched"]

    unit: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Batched", WRITING, self.at, same_step=True)
        row.cursor = BATCH
        sheet.event(self.at, self.event, self.unit, "output", WRITING)
        return None


@record
class Writing:
    """The output is about to write; an explicit `key` stands here before its first write.

    It has no event: one transaction that also holds the unit's Written shows no trace of it.
    """

    legal: ClassVar[Legal] = LEGAL["Writing"]

    unit: str
    key: str | None
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Writing", WRITING, self.at, same_step=True)
        row.cursor = row.cursor if row.cursor in (OUTPUT, BATCH) else OUTPUT
        if self.key is not None:
            row.key = self.key
        return None


@record
class Written:
    """The destination took the unit; `result` is what its write returned."""

    event: ClassVar[str] = "output.written"
    legal: ClassVar[Legal] = LEGAL["Written"]

    unit: str
    result: bytes
    ms: float
    group_size: int
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Written", VERIFYING, self.at)
        row.cursor = VERIFY
        row.result = self.result.decode()
        row.group_size = self.group_size
        row.write_no += 1
        detail = f'{{"size":{self.group_size:d}}}'
        sheet.event(self.at, self.event, self.unit, "output", VERIFYING, detail, None, self.ms)
        return None


@record
class AwaitingAck:
    """The write waits for its ack until `deadline_at`, counted from `since`; once per write.

    A hold ends the window, so that a resume opens a fresh one (edge 213, 215).
    """

    event: ClassVar[str] = "delivery.awaiting_ack"
    legal: ClassVar[Legal] = LEGAL["AwaitingAck"]

    unit: str
    deadline_at: int
    since: int
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "AwaitingAck", None, self.at)
        if row.deadline_at is not None:
            raise IllegalChange(
                self.unit, row.state, "AwaitingAck", why="waits for its ack already"
            )
        row.deadline_at = self.deadline_at
        facts = {
            "deadline": self.deadline_at,
            "since": self.since,
            "deadline_iso": iso(self.deadline_at),
        }
        detail = payload.encode(facts).decode()
        sheet.event(self.at, self.event, self.unit, "delivered", None, detail)
        return None


# ── a packet settles ─────────────────────────────────────────────────────────


@record
class Delivered:
    """The packet was seen at its destination, by `check`; `evidence` is what was seen."""

    event: ClassVar[str] = "packet.delivered"
    legal: ClassVar[Legal] = LEGAL["Delivered"]

    unit: str
    evidence: bytes | None
    at: int
    check: str | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Delivered", DELIVERED, self.at)
        detail = f'{{"evidence":{self.evidence.decode()}}}' if self.evidence else None
        sheet.event(self.at, self.event, self.unit, "delivered", DELIVERED, detail)
        families.ended(sheet, row, self.at)
        if self.check is not None:
            sheet.count(f"total.check.{self.check}.passed")
        return None


@record
class Unverified:
    """The delivery check did not pass, and `on_fail` decides; `verdict`: failed or refused."""

    event: ClassVar[str] = "delivery.unverified"
    legal: ClassVar[Legal] = LEGAL["Unverified"]

    unit: str
    error: PacketError
    at: int
    evidence: bytes | None = None
    check: str | None = None
    verdict: str = "failed"

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.enter(self.unit, self.legal, "Unverified", None, self.at)
        detail = self.error.json()
        if self.evidence:
            detail = f'{detail[:-1]},"evidence":{self.evidence.decode()}}}'
        sheet.event(self.at, self.event, self.unit, "delivered", None, detail)
        if self.check is not None:
            sheet.count(f"total.check.{self.check}.{self.verdict}")
        return None


@record
class Filtered:
    """A filter or a route let the packet go no further; that is a good end."""

    event: ClassVar[str] = "packet.filtered"
    legal: ClassVar[Legal] = LEGAL["Filtered"]

    unit: str
    node: str
    ms: float
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Filtered", FILTERED, self.at)
        row.hops += 1
        sheet.event(self.at, self.event, self.unit, self.node, FILTERED, None, None, self.ms)
        families.ended(sheet, row, self.at)
        return None


@record
class Dropped:
    """A step failed and its policy is `drop`: filtered, with the error kept on the row."""

    event: ClassVar[str] = "packet.dropped"
    legal: ClassVar[Legal] = LEGAL["Dropped"]

    unit: str
    error: PacketError
    node: str
    at: int
    ms: float | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "Dropped", FILTERED, self.at)
        row.error = self.error.json()
        sheet.event(self.at, self.event, self.unit, self.node, FILTERED, row.error, None, self.ms)
        families.ended(sheet, row, self.at)
        return None


@record
class DeadLettered:
    """The packet failed for good at `node` and keeps its data until replayed or purged."""

    event: ClassVar[str] = "packet.dead_lettered"
    legal: ClassVar[Legal] = LEGAL["DeadLettered"]

    unit: str
    error: PacketError
    node: str
    at: int
    ms: float | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        row = sheet.enter(self.unit, self.legal, "DeadLettered", DEAD_LETTERED, self.at)
        row.error = self.error.json()
        node = plain(self.node)
        # A check's wait is no step's duration (edge 374).
        ms = None if node == "delivered" else self.ms
        sheet.event(self.at, self.event, self.unit, node, DEAD_LETTERED, row.error, None, ms)
        families.ended(sheet, row, self.at)
        return None


UnitChange = (
    Accepted
    | Rejected
    | Stepped
    | Looped
    | FannedOut
    | Retried
    | Batched
    | Writing
    | Written
    | AwaitingAck
    | Delivered
    | Unverified
    | Filtered
    | Dropped
    | DeadLettered
    | Held
    | Unheld
    | Escalated
    | Acked
    | Resolved
    | Replayed
    | Rerun
    | Purged
    | Expired
    | Cleared
)
Change = UnitChange | PipelineChange


def _text(raw: bytes | None) -> str | None:
    return raw.decode() if raw is not None else None
