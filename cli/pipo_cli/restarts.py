"""How long a service that ended waits before it is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pipo.home.settings import Restart

# Jitter lengthens a wait by at most this part of it.
JITTER_PART = 0.2
_DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class Restarts:
    """The restarts in a row so far. Each `after` answers with the wait and the next record."""

    policy: Restart
    in_a_row: int = 0

    def after(self, ran_s: float, jitter: float) -> tuple[float, Restarts]:
        """The wait once a service ended after `ran_s`; `jitter` is between 0 and 1.

        The wait doubles with each restart in a row; a run of `stable_s` ends the row.
        """
        in_a_row = 0 if ran_s >= self.policy.stable_s else self.in_a_row
        doubled = self.policy.backoff_s * 2.0 ** min(in_a_row, _DOUBLINGS_MAX)
        wait_s = min(doubled, self.policy.max_backoff_s) * (1 + JITTER_PART * jitter)
        return wait_s, Restarts(self.policy, in_a_row + 1)
