"""The output stage: prepare, write, commit.

Idea. Units that arrive at the output are sorted by place (a database, a file).
Each place has at most one write in flight; whatever arrives meanwhile forms the
next group. So an idle pipeline writes a lone packet at once, and a busy one
writes hundreds in one transaction, with no timer in either case. Units of a version with
`output.batch` wait for each other first, and hold no slot while they do (`batching`).

Commits. Before the effect: with the default key the acceptance that is already
on disk is enough, since a repeat after a crash finds the key at the
destination; an explicit key is committed with *writing* first and reused on
every repeat (design §4.3). After the effect: *written* is committed with the
result, together with *delivered* where the check is `ack` or `none`, and with the
window of an ack where it is `external`. Only then does anyone learn of it.

The next group of a place may be written while the commit of the one before is
under way; the journal keeps the order, and a crash repeats at most what was not
committed, each with its own key.

Failure cases. One bad unit fails alone; a failure of the whole call (a locked
database, a full disk) is each unit's own failure. Either way `policy` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pipo.clock import Clock
from pipo.journal.changes import Writing
from pipo_runner.pipeline.definition.failures import PACKET_ERRORS
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.definition.policy import Wait
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.resting import Rest
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import Unit
from pipo_runner.pipeline.output.batching import Batches
from pipo_runner.pipeline.output.places import Places
from pipo_runner.pipeline.output.preparing import BrokenRule, Prepared, Preparer
from pipo_runner.pipeline.output.results import Results
from pipo_runner.pipeline.steps.executor import Executor

GROUP_UNITS_LIMIT: Final = 256
GROUP_BYTES_LIMIT: Final = 4 * 1024 * 1024


class OutputStage:
    """Groups ready units by place and writes them."""

    def __init__(
        self,
        *,
        journal: Ledger,
        executor: Executor,
        preparer: Preparer,
        places: Places,
        batches: Batches,
        results: Results,
        timers: Timers,
        clock: Clock,
        log: Callable[..., None],
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._preparer = preparer
        self._places = places
        self._batches = batches
        self._rest = Rest(lambda: self._is_idle)
        batches.on_rest = self._rest.look
        self._results = results
        self._timers = timers
        self._clock = clock
        self._log = log
        self._waiting: dict[str, list[Prepared]] = {}
        self._busy: set[str] = set()

    # ── arriving ─────────────────────────────────────────────────────────────

    def join(self, unit: Unit, plan: Plan) -> None:
        """A unit arrives with its slot; it is written, or waits in a batch, after the next `flush`."""
        if unit.batched:
            self._executor.release()
        if unit.attempt == 0 or not unit.entered:
            unit.entered = self._clock.monotonic()
        try:
            prepared = self._preparer.prepare(unit, plan)
        except BrokenRule as broken:
            self._results.refuse(unit, plan, broken)
        except Exception as error:
            if not isinstance(error, PACKET_ERRORS):
                self._log("error", "the output failed unexpectedly", exc_info=error)
            self._failed(unit, plan, None, error)
        else:
            self._put(prepared)

    def _put(self, prepared: Prepared) -> None:
        if prepared.plan.batches:
            self._batches.join(prepared)
        else:
            self._waiting.setdefault(prepared.place, []).append(prepared)

    def flush(self) -> None:
        """Starts a write at every place that is idle and has units."""
        self._results.flush()
        self._batches.flush()
        for place in self._waiting:
            if place not in self._busy:
                self._busy.add(place)
                self._timers.spawn(self._write_place(place), name=f"write {place}")

    def give_back(self) -> None:
        """Units whose write has not begun go back to the queue, each to its old place."""
        waiting, self._waiting = self._waiting, {}
        for group in waiting.values():
            for prepared in group:
                self._executor.put_back(prepared.unit)

    async def idle(self, timeout_s: float) -> bool:
        """Whether no write is in flight, waiting up to `timeout_s` for those that are."""
        return await self._rest.wait(timeout_s)

    @property
    def _is_idle(self) -> bool:
        return not self._busy and self._batches.at_rest

    def give_up_waiting(self) -> None:
        """Ends `idle`, whatever is still in flight."""
        self._rest.give_up()

    # ── writing ──────────────────────────────────────────────────────────────

    async def _write_place(self, place: str) -> None:
        try:
            while group := self._take(place):
                await self._write_group(group)
        finally:
            self._busy.discard(place)
            self._rest.look()

    def _take(self, place: str) -> list[Prepared]:
        """The next group of a place, cut at its limits."""
        waiting = self._waiting.get(place)
        if not waiting:
            self._waiting.pop(place, None)
            return []
        size = count = 0
        for prepared in waiting:
            size += prepared.unit.size
            if count and (count >= GROUP_UNITS_LIMIT or size > GROUP_BYTES_LIMIT):
                break
            count += 1
        group, self._waiting[place] = waiting[:count], waiting[count:]
        return group

    async def _write_group(self, group: Sequence[Prepared]) -> None:
        at = self._clock.now_ms()
        writing = [Writing(p.unit.id, p.key if p.explicit else None, at) for p in group]
        if any(p.new_key is not None for p in group):
            await self._journal.commit(*writing)
            for p in group:
                if p.explicit:
                    p.unit.key = p.key
        else:
            self._journal.stage(*writing)
        flush = await self._places.write(group, atomic=False)
        written, failed = self._results.sort(group, flush)
        # Those that failed first: the marks are noted only where nobody is in doubt.
        for prepared, error in failed:
            self._failed(prepared.unit, prepared.plan, prepared, error)
        self._results.written(written, size=len(written), marks=flush.marks)
        if failed:
            self.flush()

    # ── failing ──────────────────────────────────────────────────────────────

    def _failed(self, unit: Unit, plan: Plan, prepared: Prepared | None, error: Exception) -> None:
        """One failed run of one unit; it waits for the next, or ends as the policy says."""
        move = self._results.next_move(unit, plan, error)
        if isinstance(move, Wait):
            self._results.retry(unit, move, error)
            self._timers.after(move.ms / 1000.0, self._again, unit, plan, prepared)
        else:
            self._results.give_up(unit, plan, move, error)

    def _again(self, unit: Unit, plan: Plan, prepared: Prepared | None) -> None:
        if unit.batched:
            # It holds no slot that could be its own.
            self._executor.enqueue(unit)
        elif not self._executor.taking:
            self._executor.put_back(unit)
        elif prepared is None:
            self.join(unit, plan)
        else:
            self._put(prepared)
        self.flush()
