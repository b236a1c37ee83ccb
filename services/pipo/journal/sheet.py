"""One transaction's draft: what its changes did to rows, events and counters, before any SQL.

The writer loads the rows that a transaction touches, lets every change apply itself to
this draft in order, and writes the draft's sets with a handful of statements. So a
hundred packets that are accepted, written and delivered in one transaction are one
set of rows in their last state and one set of events, however their changes interleave.

Nothing here reads a clock, a file or a database, and nothing here knows one change
from another: a change enters a unit through `enter`, which holds it to its legal states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from pipo.errors import Internal, InvalidState

SETTLED = frozenset({"delivered", "filtered", "dead_lettered", "rejected"})

# seq, at, unit, type, node, state, detail, patch, ms
EventRow = tuple[
    int,
    int,
    str | None,
    str,
    str | None,
    str | None,
    str | None,
    str | None,
    float | None,
]

Legal = Mapping[str | None, tuple[str, ...]]


class IllegalChange(InvalidState):
    """A change that its unit's state does not allow; nothing of its caller was written."""

    def __init__(
        self,
        unit: str,
        state: str | None,
        change: str,
        *,
        why: str = "",
        hint: str = "look at it with pipo inspect",
    ) -> None:
        found = why or (f"is {state}" if state else "does not exist")
        super().__init__(f"{change} does not apply to {unit}, which {found}", hint=hint)
        self.unit = unit
        self.state = state
        self.change = change


class Copies(NamedTuple):
    """How the copies of a split unit stand: those still open by number, those that ended by end.

    `dead` holds id and error of each dead copy, in the order of their ends.
    """

    open: int = 0
    delivered: int = 0
    filtered: int = 0
    dead: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, counted: Sequence[Any]) -> Copies:
        """As the statement that counts them has it."""
        open_, delivered, filtered, dead = counted
        return cls(open_, delivered, filtered, tuple((unit, error) for unit, error in dead))

    def ended(self, unit: str, state: str, error: str | None) -> Copies:
        """With one open copy fewer."""
        open_ = self.open - 1
        if state == "dead_lettered":
            return self._replace(open=open_, dead=(*self.dead, (unit, error or "")))
        if state == "delivered":
            return self._replace(open=open_, delivered=self.delivered + 1)
        return self._replace(open=open_, filtered=self.filtered + 1)

    def reopened(self, unit: str, was: str) -> Copies:
        """With one that had ended as `was` open again."""
        open_ = self.open + 1
        if was == "dead_lettered":
            dead = tuple(entry for entry in self.dead if entry[0] != unit)
            return self._replace(open=open_, dead=dead)
        if was == "delivered":
            return self._replace(open=open_, delivered=self.delivered - 1)
        return self._replace(open=open_, filtered=self.filtered - 1)


@dataclass(slots=True)
class UnitRow:
    """A unit's row as the transaction will leave it.

    `was` is the state found on disk, None for a unit that is born here. `result` of a found
    row is not loaded, its error stands in `was_error`: None in `result` or `error` leaves
    what is stored, an empty text clears it. `copies` is None for a unit that never split; it
    is no column, it is counted when the row is read and moves with the copies.
    """

    id: str
    state: str
    version: int
    input: str
    trigger: str
    source: str
    received_at: int
    updated_at: int
    cursor: str | None = None
    queue_seq: int | None = None
    root: str | None = None
    parent: str | None = None
    branch: str = ""
    attempt: int = 0
    retry_at: int | None = None
    iteration: int = 0
    hops: int = 0
    patched: int = 0
    key: str | None = None
    upstream: str | None = None
    write_no: int = 0
    acked_write_no: int | None = None
    ack_by: str | None = None
    deadline_at: int | None = None
    held: str | None = None
    group_size: int | None = None
    settled_at: int | None = None
    error: str | None = None
    result: str | None = None
    data: str | None = None
    was: str | None = None
    was_rare: tuple[Any, ...] = ()
    was_error: str | None = None
    copies: Copies | None = None

    @property
    def current_error(self) -> str | None:
        """The error as the transaction will leave it."""
        return self.was_error if self.error is None else self.error or None

    def clear_error(self) -> None:
        """Takes the error away; a row that is only born here never had one stored."""
        self.error = None if self.was is None else ""
        self.was_error = None


