"""The writer thread: whatever has queued becomes one transaction, and one fsync.

Idea. Callers hand over *entries* (the changes of one `commit` or `stage`, in order)
and go on. One thread takes everything that queued while it wrote the last transaction,
drafts it (`sheet.py`) and applies the draft (`transactions.py`). So under load one
fsync serves hundreds of packets, and a lone packet pays one fsync and waits for no
timer. Results go back to the event loop in one call per transaction, never before
COMMIT returned.

Why one statement per transaction. Each call into SQLite that lasts longer than a moment
gives the interpreter lock away, and a busy event loop may keep it for many times the
switch interval: a thread that waits for the lock asks for it only when nobody released
it for a whole interval, and an event loop releases it at every system call. A statement
per change, or even one per table, makes a convoy of such waits. Here a transaction needs
the interpreter twice: to draft, and to tell.

Entries that nobody waits for join the next transaction; alone they are flushed after
STAGE_DELAY_S, or at once when STAGE_HIGH_WATER changes wait. A transaction takes at most TRANSACTION_CHANGES.

Failure cases.
- A change that is illegal, or holds what cannot be stored, fails its own caller.
- The fence: the epoch on disk is compared inside every transaction. A higher one than
  ours means that another process took the journal over.
- Anything that SQLite says about the disk (a failed write or fsync, a full disk, a
  damaged page) ends the writer: what was on its way is not acknowledged, nothing is
  tried again, `failed` tells the process to start anew from what is on disk. A failed
  fsync that is tried again may return success for pages that the kernel threw away.

Rejected: a statement per change in a loop, `executemany` (the same loop inside the
driver), and multi-row VALUES per table (fast alone, but a dozen long calls).
"""

from __future__ import annotations

import enum
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from pipo.clock import Clock
from pipo.errors import Unavailable
from pipo.journal import statements, tip
from pipo.journal.changes import Accepted, FannedOut, Rerun
from pipo.journal.connection import run
from pipo.journal.opening import Opened
from pipo.journal.tip import Tip
from pipo.journal.transactions import Entry, Transactions

STAGE_DELAY_S: Final = 0.02
STAGE_HIGH_WATER: Final = 512
TRANSACTION_CHANGES: Final = 4_096
TRANSACTION_BYTES: Final = 16 * 1024 * 1024
QUEUE_CHANGES_LIMIT: Final = 200_000
TIP_EVERY_S: Final = 60.0

_WITH_DATA = (Accepted, FannedOut, Rerun)


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
        self._journal_id = opened.journal_id
        self._transactions = Transactions(opened, folder)
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
        self._tip_due_s = clock.monotonic() + TIP_EVERY_S
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
        return self._journal_id, self._transactions.last_seq

    # ── on the writer's thread ───────────────────────────────────────────────

    def _run(self) -> None:
        entries: list[Entry] = []
        try:
            while self._wait():
                entries = self._take()
                if entries:
                    began = self._clock.monotonic()
                    totals = self._transactions.run(entries)
                    if entries[0].work is not None:
                        entries[0].work(self._transactions)
                    seconds = self._clock.monotonic() - began
                    self._land(Landed(entries, totals, self._transactions.last_seq, seconds))
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
                timeout = TIP_EVERY_S if self._tip_seq != self._transactions.last_seq else None
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
                if sleep is _Sleep.UNTIL_URGENT:
                    break
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
            weight = sum(_weight(c) for c in entry.changes if isinstance(c, _WITH_DATA))
            if entries and (
                entry.work is not None
                or entries[0].work is not None
                or changes + len(entry.changes) > TRANSACTION_CHANGES
                or size + weight > TRANSACTION_BYTES
            ):
                self._urgent = True
                break
            entries.append(self._queue.popleft())
            changes += len(entry.changes)
            size += weight
        return entries

    def _keep_tip(self) -> None:
        """Writes the tip when events came and the last one is a minute old."""
        seq, now = self._transactions.last_seq, self._clock.monotonic()
        if seq != self._tip_seq and now >= self._tip_due_s:
            self._tip_seq, self._tip_due_s = seq, now + TIP_EVERY_S
            at = self._clock.now_ms()
            tip.write(self._folder, Tip(self._journal_id, seq, clean=False, at=at))

    def _abandon(self) -> None:
        """Ends the open transaction, if SQLite has not ended it already."""
        try:
            if not self._db.get_autocommit():
                run(self._db, statements.ROLLBACK)
        except apsw.Error:
            pass  # The connection is done for; what is on disk decides.


def _weight(change: Accepted | FannedOut | Rerun) -> int:
    """Bytes of payload that a change brings; each copy is born with one of its own."""
    copies = 0 if isinstance(change, Rerun) else len(change.copies)
    return len(change.data) * (1 + copies)
