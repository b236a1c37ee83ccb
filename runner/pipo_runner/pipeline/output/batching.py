"""Batches: units that wait for each other and are written at once (`output.batch`).

Idea. A unit that is ready to be written gives its slot back and is journaled as waiting;
once that is on disk it joins the batch of its version. A batch is closed when it
has `size` units, when its first one has waited `within`, when the next payload would take
it beyond BATCH_BYTES_LIMIT, and at once while nothing more is to be waited for (a pause, a
drain, a stop). Closed batches of a version are flushed strictly one after the other, while
the next one collects.

A flush. The batch is parted by place: one atomic write each, and the failure of a place is
its own; what another place took stands (edge 155). A part that fails is retried as a whole
under `on_error`. When its retries run out it is split, the larger half first, and each half
has all of them again; so one bad unit among 2^k costs k splits. A single unit is written as a
group of one: what can never succeed says so at once. Only a single unit that still fails
gets the policy's `then`, with its own error (edge 153, 154).

Commits. Joining is one: with it an explicit key is on disk before any write. The flush needs
none before its effect, since a repeat finds the key at the destination; *written* follows
as for any group. More than PIECE_UNITS are committed piece by piece, each on disk before the
next is handed over, so that intake goes on beside it. The output's marks come with the
last piece: what a crash between two of them repeats is looked for from the older mark.

Memory. Payloads of closed batches that wait for their turn stay in the journal beyond
RESIDENT_BYTES_LIMIT and are read back for their flush; with what is being journaled, the batch
that collects and the one that is being written, a version holds four times that at most.

Failure cases. A wait that ends while nothing may be taken (a pause, a stop) gives its units
back to the queue: they stay at `$batch`, join a new batch after the resume or the next
start, and have all their retries. A crash leaves them there too, with what was written
already; the key makes a repeat of that a no-op (edge 160, 161).

Rejected: a timer per batch. With a long `within` and many packets thousands would be
waiting to find their batch gone; one per version is enough, and none while nothing waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pipo.clock import Clock
from pipo.connectors.contract import Flush
from pipo.crashpoints import reach
from pipo.journal.changes import Batched, BatchSplit, Change, Writing
from pipo_runner.pipeline.definition.failures import PACKET_ERRORS
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.policy import GiveUp, Wait
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import BATCH, RESIDENT_BYTES_LIMIT, UNLOADED, Unit
from pipo_runner.pipeline.output.places import Places
from pipo_runner.pipeline.output.preparing import BrokenRule, Prepared, Preparer
from pipo_runner.pipeline.output.results import Results
from pipo_runner.pipeline.steps.executor import Executor

BATCH_BYTES_LIMIT: Final = RESIDENT_BYTES_LIMIT
# Units that are being journaled as waiting; beyond it, and beyond BATCH_BYTES_LIMIT of them,
# those that come keep their slots until they are.
JOINING_UNITS_LIMIT: Final = 1024
# Units whose results or retries one commit holds.
PIECE_UNITS: Final = 1024
# Places of one batch that are written at the same time.
PLACES_AT_ONCE: Final = 8
# Two moments closer than this are one; a timer that was set for an earlier batch may be so close.
MOMENT_S: Final = 0.001

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Batch:
    """Units that are written together, in their order."""

    units: list[Prepared] = field(default_factory=list)
    bytes: int = 0
    resident: bool = True
    """Their payloads are in memory."""


@dataclass(slots=True, eq=False)
class _Line:
    """The batches of one version: one that collects, and those that wait for their flush."""

    size: int
    within_s: float
    open: _Batch = field(default_factory=_Batch)
    due: float = 0.0
    """When the first unit of `open` has waited long enough, on the monotonic clock."""
    timed: bool = False
    closed: deque[_Batch] = field(default_factory=deque)
    flushing: bool = False


class Batches:
    """All batches of one pipeline. `on_rest` hears that nothing is on its way any more."""

    def __init__(
        self,
        *,
        journal: Ledger,
        executor: Executor,
        preparer: Preparer,
        places: Places,
        results: Results,
        timers: Timers,
        clock: Clock,
        load: Callable[[Unit], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._preparer = preparer
        self._places = places
        self._results = results
        self._timers = timers
        self._clock = clock
        self._load = load
        self._arrived: list[Prepared] = []
        self._joining = self._joining_bytes = 0
        self._lines: dict[int, _Line] = {}
        self._resident = 0
        self._hasty = False
        self._waits: set[asyncio.Future[None]] = set()
        self._waiting_over = False
        self.on_rest: Callable[[], None] = _nobody

    # ── joining ──────────────────────────────────────────────────────────────

    def join(self, prepared: Prepared) -> None:
        """A unit is ready to be written; it joins after the next `flush`."""
        self._arrived.append(prepared)

    def flush(self) -> None:
        """Journals that what has arrived waits; on disk, it joins."""
        if not self._arrived:
            return
        arrived, self._arrived = self._arrived, []
        at = self._clock.now_ms()
        changes: list[Change] = [Batched(p.unit.id, at) for p in arrived if not p.unit.batched]
        changes += [Writing(p.unit.id, p.key, at) for p in arrived if p.new_key is not None]
        slots = sum(not p.unit.batched for p in arrived)
        for prepared in arrived:
            prepared.unit.cursor, prepared.unit.attempt = BATCH, 0
            if prepared.explicit:
                prepared.unit.key = prepared.key
        # The disk sets the pace once so much waits for it.
        full = self._joining >= JOINING_UNITS_LIMIT or self._joining_bytes >= BATCH_BYTES_LIMIT
        kept = slots if full else 0
        self._joining += len(arrived)
        self._joining_bytes += sum(p.unit.size for p in arrived)
        reach("batch.before_joining")
        # Also without a change: nobody overtakes those that joined before.
        self._journal.submit(*changes, done=lambda error: self._joined(arrived, kept, error))
        self._executor.release(slots - kept)

    def _joined(self, arrived: Sequence[Prepared], slots: int, error: BaseException | None) -> None:
        if error is not None:
            # The journal hands it to the process, which starts anew: nobody else moves these units.
            raise error
        reach("batch.after_joining")
        for prepared in arrived:
            self._add(prepared)
        self._joining -= len(arrived)
        self._joining_bytes -= sum(p.unit.size for p in arrived)
        for line in self._lines.values():
            self._start(line)
        self._executor.release(slots)
        self._look_whether_at_rest()

    def _add(self, prepared: Prepared) -> None:
        line, size = self._line(prepared.plan), prepared.unit.size
        if line.open.units and line.open.bytes + size > BATCH_BYTES_LIMIT:
            self._close(line)
        if not line.open.units:
            line.due = self._clock.monotonic() + line.within_s
        line.open.units.append(prepared)
        line.open.bytes += size
        if len(line.open.units) >= line.size:
            self._close(line)
        else:
            self._time(line)

    def _line(self, plan: Plan) -> _Line:
        line = self._lines.get(plan.version)
        if line is None:
            batch = plan.pipeline.output.batch
            assert batch is not None, f"v{plan.version} has no batches"
            line = self._lines[plan.version] = _Line(batch.size, batch.within_ms / 1000.0)
        return line

    # ── closing ──────────────────────────────────────────────────────────────

    def _close(self, line: _Line) -> None:
        """The batch takes no further unit; the next one begins."""
        batch, line.open = line.open, _Batch()
        waits = line.flushing or line.closed
        if waits and self._resident + batch.bytes > RESIDENT_BYTES_LIMIT:
            batch.resident = False
            for prepared in batch.units:
                prepared.unit.data, prepared.settings, prepared.made = UNLOADED, {}, None
        else:
            self._resident += batch.bytes
        line.closed.append(batch)

    def _time(self, line: _Line) -> None:
        """One timer for the batch that collects; one that was set before comes first."""
        if not line.timed:
            line.timed = True
            left_s = max(0.0, line.due - self._clock.monotonic())
            self._timers.after(left_s, self._time_over, line)

    def _time_over(self, line: _Line) -> None:
        line.timed = False
        if not line.open.units:
            return
        if line.due - self._clock.monotonic() > MOMENT_S:
            self._time(line)
            return
        self._close(line)
        self._start(line)

    def hasten(self) -> None:
        """Nothing more is waited for: each batch is flushed as soon as the one before it is."""
        self._hasty = True
        for line in self._lines.values():
            self._start(line)

    def collect(self) -> None:
        """Batches collect again."""
        self._hasty = False

    def wind_up(self) -> None:
        """The pipeline ends: what waits is flushed now, and no retry is waited for."""
        self._waiting_over = True
        for wait in self._waits:
            _end(wait)
        self.hasten()

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way: what waits is in the journal, for as long as it takes."""
        return not self._joining and not any(line.flushing for line in self._lines.values())

    def _look_whether_at_rest(self) -> None:
        if self.at_rest:
            self.on_rest()

    # ── flushing ─────────────────────────────────────────────────────────────

    def _start(self, line: _Line) -> None:
        if not line.flushing and (line.closed or (self._hasty and line.open.units)):
            line.flushing = True
            self._timers.spawn(self._flush_all(line), name="flush batches")

    async def _flush_all(self, line: _Line) -> None:
        try:
            while (batch := self._next(line)) is not None:
                reach("batch.before_flush")
                await self._flush(batch)
        finally:
            line.flushing = False
        self._look_whether_at_rest()

    def _next(self, line: _Line) -> _Batch | None:
        if not line.closed and self._hasty and line.open.units:
            self._close(line)
        if not line.closed:
            return None
        batch = line.closed.popleft()
        if batch.resident:
            self._resident -= batch.bytes
        return batch

    async def _flush(self, batch: _Batch) -> None:
        """Writes a batch place by place, whatever it takes."""
        units = batch.units if batch.resident else await self._read_back(batch)
        now = self._clock.monotonic()
        parts: dict[str, list[Prepared]] = {}
        for prepared in units:
            # A batched write's time is the group's (edge 375).
            prepared.unit.entered = now
            parts.setdefault(prepared.place, []).append(prepared)
        if len(parts) == 1:
            await self._bring(units, len(units))
            return
        left = deque(parts.values())

        async def work() -> None:
            while left:
                await self._bring(left.popleft(), len(units))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(PLACES_AT_ONCE, len(left))):
                group.create_task(work(), name="flush one place after another")

    async def _read_back(self, batch: _Batch) -> list[Prepared]:
        """The units with what they were left without; one that cannot be read fails alone."""
        units: list[Prepared] = []
        for prepared in batch.units:
            unit = prepared.unit
            try:
                await self._load(unit)
                units.append(self._preparer.prepare(unit, prepared.plan))
            except (*PACKET_ERRORS, BrokenRule):
                # It goes the way of any unit, and meets the error there.
                self._executor.enqueue(unit)
        return units

    async def _bring(self, part: list[Prepared], size: int) -> None:
        """Writes the units of one place, in halves where they fail together.

        `size` is that of the batch, for those that are written with it.
        """
        left = [part]
        while left:
            part = left.pop()
            ended = await self._write(part, size)
            if ended is None:
                continue
            move, error = ended
            if len(part) == 1:
                (one,) = part
                self._results.give_up(one.unit, one.plan, move, error)
                self._results.flush()
                continue
            half = (len(part) + 1) // 2
            left += [part[half:], part[:half]]
            size = 0
            self._split(part, half, error)

    def _split(self, part: Sequence[Prepared], half: int, error: Exception) -> None:
        for prepared in part:
            prepared.unit.attempt = 0
        into = (half, len(part) - half)
        text = self._results.text_of(error)
        self._journal.stage(BatchSplit(len(part), into, text, self._clock.now_ms()))
        reach("batch.after_split")

    async def _write(self, part: list[Prepared], size: int) -> tuple[GiveUp, Exception] | None:
        """Writes a part until it is written or its retries run out; then, why.

        None too when its units were given back, since nothing may be waited for.
        """
        while True:
            flush = await self._places.write(part, atomic=len(part) > 1)
            error = next((made for made in flush.results if isinstance(made, Exception)), None)
            if error is None:
                await self._written(part, flush, size or len(part))
                return None
            size = 0
            move = self._next_move(part, error)
            if isinstance(move, GiveUp):
                return move, error
            if not await self._wait(part, move, error):
                for prepared in part:
                    self._executor.enqueue(prepared.unit)
                return None

    def _next_move(self, part: Sequence[Prepared], error: Exception) -> Wait | GiveUp:
        """The one move of a part: its units have failed equally often.

        A unit that a stall has marked ends the retries; the split shows whether the failure
        is its own (edge 238).
        """
        moves = [self._results.next_move(p.unit, p.plan, error) for p in part]
        return next((move for move in moves if isinstance(move, GiveUp)), moves[0])

    async def _written(self, part: Sequence[Prepared], flush: Flush, size: int) -> None:
        *pieces, last = zip(_pieces(part), _pieces(flush.results), strict=True)
        for units, results in pieces:
            written, _ = self._results.sort(units, Flush(results))
            self._results.written(written, size=size, marks={})
            await self._journal.commit()
            reach("batch.after_piece")
        written, _ = self._results.sort(last[0], Flush(last[1]))
        self._results.written(written, size=size, marks=flush.marks)

    async def _wait(self, part: Sequence[Prepared], move: Wait, error: Exception) -> bool:
        """Waits for the next try; False when it may not begin."""
        together = len(part) if len(part) > 1 else None
        for piece in _pieces(part):
            for prepared in piece:
                self._results.retry(prepared.unit, move, error, batch=together)
            self._results.flush()
            if len(piece) == PIECE_UNITS:
                await self._journal.commit()
        if not self._waiting_over:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits.add(over)
            self._timers.after(move.ms / 1000.0, _end, over)
            await over
            self._waits.discard(over)
        return self._executor.taking


def _pieces(units: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(units), PIECE_UNITS):
        yield units[start : start + PIECE_UNITS]


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)


def _nobody() -> None:
    """Nobody has asked to hear of it."""
