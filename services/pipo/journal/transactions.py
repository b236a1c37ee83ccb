"""From callers' changes to one committed transaction: draft, apply, keep what stays true.

A draft starts from the rows of the units it moves. Those of units that are on their
way are kept in memory from one transaction to the next (`_live`), others are read. The
program that applies a draft (`statements.py`) checks both the fence and the state that
every row was drafted from, so memory that is wrong stops a transaction and alters nothing.

An error of one caller never costs another: a draft that fails is made again with a way
back per caller, from rows read anew; when SQLite refuses the whole, each caller is
applied under a savepoint of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final

import apsw
import msgspec

from pipo import crashpoints
from pipo.errors import Conflict, Internal, PipoError
from pipo.journal import statements
from pipo.journal.changes import (
    Accepted,
    Change,
    DeadLettered,
    Delivered,
    Escalated,
    Failed,
    FannedOut,
    Filtered,
    Held,
    Paused,
    Rejected,
    Resumed,
    Written,
)
from pipo.journal.connection import run
from pipo.journal.opening import Opened
from pipo.journal.outcomes import Applied, Outcome
from pipo.journal.sheet import (
    PLAIN_COLUMNS,
    SETTLED,
    UNIT_COLUMNS,
    Sheet,
    UnitRow,
    ancestors,
    rare_values,
    row_found,
)
from pipo.journal.statements import CHANGED_COLUMNS, USUAL_COLUMNS

# Rows of moving units kept in memory; beyond it they are read when they are needed.
LIVE_ROWS_LIMIT: Final = 20_000

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_born_values = attrgetter(*UNIT_COLUMNS)
_plain_values = attrgetter(*PLAIN_COLUMNS)
_changed_values = attrgetter(*CHANGED_COLUMNS)
_usual_values = attrgetter(*USUAL_COLUMNS)

# What SQLite or its driver says of a statement's values, not of the disk: a caller's fault.
REFUSALS: Final = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    TypeError,
    ValueError,
    OverflowError,
)


class Fenced(Conflict):
    """Another process took the journal over; this one must not write any more."""


Done = Callable[[BaseException | None], None]

_APPLIED: Final = Applied()


@dataclass(slots=True, eq=False)
class Entry:
    """One caller's changes. Either `future` or `done` learns how they ended."""

    changes: Sequence[Change]
    future: asyncio.Future[list[Outcome]] | None = None
    done: Done | None = None
    work: Callable[[Transactions], None] | None = None
    """Something else to do on the writing connection, alone: then there are no changes."""
    outcomes: list[Outcome] = field(default_factory=list)
    error: BaseException | None = None


