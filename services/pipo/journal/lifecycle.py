"""What happens to the pipeline itself, its versions and its output's notes.

None of these has a state to be legal in: the one process that holds the lease writes them,
and they say what it did. What must outlive it stands in `meta`: the anchor of the ttl, the
reason of a pause, and the limit that has ended the lifetime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pipo import payload
from pipo.errors import Internal
from pipo.journal.outcomes import Outcome
from pipo.journal.sheet import Sheet

# ── the output and the versions ──────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Marked:
    """Durable notes of the output, such as a file's size before an append; None forgets one."""

    marks: Mapping[str, int | None]

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.marks.update(self.marks)
        return None


@dataclass(frozen=True, slots=True)
class InputMoved:
    """An input remembers where it stands though no packet came of it, such as past what it ignores.

    None forgets an entry.
    """

    input: str
    state: Mapping[str, str | None]

    def apply(self, sheet: Sheet) -> Outcome | None:
        for key, value in self.state.items():
            sheet.input_state[self.input, key] = value
        return None


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """A batch of `size` failed as a whole and is tried again as two, the larger half first."""

    event: ClassVar[str] = "output.batch_split"

    size: int
    into: tuple[int, int]
    error: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        facts = {"size": self.size, "into": list(self.into), "error": self.error}
        sheet.event(self.at, self.event, node="output", detail=_text(facts))
        return None


@dataclass(frozen=True, slots=True)
class VersionAdded:
    """A definition of the pipeline, with the text of everything it names; kept for ever.

    `folder` is what its relative paths mean; None is that of the file of the day.
    """

    version: int
    source: str
    compiled: bytes
    files: Mapping[str, str]
    hash: str
    author: str
    author_kind: str
    reason: str
    at: int
    folder: str | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
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
                self.folder,
            )
        )
        return None


@dataclass(frozen=True, slots=True)
class VersionApplied:
    """New packets use this version from now on; `previous` is the one before it."""

    event: ClassVar[str] = "version.applied"

    version: int
    previous: int
    author: str
    author_kind: str
    reason: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        facts = {
            "version": self.version,
            "previous": self.previous,
            "author": self.author,
            "author_kind": self.author_kind,
            "reason": self.reason,
        }
        sheet.event(self.at, self.event, detail=_text(facts))
        return None


# ── the pipeline itself ──────────────────────────────────────────────────────

# The reason of a stop that only suspends: what a pause and a ttl began goes on after it.
SUSPENDED: Final = "shutdown"
# The reason of a clean stop after which the pipeline is brought up again.
RESTARTED: Final = "restart"
LAST_COMPACTION: Final = "last_compaction"
FILE_HASH: Final = "file_hash"
_TTL_ANCHOR: Final = "ttl_anchor"
_PAUSE_REASON: Final = "pause_reason"
_LIFETIME_OVER: Final = "lifetime_over"


@dataclass(frozen=True, slots=True)
class Started:
    """A run began; the first one since the last clean end anchors the ttl.

    `ttl` is the override it was started with, as it was given (edge 321). `file_hash` is that
    of the file's texts: the next start tells by it whether the file has changed (edge 342).
    """

    event: ClassVar[str] = "pipeline.started"

    version: int
    recovered: int
    at: int
    ttl: str | None = None
    file_hash: str | None = None

    def apply(self, sheet: Sheet) -> Outcome | None:
        if self.file_hash is not None:
            sheet.meta[FILE_HASH] = self.file_hash
        if sheet.fact(_TTL_ANCHOR) is None:
            sheet.meta[_TTL_ANCHOR] = str(self.at)
        facts: dict[str, object] = {"version": self.version, "recovered": self.recovered}
        if self.ttl is not None:
            facts["ttl"] = self.ttl
        sheet.event(self.at, self.event, detail=_text(facts))
        return None


@dataclass(frozen=True, slots=True)
class Draining:
    """Intake closed; what was accepted is worked off."""

    event: ClassVar[str] = "pipeline.draining"

    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.event(self.at, self.event)
        return None


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing moves from now on; the reason outlives a crash, and a suspension.

    `restored` is the pause that a restart found and goes on with (edge 303).
    """

    event: ClassVar[str] = "pipeline.paused"

    reason: str
    at: int
    restored: bool = False

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.meta[_PAUSE_REASON] = self.reason
        facts: dict[str, object] = {"reason": self.reason}
        if self.restored:
            facts["restored"] = True
        sheet.event(self.at, self.event, detail=_text(facts))
        return None


@dataclass(frozen=True, slots=True)
class Resumed:
    """The pause is over; an `Unheld` for each held unit stands in the same commit."""

    event: ClassVar[str] = "pipeline.resumed"

    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.meta[_PAUSE_REASON] = None
        sheet.event(self.at, self.event)
        return None


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing got through for too long; `message` is rendered, `stall` and `stats` are objects.

    That a pipeline is jammed is no fact of the journal: a restart begins with a fresh clock,
    and only a new stall flags it again (D063, edge 240).
    """

    event: ClassVar[str] = "pipeline.stall"

    message: str
    then: str
    stall: bytes
    stats: bytes
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        facts = _text({"message": self.message, "then": self.then})
        stall, stats = self.stall.decode(), self.stats.decode()
        detail = f'{facts[:-1]},"stall":{stall},"stats":{stats}}}'
        sheet.event(self.at, self.event, detail=detail)
        return None