# What a transaction may alter in a row that it found; the order of loading and of updating.
MUTABLE = (
    "state",
    "cursor",
    "queue_seq",
    "attempt",
    "retry_at",
    "iteration",
    "hops",
    "patched",
    "version",
    "key",
    "write_no",
    "acked_write_no",
    "ack_by",
    "deadline_at",
    "held",
    "group_size",
    "updated_at",
    "settled_at",
)
# Those of them that few changes touch: a row in which none moved is updated without them.
RARE = (
    "queue_seq",
    "iteration",
    "version",
    "key",
    "acked_write_no",
    "ack_by",
    "deadline_at",
    "held",
)
# What is loaded beside it, to know the unit.
FIXED = (
    "id",
    "root",
    "parent",
    "branch",
    "input",
    "trigger",
    "source",
    "received_at",
    "upstream",
)
# Every column of a unit, in the order of UnitRow's fields.
UNIT_COLUMNS = tuple(
    name for name in UnitRow.__slots__ if not name.startswith("was") and name != "copies"
)
# What a unit that was only accepted has beside the schema's defaults.
PLAIN_COLUMNS = (
    "id",
    "state",
    "version",
    "input",
    "trigger",
    "source",
    "received_at",
    "updated_at",
    "cursor",
    "queue_seq",
    "data",
)

# Texts longer than this travel to SQLite on their own.
HEAVY_CHARS = 256 * 1024

# Ends: those of copies are not counted among a pipeline's events, their packet's end is (edge 117).
ENDS: Final = frozenset(
    {"packet.delivered", "packet.filtered", "packet.dropped", "packet.dead_lettered"}
)


def ancestors(unit: str) -> list[str]:
    """The units that a copy came of, nearest first: `p:a/b` came of `p:a`, and that of `p`."""
    found = []
    packet, _, branch = unit.partition(":")
    while branch:
        branch = branch.rpartition("/")[0]
        found.append(f"{packet}:{branch}" if branch else packet)
    return found


@dataclass(slots=True)
class _Undo:
    """What a careful draft needs to take one caller back."""

    rows: dict[str, UnitRow | None]
    fresh: set[str]
    events: int
    heavy: int
    next_seq: int
    deltas: dict[str, int]
    meta: dict[str, str | None]
    marks: dict[str, int | None]
    input_state: dict[tuple[str, str], str | None]
    inbox: dict[tuple[str, str], tuple[str, str, int]]
    versions: int
    gone: set[str]
    forgotten: int
    cleared: int


