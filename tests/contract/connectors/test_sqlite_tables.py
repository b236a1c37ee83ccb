"""Tables that someone else made: what sqlite takes for a key, what they refuse, what they do to rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import WriteFailed
from tests.contract.connectors import contract
from tests.contract.connectors.contract import write
from tests.contract.connectors.databases import CASE, ask, rows, settings

NOT_A_KEY = {
    "part of the rows": "CREATE UNIQUE INDEX i ON t (packet_id) WHERE n > 0",
    "an expression": "CREATE UNIQUE INDEX i ON t (lower(packet_id))",
    "two columns": "CREATE UNIQUE INDEX i ON t (packet_id, n)",
    "other than the column compares": "CREATE UNIQUE INDEX i ON t (packet_id COLLATE NOCASE)",
    "not unique": "CREATE INDEX i ON t (packet_id)",
}


@pytest.mark.parametrize("index", NOT_A_KEY)
async def test_an_index_that_does_not_keep_keys_apart_is_not_enough(
    index: str, tmp_path: Path
) -> None:
    where = settings(tmp_path)
    ask(where, "CREATE TABLE t (packet_id TEXT, n)", NOT_A_KEY[index])
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}), ("A", {"n": 1}))
    for failure in flush.results:
        assert isinstance(failure, WriteFailed)
        assert "no PRIMARY KEY or UNIQUE constraint" in failure.message
    if index != "other than the column compares":
        ask(where, flush.results[0].hint)  # type: ignore[union-attr]
        again = await write(output, where, ("a", {"n": 1}), ("b", {"n": 1}))
        assert not any(contract.failed(result) for result in again.results)
    await output.close()


async def test_a_column_may_compare_its_keys_in_its_own_way(tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, "CREATE TABLE t (packet_id TEXT COLLATE NOCASE PRIMARY KEY, n)")
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}), ("A", {"n": 2}))
    again = await write(output, where, ("A", {"n": 3}), ("b", {"n": 4}))
    await output.close()
    assert [*flush.results, *again.results] == [
        {"rowid": 1, "changes": 1},
        {"rowid": 1, "changes": 0},
        {"rowid": 1, "changes": 0},
        {"rowid": 2, "changes": 1},
    ]


# Per make of a table: what becomes of a row with n = 2 beside two good ones, and the way out.
REFUSING: dict[str, tuple[list[str], str, str]] = {
    "CHECK": (
        ["CREATE TABLE t (packet_id PRIMARY KEY, n CHECK (n <> 2))"],
        "CHECK constraint failed",
        "the table's rule",
    ),
    "UNIQUE": (
        ["CREATE TABLE t (packet_id PRIMARY KEY, n UNIQUE)", "INSERT INTO t VALUES ('x', 2)"],
        "UNIQUE constraint failed: t.n",
        "set to that column",
    ),
    "a parent": (
        [
            "CREATE TABLE p (id INTEGER PRIMARY KEY)",
            "INSERT INTO p VALUES (1), (3)",
            "CREATE TABLE t (packet_id PRIMARY KEY, n REFERENCES p)",
        ],
        "FOREIGN KEY constraint failed",
        "write the row that it refers to first",
    ),
    "a parent, at the commit": (
        [
            "CREATE TABLE p (id INTEGER PRIMARY KEY)",
            "INSERT INTO p VALUES (1), (3)",
            "CREATE TABLE t (packet_id PRIMARY KEY, n REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
        ],
        "FOREIGN KEY constraint failed",
        "write the row that it refers to first",
    ),
    "a trigger that aborts": (
        [
            "CREATE TABLE t (packet_id PRIMARY KEY, n)",
            "CREATE TRIGGER g BEFORE INSERT ON t WHEN new.n = 2"
            " BEGIN SELECT RAISE(ABORT, 'no two'); END",
        ],
        "table 't': no two",
        "",
    ),
    "a trigger that rolls back": (
        [
            "CREATE TABLE t (packet_id PRIMARY KEY, n)",
            "CREATE TRIGGER g AFTER INSERT ON t WHEN new.n = 2"
            " BEGIN SELECT RAISE(ROLLBACK, 'no two'); END",
        ],
        "table 't': no two",
        "",
    ),
    "a trigger that ignores": (
        [
            "CREATE TABLE t (packet_id PRIMARY KEY, n)",
            "CREATE TRIGGER g BEFORE INSERT ON t WHEN new.n = 2 BEGIN SELECT RAISE(IGNORE); END",
        ],
        "table 't' dropped the row without an error",
        "RAISE(IGNORE)",
    ),
    "ignores": (
        [
            "CREATE TABLE t (packet_id PRIMARY KEY, n UNIQUE ON CONFLICT IGNORE)",
            "INSERT INTO t VALUES ('x', 2)",
        ],
        "table 't' dropped the row without an error",
        "ON CONFLICT IGNORE",
    ),
    "ignores, without rowids": (
        [
            "CREATE TABLE t (packet_id PRIMARY KEY, n UNIQUE ON CONFLICT IGNORE) WITHOUT ROWID",
            "INSERT INTO t VALUES ('x', 2)",
        ],
        "table 't' dropped the row without an error",
        "ON CONFLICT IGNORE",
    ),
}


@pytest.mark.parametrize("atomic", [False, True], ids=["group", "batch"])
@pytest.mark.parametrize("make", REFUSING)
async def test_what_a_table_refuses_fails_alone_or_takes_its_batch_along(
    make: str, atomic: bool, tmp_path: Path
) -> None:
    statements, message, hint = REFUSING[make]
    where = settings(tmp_path)
    ask(where, *statements)
    output = CASE.build(tmp_path)
    records = [("a", {"n": 1}), ("bad", {"n": 2}), ("c", {"n": 3})]
    # Twice: before the table is known, and after.
    for _ in range(2):
        if atomic:
            with pytest.raises(WriteFailed) as caught:
                await write(output, where, *records, atomic=True)
            failure: Any = caught.value
        else:
            results = (await write(output, where, *records)).results
            failure = results[1]
            assert [contract.failed(result) for result in results] == [False, True, False]
        assert message in failure.message
        assert hint in failure.hint
    await output.close()
    kept = ask(where, "SELECT packet_id FROM t WHERE packet_id <> 'x' ORDER BY packet_id")
    assert kept == ([] if atomic else [("a",), ("c",)])


UNWRITABLE = {
    "NOT NULL": (["CREATE TABLE t (packet_id PRIMARY KEY, n, m NOT NULL)"], "t.m", "`columns`"),
    "a view": (
        ["CREATE TABLE u (packet_id PRIMARY KEY, n)", "CREATE VIEW t AS SELECT * FROM u"],
        "is a view",
        "the table behind the view",
    ),
    "a view with a trigger": (
        [
            "CREATE TABLE u (packet_id PRIMARY KEY, n)",
            "CREATE VIEW t AS SELECT * FROM u",
            "CREATE TRIGGER g INSTEAD OF INSERT ON t"
            " BEGIN INSERT INTO u VALUES (new.packet_id, new.n); END",
        ],
        "UPSERT a view",
        "the table behind the view",
    ),
    "a generated column": (
        ["CREATE TABLE t (packet_id PRIMARY KEY, n AS (1))"],
        'generated column "n"',
        "leave the column out",
    ),
    "a strict table": (
        ["CREATE TABLE t (packet_id TEXT PRIMARY KEY, n BLOB) STRICT"],
        "cannot store INT value in BLOB column t.n",
        "STRICT",
    ),
    "a number for a key": (
        ["CREATE TABLE t (packet_id INTEGER PRIMARY KEY, n)"],
        "datatype mismatch",
        "whole numbers",
    ),
    "a virtual table": (
        ["CREATE VIRTUAL TABLE t USING fts5(packet_id, n)"],
        "virtual table",
        "a plain table",
    ),
}


@pytest.mark.parametrize("make", UNWRITABLE)
async def test_a_table_that_cannot_be_written_says_the_way_out(make: str, tmp_path: Path) -> None:
    statements, message, hint = UNWRITABLE[make]
    where = settings(tmp_path)
    ask(where, *statements)
    output = CASE.build(tmp_path)
    for atomic in (False, True):
        if atomic:
            with pytest.raises(WriteFailed) as caught:
                await write(output, where, ("a", {"n": 1}), atomic=True)
            failure: Any = caught.value
        else:
            (failure,) = (await write(output, where, ("a", {"n": 1}))).results
        assert isinstance(failure, WriteFailed)
        assert message in failure.message
        assert hint in failure.hint
    await output.close()


async def test_strict_tables_and_generated_columns_are_tables_like_others(tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(
        where,
        "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER, twice INTEGER AS (n * 2)) STRICT",
    )
    output = CASE.build(tmp_path)
    for _ in range(2):
        flush = await write(output, where, ("a", {"n": 1}), ("b", {"n": 2}))
    await output.close()
    assert flush.results == [{"rowid": n, "changes": 0} for n in (1, 2)]
    assert rows(where) == [("a", 1, 2), ("b", 2, 4)]


async def test_a_row_that_a_trigger_deletes_again_counts_as_written(tmp_path: Path) -> None:
    """D075: what `ack` takes for delivered, and a check does not."""
    where = settings(tmp_path)
    ask(
        where,
        "CREATE TABLE t (packet_id PRIMARY KEY, n)",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END",
    )
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}), ("b", {"n": 2}))
    await output.close()
    assert [result["changes"] for result in flush.results] == [1, 1]  # type: ignore[index]
    assert rows(where) == []


async def test_as_many_columns_as_sqlite_takes_and_one_more(tmp_path: Path) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    wide = {f"c{n}": n for n in range(1_999)}
    for start in (0, 40):
        records = [(f"k{n}", wide) for n in range(start, start + 40)]
        flush = await write(output, where, *records)
        assert flush.results == [{"rowid": n + 1, "changes": 1} for n in range(start, start + 40)]
    other = {**where, "table": "u"}
    (failure,) = (await write(output, other, ("a", {**wide, "more": 1}))).results
    await output.close()
    assert isinstance(failure, WriteFailed)
    assert failure.message == "table 'u': too many columns on u"
    assert "`columns`" in failure.hint


async def test_values_at_their_limits(tmp_path: Path) -> None:
    where = settings(tmp_path)
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    long = "é" * 5_000_000
    values: dict[str, Any] = {
        "large": 1e308,
        "least": 5e-324,
        "minus": -0.0,
        "digits": 10**4_000,
        "deep": deep,
        "long": long,
        "empty": {},
    }
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", values), ("b", values))
    (bare,) = (await write(output, where, ("c", {}))).results
    await output.close()
    assert not any(contract.failed(result) for result in [*flush.results, bare])
    stored = rows(where)
    for row in stored[:2]:
        assert row[1:4] == (1e308, 5e-324, 0.0)
        assert row[4] == str(10**4_000)
        assert row[5] == "[" * 500 + "1" + "]" * 500
        assert row[6] == long
        assert row[7] == "{}"
    assert stored[2] == ("c", *[None] * 7)
