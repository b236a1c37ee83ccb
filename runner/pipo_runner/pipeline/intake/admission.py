"""Who may come in: the lifetime, the run state and the buffer, decided in one place.

A place is reserved before an arrival is queued and given back when its commit
did not accept it, so neither `buffer.max` nor `lifetime.max_packets` is ever overshot by
concurrent senders (edge 5, 6). Pure counting; the caller holds the event loop between
asking and reserving.
"""

from __future__ import annotations

from collections import Counter

from pipo.connectors.contract import RefusedArrival


class Admission:
    """The gate in front of the journal. `pending` counts roots that are not settled.

    With a `quota` no more than so many packets are accepted in all, those `accepted` by
    earlier runs among them; `used_up` is what the one after them hears.
    """

    def __init__(
        self,
        *,
        buffer_max: int,
        pending: int,
        quota: int | None = None,
        accepted: int = 0,
        used_up: RefusedArrival | None = None,
    ) -> None:
        self._max = buffer_max
        self._taken = pending
        self._quota = quota
        self._accepted = accepted
        self._used_up = used_up or RefusedArrival("no more packets are accepted")
        self._over: RefusedArrival | None = None
        self._closed: RefusedArrival | None = RefusedArrival("pipeline is starting")
        self.refused: Counter[tuple[str, str]] = Counter()
        """Refusals by (input, reason); reasons are a fixed list."""

    def limit(self, buffer_max: int) -> None:
        """From now on so many packets may be pending; those that are there stay."""
        self._max = buffer_max

    def open(self) -> None:
        self._closed = None

    def close(self, state: str) -> None:
        """From now on every arrival hears that the pipeline is in `state`."""
        self._closed = RefusedArrival(
            f"pipeline is {state}", hint="send the packet once more when it has been started again"
        )

    def end_lifetime(self, why: RefusedArrival) -> None:
        """From now on every arrival hears why the lifetime is over, whatever else is the case."""
        self._over = why

    def reserve(self, input_name: str) -> RefusedArrival | None:
        """Takes one place, or says why there is none (edge 1, 4)."""
        reason, refusal = self._refusal()
        if refusal is not None:
            self.refused[input_name, reason] += 1
            return refusal
        self._taken += 1
        self._accepted += 1
        return None

    def _refusal(self) -> tuple[str, RefusedArrival | None]:
        if self._over is not None:
            return "lifetime", self._over
        if self._quota is not None and self._accepted >= self._quota:
            return "lifetime", self._used_up
        if self._closed is not None:
            return "not_running", self._closed
        if self._taken >= self._max:
            return "buffer_full", RefusedArrival(
                f"buffer full ({self._max} packets pending)",
                hint="wait until packets are delivered, or raise buffer.max",
            )
        return "", None

    def take_again(self, count: int) -> None:
        """Packets that had settled move again: each has a place, whatever the limit (edge 330)."""
        self._taken += count

    def give_back(self, count: int = 1) -> None:
        """Places of packets that settled."""
        self._taken -= count

    def not_accepted(self, count: int = 1) -> None:
        """Places that were reserved for what was never accepted."""
        self._taken -= count
        self._accepted -= count
