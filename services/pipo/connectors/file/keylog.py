"""The side file `<file>.pipo-keys`: which append put which keys where.

CSV rows and lines of text carry no key, so the appends are logged beside them, one
JSON array per line (edges 181, 182):

    ["begin", key, offset, length, crc]                on disk before the append starts
    ["begin", [keys], offset, length, crc, [lengths]]  the same for a group
    ["done", key or [keys]]                            after the append is on disk
    ["abort", key or [keys]]                           the append was cut back

`offset` is the file's size before the append. So a begin at an offset says that
whatever stood behind it is gone, with the keys logged there: a file that was
shortened or deleted and then grew again claims nothing. `crc` is the CRC-32 of the
appended bytes: after a power cut a file may be long enough and hold other bytes. A
line without it, and with bytes enough, is believed. `lengths` are those of a group's
records, line breaks included; a header may stand before the first.

The last line may be torn. Its append had not started, or was already on disk.
"""

from __future__ import annotations

import os
import zlib
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
    """An append as it was announced; `lengths` is empty where only the whole is known."""

    keys: Sequence[str]
    place: Place
    crc: int | None
    lengths: Sequence[int] = ()

    def line(self) -> bytes:
        entry = ["begin", _one_or_all(self.keys), self.place.offset, self.place.length, self.crc]
        return _line(entry + ([list(self.lengths)] if len(self.keys) > 1 else []))

    def places(self) -> dict[str, Place]:
        """Where the record of each key stands, without its line break."""
        if len(self.lengths) != len(self.keys):
            place = Place(self.place.offset, self.place.length - 1)
            return dict.fromkeys(self.keys, place)
        offset = self.place.end - sum(self.lengths)
        made = {}
        for key, length in zip(self.keys, self.lengths, strict=True):
            made[key] = Place(offset, length - 1)
            offset += length
        return made


@dataclass(frozen=True, slots=True)
class Last:
    """The append that was announced last, and the word that says how it stands."""

    begin: Begin
    word: str

    @property
    def is_open(self) -> bool:
        return self.word == "begin"


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


def last(handle: int) -> Last | None:
    """What the log tells of the latest append, read from its end."""
    end = whole_bytes(handle)
    span = TAIL_BYTES
    while True:
        start = max(0, end - span)
        lines = os.pread(handle, end - start, start).split(b"\n")
        word = "begin"
        # The first piece may be half a line, unless it begins the file.
        for text in reversed(lines if start == 0 else lines[1:]):
            match _parsed(text):
                case Begin() as begin:
                    return Last(begin, word)
                case str() as found if word == "begin":
                    word = found
        if start == 0:
            return None
        span *= 4


def torn_at(append: Last, file: int) -> int | None:
    """Where those bytes of the latest append begin that are no whole record, or None.

    Of an append that was on disk once, the records before the cut are whole. Somebody
    may have edited the file since: what does not look like the front of a record is not ours.
    """
    begin, size = append.begin, os.fstat(file).st_size
    if append.word == "abort" or not begin.place.offset < size < begin.place.end:
        return None
    if append.is_open:
        return begin.place.offset
    places = list(begin.places().values())
    start = next(place.offset for place in places if place.end >= size)
    if start == places[0].offset:
        start = begin.place.offset
    before = os.pread(file, 1, start - 1) if start else b"\n"
    remains = os.pread(file, size - start, start)
    if not remains or b"\n" not in (before, remains[:1]):
        return None
    is_line = remains.endswith(b"\n") and remains.count(b'"') % 2 == 0
    return None if is_line or _lacks_only_its_end(begin, file, size) else start


def crc_of(file: int, place: Place) -> int:
    """The CRC-32 of a part of a file."""
    made = 0
    for chunk in plain.chunks(file, place.offset, place.end):
        made = zlib.crc32(chunk, made)
    return made


def _lacks_only_its_end(begin: Begin, file: int, size: int) -> bool:
    if size != begin.place.end - 1:
        return False
    made = crc_of(file, Place(begin.place.offset, begin.place.length - 1))
    return zlib.crc32(b"\n", made) == begin.crc


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
            made = pending.places()
            found.update(made if keys is None else {k: made[k] for k in made if k in keys})
            highest = max(highest, pending.place.end)
            pending = None
            if keys is None and len(found) > lookup.KEYS_KEPT_MAX:
                return None
        elif entry == "abort":
            pending = None
    if within < highest:
        _forget_behind(found, within)
    return found


def torn_from(path: str, file: int) -> int | None:
    """As `torn_at`, for the file at `path` and its open handle. Read-only, for a check."""
    try:
        handle = os.open(path + SUFFIX, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        append = last(handle)
    finally:
        os.close(handle)
    return None if append is None else torn_at(append, file)


def _forget_behind(found: dict[str, Place], size: int) -> int:
    gone = [key for key, place in found.items() if place.end > size]
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
                    return Begin(names, Place(offset, length), *_details(rest))
            case ["done" | "abort" as word, *_]:
                return str(word)
    except (msgspec.DecodeError, RecursionError):
        pass
    return None


def _details(rest: Sequence[Any]) -> tuple[int | None, Sequence[int]]:
    """What a begin tells beyond its place, if anything: the CRC-32 and the lengths."""
    crc, lengths = [*rest, None, None][:2]
    is_sound = isinstance(lengths, list) and all(type(n) is int and n > 0 for n in lengths)
    return crc if type(crc) is int else None, lengths if is_sound else ()


def _one_or_all(keys: Sequence[str]) -> Any:
    return keys[0] if len(keys) == 1 else list(keys)


def _line(entry: list[Any]) -> bytes:
    return json_bytes(entry) + b"\n"