class Transactions:
    """Runs transactions on the writing connection, one at a time, on one thread."""

    def __init__(self, opened: Opened, folder: Path) -> None:
        self._db = opened.db
        self._epoch = str(opened.epoch)
        self._folder = folder
        self._facts = opened.facts
        self._versions = opened.versions
        self._live: dict[str, UnitRow] = {}
        self.last_seq = opened.last_seq
        """The newest committed event."""
        for statement in statements.PROGRAMS:
            run(self._db, statement)

    def run(self, entries: Sequence[Entry]) -> dict[str, int]:
        """By how much each counter moved, once the entries' changes are on disk.

        Entries whose changes are refused carry the error; the others stand.
        Durable: on return they survive a power cut.
        Raises: Fenced; apsw.Error for what SQLite says of the disk: then nothing is known
            to be written, and the connection must not be used again.
        """
        sheet = self._draft(entries)
        totals = sheet.totals()
        try:
            if not sheet.empty:
                _reach_before(sheet.kinds)
                self._apply_alone(sheet, totals)
                _reach_after(sheet.kinds)
        except REFUSALS as error:
            self._check_fence(error)
            return self._run_apart(entries)
        self._take_over(sheet)
        return totals

    def give_back(self, pages: int) -> int:
        """Returns up to so many free pages to the disk; how many are left.

        Raises: Fenced; apsw.Error, as `run`.
        """
        run(self._db, statements.BEGIN)
        if run(self._db, statements.EPOCH) != [(self._epoch,)]:
            run(self._db, statements.ROLLBACK)
            raise self._fenced()
        run(self._db, f"PRAGMA incremental_vacuum({pages:d})")
        left: int = run(self._db, "PRAGMA freelist_count")[0][0]
        run(self._db, statements.COMMIT)
        return left

    # ── drafts ───────────────────────────────────────────────────────────────

    def _draft(self, entries: Sequence[Entry]) -> Sheet:
        """The draft of all entries; those that are refused carry their error and are not in it."""
        sheet = self._blank(self._rows_for(entries), self._known_keys(entries))
        try:
            for entry in entries:
                _apply(sheet, entry)
        except Exception:
            # Whatever a change raises is its caller's fault; which one is found with care.
            return self._careful_draft(entries)
        return sheet

    def _careful_draft(self, entries: Sequence[Entry]) -> Sheet:
        """The same from rows read anew, with a way back for each caller."""
        self._forget(entries)
        rows = self._read({unit for unit, _ in _units(entries)})
        sheet = self._blank(rows, self._known_keys(entries))
        for entry in entries:
            sheet.begin_caller()
            try:
                _apply(sheet, entry)
            except Exception as error:
                sheet.take_back()
                entry.error = error if isinstance(error, PipoError) else _refused(error)
        return sheet

    def _blank(self, rows: dict[str, UnitRow], keys: dict[tuple[str, str], str]) -> Sheet:
        return Sheet(
            next_seq=self.last_seq + 1,
            found=rows,
            known_versions=set(self._versions),
            known_keys=keys,
            known_meta=self._facts,
        )

    def _rows_for(self, entries: Iterable[Entry]) -> dict[str, UnitRow]:
        """The rows that the entries' changes start from, those of new units aside."""
        rows: dict[str, UnitRow] = {}
        missing: set[str] = set()
        born: set[str] = set()
        for unit, is_birth in _units(entries):
            if is_birth:
                born.add(unit)
            elif unit not in born and unit not in rows:
                row = self._live.get(unit)
                if row is None:
                    missing.add(unit)
                else:
                    rows[unit] = row
        if missing:
            rows.update(self._read(missing))
        return rows

    def _read(self, units: set[str]) -> dict[str, UnitRow]:
        found = run(self._db, statements.FIND_UNITS, (_encode(list(units)).decode(),))[0][0]
        return {values[0]: row_found(values) for values in _decode(found)}

    def _known_keys(self, entries: Iterable[Entry]) -> dict[tuple[str, str], str]:
        wanted = [
            (change.source, change.key)
            for entry in entries
            for change in entry.changes
            if isinstance(change, Accepted) and change.key is not None
        ]
        if not wanted:
            return {}
        found = run(self._db, statements.FIND_KEYS, (_encode(wanted).decode(),))[0][0]
        return {(sender, key): packet for sender, key, packet in _decode(found)}

    # ── applying ─────────────────────────────────────────────────────────────

    def _apply_alone(self, sheet: Sheet, totals: dict[str, int]) -> None:
        """One transaction: one statement, unless a text is too heavy for a document."""
        if not sheet.heavy:
            self._apply(sheet, totals)
            return
        run(self._db, statements.BEGIN)
        try:
            self._apply(sheet, totals)
        except REFUSALS:
            run(self._db, statements.ROLLBACK)
            raise
        run(self._db, statements.COMMIT)

    def _apply(self, sheet: Sheet, totals: dict[str, int]) -> None:
        plain, born = sheet.born()
        usually, changed = sheet.changed()
        usual = (
            self._epoch,
            _text(list(map(_plain_values, plain))),
            _text(list(map(_born_values, born))),
            _text(list(map(_usual_values, usually))),
            len(usually),
            _text(list(map(_changed_values, changed))),
            len(changed),
            _text(sheet.events),
            _text(totals),
        )
        if sheet.rare:
            rare = (
                _text([(*v[:2], v[2].hex(), *v[3:]) for v in sheet.versions]),
                _text([(*key, *value) for key, value in sheet.inbox.items()]),
                _text([(*key, value) for key, value in sheet.input_state.items()]),
                _text(sheet.marks),
                _text(sheet.meta),
                _text(list(sheet.gone)),
                _text(sheet.forgotten),
                _text(sheet.cleared),
            )
            run(self._db, statements.APPLY_WHOLE, usual + rare)
        else:
            run(self._db, statements.APPLY, usual)
        for column, text, key in sheet.heavy:
            sql = statements.SET_DATA if column == "data" else statements.SET_PATCH
            run(self._db, sql, (text, key))

    def _run_apart(self, entries: Sequence[Entry]) -> dict[str, int]:
        """The slow way: a savepoint for each caller, so that one that SQLite refuses fails alone."""
        self._forget(entries)
        totals: dict[str, int] = {}
        kinds: set[type] = set()
        run(self._db, statements.BEGIN)
        for entry in entries:
            if entry.error is not None:
                continue
            run(self._db, statements.SAVEPOINT)
            sheet = self._careful_draft([entry])
            try:
                if entry.error is None:
                    moved = sheet.totals()
                    self._apply(sheet, moved)
                    for name, delta in moved.items():
                        totals[name] = totals.get(name, 0) + delta
                    kinds |= sheet.kinds
                    self._take_over(sheet)
            except REFUSALS as error:
                self._check_fence(error)
                run(self._db, statements.ROLLBACK_TO)
                self._forget([entry])
                entry.error = _refused(error)
            run(self._db, statements.RELEASE)
        _reach_before(kinds)
        run(self._db, statements.COMMIT)
        _reach_after(kinds)
        return totals

    def _check_fence(self, error: BaseException) -> None:
        """Raises: Fenced, when it was the fence that refused."""
        if isinstance(error, apsw.ConstraintError) and str(error) == statements.FENCED:
            raise self._fenced() from error

    def _fenced(self) -> Fenced:
        return Fenced(
            f"another process took the journal in {self._folder} over",
            hint="this process must end; the other one goes on",
        )

    # ── memory ───────────────────────────────────────────────────────────────

    def _take_over(self, sheet: Sheet) -> None:
        """Moves what is kept in memory to what the draft brought to disk."""
        self.last_seq = sheet.next_seq - 1
        self._versions.update(version[0] for version in sheet.versions)
        for key, fact in sheet.meta.items():
            if fact is None:
                self._facts.pop(key, None)
            else:
                self._facts[key] = fact
        live = self._live
        for unit, row in sheet.rows.items():
            if row.state in SETTLED:
                live.pop(unit, None)
            elif unit in live or len(live) < LIVE_ROWS_LIMIT:
                row.was, row.was_rare = row.state, rare_values(row)
                if row.error is not None:
                    row.was_error = row.error or None
                row.data = row.result = row.error = None
                live[unit] = row

    def _forget(self, entries: Iterable[Entry]) -> None:
        """Drops the rows in memory that a failed draft may have altered."""
        for unit, _ in _units(entries):
            self._live.pop(unit, None)


