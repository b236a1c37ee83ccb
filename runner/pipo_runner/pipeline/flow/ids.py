"""Packet ids: monotonic ULIDs.

48 bits of milliseconds and 80 of chance, in Crockford's base 32. Within one
millisecond, and while the clock stands behind the last id, the random part
counts up, so that ids of one process only rise: sorting by id is sorting by
acceptance (edge 18, R011).
"""

from __future__ import annotations

import os
from collections.abc import Callable

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Ten bits at a time: two letters each.
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_RANDOM_BITS = 80
_CHANCE_BYTES = _RANDOM_BITS // 8
_STOCK = 256
_TIME_PAIRS = 5
_TIME_CHARS = 2 * _TIME_PAIRS
_CHANCE_PAIRS = 8


class PacketIds:
    """Makes ids that only rise, also across a clock that steps back.

    `after` is the newest id that earlier runs have left: a clock that was set back while the
    pipeline was down must not make ids below it (R011). Packets that are gone may have had the
    ids that follow it, and a destination may know them: a run begins with chance of its own, in
    the next millisecond at the earliest.
    """

    def __init__(
        self, *, after: str | None = None, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._entropy = entropy
        self._chance = b""
        self._last_ms = -1
        self._head = ""
        self._last = 0
        self._first_ms = 0 if after is None else _value(after[:_TIME_CHARS]) + 1

    def next(self, now_ms: int) -> str:
        """A new 26-character id, larger than every one before it."""
        now_ms = max(now_ms, self._first_ms)
        if now_ms > self._last_ms:
            self._last_ms = now_ms
            # The top bit stays clear: a millisecond has room for 2^79 more.
            chance = int.from_bytes(self._random(), "big") >> 1
            self._last = chance
            self._head = _text(now_ms, _TIME_PAIRS)
        else:
            self._last += 1
        return self._head + _text(self._last, _CHANCE_PAIRS)

    def _random(self) -> bytes:
        """Ten bytes of chance; asked of the kernel in stocks, since each call costs a turn."""
        if not self._chance:
            self._chance = self._entropy(_CHANCE_BYTES * _STOCK)
        taken, self._chance = self._chance[:_CHANCE_BYTES], self._chance[_CHANCE_BYTES:]
        return taken


def _text(value: int, pairs: int) -> str:
    parts = []
    for _ in range(pairs):
        parts.append(_PAIRS[value & 0x3FF])
        value >>= 10
    parts.reverse()
    return "".join(parts)


def _value(text: str) -> int:
    value = 0
    for letter in text:
        value = value << 5 | _ALPHABET.index(letter)
    return value
