"""The journal on SQLite: what the pipeline process holds in its hands.

Counters, the last sequence number and every answer move on the event loop, once per
transaction, after its commit. Reads go through a connection and a thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import apsw

from pipo.clock import Clock
from pipo.errors import Unavailable
from pipo.journal import tip
from pipo.journal.changes import Change
from pipo.journal.connection import CHECKPOINT_PAGES, fold
from pipo.journal.opening import FILE, Opened, open_journal
from pipo.journal.outcomes import Acknowledged, Applied, Duplicate, Outcome
from pipo.journal.reads import Rows
from pipo.journal.recover import PendingUnit, Recovery, recover
from pipo.journal.rows import ApswRows
from pipo.journal.tip import Tip
from pipo.journal.transactions import Done, Entry, Fenced, Transactions
from pipo.journal.writer import Landed, Writer

__all__ = [
    "Acknowledged",
    "Applied",
    "Duplicate",
    "Fenced",
    "Journal",
    "JournalFailed",
    "Outcome",
    "PendingUnit",
    "Recovery",
    "SqliteJournal",
]


class JournalFailed(Unavailable):
    """The journal could not be written; what was not acknowledged may be lost."""


LISTENER_RAISED = "a listener of the journal raised"
"""The message under which the loop's exception handler hears of it."""


class Journal(Protocol):
    """A pipeline's durable record, whatever keeps it."""

    @property
    def counters(self) -> dict[str, int]: ...

    @property
    def last_seq(self) -> int: ...

    @property
    def rows(self) -> Rows: ...

    @property
    def failed(self) -> asyncio.Future[BaseException]: ...

    async def commit(self, *changes: Change) -> list[Outcome]: ...

    def stage(self, *changes: Change, done: Done | None = None) -> None: ...

    async def recover(self) -> Recovery: ...

    async def give_back(self, pages: int) -> int: ...

    async def fold(self) -> bool: ...

    def disk_left(self) -> int: ...

    async def wait_beyond(self, seq: int, timeout_s: float) -> int: ...

    async def close(self, *, clean: bool) -> None: ...


