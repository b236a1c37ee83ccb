"""The schema: made fresh and by migrations it is the same; what it says again, it holds."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from pipo.journal import migrate
from pipo.journal.changes import PENDING, SETTLED, STATES
from pipo.journal.connection import open_writer, run
from pipo.journal.recover import IS_PENDING

SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
# design.md section 5: every table, and the columns beyond the obvious.
DESIGNED = {
    "units": "id root parent branch state cursor queue_seq data result error attempt retry_at "
    "iteration hops version input trigger source key upstream write_no acked_write_no ack_by "
    "deadline_at held group_size received_at updated_at settled_at",
    "events": "seq at unit type node state detail patch ms",
    "versions": "version source compiled files hash author author_kind reason folder",
    "inbox": "sender key packet",
    "counters": "name value",
    "input_state": "input key value",
    "meta": "key value",
}


def fresh() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    migrate.create(db, {"pipeline": "p"})
    run(db, "PRAGMA foreign_keys = ON")
    run(db, "INSERT INTO versions VALUES (1, '', x'', '{}', 'h', 'a', 'human', 'r', NULL, 0, NULL)")
    return db


def normal(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Without comments, with single blanks, and none before a comma or a closing bracket."""

    def plain(cell: str) -> str:
        single = re.sub(r"\s+", " ", re.sub(r"--.*", "", str(cell))).strip()
        return re.sub(r" (?=[,)])", "", single)

    return [tuple(plain(cell) for cell in row) for row in rows]


def test_the_fresh_schema_equals_the_migrated_one() -> None:
    migrated = apsw.Connection(":memory:")
    for _, _, sql in migrate.migrations():
        run(migrated, sql)
    db = apsw.Connection(":memory:")
    run(db, migrate.fresh_schema())
    assert normal(run(migrated, SCHEMA)) == normal(run(db, SCHEMA))


def test_migrations_are_numbered_from_one_and_named() -> None:
    found = migrate.migrations()
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    assert all(re.fullmatch(r"\d{3}_[a-z]+(_[a-z]+)+\.sql", name) for _, name, _ in found)


def test_an_older_journal_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    db = fresh()
    later = [
        *migrate.migrations(),
        (99, "099_add_moods.sql", "CREATE TABLE moods (x); CREATE INDEX i ON moods (x);"),
    ]
    monkeypatch.setattr(migrate, "migrations", lambda: later)
    migrate.upgrade(db)
    migrate.upgrade(db)
    assert run(db, "SELECT value FROM meta WHERE key = 'schema'") == [("99",)]
    assert run(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('moods', 'i')") == [(2,)]


def test_a_newer_journal_is_refused() -> None:
    db = fresh()
    run(db, "UPDATE meta SET value = '999' WHERE key = 'schema'")
    with pytest.raises(migrate.JournalTooNew, match="schema 999"):
        migrate.upgrade(db)


@pytest.mark.parametrize("table", DESIGNED)
def test_every_designed_table_and_column_is_there(table: str) -> None:
    columns = {row[1] for row in run(fresh(), f"PRAGMA table_info({table})")}
    assert set(DESIGNED[table].split()) <= columns


def test_every_table_is_strict() -> None:
    tables = run(fresh(), "SELECT name, strict FROM pragma_table_list WHERE schema = 'main'")
    assert {name for name, strict in tables if not strict} == {"sqlite_schema"}


def test_the_schema_knows_the_states_of_the_machine() -> None:
    listed = re.search(r"CHECK \(state IN \(([^)]+)\)", migrate.fresh_schema())
    assert listed is not None
    assert set(re.findall(r"'(\w+)'", listed[1])) == set(STATES)
    assert tuple(re.findall(r"'(\w+)'", IS_PENDING)) == PENDING
    settled = re.search(
        r"settled_at IS NOT NULL\)\s+= \(state IN \(([^)]+)\)", migrate.fresh_schema()
    )
    assert settled is not None
    assert tuple(re.findall(r"'(\w+)'", settled[1])) == SETTLED


UNIT = {
    "id": "a", "state": "accepted", "cursor": "n", "queue_seq": 1, "version": 1, "input": "i",
    "trigger": "t", "source": "s", "received_at": 1, "updated_at": 1, "data": "1",
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "done"},
        {"settled_at": 5},
        {"state": "delivered", "cursor": None},
        {"state": "delivered", "settled_at": 5},
        {"cursor": None},
        {"queue_seq": None},
        {"state": "dead_lettered", "settled_at": 5, "cursor": None},
        {"version": 2},
        {"root": "b", "parent": "b", "branch": "x"},
        {"branch": "x"},
        {"attempt": -1},
        {"received_at": "soon"},
    ],
)
def test_the_schema_refuses_a_row_that_cannot_be(wrong: dict[str, object]) -> None:
    db = fresh()
    row = UNIT | wrong
    sql = f"INSERT INTO units ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    with pytest.raises(apsw.ConstraintError):
        run(db, sql, list(row.values()))
    row = dict(UNIT)
    sql = f"INSERT INTO units ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    run(db, sql, list(row.values()))


def test_the_newest_event_cannot_be_deleted() -> None:
    db = fresh()
    for seq in (1, 2, 3):
        run(db, "INSERT INTO events (seq, at, type) VALUES (?, 1, 't')", (seq,))
    run(db, "DELETE FROM events")
    assert run(db, "SELECT seq FROM events") == [(3,)]


def test_a_journal_has_its_settings_from_birth(tmp_path: Path) -> None:
    db = open_writer(tmp_path / "journal.db", vfs=None, synchronous="FULL")
    run(db, "BEGIN")
    migrate.create(db, {})
    run(db, "COMMIT")
    settings = {
        "auto_vacuum": 2,
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "wal_autocheckpoint": 10_000,
        "mmap_size": 0,
        "application_id": migrate.APPLICATION_ID,
    }
    assert {name: run(db, f"PRAGMA {name}")[0][0] for name in settings} == settings
    db.close()
