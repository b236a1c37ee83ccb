"""What a failed step leads to: the one place that decides a retry.

Pure: a policy, how often the step has run, what the other side asked for, and
out comes the next move. Waits are milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipo.lang.model import ErrorPolicy, Then


@dataclass(frozen=True, slots=True)
class Wait:
    """Run the step again after `ms`; `attempt` is the number of the run that failed."""

    ms: float
    attempt: int

    def over_at(self, now_ms: int) -> int:
        """The wall time of the next run; a part of a millisecond is waited for as a whole one."""
        return now_ms + math.ceil(self.ms)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The policy's `then` applies; `attempts` is how often the step ran."""

    then: Then
    attempts: int


def decide(
    policy: ErrorPolicy,
    *,
    failures: int,
    asked_ms: float | None = None,
    hopeless: bool = False,
) -> Wait | GiveUp:
    """The next move after the `failures`-th failed run.

    `asked_ms` is a pause that the receiver asked for (decision 41): the wait is
    the larger of the two, never more than `max_delay`. `hopeless` failures are
    not retried.
    """
    if hopeless or failures > policy.retry:
        return GiveUp(policy.then, failures)
    return Wait(
        min(max(backoff_ms(policy, failures), asked_ms or 0.0), policy.max_delay_ms), failures
    )


def backoff_ms(policy: ErrorPolicy, retry: int) -> float:
    """The wait before retry number `retry` (from 1): `delay`, doubled each time when exponential."""
    if policy.backoff == "fixed":
        return min(policy.delay_ms, policy.max_delay_ms)
    # Doubling stops where the cap is long passed, so that no float overflows.
    return min(policy.delay_ms * 2.0 ** min(retry - 1, 64), policy.max_delay_ms)