def _units(entries: Iterable[Entry]) -> Iterable[tuple[str, bool]]:
    """Each unit that a change can move, and whether the change is its birth."""
    for entry in entries:
        for change in entry.changes:
            unit = getattr(change, "unit", None)
            if unit is None:
                continue
            kind = type(change)
            yield unit, kind is Accepted or kind is Rejected
            if ":" in unit:
                # A copy's end may settle what it came of.
                for ancestor in ancestors(unit):
                    yield ancestor, False
            if isinstance(change, (Accepted, FannedOut)) and change.copies:
                root = unit.partition(":")[0]
                for copy in change.copies:
                    yield f"{root}:{copy.branch}", True


def _apply(sheet: Sheet, entry: Entry) -> None:
    outcomes: list[Outcome] = []
    kinds = sheet.kinds
    for change in entry.changes:
        outcome = change.apply(sheet)
        if outcome is None:
            kinds.add(type(change))
            outcomes.append(_APPLIED)
        else:
            outcomes.append(outcome)
    entry.outcomes = outcomes


def _text(document: object) -> str:
    return _encode(document).decode()


def _refused(error: BaseException) -> PipoError:
    made = Internal(f"the journal cannot hold this change: {error}", hint="this is a bug")
    made.__cause__ = error
    return made


def _reach_before(kinds: set[type]) -> None:
    if Accepted in kinds:
        crashpoints.reach("accepted.before_commit")
    if FannedOut in kinds:
        crashpoints.reach("fanned_out.before_commit")
    if Filtered in kinds:
        crashpoints.reach("filtered.before_commit")
    if DeadLettered in kinds:
        crashpoints.reach("dead_lettered.before_commit")
    if Delivered in kinds:
        crashpoints.reach("delivered.before_commit")
    if Held in kinds:
        crashpoints.reach("held.before_commit")
    if Escalated in kinds:
        crashpoints.reach("escalated.before_commit")
    if Paused in kinds:
        crashpoints.reach("paused.before_commit")
    if Resumed in kinds:
        crashpoints.reach("resumed.before_commit")
    if Failed in kinds:
        crashpoints.reach("failed.before_commit")


def _reach_after(kinds: set[type]) -> None:
    if Accepted in kinds:
        crashpoints.reach("accepted.after_commit")
    if FannedOut in kinds:
        crashpoints.reach("fanned_out.after_commit")
    if Filtered in kinds:
        crashpoints.reach("filtered.after_commit")
    if DeadLettered in kinds:
        crashpoints.reach("dead_lettered.after_commit")
    if Written in kinds:
        crashpoints.reach("written.after_commit")
    if Delivered in kinds:
        crashpoints.reach("delivered.after_commit")
    if Held in kinds:
        crashpoints.reach("held.after_commit")
    if Escalated in kinds:
        crashpoints.reach("escalated.after_commit")
    if Paused in kinds:
        crashpoints.reach("paused.after_commit")
    if Resumed in kinds:
        crashpoints.reach("resumed.after_commit")
    if Failed in kinds:
        crashpoints.reach("failed.after_commit")
