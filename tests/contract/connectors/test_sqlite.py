"""sqlite against the contract, and what is its own: modes, tables, locks, triggers.

The tests look with apsw, as the output writes: a second SQLite library in one
process drops the locks of the first when it closes a file.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pipo.connectors.contract import Refused, WriteFailed
from tests.contract.connectors import contract
from tests.contract.connectors.contract import OutputCase, write
from tests.contract.connectors.databases import CASE, ask, put, rows, settings
from tests.mounts import remount, small_disk


@pytest.mark.parametrize(
    "behaviour",
    [*contract.EVERY_OUTPUT, *contract.OUTPUT_WITH_A_FILE],
    ids=lambda behaviour: behaviour.__name__,
)
async def test_contract(
    behaviour: Callable[[OutputCase, Path], Awaitable[None]], tmp_path: Path
) -> None:
    await behaviour(CASE, tmp_path)


async def test_a_column_the_table_lacks_fails_its_row_alone(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    flush = await write(output, where, ("b", {"n": 2}), ("c", {"n": 3, "new": 1}), ("d", {"n": 4}))
    await output.close()
    failure = flush.results[1]
    assert isinstance(failure, WriteFailed)
    assert failure.message == "table 't' has no column 'new'"
    assert failure.hint == 'ALTER TABLE "t" ADD COLUMN "new", then replay'
    assert rows(where) == [("a", 1), ("b", 2), ("d", 4)]


async def test_the_result_is_rowid_and_changes(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path)
    first = await write(output, where, ("a", {"n": 1}), ("b", {"n": 2}))
    second = await write(output, where, ("b", {"n": 9}), ("c", {"n": 3}), ("c", {"n": 4}))
    third = await write(output, where, ("a", {"n": 9}))
    await output.close()
    assert first.results == [{"rowid": 1, "changes": 1}, {"rowid": 2, "changes": 1}]
    assert second.results == [
        {"rowid": 2, "changes": 0},
        {"rowid": 3, "changes": 1},
        {"rowid": 3, "changes": 0},
    ]
    assert third.results == [{"rowid": 1, "changes": 0}]
    assert rows(where) == [("a", 1), ("b", 2), ("c", 3)]


async def test_upsert_replaces_the_other_columns(tmp_path: Path) -> None:
    def with_email(email: str, name: str) -> dict[str, Any]:
        return settings(
            tmp_path, mode="upsert", key="email", columns={"email": email, "name": name}
        )

    output = CASE.build(tmp_path)
    units = [
        contract.unit(f"k{n}", None, with_email(email, name))
        for n, (email, name) in enumerate([("x@y", "Ann"), ("z@y", "Bo"), ("x@y", "Cy")])
    ]
    first = await output.write(units[:1], atomic=False)
    rest = await output.write(units, atomic=False)
    await output.close()
    assert first.results == [{"rowid": 1, "changes": 1}]
    assert [result["rowid"] for result in rest.results] == [1, 2, 1]  # type: ignore[index]
    assert rows(settings(tmp_path)) == [("x@y", "Cy"), ("z@y", "Bo")]


async def test_upsert_of_the_key_alone_is_an_insert(tmp_path: Path) -> None:
    where = settings(tmp_path, mode="upsert", key="id", columns={"id": "x"})
    output = CASE.build(tmp_path)
    for _ in range(2):
        await write(output, where, ("a", None))
    again = await write(output, where, ("b", None), ("c", None))
    await output.close()
    assert again.results == [{"rowid": 1, "changes": 0}] * 2
    assert rows(where) == [("x",)]


async def test_values_keep_their_types(tmp_path: Path) -> None:
    data = {
        "whole": 7,
        "real": 1.5,
        "yes": True,
        "none": None,
        "tags": ["a", {"b": 1}],
        "big": 8202522731445525542,
        "bigger": 18446744073709551615,
        "least": -9223372036854775808,
        "nul": "a\x00b",
        "emoji": "\U0001f600",
    }
    output = CASE.build(tmp_path)
    where = settings(tmp_path)
    await write(output, where, ("a", data))
    await output.close()
    types = ", ".join(f'typeof("{name}")' for name in data)
    assert rows(where, types) == [
        ("integer", "real", "integer", "null", "text", "integer", "text", "integer", "text", "text")
    ]
    assert rows(where)[0][1:] == (
        7,
        1.5,
        1,
        None,
        '["a",{"b":1}]',
        8202522731445525542,
        "18446744073709551615",
        -9223372036854775808,
        "a\x00b",
        "\U0001f600",
    )


async def test_a_made_table_has_untyped_columns_and_the_key_first(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path, table="order")
    await write(output, where, ("a", {"order": 1, "group": "g", "when": "w", "select": 2}))
    await output.close()
    info = ask(where, 'PRAGMA table_info("order")')
    assert [(name, kind, pk) for _, name, kind, _, _, pk in info] == [
        ("packet_id", "", 1),
        ("order", "", 0),
        ("group", "", 0),
        ("when", "", 0),
        ("select", "", 0),
    ]


async def test_a_missing_table_names_create(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path, create=False)
    flush = await write(output, where, ("a", {"n": 1}))
    await output.close()
    failure = flush.results[0]
    assert isinstance(failure, WriteFailed)
    assert failure.message == f"{where['path']} has no table 't'"
    assert failure.hint == "set `create: true`, or create it yourself"


async def test_a_key_without_a_constraint_names_the_index_to_make(tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, "CREATE TABLE t (packet_id, n)")
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}))
    failure = flush.results[0]
    assert isinstance(failure, WriteFailed)
    assert "no PRIMARY KEY or UNIQUE constraint" in failure.message
    ask(where, failure.hint)
    again = await write(output, where, ("a", {"n": 1}))
    await output.close()
    assert again.results == [{"rowid": 1, "changes": 1}]


async def test_a_constraint_of_another_column_is_a_plain_write_error(tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, "CREATE TABLE t (packet_id PRIMARY KEY, n UNIQUE)")
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}), ("b", {"n": 1}), ("c", {"n": 2}))
    await output.close()
    assert [type(result).__name__ for result in flush.results] == ["dict", "WriteFailed", "dict"]
    assert "UNIQUE constraint failed: t.n" in str(flush.results[1])


async def test_a_constraint_that_rolls_everything_back_costs_its_row_alone(tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, "CREATE TABLE t (packet_id PRIMARY KEY, n UNIQUE ON CONFLICT ROLLBACK)")
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}), ("b", {"n": 1}), ("c", {"n": 2}))
    await output.close()
    assert [type(result).__name__ for result in flush.results] == ["dict", "WriteFailed", "dict"]
    assert rows(where) == [("a", 1), ("c", 2)]


TABLES = {
    "key is the rowid": "CREATE TABLE t (n, packet_id TEXT UNIQUE, id INTEGER PRIMARY KEY)",
    "no rowid": "CREATE TABLE t (packet_id PRIMARY KEY, n) WITHOUT ROWID",
    "a column called rowid": "CREATE TABLE t (packet_id PRIMARY KEY, n, rowid)",
}


@pytest.mark.parametrize("table", TABLES)
async def test_tables_of_every_make(table: str, tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, TABLES[table])
    output = CASE.build(tmp_path)
    first = await write(output, where, ("a", {"n": 1}), ("b", {"n": 2}))
    again = await write(output, where, ("b", {"n": 2}), ("c", {"n": 3}))
    await output.close()
    number = (lambda n: None) if table == "no rowid" else (lambda n: n)
    assert first.results == [{"rowid": number(n), "changes": 1} for n in (1, 2)]
    assert again.results == [
        {"rowid": number(2), "changes": 0},
        {"rowid": number(3), "changes": 1},
    ]


async def test_a_key_that_is_the_rowid_is_reported_as_it_is(tmp_path: Path) -> None:
    ask(settings(tmp_path), "CREATE TABLE t (id INTEGER PRIMARY KEY, n)")
    output = CASE.build(tmp_path)
    units = [
        contract.unit(f"k{i}", None, settings(tmp_path, key="id", columns={"id": i, "n": 1}))
        for i in (50, 7, 50)
    ]
    flush = await output.write(units, atomic=False)
    again = await output.write(units, atomic=False)
    await output.close()
    assert flush.results == [
        {"rowid": 50, "changes": 1},
        {"rowid": 7, "changes": 1},
        {"rowid": 50, "changes": 0},
    ]
    assert [result["rowid"] for result in again.results] == [50, 7, 50]  # type: ignore[index]


async def test_a_trigger_that_appears_later_does_not_mix_up_rowids(tmp_path: Path) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    ask(
        where,
        "CREATE TRIGGER g AFTER INSERT ON t WHEN new.n = 2 BEGIN DELETE FROM t WHERE n = 2; END",
    )
    for _ in range(2):
        flush = await write(output, where, ("b", {"n": 2}), ("c", {"n": 3}))
        stored = dict(rows(where, "packet_id, rowid"))
        assert flush.results[1]["rowid"] == stored["c"]  # type: ignore[index]
    await output.close()
    assert [row[0] for row in rows(where)] == ["a", "c"]


async def test_a_trigger_that_appears_before_a_group_of_many_shapes(tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, "CREATE TABLE t (packet_id PRIMARY KEY, a, b)")
    output = CASE.build(tmp_path)
    await write(output, where, ("x", {"a": 1}))
    ask(
        where,
        "CREATE TABLE log (n)",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO log VALUES (1); END",
    )
    flush = await write(output, where, ("p", {"a": 1}), ("q", {"b": 1}), ("r", {"a": 2}))
    await output.close()
    assert flush.results == [{"rowid": n, "changes": 1} for n in (2, 3, 4)]


async def test_a_table_dropped_and_made_again_is_written(tmp_path: Path) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", {"n": 1}), ("b", {"n": 2}))
    ask(where, "DROP TABLE t")
    flush = await write(output, where, ("c", {"n": 3}), ("d", {"n": 4}))
    await output.close()
    assert flush.results == [{"rowid": 1, "changes": 1}, {"rowid": 2, "changes": 1}]


async def test_a_failed_row_leaves_no_table_behind(tmp_path: Path) -> None:
    where = settings(tmp_path, table="sqlite_mine")
    output = CASE.build(tmp_path)
    flush = await write(output, where, ("a", {"n": 1}))
    await output.close()
    assert isinstance(flush.results[0], WriteFailed)
    assert "reserved" in flush.results[0].message


async def test_a_locked_database_fails_the_whole_group_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo.connectors.sqlite.database.LOCK_WAIT_S", 0.05)
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    await output.close()
    output = CASE.build(tmp_path)
    holder = apsw.Connection(where["path"])
    holder.execute("BEGIN IMMEDIATE")
    for atomic in (False, True):
        with pytest.raises(WriteFailed, match=r"a\.db is locked: another program") as caught:
            await write(output, where, ("b", {"n": 2}), ("c", {"n": 3}), atomic=atomic)
        assert "on_error" in caught.value.hint
    holder.execute("COMMIT")
    holder.execute("BEGIN")
    holder.execute("SELECT * FROM t").fetchall()  # a reader holds up the commit itself
    with pytest.raises(WriteFailed, match="is locked"):
        await write(output, where, ("b", {"n": 2}), ("c", {"n": 3}))
    holder.close()
    await write(output, where, ("b", {"n": 2}), ("c", {"n": 3}))
    await output.close()
    assert [row[0] for row in rows(where)] == ["a", "b", "c"]


async def test_an_attempt_waits_once_for_all_the_locks_it_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge 168: a writer that goes in time, and then a reader that stays, are one wait."""
    naps: list[float] = []

    class Napping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            naps.append(timeout or 0.0)
            return super().wait(timeout)

    monkeypatch.setattr("pipo.connectors.sqlite.patience.Event", Napping)
    monkeypatch.setattr("pipo.connectors.sqlite.database.LOCK_WAIT_S", 1.0)
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    writer, reader = apsw.Connection(where["path"]), apsw.Connection(where["path"])
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM t").fetchall()
    writer.execute("BEGIN IMMEDIATE")
    naps.clear()
    task = asyncio.ensure_future(write(output, where, ("b", {"n": 2}), atomic=True))
    await asyncio.sleep(0.8)
    writer.execute("ROLLBACK")
    with pytest.raises(WriteFailed, match="is locked"):
        await task
    assert 0.0 < sum(naps) < 1.1
    reader.close()
    writer.close()
    await write(output, where, ("b", {"n": 2}), atomic=True)
    await output.close()
    assert rows(where) == [("a", 1), ("b", 2)]


