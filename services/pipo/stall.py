"""The stall rules, one pure function for checker and pipeline.

A stall is: units should be moving, and for `after` none was delivered or filtered. The
clock starts at the latest of the last delivered or filtered unit, the start or the last
resume, and the last moment with nothing on its way, so that a fresh backlog after a quiet
hour does not count as one (D060, D063, D064). Escalated units do not move and do not count;
parked ones do (edge 229). A dead letter is no progress (edge 230). Nothing is looked for
while the pipeline is paused or ends, nor while nothing is on its way (edge 235), and an
episode that was told is not told again (D066).

Both sides evaluate the same rules over the same numbers, each on its own monotonic clock.
Between them travel ages, never times of a clock. Units: milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Between two looks: a quarter of `after`, within these (edge 228).
INTERVAL_MS_MIN: Final = 50.0
INTERVAL_MS_MAX: Final = 1000.0
# A timer may end a hair early, and a look that is a hair early would cost an interval.
HAIR_MS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How a pipeline gets on, as far as the rules ask.

    `clock_from_ms` is the latest of start, resume and last moment with nothing on its way;
    `last_progress_ms` is when a unit was delivered or filtered last, None for never in this
    run. `looking` is false while it is paused or ends; `told` says that this episode's stall is.
    """

    after_ms: float
    pending_moving: int
    clock_from_ms: float
    last_progress_ms: float | None = None
    looking: bool = True
    told: bool = False

    @property
    def since_ms(self) -> float:
        """Where the clock of the rules starts."""
        if self.last_progress_ms is None:
            return self.clock_from_ms
        return max(self.last_progress_ms, self.clock_from_ms)


def interval_ms(after_ms: float) -> float:
    """The least time between two looks."""
    return min(max(after_ms / 4, INTERVAL_MS_MIN), INTERVAL_MS_MAX)


def is_stalled(seen: Progress, now_ms: float) -> bool:
    """Whether it is a stall that is still to be told."""
    return _may_stall(seen) and now_ms - seen.since_ms >= seen.after_ms


def next_look_ms(seen: Progress, now_ms: float) -> float | None:
    """How long until a look can find a stall, at least one interval; None while none can be.

    Progress only moves that moment away, so an earlier look would find nothing: a pipeline
    with a long `after` needs no timer that fires every second.
    """
    if not _may_stall(seen):
        return None
    return max(seen.since_ms + seen.after_ms + HAIR_MS - now_ms, interval_ms(seen.after_ms))


def _may_stall(seen: Progress) -> bool:
    return seen.looking and not seen.told and seen.pending_moving > 0
