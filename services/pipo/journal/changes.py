"""Everything that can happen to a packet or a pipeline: the state machine of Pipo.

Rules of this file: every transition lives here and nowhere else; no clock, no I/O;
a change takes exactly what it needs and applies itself to a transaction's draft
(`sheet.py`), which is what reaches the disk. Times are milliseconds handed in by the
caller; JSON is bytes; text in an error or a note is redacted before it comes here.

There are two machines. The *unit* (a packet or one of its copies) has the states
below and `LEGAL` says which change leads from where to where. The *pipeline* has no
guarded states in the journal: its changes are a record, made by the one process that
holds the lease.

Who sees a change: nobody before the commit that holds it. In one transaction changes
apply in the order they were handed over, so a unit may be accepted, written and
delivered in one. Conflicts end in two ways: `IllegalChange`, for its caller alone,
when the state found allows no such change; a duplicate, when an accepted packet's
key was taken in before. An event carries the unit's state only where the change moved
its state or its place; a note, a log line or a retry moves neither.

    ──► accepted ──► processing ──► writing ──► verifying ──► delivered
            │             │            │            │
            ├─────────────┴──► filtered│            │
            └─────────────┴────────────┴────────────┴──► dead_lettered
    ──► rejected
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pipo import payload
from pipo.errors import Internal
from pipo.journal import patches
from pipo.journal.sheet import Legal, Sheet, UnitRow

ACCEPTED: Final = "accepted"
PROCESSING: Final = "processing"
WRITING: Final = "writing"
VERIFYING: Final = "verifying"
BRANCHED: Final = "branched"
ESCALATED: Final = "escalated"
DELIVERED: Final = "delivered"
FILTERED: Final = "filtered"
DEAD_LETTERED: Final = "dead_lettered"
REJECTED: Final = "rejected"

# Accepted and not settled: what counts as pending, in the order of a unit's life.
PENDING: Final = (ACCEPTED, PROCESSING, WRITING, VERIFYING, BRANCHED, ESCALATED)
SETTLED: Final = (DELIVERED, FILTERED, DEAD_LETTERED, REJECTED)
STATES: Final = PENDING + SETTLED

# Cursors that are no node.
OUTPUT: Final = "$output"
BATCH: Final = "$batch"
VERIFY: Final = "$verify"

# Change -> {state found: states it may lead to}; None is a unit that does not exist yet.
LEGAL: Final[Mapping[str, Legal]] = {
    "Accepted": {None: (ACCEPTED,)},
    "Rejected": {None: (REJECTED,)},
    # To `writing` when the next step is the output, else to `processing`.
    "Stepped": {
        ACCEPTED: (PROCESSING, WRITING),
        PROCESSING: (PROCESSING, WRITING),
    },
    "Retried": {
        ACCEPTED: (ACCEPTED,),
        PROCESSING: (PROCESSING,),
        WRITING: (WRITING,),
    },
    "Writing": {ACCEPTED: (WRITING,), PROCESSING: (WRITING,), WRITING: (WRITING,)},
    # From `accepted` and `processing` too: a write under the default key needs no mark before it.
    "Written": {ACCEPTED: (VERIFYING,), PROCESSING: (VERIFYING,), WRITING: (VERIFYING,)},
    "Delivered": {VERIFYING: (DELIVERED,)},
    "Unverified": {VERIFYING: (VERIFYING,)},
    "Filtered": {ACCEPTED: (FILTERED,), PROCESSING: (FILTERED,)},
    "Dropped": {ACCEPTED: (FILTERED,), PROCESSING: (FILTERED,)},
    "DeadLettered": {
        ACCEPTED: (DEAD_LETTERED,),
        PROCESSING: (DEAD_LETTERED,),
        WRITING: (DEAD_LETTERED,),
        VERIFYING: (DEAD_LETTERED,),
    },
}


class _Same:
    """The type of SAME: the step left its data as it was."""

    def __repr__(self) -> str:
        return "SAME"


SAME: Final = _Same()


@dataclass(frozen=True, slots=True)
class PacketError:
    """Why a unit stopped: set by the change that stops it, cleared when it moves again.

    `node` is a node id, `output`, `delivered`, or the input's name for a rejection;
    `attempts` is how often the step ran.
    """

    code: str
    message: str
    rule: str | None
    node: str
    attempts: int

    def json(self) -> str:
        return payload.encode(
            {
                "code": self.code,
                "message": self.message,
                "rule": self.rule,
                "node": self.node,
                "attempts": self.attempts,
            }
        ).decode()


# ── a packet comes in ────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Accepted:
    """A packet is taken in; the sender may be told once this is durable.

    `cursor` is its first step. `state` are entries of the input's own memory that commit
    with it. With a `key`, a packet that `source` handed over under it before wins: then
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
    state: Mapping[str, str]
    key: str | None = None
    upstream: bytes | None = None

    def apply(self, sheet: Sheet) -> str | None:
        if self.key is not None:
            first = sheet.packet_of(self.source, self.key)
            if first is not None:
                return first
        _require_version(sheet, self.unit, self.version)
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
        return None


