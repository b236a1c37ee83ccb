"""How long a pipeline lives: the limits of its `lifetime`, and a ttl that its start was given.

Idea. A limit is looked at when it could have been reached, and at no other time:

    ttl          by a timer for what is left of it
    max_packets  when a packet has been accepted; admission keeps the count exact (edge 5)
    until        at the start, after each commit that accepted or settled packets, and once a second

The first limit that is reached ends the lifetime, once per run. Intake is refused from that very
moment, with the limit's name (edge 4). What follows, a drain or a stop, is the process's affair
(`ends`); so are all other ends, and where one of those came first nothing is looked at any more.

What survives a restart stands in the journal: the counts, the anchor of the ttl (the first start
since the last clean end), and that a limit was reached. A run that was killed or suspended on
its way out goes on ending, also where `until` holds no longer, such as one that asks for
`stats.uptime`; unless the file says otherwise since. A clean end forgets all of it but the
counts: so a start at `max_packets` accepts nothing and completes again (decision 6).

The clock. A ttl is waited for on the monotonic clock, so a jump of the wall clock moves no end
that is near or far. Only a restart has nothing but the wall clock to go by: it takes the time
since the anchor off, and never waits for more than a whole ttl, however far back the clock
was set. A machine that sleeps makes a run no shorter: the sleep does not count.

Packets of one commit are counted together: an `until` never sees a number between. Ask for
`>=`, not for `==`. One that cannot be told is no reason to end: each new error is told once.

Source: lifetime (L003-L023), decisions 6, 24, 36, edge 1-5, 313-325.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipo import durations
from pipo.clock import Clock
from pipo.connectors.contract import RefusedArrival
from pipo.errors import BadRequest, PipoError
from pipo.journal.changes import LifetimeError
from pipo.lang import model as language
from pipo.lang.expressions import Expression, LanguageError, compile_expression
from pipo_runner.pipeline.flow.ledger import Ledger
from pipo_runner.pipeline.flow.timers import Timers

LOOK_EVERY_S: Final = 1.0
# No timer is set for longer: it is set anew for what is left then.
TIMER_S_MAX: Final = 86_400.0
# Different errors of one `until` that a run tells of.
ERRORS_TOLD_MAX: Final = 16

Reason = Literal["ttl", "max_packets", "until"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and its value, as the file writes it or the start was given it."""

    reason: Reason
    value: str

    def __str__(self) -> str:
        return f"{self.reason} {self.value}"

    def refusal(self, pipeline: str) -> RefusedArrival:
        """What a packet hears that comes too late (edge 4, 84)."""
        name = f"lifetime.{self.reason} ({self.value})"
        if self.reason == "ttl":
            return RefusedArrival(
                f"pipeline is draining: {name} is over",
                f"once it has ended, a start begins a new lifetime: pipo start {pipeline}",
            )
        more = "raise" if self.reason == "max_packets" else "change"
        return RefusedArrival(
            f"{name} is reached",
            f"a start takes packets again once you {more} lifetime.{self.reason} in its file",
        )


@dataclass(frozen=True, slots=True)
class Terms:
    """The lifetime that a run has: its file's, with the ttl of its start in place of the file's."""

    ttl_ms: float | None = None
    ttl: str = ""
    max_packets: int | None = None
    until: Expression | None = None
    drains: bool = True

    @property
    def limits(self) -> list[Limit]:
        """Those that there are, in the order in which they are looked at."""
        found: list[Limit] = []
        if self.ttl_ms is not None:
            found.append(Limit("ttl", self.ttl))
        if self.max_packets is not None:
            found.append(Limit("max_packets", str(self.max_packets)))
        if self.until is not None:
            found.append(Limit("until", self.until.text.strip()))
        return found


NO_LIMITS: Final = Terms()


def terms_of(lifetime: language.Lifetime | None, ttl: str | None) -> Terms:
    """The terms of a run; `ttl` is the override of its start (edge 321, 325).

    Raises: BadRequest, for an override that is no duration, or none at all (edge 322).
    """
    stated = lifetime or language.Lifetime()
    ttl_ms, text = stated.ttl_ms, stated.ttl or ""
    if ttl is not None:
        ttl_ms, text = _override(ttl), ttl
    return Terms(
        ttl_ms=ttl_ms,
        ttl=text,
        max_packets=stated.max_packets,
        until=None if stated.until is None else compile_expression(stated.until),
        drains=stated.on_end == "drain",
    )


def _override(ttl: str) -> float:
    try:
        ttl_ms = durations.parse(ttl)
    except ValueError as error:
        raise BadRequest(f"ttl: {error}", hint="give a duration such as 30m") from None
    if ttl_ms <= 0 or durations.is_too_long(ttl):
        raise BadRequest(f"ttl is {ttl}", hint=f"more than 0, at most {durations.LONGEST}")
    return ttl_ms


