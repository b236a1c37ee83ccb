"""The SELECTs of the sqlite checks. Pure; every value is bound, every name quoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipo.connectors.contract import CheckError, Refused
from pipo.connectors.sqlite.rows import Value, value_of
from pipo.connectors.sqlite.statements import quoted

VARIABLES_MAX = 30_000
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """A row that should be there: one value for each column, all in one row."""

    table: str
    columns: tuple[str, ...]
    values: tuple[Value, ...]

    @property
    def shape(self) -> tuple[str, tuple[str, ...]]:
        return self.table, self.columns


def wanted(table: str, where: Mapping[str, Any]) -> Wanted:
    """What `where` asks for; values are looked for as they are written (report R06).

    Raises: CheckError.
    """
    if not where:
        raise CheckError("`where` renders to nothing", hint="name at least one column")
    return Wanted(table, tuple(where), bound(list(where.values())))


def bound(values: Sequence[Any]) -> tuple[Value, ...]:
    """Values as SQLite keeps them. Raises: CheckError."""
    try:
        return tuple(value_of(value) for value in values)
    except Refused as error:
        raise CheckError(error.message) from None


def which_exist(table: str, columns: Sequence[str], count: int) -> str:
    """One query for a whole group: the numbers, from 0, of those that are there.

    Names are qualified: a bare name in quotes that is no column would be a text.
    """
    holes = ", ".join(f"({n}{', ?' * len(columns)})" for n in range(count))
    named = ", ".join(f"v{n}" for n in range(len(columns)))
    same = " AND ".join(f"found.{quoted(name)} = wanted.v{n}" for n, name in enumerate(columns))
    return (
        f"WITH wanted(n, {named}) AS (VALUES {holes}) SELECT n FROM wanted"
        f" WHERE EXISTS (SELECT 1 FROM {quoted(table)} AS found WHERE {same})"
    )


def as_one(wish: Wanted) -> str:
    """The query of one row, as a person would ask it: for evidence."""
    same = " AND ".join(f"{quoted(name)} = ?" for name in wish.columns)
    return f"SELECT 1 FROM {quoted(wish.table)} WHERE {same}"


def as_text(wish: Wanted) -> str:
    """`people where id = '7'`, shortened."""
    pairs = " and ".join(
        f"{name} = {value!r}" for name, value in zip(wish.columns, wish.values, strict=True)
    )
    return _shortened(f"{wish.table} where {pairs}")


def counting(sql: str) -> str:
    """Counts the rows of the author's query, up to a bound limit.

    As a part of a SELECT it can only be a SELECT.
    """
    return f"SELECT count(*) FROM (SELECT 1 FROM (\n{_inner(sql)}\n) LIMIT ?)"


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
