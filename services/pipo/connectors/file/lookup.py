"""Finds records by their keys in a file of JSON lines.

The file is its own index: every record carries its `packet_id`. A line that is not
a whole JSON record (a torn one, somebody else's) is no record.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import msgspec

CHUNK_BYTES = 1024 * 1024
LINE_BYTES_MAX = 256 * 1024 * 1024
KEYS_KEPT_MAX = 250_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands; `length` leaves out the line break."""

    offset: int
    length: int


class _Record(msgspec.Struct):
    packet_id: str


_key_of = msgspec.json.Decoder(_Record).decode


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
    for offset, text in _lines(handle, start):
        try:
            yield _key_of(text).packet_id, Place(offset, len(text))
        except (msgspec.DecodeError, RecursionError):
            continue


def _lines(handle: int, start: int) -> Iterator[tuple[int, bytes]]:
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