@dataclass(frozen=True, slots=True)
class Rejected:
    """An input's rule refused the packet; it is kept with its reason and never runs."""

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
    state: Mapping[str, str]

    def apply(self, sheet: Sheet) -> str | None:
        _require_version(sheet, self.unit, self.version)
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
        )
        sheet.bear(row, self.legal, "Rejected")
        for key, value in self.state.items():
            sheet.input_state[self.input, key] = value
        sheet.event(self.at, self.event, self.unit, self.input, REJECTED, error)
        return None


# ── a packet moves ───────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
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

    def apply(self, sheet: Sheet) -> str | None:
        to = WRITING if self.cursor in (OUTPUT, BATCH) else PROCESSING
        row = sheet.enter(self.unit, self.legal, "Stepped", to, self.at)
        row.cursor = self.cursor
        row.hops += 1
        patch = None
        if self.after is not SAME:
            whole = row.patched + 1 >= patches.PATCHES_MAX
            made = patches.make(self.before, self.after, whole=whole)
            if made is not None:
                patch, is_whole = made
                row.patched = 0 if is_whole else row.patched + 1
        for type_, detail in self.notes:
            text = detail if isinstance(detail, bytes) else payload.encode(detail)
            sheet.event(self.at, type_, self.unit, self.node, None, text.decode())
        sheet.event(self.at, self.event, self.unit, self.node, to, None, patch, self.ms)
        return None


@dataclass(frozen=True, slots=True)
class Retried:
    """A step failed and will run again at `retry_at`; a restart goes on waiting."""

    event: ClassVar[str] = "step.retry"
    legal: ClassVar[Legal] = LEGAL["Retried"]

    unit: str
    node: str
    attempt: int
    wait_ms: float
    retry_at: int
    error: str
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        row = sheet.enter(self.unit, self.legal, "Retried", None, self.at)
        row.attempt = self.attempt
        row.retry_at = self.retry_at
        detail = payload.encode(
            {"attempt": self.attempt, "wait": self.wait_ms, "error": self.error}
        )
        sheet.event(self.at, self.event, self.unit, _plain(self.node), None, detail.decode())
        return None


@dataclass(frozen=True, slots=True)
class Writing:
    """The output is about to write; an explicit `key` stands here before its first write.

    It has no event: one transaction that also holds the unit's Written shows no trace of it.
    """

    legal: ClassVar[Legal] = LEGAL["Writing"]

    unit: str
    key: str | None
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        row = sheet.enter(self.unit, self.legal, "Writing", WRITING, self.at, same_step=True)
        row.cursor = row.cursor if row.cursor in (OUTPUT, BATCH) else OUTPUT
        if self.key is not None:
            row.key = self.key
        return None


