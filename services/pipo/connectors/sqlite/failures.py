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
            return WriteFailed(f"{path} is not a SQLite database", hint="set another `path`")
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
    return WriteFailed(f"table {shape.table!r}: {text}")


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