@dataclass(slots=True)
class Sheet:
    """The draft. `found` are the rows that it starts from; it alters them in place."""

    next_seq: int
    found: dict[str, UnitRow]
    known_versions: set[int]
    known_keys: Mapping[tuple[str, str], str]
    known_meta: Mapping[str, str]
    rows: dict[str, UnitRow] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    deltas: dict[str, int] = field(default_factory=dict)
    meta: dict[str, str | None] = field(default_factory=dict)
    marks: dict[str, int | None] = field(default_factory=dict)
    input_state: dict[tuple[str, str], str | None] = field(default_factory=dict)
    inbox: dict[tuple[str, str], tuple[str, str, int]] = field(default_factory=dict)
    versions: list[tuple[Any, ...]] = field(default_factory=list)
    # Column, text and key of what is too long for a document: ("data", text, unit id) or
    # ("patch", text, seq).
    heavy: list[tuple[str, str, str | int]] = field(default_factory=list)
    # Packets whose rows and events are deleted, those of them whose hand-over is forgotten
    # too, and units whose payloads are deleted.
    gone: set[str] = field(default_factory=set)
    forgotten: list[str] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)
    kinds: set[type] = field(default_factory=set)
    _undo: _Undo | None = None

    # ── what changes do ──────────────────────────────────────────────────────

    def enter(
        self,
        unit: str,
        legal: Legal,
        change: str,
        to: str | None,
        at: int,
        *,
        same_step: bool = False,
        keep_held: bool = False,
    ) -> UnitRow:
        """The unit's row, moved to state `to` (None: where it is) as `legal` allows.

        A move to a next step starts the attempts over, one inside the `same_step` does
        not; a settled row keeps the last one. A held unit that moves is held no longer.
        Raises: IllegalChange, naming the state found.
        """
        # `find`, without its call: every change of every unit comes this way.
        row = self.rows.get(unit) or self.found.get(unit)
        if self.gone:
            row = self.find(unit)
        found = row.state if row is not None else None
        targets = legal.get(found)
        if row is None or targets is None or (to or found) not in targets:
            raise IllegalChange(unit, found, change)
        if self._undo is not None:
            self._remember(unit, row)
        self.rows[unit] = row
        row.updated_at = at
        if not keep_held:
            row.held = None
        if to is not None:
            row.state = to
            row.retry_at = None
            if to in SETTLED:
                row.settled_at = at
                row.cursor = None
                row.deadline_at = None
            else:
                row.settled_at = None
                if not same_step:
                    row.attempt = 0
        return row

    def find(self, unit: str) -> UnitRow | None:
        """The unit's row as it stands in the draft, to look at."""
        row = self.rows.get(unit) or self.found.get(unit)
        if self.gone and row is not None and (row.root or unit) in self.gone:
            return None
        return row

    def parent(self, copy: UnitRow) -> UnitRow:
        """The row of the unit that split into `copy`, to alter.

        Raises: Internal, when it is not there.
        """
        parent = copy.parent or ""
        row = self.find(parent)
        if row is None or row.copies is None:
            raise Internal(f"{copy.id} has no parent that split", hint="this is a bug")
        if self._undo is not None:
            self._remember(parent, row)
        self.rows[parent] = row
        return row

    def remove(self, unit: str, legal: Legal, change: str) -> UnitRow:
        """Deletes a packet with its copies and its events; the row as it was.

        Raises: IllegalChange, naming the state found.
        """
        row = self.find(unit)
        if row is None or row.state not in legal:
            raise IllegalChange(unit, row.state if row else None, change)
        if row.root is not None:
            raise IllegalChange(
                unit,
                row.state,
                change,
                why="is a copy",
                hint=f"name its packet {row.root}",
            )
        if self._undo is not None:
            self._remember(unit, row)
        self.rows[unit] = row
        self.gone.add(unit)
        return row

    def clear(self, unit: str, legal: Legal, change: str) -> None:
        """Deletes a settled unit's payload.

        Raises: IllegalChange, naming the state found.
        """
        row = self.find(unit)
        if row is None or row.state not in legal:
            raise IllegalChange(unit, row.state if row else None, change)
        self.cleared.append(unit)

    def require_version(self, unit: str, version: int) -> None:
        """Raises: Internal, for a version that the journal does not hold."""
        if version not in self.known_versions:
            raise Internal(
                f"packet {unit} is pinned to version {version}, which is not in the journal",
                hint="this is a bug",
            )

    def bear(self, row: UnitRow, legal: Legal, change: str) -> None:
        """Adds a unit that does not exist yet.

        Raises: IllegalChange, when it does.
        """
        existing = self.rows.get(row.id) or self.found.get(row.id)
        if existing is not None or row.state not in legal[None]:
            raise IllegalChange(row.id, existing.state if existing else None, change)
        if self._undo is not None:
            self._undo.rows.setdefault(row.id, None)
        if row.data is not None and len(row.data) > HEAVY_CHARS:
            self.heavy.append(("data", row.data, row.id))
            row.data = None
        self.rows[row.id] = row

    def event(
        self,
        at: int,
        type: str,
        unit: str | None = None,
        node: str | None = None,
        state: str | None = None,
        detail: str | None = None,
        patch: str | None = None,
        ms: float | None = None,
    ) -> None:
        """Adds the next event; `state` only where the event changed a state or a place."""
        seq = self.next_seq
        self.next_seq = seq + 1
        if patch is not None and len(patch) > HEAVY_CHARS:
            self.heavy.append(("patch", patch, seq))
            patch = None
        self.events.append((seq, at, unit, type, node, state, detail, patch, ms))

    def count(self, name: str, by: int = 1) -> None:
        """Moves one counter."""
        self.deltas[name] = self.deltas.get(name, 0) + by

    def packet_of(self, sender: str, key: str) -> str | None:
        """The packet that this sender's key already made."""
        entry = self.inbox.get((sender, key))
        return entry[0] if entry else self.known_keys.get((sender, key))

    def fact(self, key: str) -> str | None:
        """A row of `meta`, with what this transaction did to it."""
        return self.meta[key] if key in self.meta else self.known_meta.get(key)

    # ── what the writer does ─────────────────────────────────────────────────

    def begin_caller(self) -> None:
        """Notes where the next caller begins, so that `take_back` can return there."""
        self._undo = _Undo(
            {},
            set(),
            len(self.events),
            len(self.heavy),
            self.next_seq,
            dict(self.deltas),
            dict(self.meta),
            dict(self.marks),
            dict(self.input_state),
            dict(self.inbox),
            len(self.versions),
            set(self.gone),
            len(self.forgotten),
            len(self.cleared),
        )

    def take_back(self) -> None:
        """Undoes everything since `begin_caller`."""
        undo = self._undo
        assert undo is not None, "take_back without begin_caller"
        for unit, row in undo.rows.items():
            if row is None:
                del self.rows[unit]
            elif unit in undo.fresh:
                del self.rows[unit]
                self.found[unit] = row
            else:
                self.rows[unit] = row
        del self.heavy[undo.heavy :]
        del self.events[undo.events :]
        self.next_seq = undo.next_seq
        self.deltas, self.meta, self.marks = undo.deltas, undo.meta, undo.marks
        self.input_state, self.inbox = undo.input_state, undo.inbox
        self.gone = undo.gone
        del self.forgotten[undo.forgotten :]
        del self.cleared[undo.cleared :]
        for version in self.versions[undo.versions :]:
            self.known_versions.discard(version[0])
        del self.versions[undo.versions :]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.rows or self.events or self.deltas or self.rare)

    @property
    def rare(self) -> bool:
        """Whether it holds sets that most transactions do not."""
        return bool(
            self.versions
            or self.inbox
            or self.input_state
            or self.marks
            or self.meta
            or self.gone
            or self.cleared
        )

    def born(self) -> tuple[list[UnitRow], list[UnitRow]]:
        """Rows to insert: those with PLAIN_COLUMNS alone, and the others."""
        plain: list[UnitRow] = []
        others: list[UnitRow] = []
        for row in self.rows.values():
            if row.was is None:
                (plain if _not_plain(row) == _NOTHING else others).append(row)
        return plain, others

    def changed(self) -> tuple[list[UnitRow], list[UnitRow]]:
        """Rows to update: those in which nothing RARE moved, and the others."""
        usual: list[UnitRow] = []
        others: list[UnitRow] = []
        for row in self.rows.values():
            if row.was is not None:
                (usual if rare_values(row) == row.was_rare else others).append(row)
        return usual, others

    def totals(self) -> dict[str, int]:
        """Every counter that moves, with by how much: what changes counted, states, events."""
        totals = dict(self.deltas)
        gone = self.gone
        for row in self.rows.values():
            if row.root is None and (row.state != row.was or row.id in gone):
                if row.id not in gone:
                    now = f"now.{row.state}"
                    totals[now] = totals.get(now, 0) + 1
                if row.was is not None:
                    was = f"now.{row.was}"
                    totals[was] = totals.get(was, 0) - 1
        for event in self.events:
            if event[3] in ENDS and ":" in (event[2] or ""):
                continue
            name = f"total.{event[3]}"
            totals[name] = totals.get(name, 0) + 1
        return {name: delta for name, delta in totals.items() if delta}

    def _remember(self, unit: str, row: UnitRow) -> None:
        assert self._undo is not None
        if unit not in self._undo.rows:
            self._undo.rows[unit] = UnitRow(*_all_fields(row))
            if unit not in self.rows:
                self._undo.fresh.add(unit)


_LOADED = FIXED + MUTABLE
rare_values = attrgetter(*RARE)
_BEYOND_PLAIN = tuple(name for name in UNIT_COLUMNS if name not in PLAIN_COLUMNS)
_not_plain = attrgetter(*_BEYOND_PLAIN)
# What those columns hold when nothing was said of them, here and in the schema.
_NOTHING = _not_plain(UnitRow("", "", 0, "", "", "", 0, 0))
_all_fields = attrgetter(*UnitRow.__slots__)


def row_found(values: list[Any]) -> UnitRow:
    """The row of a unit on disk, from its FIXED and MUTABLE columns, its error and its copies."""
    *columns, error, copies = values
    fields: dict[str, Any] = dict(zip(_LOADED, columns, strict=True))
    row = UnitRow(**fields, was=fields["state"], was_error=error)
    row.was_rare = rare_values(row)
    if copies is not None:
        row.copies = Copies.of(copies)
    return row