@dataclass(frozen=True, slots=True)
class Written:
    """The destination took the unit; `result` is what its write returned."""

    event: ClassVar[str] = "output.written"
    legal: ClassVar[Legal] = LEGAL["Written"]

    unit: str
    result: bytes
    ms: float
    group_size: int
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        row = sheet.enter(self.unit, self.legal, "Written", VERIFYING, self.at)
        row.cursor = VERIFY
        row.result = self.result.decode()
        row.group_size = self.group_size
        row.write_no += 1
        detail = f'{{"size":{self.group_size:d}}}'
        sheet.event(self.at, self.event, self.unit, "output", VERIFYING, detail, None, self.ms)
        return None


# ── a packet settles ─────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Delivered:
    """The packet was seen at its destination, by `check`; `evidence` is what was seen."""

    event: ClassVar[str] = "packet.delivered"
    legal: ClassVar[Legal] = LEGAL["Delivered"]

    unit: str
    evidence: bytes | None
    at: int
    check: str | None = None

    def apply(self, sheet: Sheet) -> str | None:
        row = sheet.enter(self.unit, self.legal, "Delivered", DELIVERED, self.at)
        detail = f'{{"evidence":{self.evidence.decode()}}}' if self.evidence else None
        sheet.event(self.at, self.event, self.unit, "delivered", DELIVERED, detail)
        if row.root is None:
            sheet.count("all.delivered")
        if self.check is not None:
            sheet.count(f"total.check.{self.check}.passed")
        return None


@dataclass(frozen=True, slots=True)
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

    def apply(self, sheet: Sheet) -> str | None:
        sheet.enter(self.unit, self.legal, "Unverified", None, self.at)
        detail = self.error.json()
        if self.evidence:
            detail = f'{detail[:-1]},"evidence":{self.evidence.decode()}}}'
        sheet.event(self.at, self.event, self.unit, "delivered", None, detail)
        if self.check is not None:
            sheet.count(f"total.check.{self.check}.{self.verdict}")
        return None


@dataclass(frozen=True, slots=True)
class Filtered:
    """A filter or a route let the packet go no further; that is a good end."""

    event: ClassVar[str] = "packet.filtered"
    legal: ClassVar[Legal] = LEGAL["Filtered"]

    unit: str
    node: str
    ms: float
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        row = sheet.enter(self.unit, self.legal, "Filtered", FILTERED, self.at)
        row.hops += 1
        sheet.event(self.at, self.event, self.unit, self.node, FILTERED, None, None, self.ms)
        if row.root is None:
            sheet.count("all.filtered")
        return None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A step failed and its policy is `drop`: filtered, with the error kept on the row."""

    event: ClassVar[str] = "packet.dropped"
    legal: ClassVar[Legal] = LEGAL["Dropped"]

    unit: str
    error: PacketError
    node: str
    at: int
    ms: float | None = None

    def apply(self, sheet: Sheet) -> str | None:
        row = sheet.enter(self.unit, self.legal, "Dropped", FILTERED, self.at)
        row.error = self.error.json()
        sheet.event(self.at, self.event, self.unit, self.node, FILTERED, row.error, None, self.ms)
        if row.root is None:
            sheet.count("all.filtered")
        return None


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The packet failed for good at `node` and keeps its data until replayed or purged."""

    event: ClassVar[str] = "packet.dead_lettered"
    legal: ClassVar[Legal] = LEGAL["DeadLettered"]

    unit: str
    error: PacketError
    node: str
    at: int
    ms: float | None = None

    def apply(self, sheet: Sheet) -> str | None:
        row = sheet.enter(self.unit, self.legal, "DeadLettered", DEAD_LETTERED, self.at)
        row.error = self.error.json()
        node = _plain(self.node)
        # A check's wait is no step's duration (edge 374).
        ms = None if node == "delivered" else self.ms
        sheet.event(self.at, self.event, self.unit, node, DEAD_LETTERED, row.error, None, ms)
        return None


# ── the output and the versions ──────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Marked:
    """Durable notes of the output, such as a file's size before an append; None forgets one."""

    marks: Mapping[str, int | None]

    def apply(self, sheet: Sheet) -> str | None:
        sheet.marks.update(self.marks)
        return None


