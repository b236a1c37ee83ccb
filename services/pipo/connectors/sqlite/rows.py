"""A unit's data as a row: which columns, which values. Pure.

The rows of one `Shape` differ only in their values, so they share statements.
Numbers stay INTEGER or REAL, booleans become 1 and 0, null NULL, objects and lists
JSON text; an integer beyond 64 bits is kept as its digits (decision 17).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pipo.connectors.contract import Refused
from pipo.connectors.schema import SQL_NAME
from pipo.payload import BadPayload, encode

Value = str | int | float | None

DEFAULT_KEY = "packet_id"

_NAME = re.compile(SQL_NAME.replace("$", r"\Z"))
_AS_IT_IS = frozenset({str, float, type(None)})
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows have in common: the table, how it is written, and the columns in order."""

    table: str
    key: str
    upsert: bool
    create: bool
    columns: tuple[str, ...]

    @property
    def key_index(self) -> int:
        return self.columns.index(self.key)


class Row(NamedTuple):
    """One row to write; `values` stand in the order of the shape's columns."""

    shape: Shape
    values: Sequence[Value]


def row(data: Any, settings: Mapping[str, Any], key: str) -> Row:
    """The row that a unit becomes.

    Raises: Refused, with the way out, for what no table can hold.
    """
    key_column = settings.get("key", DEFAULT_KEY)
    columns = settings.get("columns")
    if columns is None:
        fields = _with_key(data, key_column, key)
    else:
        fields = columns
        _must_have_key(fields, key_column)
    shape = _shape(
        settings["table"],
        key_column,
        settings.get("mode", "insert") == "upsert",
        bool(settings.get("create", False)),
        tuple(fields),
    )
    values = [v if type(v) in _AS_IT_IS else value_of(v, name) for name, v in fields.items()]
    return Row(shape, values)


def value_of(value: Any, name: str = "") -> Value:
    """A payload value as SQLite keeps it, and as a check must look for it.

    Raises: Refused, when it cannot be text in UTF-8.
    """
    kind = type(value)
    if kind in _AS_IT_IS:
        return value  # type: ignore[no-any-return]
    if kind is int and _INTEGER_MIN <= value <= _INTEGER_MAX:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return int(value)
    try:
        return encode(value).decode()
    except (BadPayload, UnicodeError) as error:
        raise Refused(f"the column {name!r} cannot be stored: {error}") from None


def key_text(settings: Mapping[str, Any]) -> str | None:
    """The key that the author's own columns give a unit, or None when they give none."""
    columns = settings.get("columns")
    value = None if columns is None else columns.get(settings.get("key", DEFAULT_KEY))
    if value is None:
        return None
    stored = value_of(value)
    return stored if isinstance(stored, str) else encode(stored).decode()


def _with_key(data: Any, key_column: str, key: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise Refused(
            f"data is {_kind(data)}, and a row is made of an object's fields",
            hint="set `columns` to name each column and its value",
        )
    # The key column comes first, and a field of its name is overwritten.
    fields = {key_column: key, **data}
    if fields[key_column] is not key:
        fields[key_column] = key
    return fields


def _must_have_key(fields: Mapping[str, Any], key_column: str) -> None:
    if fields.get(key_column) is None:
        raise Refused(
            f"the key column {key_column!r} is null or missing, so a repeated write would add a row",
            hint=f"give it a value for every packet, such as ${{data.{key_column} ?? meta.packet_id}}",
        )


@lru_cache(maxsize=1024)
def _shape(table: str, key: str, upsert: bool, create: bool, columns: tuple[str, ...]) -> Shape:
    seen: dict[str, str] = {}
    for name in columns:
        if not _NAME.match(name):
            raise Refused(
                f"the field {_shown(name)} cannot be a column: a name is letters, digits and _",
                hint="set `columns` to give it another name",
            )
        twin = seen.setdefault(name.lower(), name)
        if twin is not name:
            raise Refused(
                f"the fields {twin!r} and {name!r} are one column: SQLite ignores case in names",
                hint="set `columns` to name them apart",
            )
    return Shape(table, key, upsert, create, columns)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else f"{name[:60]}…")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), type(value).__name__)
