"""What the output must know of a table: whether it is there, how its rows are numbered, its key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

from pipo.connectors.sqlite.rows import Shape
from pipo.connectors.sqlite.statements import quoted

_ROWID_NAMES = ("rowid", "_rowid_", "oid")

Query = Callable[..., list[Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it was found.

    `rowid` is a name that still means the row's number, or None where rows have none.
    `numbering` holds the (lower-case) columns that set the number themselves. `conflict`
    is what ON CONFLICT names: the key as the column itself compares it. An index that
    compares in another way (NOCASE over a plain column) would drop rows of other keys.
    """

    rowid: str | None
    conflict: str
    numbering: frozenset[str]
    has_triggers: bool

    def numbers_in_order(self, shape: Shape) -> bool:
        """Whether rows of this shape, inserted by one statement, get consecutive numbers."""
        return (
            self.rowid is not None
            and not self.has_triggers
            and self.numbering.isdisjoint(map(str.lower, shape.columns))
        )


def look_up(connection: apsw.Connection, query: Query, name: str, key: str) -> Table | None:
    """The table of that name, or None; names ignore case, as in SQL."""
    found = query(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE",
        (name,),
    )
    if not found:
        return None
    columns = query(f"PRAGMA main.table_xinfo({quoted(name)})")
    names = {column[1].lower() for column in columns}
    keys = [column for column in columns if column[5]]
    is_number = len(keys) == 1 and keys[0][2].upper() == "INTEGER"
    number = keys[0][1].lower() if is_number else None
    free = [alias for alias in _ROWID_NAMES if alias not in names]
    triggers = query(
        "SELECT 1 FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE"
        " LIMIT 1",
        (name,),
    )
    return Table(
        rowid=free[0] if free and not found[0][1] else None,
        conflict=quoted(key) + ("" if key.lower() == number else _collation(connection, name, key)),
        numbering=frozenset([*free, *([number] if number else [])]),
        has_triggers=bool(triggers),
    )


def _collation(connection: apsw.Connection, name: str, key: str) -> str:
    try:
        collation = connection.column_metadata("main", name, key)[1]
    except apsw.SQLError:
        # No such column, or a view: the INSERT says so.
        return ""
    return f" COLLATE {quoted(collation)}"
