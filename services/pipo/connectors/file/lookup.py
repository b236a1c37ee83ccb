"""Which keys to look for, and where their records stand in a file of JSON lines.

The file is its own index: every record carries its `packet_id`. A line that is not
a whole JSON record (a torn one, somebody else's) is no record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pipo.connectors.file.records import Record

CHUNK_BYTES = 1024 * 1024
LINE_BYTES_MAX = 256 * 1024 * 1024
KEYS_KEPT_MAX = 250_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands; `length` leaves out the line break."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


class _Keyed(msgspec.Struct):
    packet_id: str


_decode_keyed = msgspec.json.Decoder(_Keyed).decode
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
_NONE = object()


def sought(records: Sequence[Record]) -> tuple[set[str], set[str]]:
    """The keys to look for anywhere, and those to look for only where the journal is not sure."""
    return (
        {record.key for record in records if record.repeat == "repeated"},
        {record.key for record in records if record.repeat == "recovered"},
    )


def fresh(records: Sequence[Record], found: Collection[str]) -> dict[str, Record]:
    """What is to be written: one record for each key that was not found (edge 158)."""
    made: dict[str, Record] = {}
    for record in records:
        if record.key not in found:
            made.setdefault(record.key, record)
    return made


def result(
    path: str, key: str, found: dict[str, Place], made: Mapping[str, Place]
) -> Mapping[str, Any]:
    """A record's result; a second record of one key in a group was not written either."""
    done = "skipped" if key in found else "written"
    place = found.get(key) or made[key]
    found[key] = place
    return {"path": path, done: True, "offset": place.offset, "length": place.length}


def key_of(text: bytes) -> str | None:
    """The key in a whole JSON record, or None."""
    try:
        return _decode_keyed(text).packet_id
    except (msgspec.DecodeError, RecursionError):
        value = _with_half_pairs(text)
        key = value.get("packet_id") if isinstance(value, dict) else None
        return key if isinstance(key, str) else None


def is_json(text: bytes) -> bool:
    try:
        _decode_any(text)
    except (msgspec.DecodeError, RecursionError):
        return _with_half_pairs(text) is not _NONE
    return True


def _with_half_pairs(text: bytes) -> Any:
    """The value of JSON that msgspec refuses for half a surrogate pair in it, or _NONE."""
    if b"\\ud" not in text.lower():
        return _NONE
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NONE


def find(handle: int, keys: Collection[str], start: int, end: int) -> dict[str, Place]:
    """The places of those of the keys whose records begin in a part of a file."""
    found: dict[str, Place] = {}
    if start < end:
        for key, place in records(handle, start):
            if place.offset >= end:
                break
            if key in keys:
                found[key] = place
    return found


def index(handle: int) -> dict[str, Place] | None:
    """Every key of a file, or None when there are too many to keep."""
    found: dict[str, Place] = {}
    for key, place in records(handle, 0):
        found[key] = place
        if len(found) > KEYS_KEPT_MAX:
            return None
    return found


def records(handle: int, start: int) -> Iterator[tuple[str, Place]]:
    """Key and place of every whole record from `start` on, which should begin a line."""
    for offset, text in lines(handle, start):
        key = key_of(text)
        if key is not None:
            yield key, Place(offset, len(text))


def lines(handle: int, start: int) -> Iterator[tuple[int, bytes]]:
    """Offset and text of each line, in bounded memory: a longer line is passed over."""
    held: list[bytes] = []
    held_bytes = 0
    offset = position = start
    while chunk := os.pread(handle, CHUNK_BYTES, position):
        position += len(chunk)
        *whole, rest = chunk.split(b"\n")
        for text in whole:
            length = held_bytes + len(text)
            if length <= LINE_BYTES_MAX:
                yield offset, b"".join([*held, text]) if held else text
            offset += length + 1
            held, held_bytes = [], 0
        held_bytes += len(rest)
        held = [*held, rest] if held_bytes <= LINE_BYTES_MAX else []
    if 0 < held_bytes <= LINE_BYTES_MAX:
        yield offset, b"".join(held)
