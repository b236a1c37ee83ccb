"""The writer thread: whatever has queued becomes one transaction, and one fsync.

Idea. Callers hand over *entries* (the changes of one `commit` or `stage`, in order)
and go on. One thread takes everything that queued while it wrote the last
transaction, applies it to a draft (`sheet.py`), writes the draft set by set, and
commits. So under load one fsync serves hundreds of packets, and a lone packet pays
one fsync and waits for no timer. Results go back to the event loop in one call per
transaction, never before COMMIT returned.

Why one call per set. Every call into SQLite that takes longer than a moment gives
the interpreter lock away and must get it back from a busy event loop, which takes up
to the switch interval. A statement per change makes a convoy of these waits; a
transaction here is about a dozen statements, whatever it holds.

Staged entries join the next commit; alone they are flushed after STAGE_DELAY_S, or at
once when STAGE_HIGH_WATER changes wait. A transaction takes at most TRANSACTION_CHANGES.

Failure cases.
- A change that is illegal, or holds what cannot be stored, fails its own caller: the
  draft is made again with a way back per caller; should SQLite itself refuse a
  statement, each caller gets a savepoint of its own.
- The fence: the epoch on disk stands in every transaction's first read, under the
  write lock. A higher one than ours means that another process took the journal over.
- Anything that SQLite says about the disk (a failed write or fsync, a full disk, a
  damaged page) ends the writer: what was on its way is not acknowledged, nothing is
  tried again, `failed` tells the process to start anew from what is on disk. A failed
  fsync that is tried again may return success for pages that the kernel threw away.

Rejected: a statement per change in a loop (the convoy above); `executemany` (the
same loop inside the driver); JSON documents unpacked by SQL (escapes every payload).
"""

from __future__ import annotations

import asyncio
import enum
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from pipo import crashpoints
from pipo.clock import Clock
from pipo.errors import Conflict, Internal, PipoError, Unavailable
from pipo.journal import statements, tip
from pipo.journal.changes import Accepted, Change, Delivered, Written
from pipo.journal.connection import run
from pipo.journal.opening import Opened
from pipo.journal.sheet import Sheet
from pipo.journal.tip import Tip

STAGE_DELAY_S: Final = 0.02
STAGE_HIGH_WATER: Final = 512
TRANSACTION_CHANGES: Final = 4_096
TRANSACTION_BYTES: Final = 16 * 1024 * 1024
QUEUE_CHANGES_LIMIT: Final = 200_000
TIP_EVERY_S: Final = 60.0

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

# What SQLite says of a statement or its values, not of the disk: the caller's fault.
_REFUSALS = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    TypeError,
    ValueError,
)


class Fenced(Conflict):
    """Another process took the journal over; this one must not write any more."""


class JournalFailed(Unavailable):
    """The journal could not be written; what was not acknowledged may be lost."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is on disk."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing was written: the key had made this packet before."""

    packet_id: str


Outcome = Applied | Duplicate
_APPLIED: Final = Applied()

Done = Callable[[BaseException | None], None]


@dataclass(slots=True, eq=False)
class Entry:
    """One caller's changes. Either `future` or `done` learns how they ended."""

    changes: Sequence[Change]
    future: asyncio.Future[list[Outcome]] | None = None
    done: Done | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Landed:
    """What one transaction tells the event loop."""

    entries: Sequence[Entry]
    totals: dict[str, int]
    last_seq: int
    seconds: float


class _Sleep(enum.Enum):
    """What the writer's thread wants to be rung for."""

    AWAKE = enum.auto()
    UNTIL_URGENT = enum.auto()
    UNTIL_ANY = enum.auto()