class SqliteJournal:
    """The one implementation. Made by `open`; used on one event loop."""

    def __init__(
        self, opened: Opened, *, folder: Path, clock: Clock, vfs: str | None, flush_delay_s: float
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._vfs = vfs
        self._db = opened.db
        self.counters: dict[str, int] = dict(opened.counters)
        """Every counter, as last committed."""
        self.last_seq = opened.last_seq
        """The sequence number of the newest committed event."""
        self.commit_observer: Callable[[int, float], None] | None = None
        """Told of each transaction: how many callers it served, and its seconds."""
        self.rows: Rows
        """Reads, on a connection and a thread of their own."""
        self._reader = ApswRows(folder / FILE, vfs=vfs)
        self.rows = self._reader
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed: asyncio.Future[BaseException] | None = None
        self._error: BaseException | None = None
        self._closed = False
        self._watchers: set[asyncio.Future[None]] = set()
        self._writer = Writer(
            opened,
            folder=folder,
            clock=clock,
            flush_delay_s=flush_delay_s,
            land=self._land_from_thread,
            fail=self._fail_from_thread,
        )

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        pipeline: str,
        clock: Clock,
        vfs: str | None = None,
        synchronous: str = "FULL",
        flush_delay_s: float = 0.0,
        checkpoint_pages: int = CHECKPOINT_PAGES,
    ) -> SqliteJournal:
        """The journal in `folder`, made or upgraded, and fenced against an older writer.

        `vfs`, `synchronous`, `flush_delay_s` (each transaction waits so long for more) and
        `checkpoint_pages` are for tests.
        Raises: UnsafeStorage, JournalDamaged, JournalTooNew, JournalInUse.
        """
        opened = open_journal(
            folder,
            pipeline=pipeline,
            clock=clock,
            vfs=vfs,
            synchronous=synchronous,
            checkpoint_pages=checkpoint_pages,
        )
        return cls(opened, folder=folder, clock=clock, vfs=vfs, flush_delay_s=flush_delay_s)

    # ── writing ──────────────────────────────────────────────────────────────

    async def commit(self, *changes: Change) -> list[Outcome]:
        """One outcome per change, once all of them are on disk.

        Durable: on return they survive a power cut. They stand in one transaction, in order.
        Cancelled: only the wait ends; the changes will be written.
        Raises: IllegalChange, if one is not legal from the state found (then none of this
            caller's is written); Unavailable, when too many wait; JournalFailed.
        """
        loop = self._bound()
        future: asyncio.Future[list[Outcome]] = loop.create_future()
        self._writer.put(Entry(changes, future=future), urgent=True)
        return await future

    def stage(self, *changes: Change, done: Done | None = None) -> None:
        """Joins the next transaction, after everything handed over before.

        `done` runs on the event loop: with None once the changes are on disk, or with the
        error. Somebody waits then, so the transaction begins as soon as the writer is free.
        Without `done` the changes wait up to 20 ms for company, and an error of the changes
        themselves is the journal's failure.
        Raises: Unavailable, when too many wait; JournalFailed.
        """
        self._bound()
        self._writer.put(Entry(changes, done=done), urgent=done is not None)

    def submit(self, *changes: Change, done: Done) -> None:
        """As `commit`, for a caller that goes on: written at once, and `done` tells.

        Raises: Unavailable, when too many wait; JournalFailed.
        """
        self._bound()
        self._writer.put(Entry(changes, done=done), urgent=True)

    async def recover(self) -> Recovery:
        """Everything a run goes on with: pending units with their data, marks, versions."""
        self._bound()
        return await recover(self.rows)

    # ── compaction ───────────────────────────────────────────────────────────

    async def give_back(self, pages: int) -> int:
        """Returns up to so many free pages to the disk, between two transactions; those left.

        Raises: Unavailable, when too many changes wait; JournalFailed.
        """
        future: asyncio.Future[None] = self._bound().create_future()
        left: list[int] = []

        def done(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def work(transactions: Transactions) -> None:
            left.append(transactions.give_back(pages))

        self._writer.put(Entry((), done=done, work=work), urgent=True)
        await future
        return left[0]

    async def fold(self) -> bool:
        """Folds the WAL into the database, beside what is written meanwhile; whether all of it.

        Raises: Unavailable, for what SQLite says: the writer goes on, and folds itself.
        """
        loop = self._bound()
        try:
            return await loop.run_in_executor(None, fold, self._folder / FILE, self._vfs)
        except apsw.Error as error:
            raise Unavailable(
                f"the write-ahead log in {self._folder} cannot be folded now: {error}",
                hint="it is tried again; look at the disk if it repeats",
            ) from error

    def disk_left(self) -> int:
        """The bytes that the journal may still take on its disk."""
        room = os.statvfs(self._folder)
        return room.f_bavail * room.f_frsize

    # ── watching ─────────────────────────────────────────────────────────────

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Resolves with the error once nothing more can be acknowledged."""
        self._bound(alive=False)
        assert self._failed is not None
        return self._failed

    async def wait_beyond(self, seq: int, timeout_s: float) -> int:
        """The last sequence number, once it is above `seq` or the time is over."""
        loop = self._bound(alive=False)
        deadline = loop.time() + timeout_s
        while self.last_seq <= seq and not self._closed and self._error is None:
            watcher: asyncio.Future[None] = loop.create_future()
            self._watchers.add(watcher)
            try:
                async with asyncio.timeout_at(deadline):
                    await watcher
            except TimeoutError:
                break
            finally:
                self._watchers.discard(watcher)
        return self.last_seq

    # ── the end ──────────────────────────────────────────────────────────────

    async def close(self, *, clean: bool) -> None:
        """Writes what has queued and lets the journal go; safe twice.

        `clean`: the tip says that the run ended in order, and the WAL is folded away.
        Otherwise both stay as a crash would leave them.
        """
        if self._closed:
            return
        loop = self._bound(alive=False)
        self._closed = True
        self._writer.finish()
        await loop.run_in_executor(None, self._writer.join)
        # What the thread handed over last has landed: its callbacks came before the join's.
        self._wake_watchers()
        await self._reader.close()
        await loop.run_in_executor(None, self._release, clean and self._error is None)

    def _release(self, clean: bool) -> None:
        if clean:
            journal_id, last_seq = self._writer.last_tip
            tip.write(self._folder, Tip(journal_id, last_seq, clean=True, at=self._clock.now_ms()))
        else:
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._db.close()

    # ── between the threads ──────────────────────────────────────────────────

    def _bound(self, *, alive: bool = True) -> asyncio.AbstractEventLoop:
        """The loop this journal is used on; the first use starts the writer."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._failed = self._loop.create_future()
            self._writer.start()
        if alive and (self._error is not None or self._closed):
            raise self._refusal()
        return self._loop

    def _refusal(self) -> JournalFailed:
        if self._error is None:
            return JournalFailed("the journal is closed", hint="the pipeline has stopped")
        made = JournalFailed(
            f"the journal in {self._folder} failed: {self._error}",
            hint="the pipeline starts again from what is on disk; look at the disk if it repeats",
        )
        made.__cause__ = self._error
        return made

    def _land_from_thread(self, landed: Landed) -> None:
        assert self._loop is not None
        # Once the loop has ended nobody waits for the answer.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._land, landed)

    def _fail_from_thread(self, error: BaseException, entries: Sequence[Entry]) -> None:
        assert self._loop is not None
        # Once the loop has ended nobody waits for the answer.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fail, error, entries)

    def _land(self, landed: Landed) -> None:
        """One transaction is on disk: counters first, then everyone who waits."""
        counters = self.counters
        for name, delta in landed.totals.items():
            counters[name] = counters.get(name, 0) + delta
        self.last_seq = landed.last_seq
        changes = 0
        for entry in landed.entries:
            changes += len(entry.changes)
            self._answer(entry, entry.error)
        self._writer.landed(changes)
        if self.commit_observer is not None:
            self._tell(self.commit_observer, len(landed.entries), landed.seconds)
        self._wake_watchers()

    def _answer(self, entry: Entry, error: BaseException | None) -> None:
        if entry.future is not None:
            if entry.future.done():
                return
            if error is None:
                entry.future.set_result(entry.outcomes)
            else:
                entry.future.set_exception(error)
        elif entry.done is not None:
            self._tell(entry.done, error)
        elif error is not None and self._error is None:
            self._fail(error, ())

    def _tell(self, listener: Callable[..., None], *news: object) -> None:
        """Calls a listener; one that raises keeps the news from nobody else."""
        assert self._loop is not None
        try:
            listener(*news)
        except Exception as error:
            self._loop.call_exception_handler({"message": LISTENER_RAISED, "exception": error})

    def _fail(self, error: BaseException, entries: Sequence[Entry]) -> None:
        """Nothing more is acknowledged."""
        if self._error is None:
            self._error = error
            assert self._failed is not None
            if not self._failed.done():
                self._failed.set_result(error)
        refusal = self._refusal()
        for entry in (*entries, *self._writer.left()):
            self._answer(entry, refusal)
        self._wake_watchers()

    def _wake_watchers(self) -> None:
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
