"""One open database: groups of rows in, one result for each out.

Two ways to write the same thing:

    at once     every run of rows with one shape is one INSERT. A lone run needs no
                BEGIN: one statement is its own transaction. The driver lets go of the
                interpreter lock once per statement and has to win it back each time,
                so a group of 64 rows costs one such turn instead of two hundred.
    one by one  a transaction with a savepoint per row, so that a bad row fails alone.
                Taken when `at once` failed, before a table is known, and for tables
                whose rows are not numbered in order (triggers, keys of their own).

`at once` leaves nothing behind when it fails. It learns which rows were new from
their numbers: one INSERT numbers its rows consecutively, the last one is known.

All methods run on the database's own thread. The file is compared with the one
that is open before each use: a replaced database is noticed and opened anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, groupby
from typing import Any

import apsw

from pipo.clock import Clock
from pipo.connectors.contract import Refused, WriteFailed
from pipo.connectors.destination import make_folder
from pipo.connectors.sqlite import statements
from pipo.connectors.sqlite.failures import (
    LOCK_WAIT_S,
    WHOLE,
    dropped,
    no_table,
    unit_failure,
    whole_failure,
)
from pipo.connectors.sqlite.patience import Patience
from pipo.connectors.sqlite.rows import Row, Shape
from pipo.connectors.sqlite.standing import Standing, standing
from pipo.connectors.sqlite.tables import Table, look_up

Result = Mapping[str, Any] | WriteFailed | Refused

_STATEMENTS_KEPT = 256
_JOURNAL_BYTES_KEPT = 1024 * 1024
_OPEN_ATTEMPTS = 3


class Database:
    """A database by its path; it is opened when it is first used."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._patience = Patience(clock)
        self._standing: Standing | None = None
        self._open: apsw.Connection | None = None
        self._tables: dict[tuple[str, str], Table] = {}
        self._has_new_triggers = False

    def write(self, rows: Sequence[Row], *, atomic: bool) -> list[Result]:
        """Per row, in order, `{rowid, changes}` or why it was not written.

        Durable: what has a result survives a power cut.
        Raises: WriteFailed, when nothing was written; with `atomic`, whenever a row fails.
        """
        if self._has_new_triggers:
            self._tables.clear()
            self._has_new_triggers = False
        self._patience.begin(LOCK_WAIT_S)
        try:
            self._connect()
            if all(self._is_easy(row.shape) for row in rows):
                with suppress(_NotAtOnce):
                    return self._at_once(rows)
            return self._one_by_one(rows, atomic=atomic)
        except (apsw.Error, OSError) as error:
            self._disconnect()
            raise whole_failure(self._path, error) from error

    def recover(self) -> None:
        """Rolls back what a crash left half written; a database that is not there is left so.

        Raises: WriteFailed.
        """
        if standing(self._path) is None:
            return
        self._patience.begin(LOCK_WAIT_S)
        try:
            self._connect()
            self._query("PRAGMA schema_version")
        except (apsw.Error, OSError) as error:
            self._disconnect()
            raise whole_failure(self._path, error) from error

    def close(self) -> None:
        """Closes the database; its rollback journal goes with it, if the file is still ours."""
        self._patience.begin(LOCK_WAIT_S)
        with suppress(apsw.Error, OSError):
            if self._open is not None and self._is_current():
                self._drop_journal()
        self._disconnect()

    # ── opening ──────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        if self._open is not None and self._is_current():
            return
        for _ in range(_OPEN_ATTEMPTS):
            self._disconnect()
            make_folder(self._path)
            before = standing(self._path)
            self._open = apsw.Connection(
                self._path,
                flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
                statementcachesize=_STATEMENTS_KEPT,
            )
            self._standing = standing(self._path)
            if before is None or (self._standing is not None and self._standing.follows(before)):
                break
        self._settle_modes()

    def _is_current(self) -> bool:
        """Whether the path still means the file that is open, and nobody cut it short."""
        now, before = standing(self._path), self._standing
        if now is None or before is None or not now.follows(before):
            return False
        self._standing = now
        return True

    def _settle_modes(self) -> None:
        """A database of ours keeps the rollback journal; an existing one keeps its mode.

        PERSIST is the rollback journal whose end of a transaction is synced too: with
        DELETE a power cut can bring a deleted journal back, and undo a commit. What a table
        refers to must be there: SQLite itself leaves that to each connection.
        """
        self._connection.setbusyhandler(self._patience)
        self._query("PRAGMA synchronous = FULL")
        self._query("PRAGMA foreign_keys = ON")
        if self._query("PRAGMA journal_mode") == [("delete",)]:
            self._query("PRAGMA journal_mode = PERSIST")
            self._query(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES_KEPT}")

    def _drop_journal(self) -> None:
        if self._query("PRAGMA journal_mode") == [("persist",)]:
            self._query("PRAGMA journal_mode = DELETE")

    def _disconnect(self) -> None:
        self._tables.clear()
        connection, self._open = self._open, None
        if connection is not None:
            connection.close(True)

    @property
    def _connection(self) -> apsw.Connection:
        assert self._open is not None, "a database is used before it is open"
        return self._open

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Every row of one statement; it always runs to its end."""
        return list(self._connection.execute(sql, values))

    # ── at once ──────────────────────────────────────────────────────────────

    def _is_easy(self, shape: Shape) -> bool:
        table = self._tables.get((shape.table, shape.key))
        return table is not None and table.numbers_in_order(shape)

    def _at_once(self, rows: Sequence[Row]) -> list[Result]:
        """Raises: _NotAtOnce, when a row is bad; nothing is written then."""
        runs = list(_runs(rows))
        try:
            if len(runs) == 1:
                return self._insert_run(runs[0])
            with self._transaction():
                return [result for run in runs for result in self._insert_run(run)]
        except WHOLE:
            raise
        except (apsw.Error, UnicodeError) as error:
            self._tables.clear()
            raise _NotAtOnce from error

    def _insert_run(self, run: Sequence[Row]) -> list[Result]:
        shape = run[0].shape
        values = list(chain.from_iterable(row.values for row in run))
        before = self._connection.total_changes()
        conflict = self._table(shape).conflict
        self._query(statements.insert(shape, conflict, len(run)), values)
        changes = self._connection.changes()
        last = self._connection.last_insert_rowid()
        untouched = self._connection.total_changes() - before == changes
        if changes == len(run) and not shape.upsert and untouched:
            return [{"rowid": last - changes + 1 + n, "changes": 1} for n in range(changes)]
        rowids = self._rowids(run)
        if not untouched:
            self._has_new_triggers = True
        elif None in rowids:
            # A row that is not there: one by one tells whether the table dropped it.
            raise _NotAtOnce
        if changes == len(run):
            return [{"rowid": rowid, "changes": 1} for rowid in rowids]
        return _new_or_not(rowids, range(last - changes + 1, last + 1))

    def _rowids(self, run: Sequence[Row]) -> list[int | None]:
        """The number of each row, None where there is no row; 1 where rows have no numbers."""
        shape = run[0].shape
        keys = [row.values[shape.key_index] for row in run]
        sql = statements.rowids(shape, self._table(shape).rowid or "1", len(run))
        found: list[int | None] = json.loads(self._query(sql, keys)[0][0])
        return found

    def _table(self, shape: Shape) -> Table:
        return self._tables[shape.table, shape.key]

    # ── one by one ───────────────────────────────────────────────────────────

    def _one_by_one(self, rows: Sequence[Row], *, atomic: bool) -> list[Result]:
        failed: dict[int, WriteFailed | Refused] = {}
        while True:
            try:
                with self._transaction():
                    return [
                        failed.get(n) or self._insert_alone(n, row, failed, atomic=atomic)
                        for n, row in enumerate(rows)
                    ]
            except _StartOver:
                continue
            except apsw.ConstraintError as error:
                # A constraint that is deferred speaks up at the commit, and names no row.
                if len(rows) > 1 and not atomic:
                    return [self._one_by_one([row], atomic=False)[0] for row in rows]
                failure = unit_failure(rows[0], error)
                if atomic:
                    raise _as_write_failed(failure) from error
                return [failure]

    def _insert_alone(
        self, n: int, row: Row, failed: dict[int, WriteFailed | Refused], *, atomic: bool
    ) -> Result:
        self._query("SAVEPOINT unit")
        try:
            result = self._insert(row)
        except WHOLE:
            raise
        except (apsw.Error, UnicodeError, WriteFailed) as error:
            self._tables.clear()
            failed[n] = unit_failure(row, error)
            if atomic:
                raise _as_write_failed(failed[n]) from error
            if self._connection.getautocommit():
                # A constraint of the table's own rolled the whole transaction back.
                raise _StartOver from error
            self._query("ROLLBACK TO unit")
            result = failed[n]
        self._query("RELEASE unit")
        return result

    def _insert(self, row: Row) -> Result:
        table = self._know_table(row.shape)
        self._query(statements.insert(row.shape, table.conflict, 1), row.values)
        changes = self._connection.changes()
        if changes and not row.shape.upsert and table.rowid:
            return {"rowid": self._connection.last_insert_rowid(), "changes": changes}
        (rowid,) = self._rowids([row])
        if not changes and rowid is None:
            raise dropped(row)
        return {"rowid": rowid if table.rowid else None, "changes": changes}

    def _know_table(self, shape: Shape) -> Table:
        known = self._tables.get((shape.table, shape.key))
        if known is not None:
            return known
        table = look_up(self._connection, self._query, shape.table, shape.key)
        if table is None:
            if not shape.create:
                raise no_table(self._path, shape)
            self._query(statements.create(shape))
            table = look_up(self._connection, self._query, shape.table, shape.key)
            assert table is not None, "a table that was made is there"
        self._tables[shape.table, shape.key] = table
        return table

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._query("BEGIN IMMEDIATE")
        try:
            yield
            self._query("COMMIT")
        except BaseException:
            self._tables.clear()
            if not self._connection.getautocommit():
                self._query("ROLLBACK")
            raise


def _as_write_failed(failure: WriteFailed | Refused) -> WriteFailed:
    """A bad row of a batch: the batch may fare better when it is split."""
    return WriteFailed(failure.message, hint=failure.hint)


class _NotAtOnce(Exception):
    """A row of the group is bad; nothing of it was written."""


class _StartOver(Exception):
    """The transaction is gone, with rows that were fine."""


def _runs(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Neighbours of one shape, cut to what one statement holds."""
    for shape, group in groupby(rows, key=lambda row: row.shape):
        left = list(group)
        for count in statements.cuts(shape, len(left)):
            yield left[:count]
            left = left[count:]


def _new_or_not(rowids: Sequence[int | None], new: range) -> list[Result]:
    """Results of a run in which some keys were there already: new rows have the newest numbers."""
    seen: set[int | None] = set()
    results: list[Result] = []
    for rowid in rowids:
        is_new = rowid in new and rowid not in seen
        seen.add(rowid)
        results.append({"rowid": rowid, "changes": int(is_new)})
    return results
