"""The SQL that the output writes with, one text per shape and number of rows.

The texts are kept, so the driver finds its prepared statement by the same object.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pipo.connectors.sqlite.rows import Shape

ROWS_MAX = 256
ROWS_STEP = 64
_VARIABLES_MAX = 30_000
_TEXT_MAX = 16_000  # a longer text would not be kept by the driver


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def cuts(shape: Shape, count: int) -> Iterator[int]:
    """Numbers of rows, one per INSERT, that make up `count`.

    Few different numbers, so that their prepared statements are worth keeping: any up
    to a step, then whole steps.
    """
    width = len(shape.columns)
    most = max(1, min(ROWS_MAX, _VARIABLES_MAX // width, _TEXT_MAX // (2 * width + 2)))
    while count:
        taken = min(count, most)
        if taken > ROWS_STEP:
            taken -= taken % ROWS_STEP
        yield taken
        count -= taken


@lru_cache(maxsize=1024)
def insert(shape: Shape, conflict: str, row_count: int) -> str:
    """Writes rows; one whose key is there already changes nothing, or its other columns.

    `conflict` is what ON CONFLICT names (`Table.conflict`).
    """
    columns = ", ".join(map(quoted, shape.columns))
    holes = f"({','.join('?' * len(shape.columns))})"
    others = [quoted(name) for name in shape.columns if name != shape.key]
    if shape.upsert and others:
        action = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)
    else:
        action = "NOTHING"
    return (
        f"INSERT INTO {quoted(shape.table)} ({columns}) VALUES {','.join([holes] * row_count)}"
        f" ON CONFLICT ({conflict}) DO {action}"
    )


@lru_cache(maxsize=1024)
def rowids(shape: Shape, rowid: str, row_count: int) -> str:
    """One JSON list: the rowid of each key, in order, or null where there is no row.

    `rowid` is any expression: a table whose rows have no number is asked for a constant.
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
