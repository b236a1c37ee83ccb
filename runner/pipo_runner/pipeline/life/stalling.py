"""Notices that nothing gets through, and does what `delivered.stall` asks for then.

Idea. Three moments are all that the rules need (`pipo.stall`): when the clock began, when a
unit was delivered or filtered last, and now. The attached checkers are sent them as ages and
say when they make a stall; their word is only a reason to look here, with the same rules and
the newest numbers, so a report that is late or comes twice does nothing.

With no checker the look is this process's own: one timer, at the moment at which a stall
would be one, and none while nothing is on its way, while it is paused, or once it is told.
An attached checker has the time of one lease to speak first. Whatever keeps it from that
(it is frozen, cut off, or has no time) hides no jam for longer.

A process that was frozen and goes on (a paused container) finds its look long overdue. Nothing
could get through meanwhile, so that look restarts the clock and tells nothing.

An episode begins with the first look that finds a stall and ends with the next delivered or
filtered unit, or with a resume; it lives in memory, and a restart begins with a fresh clock
(D063, edge 240). A stall by itself touches no unit. Only `agent.on_stall: handle` does: what
is in nobody's hands (queued, parked) escalates, and what a worker, a batch or a checker has
is marked and goes on; its next failed run escalates it (edge 237, 238).

Source: design §6 'Stalls', D056-D074, edge 228-242.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil
from typing import Final, Protocol

from pipo import stall
from pipo.clock import Clock
from pipo.journal.changes import Change, PipelineEscalated, Stalled, Unjammed
from pipo.lang.model import Pipeline
from pipo.lang.templates import compile_template
from pipo.payload import encode
from pipo.rpc.stubs import checker_pb2 as pb
from pipo_runner.pipeline.definition.scopes import Scopes
from pipo_runner.pipeline.flow.endings import Endings
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.pausing import Pausing
from pipo_runner.pipeline.flow.settling import Pending
from pipo_runner.pipeline.flow.statistics import Statistics
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import Unit
from pipo_runner.pipeline.life.stall_news import oldest_of, stall_facts, stall_text

# The reason of the pause, and of the escalations.
STALL: Final = "stall"
# A unit that failed in an earlier run whose journal says no more.
FORGOTTEN: Final = "unknown"


class Checkers(Protocol):
    """Who else looks for stalls."""

    @property
    def covered_s(self) -> float: ...

    def tell_progress(self) -> None: ...


class Stalling:
    """The stalls of one pipeline whose file has `delivered.stall`.

    `free` gives the units that are in nobody's hands, which are then out of everybody's;
    `recall` reads what the last failed run of a unit said, from the journal. `on_change`
    hears when an episode begins and ends.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        journal: Ledger,
        pending: Pending,
        pausing: Pausing,
        endings: Endings,
        checkers: Checkers,
        statistics: Statistics,
        scopes: Scopes,
        version: Callable[[], int],
        free: Callable[[], list[Unit]],
        recall: Callable[[str], Awaitable[str]],
        timers: Timers,
        clock: Clock,
        redact: Callable[[str], str],
        log: Callable[..., None],
    ) -> None:
        rules = pipeline.delivered.stall
        assert rules is not None, pipeline.name
        self._rules = rules
        self._handles = pipeline.agent is not None and pipeline.agent.on_stall == "handle"
        self._template = None if rules.message is None else compile_template(rules.message)
        self._journal = journal
        self._pending = pending
        self._pausing = pausing
        self._endings = endings
        self._checkers = checkers
        self._statistics = statistics
        self._scopes = scopes
        self._version = version
        self._free = free
        self._recall = recall
        self._timers = timers
        self._clock = clock
        self._redact = redact
        self._log = log
        self._active = False
        self._clock_from_ms = self._now_ms()
        self._last_progress_ms: float | None = None
        self._at: str | None = None
        self._armed = self._granted = self._recalling = self._sharing = False
        self._due_ms = 0.0
        self._shared_ms = -float("inf")
        self.on_change: list[Callable[[], None]] = []

    @property
    def at(self) -> str | None:
        """Where the oldest packet of the episode stood; None when it is not jammed."""
        return self._at

    # ── what moves the clock ─────────────────────────────────────────────────

    def begin(self) -> None:
        """The pipeline is active from now on, or would be but for a pause (D063)."""
        self._active = True
        self._fresh_clock()

    def end(self) -> None:
        """It drains or stops: nothing is looked for any more."""
        self._active = False
        self._changed()

    def moving(self) -> None:
        """Something is on its way after nothing was, or the other way round (D064)."""
        self._fresh_clock()

    def paused(self) -> None:
        """Nothing is looked for until `resumed` (D072)."""
        self._changed()

    def resumed(self) -> None:
        """A new episode begins, with a fresh clock (D071)."""
        jammed, self._at = self._at is not None, None
        self._fresh_clock()
        if jammed:
            self._tell_listeners()

    def progressed(self) -> None:
        """A unit was delivered or filtered, and that is on disk (D060, D070)."""
        self._last_progress_ms = self._now_ms()
        if self._at is not None:
            self._at = None
            self._hand_over([Unjammed(self._clock.now_ms())])
            self._log("info", "pipeline unjammed", action=Unjammed.event)
            self._tell_listeners()
        self._changed()

    def _fresh_clock(self) -> None:
        self._clock_from_ms = self._now_ms()
        self._changed()

    def _changed(self) -> None:
        self._granted = False
        self._arm()
        self._share()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000.0

    def _seen(self) -> stall.Progress:
        return stall.Progress(
            after_ms=self._rules.after_ms,
            pending_moving=self._pending.moving,
            clock_from_ms=self._clock_from_ms,
            last_progress_ms=self._last_progress_ms,
            looking=self._active and self._pausing.reason is None,
            told=self._at is not None,
        )

    # ── looking ──────────────────────────────────────────────────────────────

    def reported(self, checker_id: str) -> None:
        """A checker takes what it was told last for a stall; it is told how things are now."""
        self._consider(checker_id)
        self._share_now()

    def _arm(self) -> None:
        if self._armed:
            return
        wait_ms = stall.next_look_ms(self._seen(), self._now_ms())
        if wait_ms is not None:
            self._look_in(wait_ms)

    def _look_in(self, wait_ms: float) -> None:
        self._armed = True
        self._due_ms = self._now_ms() + wait_ms
        self._timers.after(wait_ms / 1000.0, self._look)

    def _look(self) -> None:
        self._armed = False
        covered_ms = self._checkers.covered_s * 1000.0
        if self._was_frozen():
            self._fresh_clock()
        elif not self._stalled():
            self._arm()
        elif covered_ms > 0 and not self._granted:
            self._granted = True
            self._look_in(max(covered_ms, stall.interval_ms(self._rules.after_ms)))
        else:
            self._consider(None)

    def _was_frozen(self) -> bool:
        """Whether this look comes so late that nothing could get through meanwhile (R34).

        After a freeze it runs before any report or result that has waited for its end.
        """
        late_ms = self._now_ms() - self._due_ms
        return late_ms >= max(self._rules.after_ms / 4, stall.INTERVAL_MS_MAX)

    def _stalled(self) -> bool:
        return stall.is_stalled(self._seen(), self._now_ms())

    def _consider(self, checker_id: str | None) -> None:
        """Tells a stall if there is one; `checker_id` is who noticed, None for this process."""
        if self._recalling or not self._stalled():
            return
        oldest = oldest_of(self._pending.on_their_way())
        if oldest.attempt and not oldest.last_error:
            self._recalling = True
            self._timers.spawn(self._remember(oldest, checker_id), name="what the oldest met")
            return
        self._tell(checker_id)

    async def _remember(self, oldest: Unit, checker_id: str | None) -> None:
        """Its last failed run was an earlier process's: only the journal knows what it met."""
        said = await self._recall(oldest.id) or FORGOTTEN
        if oldest.attempt and not oldest.last_error:
            oldest.last_error = said
        self._recalling = False
        self._consider(checker_id)

    # ── telling ──────────────────────────────────────────────────────────────

    def _tell(self, checker_id: str | None) -> None:
        at, quiet_ms = self._clock.now_ms(), self._now_ms() - self._seen().since_ms
        facts = stall_facts(self._pending.on_their_way(), quiet_ms, at)
        stats = self._statistics.scope()
        scope = self._scopes.pipeline(self._version()) | {"stats": stats}
        message = stall_text(self._template, scope, facts, self._redact)
        self._at = facts["oldest"]["node"]
        self._log(
            "warning",
            "pipeline stalled",
            action=Stalled.event,
            told=message,
            then=self._rules.then,
            noticed_by=checker_id or "pipeline",
        )
        changes: list[Change] = [
            Stalled(message, self._rules.then, encode(facts), encode(stats), at)
        ]
        if self._rules.then == "pause":
            # What is put back into the queue by it is in nobody's hands.
            changes += self._pausing.begin(STALL)
        self._hand_over([*changes, *self._escalated(message, at)])
        self._tell_listeners()
        self._changed()

    def _escalated(self, message: str, at: int) -> list[Change]:
        """The stall goes to who resolves it, with its units where they are to be handled."""
        if not self._handles:
            if self._rules.then != "agent":
                return []
            return [PipelineEscalated(STALL, "agent", False, None, None, at)]
        handed = [self._endings.handed_over(unit, message, at) for unit in self._free()]
        marked = self._pending.on_their_way()
        for unit in marked:
            unit.stall = message
        return [
            PipelineEscalated(STALL, self._rules.then, True, len(handed), len(marked), at),
            *handed,
        ]

    def _hand_over(self, changes: list[Change]) -> None:
        self._journal.submit(*changes, done=_raised)

    def _tell_listeners(self) -> None:
        for listener in self.on_change:
            listener()

    # ── what checkers are told ───────────────────────────────────────────────

    def progress(self) -> pb.Progress:
        """How the pipeline gets on, the moments as ages: a checker has a clock of its own."""
        seen, now = self._seen(), self._now_ms()
        last = seen.last_progress_ms
        return pb.Progress(
            pending_moving=seen.pending_moving,
            last_progress_ms=None if last is None else int(now - last),
            clock_from_ms=int(now - seen.clock_from_ms),
            after_ms=ceil(seen.after_ms),
            looking=seen.looking,
            told=seen.told,
        )

    def _share(self) -> None:
        """Tells the checkers of a change, at most every quarter of `after`."""
        if self._sharing:
            return
        every_ms = max(self._rules.after_ms / 4, stall.INTERVAL_MS_MIN)
        wait_ms = self._shared_ms + every_ms - self._now_ms()
        if wait_ms <= 0:
            self._share_now()
        else:
            self._sharing = True
            self._timers.after(wait_ms / 1000.0, self._share_later)

    def _share_later(self) -> None:
        self._sharing = False
        self._share_now()

    def _share_now(self) -> None:
        self._shared_ms = self._now_ms()
        self._checkers.tell_progress()


def _raised(error: BaseException | None) -> None:
    if error is not None:
        # The journal hands it to the process, which starts anew: the episode was in memory only.
        raise error
