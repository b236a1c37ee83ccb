"""Written units on offer to the checkers: who is attached, what each holds, whose word counts.

Idea. Each attached checker has an outbox; a waiting unit is put into the one that
holds least. An offer is `<unit>:<write_no>:<offer_no>`: the first part names the
write it is about, the last one who was asked. So a `passed` for the current
write counts from anyone (the destination was seen), while `failed` and
`refused` count only from the checker that holds the offer.

Leases. A checker renews everything it holds with each message; one that is
silent for 10 s counts as detached, and what it held is offered again. One that holds
nothing, where nobody looks for stalls, speaks seldom, and is given a minute; its 10 s begin with
the first that it is offered.

Deadlines. `within` counts from the first offer; a new offer after a lost
checker carries what is left, a restart of this process begins anew. A unit that
no checker has looked at is never late: the checker's own rule is one look
before it may fail.

Failure cases. No checker: units wait, status says so. A verdict about an older
write, or for a unit that has settled, is ignored.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pipo.clock import Clock
from pipo.errors import Unavailable
from pipo.rpc.stubs import checker_pb2 as pb
from pipo_runner.pipeline.definition.plan import Plan
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.flow.units import Unit

LEASE_S: Final = 10.0
# A checker that holds nothing, and watches for no stall, says so every 20 s.
IDLE_LEASE_S: Final = 65.0
# Checkers find a pipeline that has just started within half a second.
ALONE_S: Final = 3.0
MESSAGE_BYTES_LIMIT: Final = 1024 * 1024


@dataclass(slots=True, eq=False)
class Waiting:
    """One written unit that waits for its verdict."""

    unit: Unit
    plan: Plan
    settings: bytes
    target: bytes
    result: bytes
    written: float
    """When its write was committed, or its last pause over, on the monotonic clock."""
    offer_no: int = 0
    deadline: float | None = None
    holder: Attached | None = None
    again: Callable[[], None] | None = None
    """Asks anew for a check that could not be rendered."""

    @property
    def bytes(self) -> int:
        """About how long its message is."""
        return len(self.settings) + len(self.target) + len(self.result) + 128

    @property
    def write_id(self) -> str:
        return f"{self.unit.id}:{self.unit.write_no}"

    @property
    def offer_id(self) -> str:
        return f"{self.write_id}:{self.offer_no}"


@dataclass(slots=True, eq=False)
class Attached:
    """One checker's stream: what it holds, and what is still to be sent to it."""

    checker_id: str
    capacity: int
    heard: float
    """When it spoke last, or was offered something while it held nothing."""
    held: dict[str, Waiting] = field(default_factory=dict)
    outbox: list[Waiting] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    signal: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False
    progress_due: bool = False
    """It is still to be told how the pipeline gets on."""

    @property
    def room(self) -> int:
        return self.capacity - len(self.held)


