"""What is known of each watched file, and when a difference counts. Pure; the clock is passed in.

One rule says whether a file changed: its time or its size differs from what the snapshot
holds. A difference counts once two looks, at least `settle_s` apart, saw the same; until then
the file moves: it is being written, or was there for a moment only. That holds for a file that
is gone as well, so that one that is replaced by another is one change.

Each file is one entry of the input's durable state and moves in its packet's own transaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Literal, NamedTuple

# The pattern that the snapshot belongs to: it is there once the baseline is complete.
PATTERN = "pattern"
# The mount point that the folder was on when it held files.
MOUNT = "mount"
_UTF8, _OTHER = "f:", "b:"

Kind = Literal["create", "change", "delete"]


class Stamp(NamedTuple):
    """What tells one state of a file from the next."""

    mtime_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class Change:
    """A difference that counts; of a file that is gone `stamp` is the last known one."""

    kind: Kind
    name: str
    stamp: Stamp

    @property
    def state(self) -> dict[str, str | None]:
        """The entry of durable state that this change moves."""
        return entry(self.name, None if self.kind == "delete" else self.stamp)


class Snapshot:
    """Every file as it was last told, and those that differ and move.

    `told` holds what the journal holds.
    """

    def __init__(self, told: dict[str, Stamp], *, settle_s: float) -> None:
        self.told = told
        self._settle_s = settle_s
        self._moving: dict[str, tuple[Stamp | None, float]] = {}

    def see(self, name: str, seen: Stamp | None, *, began: float, ended: float) -> Change | None:
        """The change, if what a look from `began` to `ended` saw of a file counts as one."""
        known = self.told.get(name)
        if seen == known:
            self._moving.pop(name, None)
            return None
        before = self._moving.get(name)
        if before is None or before[0] != seen:
            self._moving[name] = (seen, ended)
            return None
        if began - before[1] < self._settle_s:
            return None
        if seen is None:
            assert known is not None, "a file that is not known and not there is no difference"
            return Change("delete", name, known)
        return Change("create" if known is None else "change", name, seen)

    def leave(self, name: str) -> None:
        """The difference is not told now; the next look finds it anew."""
        self._moving.pop(name, None)

    def tell(self, change: Change) -> None:
        """The change is on disk."""
        self._moving.pop(change.name, None)
        if change.kind == "delete":
            self.told.pop(change.name, None)
        else:
            self.told[change.name] = change.stamp

    def moving(self) -> list[str]:
        return list(self._moving)

    def due(self, now: float, limit: int) -> list[str]:
        """The first names, in order, that have been the same for long enough to count."""
        names = (name for name, (_, at) in self._moving.items() if now - at >= self._settle_s)
        return nsmallest(limit, names)

    def next_due(self) -> float | None:
        """When the next difference may count; None while nothing moves."""
        if not self._moving:
            return None
        return min(at for _, at in self._moving.values()) + self._settle_s


def entry(name: str, stamp: Stamp | None) -> dict[str, str | None]:
    """A file as an entry of durable state; None forgets it."""
    try:
        key = _UTF8 + name.encode().decode()
    except UnicodeEncodeError:
        key = _OTHER + os.fsencode(name).hex()
    return {key: None if stamp is None else f"{stamp.mtime_ns}:{stamp.size}"}


def told_by(state: Mapping[str, str]) -> dict[str, Stamp]:
    """The files that an input's durable state knows."""
    told = {}
    for key, value in state.items():
        name = name_of(key)
        if name is not None:
            told[name] = _stamp(value)
    return told


def _stamp(value: str) -> Stamp:
    mtime_ns, _, size = value.partition(":")
    try:
        return Stamp(int(mtime_ns), int(size))
    except ValueError:
        # Damaged: the file is known, and what is told of it next is a change.
        return Stamp(0, -1)


def name_of(key: str) -> str | None:
    """The file that an entry of durable state is about, if it is about one."""
    if key.startswith(_UTF8):
        return key.removeprefix(_UTF8)
    if key.startswith(_OTHER):
        return os.fsdecode(bytes.fromhex(key.removeprefix(_OTHER)))
    return None


def readable(text: str) -> str:
    """A path as text: bytes that are no UTF-8 stand as `\\xff`."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def commits(state: Mapping[str, str | None], size: int) -> list[dict[str, str | None]]:
    """Entries of durable state in parts of at most `size`; at least one part."""
    entries = list(state.items())
    return [dict(entries[at : at + size]) for at in range(0, len(entries) or 1, size)]
