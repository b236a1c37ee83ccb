"""The sqlite checks against the contract, and what is their own.

The tables are written and closed before a check looks: two SQLite libraries in
one process must never have one file open.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest

from pipo.connectors.contract import CheckError, Passed, Pending, Target
from pipo.connectors.sqlite.checks import SqliteChecks
from pipo.payload import encode
from tests.contract.connectors import contract
from tests.contract.connectors.contract import CheckCase, OutputCase, judged, write

OUTPUT = OutputCase(name="sqlite", settings=lambda folder: {}, keys=lambda where: [])


def place(folder: Path, name: str = "a.db") -> dict[str, Any]:
    return {"path": str(folder / name), "table": "t"}


def target(folder: Path, check: str, result: Any = None, **settings: Any) -> Target:
    return Target(check, settings, result, place(folder))


def exists(folder: Path, **where: Any) -> Target:
    return target(folder, "record_exists", where=where)


async def fill(folder: Path) -> None:
    output = OUTPUT.build(folder)
    where = {**place(folder), "create": True}
    await write(output, where, ("a", {"n": 1, "big": 2**64}), ("b", {"n": 2, "big": None}))
    await output.close()


def run_sql(path: str, *statements: str) -> None:
    connection = apsw.Connection(path)
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


FILL_UP = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 200)"
    " INSERT INTO t SELECT x, hex(zeroblob(2000)), 1 FROM c"
)


def elsewhere(folder: Path, *statements: str) -> subprocess.Popen[str]:
    """Another process that has run statements and keeps its transaction until its input ends."""
    program = (
        "import apsw,sys; c=apsw.Connection(sys.argv[1]);"
        "[c.execute(s).fetchall() for s in sys.argv[2:]]; print('held',flush=True);"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, place(folder)["path"], *statements],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


RECORD_EXISTS = CheckCase(
    output="sqlite",
    fill=fill,
    present=lambda folder: exists(folder, packet_id="a", n=1),
    absent=lambda folder: exists(folder, packet_id="a", n=2),
    broken=lambda folder: exists(folder, packet_id="a", nope=2),
)
ROW_COUNT = CheckCase(
    output="sqlite",
    fill=fill,
    present=lambda folder: target(
        folder, "row_count", query="SELECT 1 FROM t WHERE n > ? -- all;", params=[0], min=2
    ),
    absent=lambda folder: target(folder, "row_count", query="SELECT 1 FROM t;", min="3"),
    broken=lambda folder: target(folder, "row_count", query="DELETE FROM t RETURNING 1"),
)
QUERY = CheckCase(
    output="sqlite",
    fill=fill,
    present=lambda folder: target(
        folder, "query", sql="SELECT n = ? FROM t WHERE packet_id = ?", params=[2, "b"]
    ),
    absent=lambda folder: target(folder, "query", query="SELECT big FROM t WHERE packet_id = 'b'"),
    broken=lambda folder: target(folder, "query", sql="  "),
)


@pytest.mark.parametrize("behaviour", contract.EVERY_CHECK, ids=lambda made: made.__name__)
@pytest.mark.parametrize(
    "case", [RECORD_EXISTS, ROW_COUNT, QUERY], ids=["record_exists", "row_count", "query"]
)
async def test_contract(
    case: CheckCase, behaviour: Callable[[CheckCase, Path], Awaitable[None]], tmp_path: Path
) -> None:
    await behaviour(case, tmp_path)


async def test_a_database_that_is_not_there_yet_is_an_error(tmp_path: Path) -> None:
    checks = RECORD_EXISTS.build()
    (verdict,) = await judged(checks, exists(tmp_path, packet_id="a"))
    assert isinstance(verdict, CheckError)
    assert verdict.message == f"{tmp_path}/a.db does not exist yet"
    await fill(tmp_path)
    (verdict,) = await judged(checks, exists(tmp_path, packet_id="a"))
    assert isinstance(verdict, Passed)
    await checks.close()


async def test_a_replaced_database_is_noticed(tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = RECORD_EXISTS.build()
    assert isinstance((await judged(checks, exists(tmp_path, packet_id="a")))[0], Passed)
    new = place(tmp_path, "new.db")["path"]
    run_sql(new, "CREATE TABLE t (packet_id PRIMARY KEY, n)")
    os.replace(new, place(tmp_path)["path"])
    assert isinstance((await judged(checks, exists(tmp_path, packet_id="a")))[0], Pending)
    os.remove(place(tmp_path)["path"])
    assert isinstance((await judged(checks, exists(tmp_path, packet_id="a")))[0], CheckError)
    await checks.close()


async def test_values_are_looked_for_as_they_are_written(tmp_path: Path) -> None:
    await fill(tmp_path)
    data = {"b": True, "o": {"a": [1]}, "f": 1.5, "t": "5", "i": 5}
    output = OUTPUT.build(tmp_path)
    await write(output, {**place(tmp_path), "table": "u", "create": True}, ("c", data))
    await output.close()
    checks = RECORD_EXISTS.build()
    found = Target(
        "record_exists",
        {"where": {"packet_id": "c", **data}},
        None,
        place(tmp_path) | {"table": "u"},
    )
    wrong_type = Target(
        "record_exists", {"where": {"t": 5}}, None, place(tmp_path) | {"table": "u"}
    )
    verdicts = await judged(checks, exists(tmp_path, big=2**64), found, wrong_type)
    await checks.close()
    assert [type(verdict) for verdict in verdicts] == [Passed, Passed, Pending]


async def test_null_never_matches(tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = RECORD_EXISTS.build()
    (verdict,) = await judged(checks, exists(tmp_path, packet_id="b", big=None))
    await checks.close()
    assert isinstance(verdict, Pending)


async def test_names_of_any_kind_are_quoted(tmp_path: Path) -> None:
    run_sql(
        place(tmp_path)["path"],
        'CREATE TABLE t ("a]b", "a""b", "order", packet_id PRIMARY KEY)',
        "INSERT INTO t VALUES (1, 2, 3, 'a')",
    )
    checks = RECORD_EXISTS.build()
    where = {"a]b": 1, 'a"b': 2, "order": 3}
    present, injected = await judged(
        checks, exists(tmp_path, **where), exists(tmp_path, **{'x"); DROP TABLE t;--': 1})
    )
    assert isinstance(present, Passed)
    assert isinstance(injected, CheckError)
    (still,) = await judged(checks, exists(tmp_path, packet_id="a"))
    await checks.close()
    assert isinstance(still, Passed)


async def test_the_evidence_tells_what_was_asked(tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = RECORD_EXISTS.build()
    passed, pending = await judged(
        checks, exists(tmp_path, packet_id="a"), exists(tmp_path, packet_id="zz")
    )
    await checks.close()
    assert isinstance(passed, Passed)
    assert passed.evidence == {
        "path": f"{tmp_path}/a.db",
        "query": 'SELECT 1 FROM "t" WHERE "packet_id" = ?',
        "params": ["a"],
        "found": True,
    }
    assert isinstance(pending, Pending)
    assert pending.why == "no row in t where packet_id = 'zz'"


async def test_a_group_is_one_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipo.journal.readonly import ReadonlyRows

    await fill(tmp_path)
    asked: list[str] = []
    rows = ReadonlyRows.rows

    async def counted(self: ReadonlyRows, sql: str, params: Any = ()) -> Any:
        asked.append(sql)
        return await rows(self, sql, params)

    monkeypatch.setattr(ReadonlyRows, "rows", counted)
    checks = RECORD_EXISTS.build()
    targets = [exists(tmp_path, packet_id="b" if n % 3 else "none") for n in range(500)]
    verdicts = await judged(checks, *targets)
    await checks.close()
    assert len(asked) == 1
    assert [isinstance(verdict, Passed) for verdict in verdicts] == [
        bool(n % 3) for n in range(500)
    ]


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        ("1", True),
        ("-0.5", True),
        ("'x'", True),
        ("0", False),
        ("0.0", False),
        ("''", False),
        ("NULL", False),
        ("x'00'", True),
        ("x''", False),
        ("9e999", True),
    ],
)
async def test_query_takes_the_first_value_for_its_truth(
    value: str, passes: bool, tmp_path: Path
) -> None:
    await fill(tmp_path)
    checks = QUERY.build()
    (verdict,) = await judged(checks, target(tmp_path, "query", sql=f"SELECT {value}, 1"))
    await checks.close()
    assert isinstance(verdict, Passed) is passes


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t",
        "DROP TABLE t",
        "VACUUM INTO 'copy.db'",
        "ATTACH 'other.db' AS o",
        "SELECT 1; DELETE FROM t",
        "SELECT 1); DELETE FROM t; SELECT (1",
        "SELECT load_extension('x') IS NOT 1 ORDER BY 1",
        "PRAGMA user_version = 7",
        "PRAGMA journal_mode",
        "EXPLAIN SELECT 1",
    ],
)
async def test_no_query_writes(sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await fill(tmp_path)
    before = contract.snapshot(tmp_path)
    checks = QUERY.build()
    verdicts = await judged(
        checks, target(tmp_path, "query", sql=sql), target(tmp_path, "row_count", query=sql)
    )
    await checks.close()
    assert isinstance(verdicts[0], CheckError)
    # Of a query that is only counted, SQLite may leave out a value that nobody asks for.
    assert isinstance(verdicts[1], CheckError) or "load_extension" in sql
    assert contract.snapshot(tmp_path) == before


ENDLESS = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE x < 0"
)


async def test_a_query_without_end_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo.connectors.sqlite.readers.QUERY_LIMIT_S", 0.2)
    await fill(tmp_path)
    checks = QUERY.build()
    endless, counted, after = await judged(
        checks,
        target(tmp_path, "query", sql=ENDLESS),
        target(tmp_path, "row_count", query=ENDLESS),
        target(tmp_path, "query", sql="SELECT 1"),
    )
    for verdict in (endless, counted):
        assert isinstance(verdict, CheckError)
        assert verdict.message == f"the query took longer than 0.2 s on {tmp_path}/a.db"
    assert isinstance(after, Passed)
    await checks.close()


async def test_a_look_that_is_given_up_leaves_its_thread_free(tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = QUERY.build()
    look = asyncio.ensure_future(judged(checks, target(tmp_path, "query", sql=ENDLESS)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await look
    async with asyncio.timeout(60):
        (verdict,) = await judged(checks, exists(tmp_path, packet_id="a"))
    assert isinstance(verdict, Passed)
    await checks.close()


@pytest.mark.parametrize(
    ("check", "settings", "message"),
    [
        (
            "query",
            {"sql": "SELECT ?", "params": [1, 2]},
            "the query has 1 `?`, and `params` holds 2",
        ),
        (
            "row_count",
            {"query": "SELECT 1 FROM t WHERE n = ?2 AND n = ?1", "params": []},
            "the query has 2 `?`, and `params` holds 0",
        ),
        ("row_count", {"query": "SELECT 1", "min": "two"}, "`min` is 'two', not a whole number"),
        ("row_count", {"query": "SELECT 1", "min": 1.5}, "`min` is 1.5, not a whole number"),
        ("row_count", {"query": "SELECT 1", "min": True}, "`min` is True, not a whole number"),
        ("record_exists", {"where": {"nope": 1}}, "table 't' has no column 'nope'"),
        ("record_exists", {"where": {}}, "`where` renders to nothing"),
        ("query", {"sql": "SELECT 1 FROM nope"}, "no such table: nope"),
        ("query", {"sql": "SELEC 1"}, "the query cannot run on"),
    ],
)
async def test_what_an_author_wrote_wrong_is_named(
    check: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    await fill(tmp_path)
    checks = QUERY.build()
    (verdict,) = await judged(checks, target(tmp_path, check, **settings))
    await checks.close()
    assert isinstance(verdict, CheckError)
    assert message in verdict.message


@pytest.mark.parametrize(
    ("sql", "why", "value"),
    [
        ("SELECT n FROM t WHERE n = 9", "the query returned no row", "no row"),
        ("SELECT NULL", "the query's first value is NULL", None),
        ("SELECT 0.0", "the query's first value is 0.0", 0.0),
        ("SELECT '' UNION ALL SELECT 'x'", "the query's first value is ''", ""),
    ],
)
async def test_why_a_query_did_not_pass(sql: str, why: str, value: Any, tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = QUERY.build()
    (verdict,) = await judged(checks, target(tmp_path, "query", sql=sql))
    await checks.close()
    assert isinstance(verdict, Pending)
    assert verdict.why == why
    assert verdict.evidence["value"] == value


async def test_row_count_counts_rows_and_reads_no_number(tmp_path: Path) -> None:
    """Edge 175: a SELECT of a count is one row, whatever it counted."""
    await fill(tmp_path)
    checks = QUERY.build()
    (one_row,) = await judged(
        checks, target(tmp_path, "row_count", query="SELECT count(*) FROM t WHERE n > 99")
    )
    await checks.close()
    assert isinstance(one_row, Passed)


async def test_a_query_that_fails_costs_its_neighbours_nothing(tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = QUERY.build()
    verdicts = await judged(
        checks,
        target(tmp_path, "query", sql="SELECT CAST(x'ff' AS TEXT)"),
        target(tmp_path, "query", sql="SELECT hex(zeroblob(400000000))"),
        target(tmp_path, "query", sql="SELECT nope"),
        target(tmp_path, "query", sql="SELECT 1"),
        exists(tmp_path, packet_id="a"),
    )
    await checks.close()
    assert [type(verdict) for verdict in verdicts] == [CheckError] * 3 + [Passed] * 2


@pytest.mark.parametrize("value", [2, "2", 2.0])
async def test_a_template_may_make_min(value: Any, tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = QUERY.build()
    enough, too_few = await judged(
        checks,
        target(tmp_path, "row_count", query="SELECT 1 FROM t", min=value),
        target(tmp_path, "row_count", query="SELECT 1 FROM t WHERE n = 1", min=value),
    )
    await checks.close()
    assert isinstance(enough, Passed)
    assert isinstance(too_few, Pending)


async def test_evidence_stays_short_and_is_json(tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = QUERY.build()
    long = "x" * 10_000_000
    verdicts = await judged(
        checks,
        exists(tmp_path, packet_id=long),
        target(tmp_path, "query", sql="SELECT ?", params=[long]),
        target(tmp_path, "query", sql="SELECT zeroblob(10000000)"),
        target(tmp_path, "query", sql="SELECT 9e999"),
    )
    await checks.close()
    assert [type(verdict) for verdict in verdicts] == [Pending, Passed, Passed, Passed]
    for verdict in verdicts:
        assert not isinstance(verdict, CheckError)
        assert len(encode(dict(verdict.evidence))) < 2_000
    assert len(verdicts[0].why) < 1_000  # type: ignore[union-attr]


async def test_types_decide_as_the_column_does(tmp_path: Path) -> None:
    run_sql(
        place(tmp_path)["path"],
        "CREATE TABLE t (whole INTEGER, word TEXT, plain)",
        "INSERT INTO t VALUES (5, '5', '5')",
    )
    checks = RECORD_EXISTS.build()
    wishes: list[tuple[dict[str, Any], bool]] = [
        ({"whole": "5"}, True),
        ({"whole": 5.0}, True),
        ({"word": 5}, True),
        ({"plain": "5"}, True),
        ({"plain": 5}, False),
        ({"plain": "5", "whole": None}, False),
    ]
    verdicts = [(await judged(checks, exists(tmp_path, **where)))[0] for where, _ in wishes]
    together = await judged(checks, *(exists(tmp_path, **where) for where, _ in wishes))
    await checks.close()
    expected = [Passed if passes else Pending for _, passes in wishes]
    assert [type(verdict) for verdict in verdicts] == expected
    assert [type(verdict) for verdict in together] == expected
    assert verdicts[-1].why.endswith("(nothing equals NULL)")  # type: ignore[union-attr]


async def test_wishes_of_many_shapes_are_told_apart(tmp_path: Path) -> None:
    await fill(tmp_path)
    checks = RECORD_EXISTS.build()
    shapes: list[dict[str, Any]] = [
        {"packet_id": "a"},
        {"n": 2, "packet_id": "a"},
        {"packet_id": "b", "n": 2},
        {"nope": 1},
        {"n": 1},
    ]
    verdicts = await judged(checks, *(exists(tmp_path, **shapes[n % 5]) for n in range(300)))
    await checks.close()
    kinds = [Passed, Pending, Passed, CheckError, Passed]
    assert [type(verdict) for verdict in verdicts] == kinds * 60


async def test_a_database_locked_by_its_writer_is_an_error_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo.journal.readonly.BUSY_TIMEOUT_S", 0.2)
    await fill(tmp_path)
    holder = elsewhere(tmp_path, "BEGIN EXCLUSIVE")
    checks = RECORD_EXISTS.build()
    began = time.monotonic()
    asked = [target(tmp_path, "query", sql=f"SELECT n + {n} FROM t") for n in range(150)]
    verdicts = await judged(checks, exists(tmp_path, packet_id="a"), *asked)
    assert time.monotonic() - began < 15.0, "each target waited for itself"
    for verdict in verdicts:
        assert isinstance(verdict, CheckError)
        assert "locked" in verdict.message
    holder.communicate("", timeout=60)
    (verdict,) = await judged(checks, exists(tmp_path, packet_id="a"))
    assert isinstance(verdict, Passed)
    await checks.close()


async def test_a_hot_journal_waits_for_its_writer(tmp_path: Path) -> None:
    """What a killed writer left half written is no evidence; a read-only look cannot roll it back."""
    await fill(tmp_path)
    writer = elsewhere(
        tmp_path, "PRAGMA cache_size = 1", "BEGIN", "UPDATE t SET n = n + 10", FILL_UP
    )
    writer.kill()
    writer.communicate(timeout=60)
    assert (tmp_path / "a.db-journal").stat().st_size > 0
    checks = RECORD_EXISTS.build()
    (verdict,) = await judged(checks, exists(tmp_path, packet_id="a", n=1))
    assert isinstance(verdict, CheckError)
    await checks.close()
    output = OUTPUT.build(tmp_path)
    await output.recover(place(tmp_path))
    await output.close()
    checks = RECORD_EXISTS.build()
    (verdict,) = await judged(checks, exists(tmp_path, packet_id="a", n=1))
    await checks.close()
    assert isinstance(verdict, Passed)


async def test_a_wal_database_cut_short_in_place_is_not_believed(tmp_path: Path) -> None:
    run_sql(
        place(tmp_path)["path"],
        "PRAGMA journal_mode = wal",
        "CREATE TABLE t (packet_id PRIMARY KEY)",
        "INSERT INTO t VALUES ('a')",
    )
    checks = RECORD_EXISTS.build()
    assert isinstance((await judged(checks, exists(tmp_path, packet_id="a")))[0], Passed)
    os.truncate(place(tmp_path)["path"], 0)
    assert isinstance((await judged(checks, exists(tmp_path, packet_id="a")))[0], CheckError)
    await checks.close()


async def test_more_databases_than_may_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipo.connectors.sqlite.readers.READERS_OPEN", 2)
    await fill(tmp_path)
    source = place(tmp_path)["path"]
    checks = SqliteChecks()
    for n in range(4):
        run_sql(source, f"VACUUM INTO '{source}.{n}'")
    for n in (0, 1, 2, 3, 0):
        output: Mapping[str, Any] = {"path": f"{source}.{n}", "table": "t"}
        (verdict,) = await judged(
            checks, Target("record_exists", {"where": {"packet_id": "a"}}, None, output)
        )
        assert isinstance(verdict, Passed)
    assert len(checks._readers._readers) == 2
    await checks.close()