@dataclass(frozen=True, slots=True)
class Unjammed:
    """The first packet after a stall got through."""

    event: ClassVar[str] = "pipeline.unjammed"

    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.event(self.at, self.event)
        return None


@dataclass(frozen=True, slots=True)
class PipelineEscalated:
    """A stall was told to who resolves it; with `handle`, so many units went with it.

    `escalated` units wait already, `marked` ones do at their next failure (edge 237-239);
    both are None where only the news went.
    """

    event: ClassVar[str] = "pipeline.escalated"

    reason: str
    then: str
    handle: bool
    escalated: int | None
    marked: int | None
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        facts: dict[str, object] = {
            "reason": self.reason,
            "then": self.then,
            "handle": self.handle,
        }
        if self.escalated is not None:
            facts["escalated"] = self.escalated
        if self.marked is not None:
            facts["marked"] = self.marked
        sheet.event(self.at, self.event, detail=_text(facts))
        return None


@dataclass(frozen=True, slots=True)
class LifetimeEnded:
    """The pipeline's lifetime is over, for this reason; `stats` is an object (edge 314).

    `limit` is what was reached, such as `max_packets 50000`: a crash or a suspension on the
    way out leaves it to the next run, which goes on ending.
    """

    event: ClassVar[str] = "pipeline.lifetime"

    reason: str
    limit: str
    stats: bytes
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.meta[_LIFETIME_OVER] = self.limit
        facts = _text({"reason": self.reason})
        detail = f'{facts[:-1]},"stats":{self.stats.decode()}}}'
        sheet.event(self.at, self.event, detail=detail)
        return None


@dataclass(frozen=True, slots=True)
class LifetimeError:
    """The condition `until` could not be told; the pipeline goes on (edge 315)."""

    event: ClassVar[str] = "pipeline.lifetime_error"

    expression: str
    error: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        facts = {"expression": self.expression, "error": self.error}
        sheet.event(self.at, self.event, detail=_text(facts))
        return None


@dataclass(frozen=True, slots=True)
class Compacted:
    """The journal gave its free space back, or at its first start the day's count began.

    It has no event (edge 339).
    """

    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        sheet.meta[LAST_COMPACTION] = str(self.at)
        return None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run ended in order; only a suspension keeps a pause, and what the lifetime stands on."""

    event: ClassVar[str] = "pipeline.stopped"

    reason: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        if self.reason != SUSPENDED:
            _end_cleanly(sheet)
        sheet.event(self.at, self.event, detail=_text({"reason": self.reason}))
        return None


@dataclass(frozen=True, slots=True)
class Completed:
    """The run ended in order with its lifetime: no restart brings it up again.

    `reason` is the limit that ended it: ttl, max_packets or until.
    """

    event: ClassVar[str] = "pipeline.completed"

    reason: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        _end_cleanly(sheet)
        sheet.event(self.at, self.event, detail=_text({"reason": self.reason}))
        return None


@dataclass(frozen=True, slots=True)
class Failed:
    """The pipeline halted itself; no restart mends it."""

    event: ClassVar[str] = "pipeline.failed"

    reason: str
    at: int

    def apply(self, sheet: Sheet) -> Outcome | None:
        _end_cleanly(sheet)
        sheet.event(self.at, self.event, detail=_text({"reason": self.reason}))
        return None


PipelineChange = (
    Marked
    | InputMoved
    | BatchSplit
    | VersionAdded
    | VersionApplied
    | Started
    | Draining
    | Paused
    | Resumed
    | Stalled
    | Unjammed
    | PipelineEscalated
    | LifetimeEnded
    | LifetimeError
    | Compacted
    | Stopped
    | Completed
    | Failed
)


def _end_cleanly(sheet: Sheet) -> None:
    sheet.meta[_TTL_ANCHOR] = None
    sheet.meta[_PAUSE_REASON] = None
    sheet.meta[_LIFETIME_OVER] = None


def _text(facts: Mapping[str, object]) -> str:
    return payload.encode(facts).decode()