class Offers:
    """All units of one pipeline that wait for a verdict, and the checkers that look at them."""

    def __init__(self, *, timers: Timers, clock: Clock, log: Callable[..., None]) -> None:
        self._timers = timers
        self._clock = clock
        self._log = log
        self._waiting: dict[str, Waiting] = {}
        self._unassigned: deque[Waiting] = deque()
        self._checkers: list[Attached] = []
        self._sweeping = False
        self._told = False
        # A checker went, or none came in time: the next one is worth a line in the log.
        self._missed = False
        self._closed = False
        self._paused = False
        self.on_verdicts: Callable[[Attached, Iterable[pb.Verdict]], None] = _nobody_judges
        """Hears what a checker saw."""
        self.progress: Callable[[], pb.Progress] | None = None
        """How the pipeline gets on, at the moment of sending; None where nobody looks for stalls."""
        self.on_stall_report: Callable[[str], None] = _nobody
        """Hears which checker takes the progress for a stall."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def checkers(self) -> int:
        """How many checkers are attached and were heard of within a lease."""
        return sum(not self._is_silent(one) for one in self._checkers)

    @property
    def covered_s(self) -> float:
        """For how long a checker still counts as attached if no further word of it comes."""
        heard = max((c.heard for c in self._checkers), default=-math.inf)
        return heard + LEASE_S - self._clock.monotonic()

    # ── units ────────────────────────────────────────────────────────────────

    def put(self, waiting: Waiting) -> None:
        """A unit whose write is committed waits from now on."""
        self._waiting[waiting.unit.id] = waiting
        self._offer(waiting)

    def counted(
        self, checker: Attached, verdicts: Iterable[pb.Verdict]
    ) -> Iterator[tuple[Waiting, pb.Verdict]]:
        """The verdicts that count, each with its unit, which waits no more."""
        for verdict in verdicts:
            write_id, _, _ = verdict.id.rpartition(":")
            waiting = self._waiting.get(write_id.rpartition(":")[0])
            if waiting is None or waiting.write_id != write_id:
                continue
            held = verdict.id == waiting.offer_id and waiting.holder is checker
            if held or verdict.outcome == pb.Verdict.OUTCOME_PASSED:
                self._drop(waiting, checker)
                yield waiting, verdict

    def _drop(self, waiting: Waiting, judge: Attached) -> None:
        """The unit needs no further look; another checker that holds it is told."""
        del self._waiting[waiting.unit.id]
        holder = waiting.holder
        if holder is not None:
            holder.held.pop(waiting.unit.id, None)
            if holder is not judge:
                holder.withdrawn.append(waiting.offer_id)
                holder.signal.set()

    # ── a pause ──────────────────────────────────────────────────────────────

    def pause(self) -> None:
        """None is offered from now on; what a checker has goes on (edge 208)."""
        self._paused = True

    def unpause(self) -> None:
        """What waits is offered, each with its full `within`."""
        self._paused = False
        for waiting in self._unassigned:
            waiting.deadline = None
        self.refill()
        if self._unassigned and not self._checkers:
            self._miss_checker()

    # ── offering ─────────────────────────────────────────────────────────────

    def _offer(self, waiting: Waiting) -> None:
        if self._paused:
            self._unassigned.append(waiting)
            return
        checker = max(self._checkers, key=lambda c: c.room, default=None)
        if checker is not None and self._is_silent(checker):
            # One that holds nothing has no lease that could run out.
            self._lose(checker)
            self._offer(waiting)
            return
        if checker is None or checker.room <= 0:
            self._unassigned.append(waiting)
            if checker is None:
                self._miss_checker()
            return
        if not checker.held:
            self.heard(checker)
        waiting.offer_no += 1
        waiting.holder = checker
        checker.held[waiting.unit.id] = waiting
        checker.outbox.append(waiting)
        checker.signal.set()
        self._sweep_later()

    def refill(self) -> None:
        """Offers what waits, as far as there is room."""
        while self._unassigned and not self._paused and any(c.room > 0 for c in self._checkers):
            waiting = self._unassigned.popleft()
            if self._waiting.get(waiting.unit.id) is waiting:
                self._offer(waiting)

    def _miss_checker(self) -> None:
        """Warns that none is attached, once, unless one comes in a moment."""
        if not (self._told or self._closed):
            self._told = True
            self._timers.after(ALONE_S, self._tell_alone)

    def _tell_alone(self) -> None:
        self._told = bool(self._waiting) and not self._checkers
        if self._told:
            self._missed = True
            self._log("warning", "no checker attached", action="no_checker")

    def message(self, waiting: Waiting) -> pb.Verification:
        """The offer as it is sent now."""
        within = waiting.plan.pipeline.delivered.within_ms
        now = self._clock.monotonic()
        if waiting.deadline is None:
            waiting.deadline = now + within / 1000.0
        return pb.Verification(
            id=waiting.offer_id,
            check=waiting.plan.check,
            **{"with": waiting.settings},
            result=waiting.result,
            within_left_ms=max(0, round((waiting.deadline - now) * 1000.0)),
            within_ms=round(within),
            output=waiting.plan.pipeline.output.to,
            target=waiting.target,
        )

    # ── checkers ─────────────────────────────────────────────────────────────

    def attach(self, checker_id: str, capacity: int) -> Attached:
        """A checker has said hello; it is offered what waits.

        Raises: Unavailable, at a stop.
        """
        if self._closed:
            raise Unavailable("the pipeline is stopping", hint="attach to its next run")
        checker = Attached(checker_id, max(1, capacity), self._clock.monotonic())
        self._checkers.append(checker)
        self._told = False
        if self._missed:
            self._missed = False
            self._log("info", "checker attached", action="checker_attached", checker=checker_id)
        self.refill()
        self.tell_progress()
        return checker

    def tell_progress(self) -> None:
        """Every checker is to be told how the pipeline gets on."""
        if self.progress is not None:
            for checker in self._checkers:
                checker.progress_due = True
                checker.signal.set()

    def heard(self, checker: Attached) -> None:
        """Any message renews the leases of everything the checker holds."""
        checker.heard = self._clock.monotonic()

    def detach(self, checker: Attached) -> None:
        """The checker's stream has ended, or it was silent too long."""
        if checker.gone:
            return
        checker.gone = True
        checker.signal.set()
        self._checkers.remove(checker)
        if not self._closed:
            self._missed = True
            gone = checker.checker_id
            self._log("info", "checker detached", action="checker_detached", checker=gone)
        held, checker.held = list(checker.held.values()), {}
        checker.outbox.clear()
        for waiting in held:
            waiting.holder = None
            self._offer(waiting)

    def close(self) -> None:
        """Ends every checker's stream; what waits for a verdict is offered by the next run."""
        self._closed = True
        for checker in list(self._checkers):
            self.detach(checker)

    async def replies(self, checker: Attached) -> AsyncIterator[pb.VerificationsReply]:
        """What is sent to one checker, grouped, until it is detached."""
        while not checker.gone:
            await checker.signal.wait()
            checker.signal.clear()
            for reply in self._replies(checker):
                yield reply

    def _replies(self, checker: Attached) -> Iterator[pb.VerificationsReply]:
        """Everything in the outbox, in messages of less than 1 MiB each."""
        outbox, checker.outbox = checker.outbox, []
        withdrawn, checker.withdrawn = checker.withdrawn, []
        if checker.progress_due and self.progress is not None:
            checker.progress_due = False
            yield pb.VerificationsReply(progress=self.progress())
        group: list[pb.Verification] = []
        size = 0
        for waiting in outbox:
            if checker.held.get(waiting.unit.id) is not waiting:
                continue
            length = waiting.bytes
            if group and size + length > MESSAGE_BYTES_LIMIT:
                yield pb.VerificationsReply(verifications=group)
                group, size = [], 0
            group.append(self.message(waiting))
            size += length
        if group or withdrawn:
            yield pb.VerificationsReply(verifications=group, withdrawn=withdrawn)

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._timers.after(LEASE_S / 4, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for checker in [c for c in self._checkers if c.held and self._is_silent(c)]:
            self._lose(checker)
        if any(c.held for c in self._checkers):
            self._sweep_later()

    def _is_silent(self, checker: Attached) -> bool:
        awaited = checker.held or self.progress is not None
        return checker.heard < self._clock.monotonic() - (LEASE_S if awaited else IDLE_LEASE_S)

    def _lose(self, checker: Attached) -> None:
        self._log("warning", "checker is silent", checker=checker.checker_id)
        self.detach(checker)

    def listen(
        self, checker: Attached, requests: AsyncIterator[pb.VerificationsRequest]
    ) -> asyncio.Task[None]:
        """Takes what a checker says until its stream ends; then it is detached."""
        name = f"verdicts of {checker.checker_id}"
        return self._timers.read(self._listen(checker, requests), name=name)

    async def _listen(
        self, checker: Attached, requests: AsyncIterator[pb.VerificationsRequest]
    ) -> None:
        try:
            async for request in requests:
                self.heard(checker)
                if request.verdicts:
                    self.on_verdicts(checker, request.verdicts)
                if request.HasField("stall"):
                    self.on_stall_report(checker.checker_id)
        finally:
            self.detach(checker)


def _nobody(checker_id: str) -> None:
    """Nobody looks for stalls."""


def _nobody_judges(checker: Attached, verdicts: Iterable[pb.Verdict]) -> None:
    """Nobody has asked to hear of it."""
