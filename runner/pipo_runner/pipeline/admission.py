"""Who may come in: the run state and the buffer, decided in one place.

A place is reserved before an arrival is queued and given back when its commit
did not accept it, so `buffer.max` is never overshot by concurrent senders
(edge 6). Pure counting; the caller holds the event loop between asking and
reserving.
"""

from __future__ import annotations

from collections import Counter

from pipo.connectors.contract import RefusedArrival


class Admission:
    """The gate in front of the journal. `pending` counts roots that are not settled."""

    def __init__(self, *, buffer_max: int, pending: int) -> None:
        self._max = buffer_max
        self._taken = pending
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
            f"pipeline is {state}", hint="start it again, then send the packet once more"
        )

    def reserve(self, input_name: str) -> RefusedArrival | None:
        """Takes one place, or says why there is none (edge 1, 4)."""
        if self._closed is not None:
            self.refused[input_name, "not_running"] += 1
            return self._closed
        if self._taken >= self._max:
            self.refused[input_name, "buffer_full"] += 1
            return RefusedArrival(
                f"buffer full ({self._max} packets pending)",
                hint="wait until packets are delivered, or raise buffer.max",
            )
        self._taken += 1
        return None

    def take_again(self, count: int) -> None:
        """Packets that had settled move again: each has a place, whatever the limit (edge 330)."""
        self._taken += count

    def give_back(self, count: int = 1) -> None:
        """Places whose packets settled, or were never accepted."""
        self._taken -= count