@dataclass(frozen=True, slots=True)
class VersionAdded:
    """A definition of the pipeline, with the text of everything it names; kept for ever."""

    version: int
    source: str
    compiled: bytes
    files: Mapping[str, str]
    hash: str
    author: str
    author_kind: str
    reason: str
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        if self.version in sheet.known_versions:
            raise Internal(
                f"version {self.version} is in the journal already", hint="this is a bug"
            )
        files = payload.encode(dict(self.files)).decode()
        sheet.known_versions.add(self.version)
        sheet.versions.append(
            (
                self.version,
                self.source,
                self.compiled,
                files,
                self.hash,
                self.author,
                self.author_kind,
                self.reason,
                self.at,
            )
        )
        return None


# ── the pipeline itself ──────────────────────────────────────────────────────

# The reason of a stop that only suspends: what a pause and a ttl began goes on after it.
SUSPENDED: Final = "shutdown"
_TTL_ANCHOR: Final = "ttl_anchor"
_PAUSE_REASON: Final = "pause_reason"


@dataclass(frozen=True, slots=True)
class Started:
    """A run began; the first one since the last clean end anchors the ttl."""

    event: ClassVar[str] = "pipeline.started"

    version: int
    recovered: int
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        if sheet.fact(_TTL_ANCHOR) is None:
            sheet.meta[_TTL_ANCHOR] = str(self.at)
        detail = payload.encode({"version": self.version, "recovered": self.recovered})
        sheet.event(self.at, self.event, detail=detail.decode())
        return None


@dataclass(frozen=True, slots=True)
class Draining:
    """Intake closed; what was accepted is worked off."""

    event: ClassVar[str] = "pipeline.draining"

    at: int

    def apply(self, sheet: Sheet) -> str | None:
        sheet.event(self.at, self.event)
        return None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run ended in order; only a suspension keeps the ttl's anchor and a pause."""

    event: ClassVar[str] = "pipeline.stopped"

    reason: str
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        if self.reason != SUSPENDED:
            _end_cleanly(sheet)
        detail = payload.encode({"reason": self.reason})
        sheet.event(self.at, self.event, detail=detail.decode())
        return None


@dataclass(frozen=True, slots=True)
class Completed:
    """The pipeline's lifetime is over and its packets are done."""

    event: ClassVar[str] = "pipeline.completed"

    at: int

    def apply(self, sheet: Sheet) -> str | None:
        _end_cleanly(sheet)
        sheet.event(self.at, self.event)
        return None


@dataclass(frozen=True, slots=True)
class Failed:
    """The pipeline halted itself; no restart mends it."""

    event: ClassVar[str] = "pipeline.failed"

    reason: str
    at: int

    def apply(self, sheet: Sheet) -> str | None:
        _end_cleanly(sheet)
        detail = payload.encode({"reason": self.reason})
        sheet.event(self.at, self.event, detail=detail.decode())
        return None


UnitChange = (
    Accepted
    | Rejected
    | Stepped
    | Retried
    | Writing
    | Written
    | Delivered
    | Unverified
    | Filtered
    | Dropped
    | DeadLettered
)
PipelineChange = Marked | VersionAdded | Started | Draining | Stopped | Completed | Failed
Change = UnitChange | PipelineChange


def _end_cleanly(sheet: Sheet) -> None:
    sheet.meta[_TTL_ANCHOR] = None
    sheet.meta[_PAUSE_REASON] = None


def _require_version(sheet: Sheet, unit: str, version: int) -> None:
    if version not in sheet.known_versions:
        raise Internal(
            f"packet {unit} is pinned to version {version}, which is not in the journal",
            hint="this is a bug",
        )


def _plain(node: str) -> str:
    """A step's name in events and errors: `output` and `delivered` for the cursors."""
    if node in (OUTPUT, BATCH):
        return "output"
    return "delivered" if node == VERIFY else node


def _text(raw: bytes | None) -> str | None:
    return raw.decode() if raw is not None else None
