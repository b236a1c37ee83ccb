"""What a change answers to whoever committed it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is on disk."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing was written: the key had made this packet before."""

    packet_id: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The ack stands; `already` when it stood before and nothing was written (edge 217).

    `state` is the unit's at that moment (edge 216).
    """

    state: str
    already: bool


Outcome = Applied | Duplicate | Acknowledged