class Writer:
    """Owns the writing connection and the thread that uses it."""

    def __init__(
        self,
        opened: Opened,
        *,
        folder: Path,
        clock: Clock,
        flush_delay_s: float,
        land: Callable[[Landed], None],
        fail: Callable[[BaseException, Sequence[Entry]], None],
    ) -> None:
        """`land` and `fail` are called on the writer's thread."""
        self._db = opened.db
        self._epoch = str(opened.epoch)
        self._journal_id = opened.journal_id
        self._last_seq = opened.last_seq
        self._facts = opened.facts
        self._versions = opened.versions
        self._folder = folder
        self._clock = clock
        self._flush_delay_s = flush_delay_s
        self._land = land
        self._fail = fail
        self._queue: deque[Entry] = deque()
        self._queued = 0
        self._urgent = False
        self._closing = False
        self._sleep = _Sleep.AWAKE
        # A bell and no more: what to do stands in the fields above.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._tip_seq = opened.last_seq
        self._tip_due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="journal writer", daemon=True)

    # ── on the event loop ────────────────────────────────────────────────────

    def start(self) -> None:
        self._thread.start()

    def put(self, entry: Entry, *, urgent: bool) -> None:
        """Queues one caller's changes; `urgent` ones wait for nothing.

        Raises: Unavailable, when QUEUE_CHANGES_LIMIT changes wait already.
        """
        if self._queued > QUEUE_CHANGES_LIMIT:
            raise Unavailable(
                f"{self._queued} changes wait for the journal",
                hint="the disk is slower than the intake; try again",
            )
        self._queued += len(entry.changes)
        self._queue.append(entry)
        if urgent or self._queued >= STAGE_HIGH_WATER:
            self._urgent = True
        if self._sleep is _Sleep.UNTIL_ANY or (self._urgent and self._sleep is _Sleep.UNTIL_URGENT):
            self._ring()

    def landed(self, changes: int) -> None:
        """Gives the places of landed changes back."""
        self._queued -= changes

    def finish(self) -> None:
        """Asks the thread to write what has queued and to end."""
        self._closing = True
        self._ring()

    def _ring(self) -> None:
        self._sleep = _Sleep.AWAKE
        self._bell.put(None)

    def left(self) -> list[Entry]:
        """What nobody will write any more, once the thread has failed."""
        left = list(self._queue)
        self._queue.clear()
        return left

    def join(self) -> None:
        """Waits for the thread's end; the connection is the caller's then."""
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def last_tip(self) -> tuple[str, int]:
        """The journal's id and last sequence number; for use after `join`."""
        return self._journal_id, self._last_seq

    # ── on the writer's thread ───────────────────────────────────────────────

    def _run(self) -> None:
        entries: list[Entry] = []
        try:
            while self._wait():
                entries = self._take()
                if entries:
                    self._transact(entries)
                    entries = []
                self._keep_tip()
        except BaseException as error:
            self._abandon()
            self._fail(error, entries)

    def _wait(self) -> bool:
        """Returns when there is something to write; False at the end."""
        staged_until: float | None = None
        while not self._urgent and not self._closing:
            if self._queue:
                now = self._clock.monotonic()
                staged_until = staged_until or now + STAGE_DELAY_S
                timeout: float | None = staged_until - now
                sleep = _Sleep.UNTIL_URGENT
            else:
                timeout = TIP_EVERY_S if self._tip_seq != self._last_seq else None
                sleep = _Sleep.UNTIL_ANY
            if timeout is not None and timeout <= 0:
                break
            self._sleep = sleep
            # What came before the flag stood rang no bell.
            if self._urgent or self._closing or (self._queue and sleep is _Sleep.UNTIL_ANY):
                continue
            try:
                self._bell.get(timeout=timeout)
            except queue.Empty:
                self._keep_tip()
        self._sleep = _Sleep.AWAKE
        if self._flush_delay_s and not self._closing:
            self._pause(self._flush_delay_s)
        return bool(self._queue) or not self._closing

    def _pause(self, seconds: float) -> None:
        """Lets `seconds` pass, or less when the writer is asked to end."""
        until = self._clock.monotonic() + seconds
        while not self._closing and (left := until - self._clock.monotonic()) > 0:
            try:
                self._bell.get(timeout=left)
            except queue.Empty:
                return

    def _take(self) -> list[Entry]:
        """What goes into the next transaction, in the order it was handed over."""
        self._urgent = False
        entries: list[Entry] = []
        changes = size = 0
        while self._queue:
            entry = self._queue[0]
            weight = sum(len(c.data) for c in entry.changes if isinstance(c, Accepted))
            if entries and (
                changes + len(entry.changes) > TRANSACTION_CHANGES
                or size + weight > TRANSACTION_BYTES
            ):
                self._urgent = True
                break
            entries.append(self._queue.popleft())
            changes += len(entry.changes)
            size += weight
        return entries

    def _transact(self, entries: list[Entry]) -> None:
        began = self._clock.monotonic()
        try:
            run(self._db, statements.BEGIN)
            sheet = self._draft(entries)
            self._write(sheet)
        except _REFUSALS as error:
            run(self._db, statements.ROLLBACK)
            if len(entries) == 1:
                entries[0].error = _refused(error)
                self._settle(entries, {}, self._last_seq, began)
                return
            self._transact_apart(entries, began)
            return
        self._commit(sheet.kinds)
        self._take_over(sheet)
        self._settle(entries, sheet.totals(), self._last_seq, began)

    def _transact_apart(self, entries: list[Entry], began: float) -> None:
        """The slow way: a savepoint for each caller, so that one that SQLite refuses fails alone."""
        run(self._db, statements.BEGIN)
        totals: dict[str, int] = {}
        kinds: set[type] = set()
        for entry in entries:
            run(self._db, statements.SAVEPOINT)
            try:
                sheet = self._draft([entry])
                self._write(sheet)
            except _REFUSALS as error:
                run(self._db, statements.ROLLBACK_TO)
                entry.error = _refused(error)
            else:
                self._take_over(sheet)
                kinds |= sheet.kinds
                for name, delta in sheet.totals().items():
                    totals[name] = totals.get(name, 0) + delta
            run(self._db, statements.RELEASE)
        self._commit(kinds)
        self._settle(entries, totals, self._last_seq, began)

    def _draft(self, entries: list[Entry]) -> Sheet:
        """The draft of these entries; those that are illegal carry their error and are not in it.

        Raises: Fenced.
        """
        units = {c.unit for e in entries for c in e.changes if hasattr(c, "unit")}
        epoch, found = run(self._db, statements.GUARD, (_encode(list(units)).decode(),))[0]
        if epoch != self._epoch:
            raise Fenced(
                f"another process took the journal in {self._folder} over",
                hint="this process must end; the other one goes on",
            )
        rows = {row[0]: row for row in _decode(found)}
        keys = self._known_keys(entries)
        try:
            sheet = self._blank(rows, keys, careful=False)
            for entry in entries:
                self._apply(sheet, entry)
            return sheet
        except Exception:
            # One caller is at fault; which one costs a second, careful pass.
            sheet = self._blank(rows, keys, careful=True)
            for entry in entries:
                sheet.begin_caller()
                try:
                    self._apply(sheet, entry)
                except Exception as error:
                    sheet.take_back()
                    entry.error = error
            return sheet

    def _blank(self, rows: dict[str, Any], keys: dict[Any, str], *, careful: bool) -> Sheet:
        return Sheet(
            next_seq=self._last_seq + 1,
            found=rows,
            known_versions=set(self._versions),
            known_keys=keys,
            known_meta=self._facts,
            careful=careful,
        )

    def _apply(self, sheet: Sheet, entry: Entry) -> None:
        outcomes: list[Outcome] = []
        for change in entry.changes:
            duplicate = change.apply(sheet)
            outcomes.append(_APPLIED if duplicate is None else Duplicate(duplicate))
        entry.outcomes = outcomes
        sheet.kinds.update(map(type, entry.changes))

    def _known_keys(self, entries: Iterable[Entry]) -> dict[Any, str]:
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

    def _write(self, sheet: Sheet) -> None:
        """Brings the draft into the open transaction, versions and packets before what names them."""
        totals = list(sheet.totals().items())
        for made in (
            statements.insert_versions(sheet.versions),
            statements.insert_units(sheet.born()),
            statements.update_units(sheet.changed()),
            statements.insert_events(sheet.events),
            statements.insert_inbox([(*k, *v) for k, v in sheet.inbox.items()]),
            statements.set_input_state([(*k, v) for k, v in sheet.input_state.items()]),
            statements.set_marks(list(sheet.marks.items())),
            statements.set_facts(list(sheet.meta.items())),
            statements.move_counters(totals),
        ):
            for sql, values, rows in made:
                self._db.execute(sql, values)
                if rows >= 0 and self._db.changes() != rows:
                    raise Internal(
                        f"the journal altered {self._db.changes()} rows where {rows} were meant: "
                        f"{sql[:80]!r}",
                        hint="this is a bug",
                    )

    def _commit(self, kinds: set[type]) -> None:
        if Accepted in kinds:
            crashpoints.reach("accepted.before_commit")
        if Delivered in kinds:
            crashpoints.reach("delivered.before_commit")
        run(self._db, statements.COMMIT)
        if Accepted in kinds:
            crashpoints.reach("accepted.after_commit")
        if Written in kinds:
            crashpoints.reach("written.after_commit")
        if Delivered in kinds:
            crashpoints.reach("delivered.after_commit")

    def _take_over(self, sheet: Sheet) -> None:
        """Moves what the writer keeps in memory to what the draft brought."""
        self._last_seq = sheet.next_seq - 1
        self._versions.update(version[0] for version in sheet.versions)
        for key, value in sheet.meta.items():
            if value is None:
                self._facts.pop(key, None)
            else:
                self._facts[key] = value

    def _settle(
        self, entries: list[Entry], totals: dict[str, int], last_seq: int, began: float
    ) -> None:
        self._land(Landed(entries, totals, last_seq, self._clock.monotonic() - began))

    def _keep_tip(self) -> None:
        now = self._clock.monotonic()
        if self._tip_seq == self._last_seq:
            return
        if self._tip_due_s == 0.0:
            self._tip_due_s = now + TIP_EVERY_S
        elif now >= self._tip_due_s:
            self._tip_due_s = 0.0
            self._tip_seq = self._last_seq
            tip.write(
                self._folder,
                Tip(self._journal_id, self._last_seq, clean=False, at=self._clock.now_ms()),
            )

    def _abandon(self) -> None:
        """Ends the open transaction, if SQLite has not ended it already."""
        try:
            if not self._db.get_autocommit():
                run(self._db, statements.ROLLBACK)
        except apsw.Error:
            pass  # The connection is done for; what is on disk decides.


def _refused(error: BaseException) -> PipoError:
    made = Internal(f"the journal cannot hold this change: {error}", hint="this is a bug")
    made.__cause__ = error
    return made