def left_ms(ttl_ms: float, *, anchor_ms: int, now_ms: int) -> float:
    """What is left of a ttl that counts from the anchor; 0 or less when it is over."""
    return min(anchor_ms + ttl_ms - now_ms, ttl_ms)


class Lifetime:
    """The lifetime of one run. `on_over` hears of the limit that ended it, at once."""

    def __init__(
        self,
        terms: Terms,
        *,
        accepted: Callable[[], int],
        scope: Callable[[], Mapping[str, Any]],
        journal: Ledger,
        timers: Timers,
        clock: Clock,
        redact: Callable[[str], str],
        log: Callable[..., None],
    ) -> None:
        """`accepted` counts the packets of the journal; `scope` is what `until` sees."""
        self.terms = terms
        self._accepted = accepted
        self._scope = scope
        self._journal = journal
        self._timers = timers
        self._clock = clock
        self._redact = redact
        self._log = log
        self._limits = {limit.reason: limit for limit in terms.limits}
        self._looking = self._due = False
        self._ends: float | None = None
        self._told: set[str] = set()
        self._reached: Limit | None = None
        self.on_over: Callable[[Limit], None] = _nobody

    @property
    def reached(self) -> Limit | None:
        """The limit that ended it; None while it lasts."""
        return self._reached

    @property
    def left_ms(self) -> int | None:
        """What is left of the ttl; None without one."""
        if self._ends is None:
            return None
        return max(0, round((self._ends - self._clock.monotonic()) * 1000.0))

    # ── its beginning and its end ────────────────────────────────────────────

    def begin(self, *, anchor_ms: int, reached: str | None) -> None:
        """Looks from now on. `reached` is the limit that an earlier run was ending for."""
        self._looking = True
        ttl_ms = self.terms.ttl_ms
        if ttl_ms is not None:
            now = self._clock.now_ms()
            ttl_left_ms = left_ms(ttl_ms, anchor_ms=anchor_ms, now_ms=now)
            self._ends = self._clock.monotonic() + ttl_left_ms / 1000.0
        for limit in self._limits.values():
            if str(limit) == reached or self._is_reached(limit.reason):
                self._end(limit)
                return
        self._wait_for_ttl()
        if self.terms.until is not None:
            self._timers.after(LOOK_EVERY_S, self._each_second)

    def end(self) -> None:
        """The run ends: nothing is looked at any more. Safe twice."""
        self._looking = False

    # ── looking ──────────────────────────────────────────────────────────────

    def moved(self) -> None:
        """Packets were accepted or have settled, and that is on disk."""
        if not self._looking:
            return
        if self.terms.max_packets is not None and self._is_reached("max_packets"):
            self._end(self._limits["max_packets"])
        elif self.terms.until is not None and not self._due:
            # What landed with them is counted already: one look sees it all.
            self._due = True
            self._timers.soon(self._look_once)

    def _look_once(self) -> None:
        self._due = False
        if self._looking and self._is_reached("until"):
            self._end(self._limits["until"])

    def _each_second(self) -> None:
        self._look_once()
        if self._looking:
            self._timers.after(LOOK_EVERY_S, self._each_second)

    def _wait_for_ttl(self) -> None:
        if self._ends is not None:
            left_s = max(0.0, self._ends - self._clock.monotonic())
            self._timers.after(min(left_s, TIMER_S_MAX), self._ttl_due)

    def _ttl_due(self) -> None:
        """A timer may fire a moment early, and a long ttl has several."""
        if not self._looking:
            return
        if self._is_reached("ttl"):
            self._end(self._limits["ttl"])
        else:
            self._wait_for_ttl()

    def _is_reached(self, reason: Reason) -> bool:
        match reason:
            case "ttl":
                return self._ends is not None and self._clock.monotonic() >= self._ends
            case "max_packets":
                most = self.terms.max_packets
                return most is not None and self._accepted() >= most
            case "until":
                return self.terms.until is not None and self._holds(self.terms.until)

    def _holds(self, until: Expression) -> bool:
        try:
            return until.holds(self._scope())
        except LanguageError as error:
            self._tell(until, self._redact(error.message))
            return False

    def _tell(self, until: Expression, error: str) -> None:
        """Once for each error (edge 315)."""
        if error in self._told or len(self._told) == ERRORS_TOLD_MAX:
            return
        text = until.text.strip()
        try:
            self._journal.submit(LifetimeError(text, error, self._clock.now_ms()), done=_raised)
        except PipoError:
            # Too much waits for the journal: told when it happens again.
            return
        self._told.add(error)
        self._log(
            "warning",
            "lifetime.until cannot be told, and is ignored",
            action=LifetimeError.event,
            until=text,
            error=error,
        )

    def _end(self, limit: Limit) -> None:
        self._looking = False
        self._reached = limit
        self.on_over(limit)


def _nobody(limit: Limit) -> None:
    """Nobody has asked to hear of it."""


def _raised(error: BaseException | None) -> None:
    if error is not None:
        # The journal hands it to the process, which starts anew.
        raise error
