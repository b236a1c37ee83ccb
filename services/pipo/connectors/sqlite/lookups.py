"""The SELECTs of the sqlite checks. Pure; every value is bound, every name quoted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pipo.connectors.contract import CheckError, Refused
from pipo.connectors.sqlite.rows import Value, value_of
from pipo.connectors.sqlite.statements import quoted

_VARIABLES_MAX = 30_000
_SHOWN = 200
_SHOWN_WHOLE = 1_000
_NO_COLUMN = re.compile(r"no such column: found\.(.+)\Z")
_BINDINGS = re.compile(r"statement uses (\d+), and there (?:are|is) (\d+) supplied")

WantedShape = tuple[str, tuple[str, ...]]


class Wanted(NamedTuple):
    """A row that should be there: one value for each column, all in one row."""

    shape: WantedShape
    """The table, and the columns."""
    values: tuple[Value, ...]


def wanted(table: str, where: Mapping[str, Any]) -> Wanted:
    """What `where` asks for; values are looked for as they are written (report R06).

    Raises: CheckError.
    """
    if not where:
        raise CheckError("`where` renders to nothing", hint="name at least one column")
    return Wanted((table, tuple(where)), bound(where.values()))


def bound(values: Iterable[Any]) -> tuple[Value, ...]:
    """Values as SQLite keeps them. Raises: CheckError."""
    try:
        return tuple(value_of(value) for value in values)
    except Refused as error:
        raise CheckError(error.message) from None


def rows_max(shape: WantedShape) -> int:
    """How many rows one query may ask for: a power of two."""
    return 1 << max(1, _VARIABLES_MAX // len(shape[1])).bit_length() - 1


def padded(values: Sequence[Sequence[Value]]) -> Sequence[Sequence[Value]]:
    """The same, with the last one repeated up to a power of two.

    So a group of any size meets one of a few statements, which SQLite then has at hand.
    """
    size = 1 << (len(values) - 1).bit_length()
    return [*values, *[values[-1]] * (size - len(values))]


@lru_cache(maxsize=256)
def which_exist(shape: WantedShape, count: int) -> str:
    """One query for a whole group: the numbers, from 0, of those that are there.

    Names are qualified: a bare name in quotes that is no column would be a text.
    """
    table, columns = shape
    holes = ", ".join(f"({n}{', ?' * len(columns)})" for n in range(count))
    named = ", ".join(f"v{n}" for n in range(len(columns)))
    same = " AND ".join(f"found.{quoted(name)} = wanted.v{n}" for n, name in enumerate(columns))
    return (
        f"WITH wanted(n, {named}) AS (VALUES {holes}) SELECT n FROM wanted"
        f" WHERE EXISTS (SELECT 1 FROM {quoted(table)} AS found WHERE {same})"
    )


@lru_cache(maxsize=256)
def as_one(shape: WantedShape) -> str:
    """The query of one row, as a person would ask it: for evidence."""
    table, columns = shape
    same = " AND ".join(f"{quoted(name)} = ?" for name in columns)
    return f"SELECT 1 FROM {quoted(table)} WHERE {same}"


def as_text(wish: Wanted) -> str:
    """`people where id = '7'`, shortened; NULL is equal to nothing (edge 172)."""
    table, columns = wish.shape
    pairs = " and ".join(
        f"{name} = {literal(value)}" for name, value in zip(columns, wish.values, strict=True)
    )
    note = " (nothing equals NULL)" if None in wish.values else ""
    return _shortened(f"{table} where {pairs}") + note


def literal(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, str | bytes):
        value = value[: _SHOWN + 1]
    return "NULL" if value is None else _shortened(repr(value))


def shown(value: Any) -> Any:
    """A value as evidence keeps it: JSON, and not much of what is long."""
    match value:
        case str() if len(value) > _SHOWN_WHOLE:
            return f"{value[:_SHOWN]}… ({len(value)} characters)"
        case bytes():
            return f"{len(value)} bytes"
        case float() if not math.isfinite(value):
            return repr(value)
        case _:
            return value


def explained(message: str, table: str) -> str:
    """What SQLite says of a query that cannot run, in the author's words."""
    if found := _NO_COLUMN.search(message):
        return f"table {table!r} has no column {found[1]!r}"
    if found := _BINDINGS.search(message):
        return f"the query has {found[1]} `?`, and `params` holds {found[2]}"
    return message


def counting(sql: str, limit: int) -> str:
    """Counts the rows of the author's query, up to `limit`.

    As a part of a SELECT it can only be a SELECT.
    """
    return f"SELECT count(*) FROM (SELECT 1 FROM (\n{_inner(sql)}\n) LIMIT {limit:d})"


def first_row(sql: str) -> str:
    """The first row of the author's query."""
    return f"SELECT * FROM (\n{_inner(sql)}\n) LIMIT 1"


def _inner(sql: str) -> str:
    text = sql.strip().rstrip(";").rstrip()
    if not text:
        raise CheckError("the query is empty", hint="write a SELECT")
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
