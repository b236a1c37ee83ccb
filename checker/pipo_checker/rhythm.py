"""When to look, and when the looking ends: arithmetic over times that are passed in.

One look at once, then one about every 250 ms (or every `within`, if shorter) until
the check passes or the deadline is over; the last one is at the deadline itself. The
loop ends after the first look that finishes at the deadline or past it, so there is
always one look, however little of `within` is left (D011-D013, edge 202).

Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from math import inf

from pipo.records import record

INTERVAL_S = 0.25
# A `within` of a millisecond is no reason to look a thousand times a second.
INTERVAL_S_MIN = 0.01
# Nothing can change between the looks of these: one now, one at the deadline (decision 9).
STILL_CHECKS = frozenset({"status"})


@record
class Rhythm:
    """The looks of one verification."""

    deadline: float
    interval_s: float


def begin(check: str, now: float, *, within_left_ms: int, within_ms: int) -> Rhythm:
    """The rhythm of a verification that was taken at `now`; its first look is due at once."""
    if check in STILL_CHECKS:
        interval_s = inf
    else:
        interval_s = max(min(INTERVAL_S, within_ms / 1000), INTERVAL_S_MIN)
    return Rhythm(now + max(within_left_ms, 0) / 1000, interval_s)


def next_look(rhythm: Rhythm, finished: float, pause_s: float = 0.0) -> float | None:
    """When to look again after a look that ended at `finished`; None when it was the last.

    The destination asked for a pause of `pause_s`; the deadline does not wait for it.
    """
    if finished >= rhythm.deadline:
        return None
    return min(finished + max(rhythm.interval_s, pause_s), rhythm.deadline)
