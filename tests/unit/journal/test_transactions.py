"""A transaction: one call into SQLite, plans that use indexes, points where a test may kill."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from pipo import crashpoints
from pipo.clock import SystemClock
from pipo.journal import statements, transactions
from pipo.journal.changes import Change, Marked
from pipo.journal.connection import run
from pipo.journal.opening import Opened, open_journal
from pipo.journal.outcomes import Applied, Duplicate, Outcome
from pipo.journal.transactions import Entry, Transactions
from tests.unit.journal.packets import (
    accepted,
    delivered,
    packet_id,
    stepped,
    version,
    writing,
    written,
)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = open_journal(tmp_path, pipeline="p", clock=SystemClock(), vfs=None, synchronous="OFF")
    yield made
    made.db.close()


@pytest.fixture
def ready(opened: Opened, tmp_path: Path) -> Transactions:
    made = Transactions(opened, tmp_path)
    made.run([Entry([version()])])
    return made


def entries(*callers: Sequence[Change]) -> list[Entry]:
    return [Entry(changes) for changes in callers]


def settle(n: int) -> list[Change]:
    return [written(n), delivered(n)]


def test_a_transaction_is_one_call_into_sqlite(
    ready: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noted(db: apsw.Connection, sql: str, values: object = ()) -> list[tuple[object, ...]]:
        calls.append(sql)
        return run(db, sql, values)  # type: ignore[arg-type]

    monkeypatch.setattr(transactions, "run", noted)
    many: list[list[Change]] = [
        [accepted(n), writing(n), written(n), delivered(n)] for n in range(1, 201)
    ]
    ready.run(entries(*many))
    assert calls == [statements.APPLY]
    calls.clear()
    ready.run(entries(*[[accepted(n)] for n in range(201, 301)]))
    ready.run(entries(*[settle(n) for n in range(201, 301)]))
    assert calls == [statements.APPLY, statements.APPLY], "rows on their way are kept in memory"


def test_rows_are_read_when_they_are_not_in_memory(
    ready: Transactions, opened: Opened, tmp_path: Path
) -> None:
    ready.run(entries([accepted(1), stepped(1, cursor="b")], [accepted(2)]))
    later = Transactions(
        Opened(
            apsw.Connection(str(tmp_path / "journal.db")),
            opened.epoch,
            opened.journal_id,
            ready.last_seq,
            {},
            {},
            {1},
        ),
        tmp_path,
    )
    moved = later.run(entries(settle(1), [written(2)]))
    later._db.close()
    assert moved["now.processing"] == -1
    assert moved["now.verifying"] == 1
    assert run(opened.db, "SELECT state, hops, write_no FROM units ORDER BY id") == [
        ("delivered", 1, 1),
        ("verifying", 0, 1),
    ]


def test_memory_of_moving_rows_is_bounded(
    ready: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LIVE_ROWS_LIMIT", 3)
    ready.run(entries(*[[accepted(n)] for n in range(1, 11)]))
    assert len(ready._live) == 3
    ready.run(entries(*[settle(n) for n in range(1, 11)]))
    assert not ready._live


def test_moves_find_their_rows_by_index(opened: Opened, ready: Transactions) -> None:
    for step, document, row in (
        (
            statements._move(statements.USUAL_COLUMNS, "usual")[0],
            "new.usual",
            "SEARCH units USING INDEX sqlite_autoindex_units_1",
        ),
        (statements._MOVE_COUNTERS, "new.totals", "SEARCH counters USING PRIMARY KEY"),
    ):
        plan = run(opened.db, f"EXPLAIN QUERY PLAN {step.replace(document, '?')}", ("[]",))
        assert any(str(line[3]).startswith(row) for line in plan), plan


def test_points_are_reached_around_the_commit_of_what_they_name(
    ready: Transactions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen = run(opened.db, "SELECT count(*) FROM events")[0][0]
        reached.append((name, seen))

    monkeypatch.setattr(crashpoints, "reach", note)
    ready.run(entries([accepted(1)]))
    ready.run(entries([written(1)]))
    ready.run(entries([delivered(1)], [accepted(2)]))
    ready.run(entries([stepped(2)]))
    assert reached == [
        ("accepted.before_commit", 0),
        ("accepted.after_commit", 1),
        ("written.after_commit", 2),
        ("accepted.before_commit", 2),
        ("delivered.before_commit", 2),
        ("accepted.after_commit", 4),
        ("delivered.after_commit", 4),
    ]


def test_nothing_to_write_is_no_transaction(
    ready: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.run(entries([accepted(1, key="k")]))
    seq = ready.last_seq
    (again,) = entries([accepted(2, key="k")])
    assert ready.run([again]) == {}
    assert ready.last_seq == seq
    assert again.outcomes == [Duplicate(packet_id(1))]


def test_everyone_illegal_writes_nothing(ready: Transactions) -> None:
    made = entries([delivered(1)], [written(2)])
    seq = ready.last_seq
    assert ready.run(made) == {}
    assert [type(entry.error).__name__ for entry in made] == ["IllegalChange"] * 2
    assert ready.last_seq == seq


def test_an_empty_caller_is_answered(ready: Transactions) -> None:
    made = entries([], [accepted(1)])
    ready.run(made)
    assert [entry.outcomes for entry in made] == [[], [Applied()]]


async def test_entries_hold_either_a_future_or_a_callback() -> None:
    future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    assert Entry([], future=future).done is None


def test_a_mark_is_set_moved_and_forgotten(ready: Transactions, opened: Opened) -> None:
    for marks in ({"a": 1, "b": 2}, {"a": 5, "b": None}, {"never": None}):
        ready.run(entries([Marked(marks)]))
    assert run(opened.db, "SELECT name, value FROM marks") == [("a", 5)]
