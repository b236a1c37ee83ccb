"""SQLite's errors in our words: one table, the most specific first."""

from __future__ import annotations

import re

import apsw

from pipo.connectors.contract import Refused, WriteFailed
from pipo.connectors.destination import cannot_open, cannot_write
from pipo.connectors.sqlite.rows import Row, Shape
from pipo.connectors.sqlite.statements import quoted

LOCK_WAIT_S = 5.0

# The database as a whole cannot be written: no neighbour of the unit would fare better.
WHOLE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.NotADBError,
    apsw.CorruptError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.NoMemError,
)

_NO_COLUMN = re.compile(r"has no column named (.+)\Z")
# What SQLite says of one row, and the way out; the first that is found counts.
_HINTS = (
    ("NOT NULL constraint", "give the column a value in `columns`, or a default in the table"),
    ("UNIQUE constraint", "another row has this value; with `key` set to that column it is shared"),
    ("CHECK constraint", "change the packet's data, or the table's rule, then replay"),
    ("FOREIGN KEY constraint", "write the row that it refers to first, then replay"),
    (
        "foreign key mismatch",
        "the column that is referred to needs a PRIMARY KEY or UNIQUE constraint",
    ),
    (
        "cannot store",
        "the table is STRICT: convert the value in `columns`, or change the column's type",
    ),
    (
        "datatype mismatch",
        "an INTEGER PRIMARY KEY takes whole numbers: set `key` to another column",
    ),
    ("generated column", "leave the column out: set `columns` to the others"),
    ("is a view", "set `table` to the table behind the view"),
    ("UPSERT a view", "set `table` to the table behind the view"),
    ("virtual table", "write to a plain table; a trigger on it can fill the virtual one"),
    ("too many columns", "set `columns` to what matters; a column can hold an object as JSON text"),
    ("too big", "leave the value out, or keep it in a file"),
    (
        "reserved for internal use",
        "set another `table`: names that begin with sqlite_ are SQLite's own",
    ),
)


def whole_failure(path: str, error: Exception) -> WriteFailed:
    """Why nothing could be written to the database at all."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return WriteFailed(
                f"{path} is locked: another program kept it for {LOCK_WAIT_S:.0f} s",
                hint="let that program end its transaction, or give `on_error` more retries",
            )
        case apsw.FullError():
            return WriteFailed(f"no room left to write {path}", hint="free some disk space")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return cannot_open(path) or WriteFailed(f"{path} cannot be written: {error}")
        case apsw.NotADBError():
            return WriteFailed(
                f"{path} is not a SQLite database",
                hint="set another `path`, or put back what another program overwrote",
            )
        case apsw.CorruptError():
            return WriteFailed(f"{path} is damaged: {error}", hint="restore it from a backup")
        case OSError():
            return cannot_write(path, error)
        case _:
            return WriteFailed(f"{path}: {error}")


def unit_failure(row: Row, error: Exception) -> WriteFailed | Refused:
    """Why one row was not written."""
    if isinstance(error, WriteFailed):
        return error
    if isinstance(error, UnicodeError):
        return _no_text(row)
    shape, text = row.shape, str(error)
    if "ON CONFLICT clause does not match" in text:
        return WriteFailed(
            f"the key column {shape.key!r} of table {shape.table!r} has no PRIMARY KEY or UNIQUE"
            " constraint, so a repeated write would add a row",
            hint=f"CREATE UNIQUE INDEX {quoted(f'{shape.table}_{shape.key}')}"
            f" ON {quoted(shape.table)} ({quoted(shape.key)})",
        )
    if found := _NO_COLUMN.search(text):
        return WriteFailed(
            f"table {shape.table!r} has no column {found[1]!r}",
            hint=f"ALTER TABLE {quoted(shape.table)} ADD COLUMN {quoted(found[1])}, then replay",
        )
    hint = next((hint for found, hint in _HINTS if found in text), "")
    return WriteFailed(f"table {shape.table!r}: {text}", hint=hint)


def dropped(row: Row) -> WriteFailed:
    """The row was taken without an error, and no row has its key."""
    return WriteFailed(
        f"table {row.shape.table!r} dropped the row without an error",
        hint="look for a trigger with RAISE(IGNORE), or another column's ON CONFLICT IGNORE",
    )


def no_table(path: str, shape: Shape) -> WriteFailed:
    """The table is not there, and may not be made."""
    return WriteFailed(
        f"{path} has no table {shape.table!r}", hint="set `create: true`, or create it yourself"
    )


def _no_text(row: Row) -> Refused:
    for name, value in zip(row.shape.columns, row.values, strict=True):
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            return Refused(f"the column {name!r} holds half of a surrogate pair, which is no text")
    return Refused("a column holds half of a surrogate pair, which is no text")
