"""The side file `<file>.pipo-keys`: which append put which keys where.

CSV rows and lines of text carry no key, so the appends are logged beside them, one
JSON array per line (edges 181, 182):

    ["begin", key or [keys], offset, length, crc]   on disk before the append starts
    ["done", key or [keys]]                         after the append is on disk
    ["abort", key or [keys]]                        the append was cut back

`offset` is the file's size before the append. So a begin at an offset says that
whatever stood behind it is gone, with the keys logged there: a file that was
shortened or deleted and then grew again claims nothing. `crc` is the CRC-32 of the
appended bytes: after a power cut a file may be long enough and hold other bytes. A
line without it, and with bytes enough, is believed.

The last line may be torn. Its append had not started, or was already on disk.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pipo.connectors.file import lookup, plain
from pipo.connectors.file.lookup import Place
from pipo.connectors.file.records import json_bytes

SUFFIX = ".pipo-keys"
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Begin:
    """An append as it was announced."""

    keys: Sequence[str]
    place: Place
    crc: int | None

    def line(self) -> bytes:
        place = self.place
        return _line(["begin", _one_or_all(self.keys), place.offset, place.length, self.crc])


def done_line(begin: Begin) -> bytes:
    return _line(["done", _one_or_all(begin.keys)])


def abort_line(begin: Begin) -> bytes:
    return _line(["abort", _one_or_all(begin.keys)])


def whole_bytes(handle: int) -> int:
    """The size without a torn last line."""
    size = os.fstat(handle).st_size
    end = size
    while end > 0:
        begin = max(0, end - TAIL_BYTES)
        at = os.pread(handle, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def unfinished(handle: int) -> Begin | None:
    """The last append that was announced, if neither its end nor its abort is logged."""
    end = whole_bytes(handle)
    span = TAIL_BYTES
    while True:
        start = max(0, end - span)
        lines = os.pread(handle, end - start, start).split(b"\n")
        # The first piece may be half a line, unless it begins the file.
        for text in reversed(lines if start == 0 else lines[1:]):
            match _parsed(text):
                case Begin() as begin:
                    return begin
                case "done" | "abort":
                    return None
        if start == 0:
            return None
        span *= 4


def places(
    handle: int, start: int, end: int, *, within: int, keys: Collection[str] | None = None
) -> dict[str, Place] | None:
    """Where the append of each key stands, as logged in a part of the log.

    `within` is the file's size: what stood behind it is gone. With `keys`, of those
    only; without, of all, or None when there are too many to keep.
    """
    found: dict[str, Place] = {}
    pending: Begin | None = None
    highest = 0
    for offset, text in lookup.lines(handle, start):
        if offset >= end:
            break
        entry = _parsed(text)
        if isinstance(entry, Begin):
            if entry.place.offset < highest:
                highest = _forget_behind(found, entry.place.offset)
            pending = entry
        elif entry == "done" and pending is not None:
            place = Place(pending.place.offset, pending.place.length - 1)
            wanted = pending.keys if keys is None else [k for k in pending.keys if k in keys]
            found.update(dict.fromkeys(wanted, place))
            highest = max(highest, pending.place.end)
            pending = None
            if keys is None and len(found) > lookup.KEYS_KEPT_MAX:
                return None
        elif entry == "abort":
            pending = None
    if within < highest:
        _forget_behind(found, within)
    return found


def torn_from(path: str) -> int | None:
    """Where in the file at `path` an append begins that a crash cut short, or None.

    Read-only; for a check, to which such bytes are no record.
    """
    try:
        handle = os.open(path + SUFFIX, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        begin = unfinished(handle)
    finally:
        os.close(handle)
    found = plain.found_at(path)
    if begin is None or found is None or found.st_size >= begin.place.end:
        return None
    return begin.place.offset


def _forget_behind(found: dict[str, Place], size: int) -> int:
    gone = [key for key, place in found.items() if place.end >= size]
    for key in gone:
        del found[key]
    return size


def _parsed(text: bytes) -> Begin | str | None:
    """An entry: a begin, or the word that ends it; None for what is no entry of ours."""
    try:
        match msgspec.json.decode(text):
            case ["begin", keys, int(offset), int(length), *rest] if offset >= 0 and length > 0:
                names = [keys] if isinstance(keys, str) else keys
                if isinstance(names, list) and all(isinstance(name, str) for name in names):
                    crc = rest[0] if rest and isinstance(rest[0], int) else None
                    return Begin(names, Place(offset, length), crc)
            case ["done" | "abort" as word, *_]:
                return str(word)
    except (msgspec.DecodeError, RecursionError):
        pass
    return None


def _one_or_all(keys: Sequence[str]) -> Any:
    return keys[0] if len(keys) == 1 else list(keys)


def _line(entry: list[Any]) -> bytes:
    return json_bytes(entry) + b"\n"
