"""The sqlite checks against the contract, and what is their own.

The tables are written and closed before a check looks: two SQLite libraries in
one process must never have one file open.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest

from pipo.connectors.contract import CheckError, Passed, Pending, Target
from pipo.connectors.sqlite.checks import SqliteChecks
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
        "wanted": "t where packet_id = 'a'",
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
    assert all(isinstance(verdict, CheckError) for verdict in verdicts)
    assert contract.snapshot(tmp_path) == before


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
