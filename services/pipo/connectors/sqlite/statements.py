"""The SQL that the output writes with, one text per shape and number of rows.

The texts are kept, so the driver finds its prepared statement by the same object.
"""

from __future__ import annotations

from functools import lru_cache

from pipo.connectors.sqlite.rows import Shape

ROWS_PER_STATEMENT = 64
_VARIABLES_MAX = 30_000


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def rows_per_statement(shape: Shape) -> int:
    """How many rows one INSERT of this shape may hold."""
    return max(1, min(ROWS_PER_STATEMENT, _VARIABLES_MAX // len(shape.columns)))


@lru_cache(maxsize=1024)
def insert(shape: Shape, row_count: int) -> str:
    """Writes rows; one whose key is there already changes nothing, or its other columns."""
    columns = ", ".join(map(quoted, shape.columns))
    holes = f"({', '.join('?' * len(shape.columns))})"
    others = [quoted(name) for name in shape.columns if name != shape.key]
    if shape.upsert and others:
        action = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)
    else:
        action = "NOTHING"
    return (
        f"INSERT INTO {quoted(shape.table)} ({columns}) VALUES {', '.join([holes] * row_count)}"
        f" ON CONFLICT ({quoted(shape.key)}) DO {action}"
    )


@lru_cache(maxsize=1024)
def rowids(shape: Shape, rowid: str, row_count: int) -> str:
    """One JSON list: the rowid of each key, in order, or null where there is no row.

    A list in one row costs one step; a row for each key would cost one step each.
    """
    holes = ", ".join(f"({n}, ?)" for n in range(row_count))
    one = f"SELECT {rowid} FROM {quoted(shape.table)} WHERE {quoted(shape.key)} = wanted.column2"
    return (
        f"SELECT json_group_array(({one} LIMIT 1) ORDER BY wanted.column1)"
        f" FROM (VALUES {holes}) AS wanted"
    )


def create(shape: Shape) -> str:
    """Makes the table of a shape: untyped columns, the key as primary key."""
    columns = ", ".join(
        quoted(name) + (" PRIMARY KEY" if name == shape.key else "") for name in shape.columns
    )
    return f"CREATE TABLE IF NOT EXISTS {quoted(shape.table)} ({columns})"