async def test_a_locked_database_holds_up_no_other(tmp_path: Path) -> None:
    where = settings(tmp_path)
    other = {**where, "path": str(tmp_path / "b.db")}
    output = CASE.build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    await write(output, other, ("a", {"n": 1}))
    holder = apsw.Connection(where["path"])
    holder.execute("BEGIN IMMEDIATE")
    stuck = asyncio.ensure_future(write(output, where, ("b", {"n": 2})))
    await write(output, other, ("b", {"n": 2}))
    assert not stuck.done()
    holder.close()
    await stuck
    await output.close()


@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_a_database_keeps_its_mode(mode: str, tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, f"PRAGMA journal_mode = {mode}", "CREATE TABLE x (y)")
    output = CASE.build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    await output.close()
    assert ask(where, "PRAGMA journal_mode") == [(mode,)]


async def test_a_new_database_leaves_no_journal_beside_it(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    await write(output, settings(tmp_path), ("a", {"n": 1}))
    await output.close()
    assert contract.names(tmp_path) == ["a.db"]


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    where = settings(tmp_path)
    put(where, "hello, this is no database at all\n" * 100)
    output = CASE.build(tmp_path)
    with pytest.raises(WriteFailed, match=r"a\.db is not a SQLite database"):
        await write(output, where, ("a", {"n": 1}))
    await output.close()


async def test_half_a_surrogate_pair_names_its_column(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    where = settings(tmp_path)
    flush = await write(output, where, ("a", {"n": "fine"}), ("b", {"n": "hi \ud83d"}))
    await output.close()
    assert isinstance(flush.results[1], Refused)
    assert (
        flush.results[1].message
        == "the column 'n' holds half of a surrogate pair, which is no text"
    )
    assert rows(where) == [("a", "fine")]


async def test_rows_of_many_shapes_are_one_transaction(tmp_path: Path) -> None:
    where = settings(tmp_path)
    ask(where, "CREATE TABLE t (packet_id PRIMARY KEY, a, b)")
    output = CASE.build(tmp_path)
    records = [(f"k{n}", {"a": n} if n % 2 else {"b": n}) for n in range(100)]
    for _ in range(2):
        flush = await write(output, where, *records)
    await output.close()
    assert [result["rowid"] for result in flush.results] == list(range(1, 101))  # type: ignore[index]


async def test_an_explicit_key_is_the_key_column(tmp_path: Path) -> None:
    output = CASE.build(tmp_path)
    key = output.explicit_key
    assert key(settings(tmp_path)) is None
    assert key(settings(tmp_path, key="email", columns={"email": "x@y"})) == "x@y"
    assert key(settings(tmp_path, key="id", columns={"id": 2**64})) == "18446744073709551616"
    assert key(settings(tmp_path, key="id", columns={"id": 7})) == "7"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with small_disk(tmp_path / "small") as place:
        yield place


@pytest.mark.parametrize("atomic", [False, True], ids=["group", "batch"])
@pytest.mark.parametrize("mode", ["wal", "delete"])
async def test_a_full_disk_costs_nothing_that_was_written(
    mode: str, atomic: bool, small: Path
) -> None:
    where = settings(small)
    ask(where, f"PRAGMA journal_mode = {mode}", "CREATE TABLE t (packet_id PRIMARY KEY, n)")
    output = CASE.build(small)
    await write(output, where, ("a", {"n": 1}))
    for _ in range(3):
        with pytest.raises(WriteFailed, match=r"no room left to write .*a\.db") as caught:
            await write(output, where, ("b", {"n": 2}), ("c", {"n": "x" * 300_000}), atomic=atomic)
        assert caught.value.hint == "free some disk space"
    await write(output, where, ("b", {"n": 2}), atomic=atomic)
    await output.close()
    assert rows(where, "packet_id") == [("a",), ("b",)]
    assert ask(where, "PRAGMA integrity_check") == [("ok",)]


async def test_a_read_only_file_system_is_named(small: Path) -> None:
    where = settings(small)
    output = CASE.build(small)
    await write(output, where, ("a", {"n": 1}))
    await output.close()
    output = CASE.build(small)
    remount(small, "ro")
    for place in (where, {**where, "path": str(small / "new.db")}):
        with pytest.raises(WriteFailed, match=r"\.db: Read-only file system") as caught:
            await write(output, place, ("b", {"n": 2}))
        assert caught.value.hint == "the file system is mounted read-only"
    remount(small, "rw")
    await write(output, where, ("b", {"n": 2}))
    await output.close()
    assert rows(where) == [("a", 1), ("b", 2)]


async def test_a_wal_database_cut_short_in_place_is_not_taken_for_whole(tmp_path: Path) -> None:
    """Its pages are still in the memory of who has it open, and every write there succeeds."""
    where = settings(tmp_path)
    ask(where, "PRAGMA journal_mode = wal", "CREATE TABLE t (packet_id PRIMARY KEY, n)")
    output = CASE.build(tmp_path)
    await write(output, where, ("a", {"n": 1}))
    os.truncate(where["path"], 0)
    with pytest.raises(WriteFailed, match=r"a\.db is (damaged|not a SQLite database)"):
        await write(output, where, ("b", {"n": 1}))
    await output.close()


async def test_a_database_of_ours_cut_short_in_place_is_named_or_made_again(
    tmp_path: Path,
) -> None:
    where = settings(tmp_path)
    output = CASE.build(tmp_path)
    await write(output, where, *((f"k{n}", {"n": "x" * 500}) for n in range(200)))
    put(where, "no database any more, and no header either " * 200)
    with pytest.raises(WriteFailed, match=r"a\.db is not a SQLite database"):
        await write(output, where, ("new", {"n": 1}))
    os.truncate(where["path"], 0)
    flush = await write(output, where, ("new", {"n": 1}))
    await output.close()
    assert flush.results == [{"rowid": 1, "changes": 1}]
    assert rows(where) == [("new", 1)]
