"""What one unit is in a file, in each format. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pipo.connectors.contract import Refused, Repeat, WriteUnit
from pipo.connectors.file.rows import row
from pipo.payload import BadPayload, encode

INDENT = 2


@dataclass(frozen=True, slots=True)
class Record:
    """One unit as it goes into the file.

    `text` ends with a line break. A CSV row has `cells` in its place until the file's
    columns are known.
    """

    key: str
    text: bytes
    repeat: Repeat
    cells: Mapping[str, str] | None = None


def record(unit: WriteUnit, file_format: str, mode: str) -> Record:
    """The unit in a format, as a part of a file (`append`) or all of it (`write`).

    Raises: Refused, for data that the format cannot hold.
    Source: facts §4.5.
    """
    cells = None
    match file_format:
        case "jsonl":
            made = line(unit.key, unit.data)
        case "json" if mode == "write":
            made = pretty(unit.data) + b"\n"
        case "json":
            made = pretty({"packet_id": unit.key, "data": unit.data}) + b"\n"
        case "csv":
            cells = cells_of(unit.data)
            made = row(cells) + row(cells.values()) if mode == "write" else b""
        case _:
            made = text(unit.data) + b"\n"
    return Record(unit.key, made, unit.repeat, cells)


def line(key: str, data: Any) -> bytes:
    """`{"packet_id": …, "data": …}` and a line break; half a surrogate pair stays an escape.

    Raises: Refused, for data that JSON cannot hold.
    Source: decision 46.
    """
    return b'{"packet_id":%b,"data":%b}\n' % (json_bytes(key), json_bytes(data))


def pretty(value: Any) -> bytes:
    """JSON on several lines, indented by two spaces; every digit as it is."""
    compact = json_bytes(value)
    try:
        return msgspec.json.format(compact, indent=INDENT)
    except (msgspec.DecodeError, RecursionError):
        # Half a surrogate pair, which msgspec does not format.
        return _dumped(value, indent=INDENT)


def text(data: Any) -> bytes:
    """A text as it is, everything else as JSON; without the line break that ends it."""
    return escaped(data) if isinstance(data, str) else json_bytes(data)


def cells_of(data: Any) -> Mapping[str, str]:
    """Column → cell: the fields of an object; what has no fields goes under `value`."""
    if isinstance(data, Mapping) and data:
        return {escaped(name).decode(): _cell(value) for name, value in data.items()}
    return {"value": _cell(data)}


def _cell(value: Any) -> str:
    return "" if value is None else text(value).decode()


def json_bytes(value: Any) -> bytes:
    """Compact JSON, non-ASCII as it is."""
    try:
        return encode(value)
    except BadPayload:
        return _dumped(value, indent=None)


def escaped(value: str) -> bytes:
    """UTF-8; half a surrogate pair as its escape."""
    return value.encode("utf-8", "backslashreplace")


def _dumped(value: Any, *, indent: int | None) -> bytes:
    separators = (",", ": " if indent else ":")
    try:
        made = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=separators, indent=indent
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"data is not JSON: {error}") from None
    return escaped(made)
