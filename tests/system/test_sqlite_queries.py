"""Authors' queries that run for ever, write, or ask wrongly, through a real stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, outcome, push, running, settled
from tests.stack import Stack, query

pytestmark = pytest.mark.slow

ENDLESS = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE x < 0"
)


def asks(name: str, check: str, settings: str, within: str = "300ms") -> str:
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: sqlite\n"
        f"  with: {{ path: ./{name}.db, table: t, create: true }}\n"
        f"delivered:\n  check: {check}\n  with: {{ {settings} }}\n  within: {within}\n"
    )


# Each check, and what its dead letter says.
WRONG = {
    "two": ("query", "sql: 'SELECT 1; DELETE FROM t'", "the query cannot run"),
    "hidden": (
        "query",
        "sql: 'SELECT 1); DELETE FROM t; SELECT (1'",
        "one statement at a time",
    ),
    "pragma": ("query", "sql: 'PRAGMA user_version = 7'", "the query cannot run"),
    "attach": ("query", "sql: \"ATTACH 'other.db' AS o\"", "the query cannot run"),
    "extension": ("query", "sql: \"SELECT load_extension('./x')\"", "not authorized"),
    "too-few": (
        "row_count",
        "query: 'SELECT 1 FROM t WHERE n = ? AND n = ?', params: [1]",
        "the query has 2 `?`, and `params` holds 1",
    ),
    "no-column": ("record_exists", "where: { nope: 1 }", "table 't' has no column 'nope'"),
    "with-null": ("record_exists", 'where: { n: "${data.none}" }', "nothing equals NULL"),
    "min": ("row_count", "query: SELECT 1, min: few", "`min` is 'few', not a whole number"),
    "no-row": ("query", "sql: SELECT 1 FROM t WHERE n = 99", "the query returned no row"),
    "zero": ("query", "sql: SELECT 0", "the query's first value is 0"),
}
PIPELINES = {
    "endless": asks("endless", "query", f'sql: "{ENDLESS}"', "1s"),
    "quick": asks("quick", "query", "sql: SELECT 1", "10s"),
    "large": asks("large", "query", "sql: 'SELECT hex(zeroblob(20000000))'", "10s"),
    **{name: asks(name, check, settings) for name, (check, settings, _) in WRONG.items()},
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("queries"), PIPELINES) as made:
        yield made


def test_a_query_without_end_is_broken_off_and_holds_up_no_other(stack: Stack) -> None:
    id = push(stack, "endless", {"n": 1})
    for n in range(5):
        end = outcome(stack, "quick", {"n": n})
        assert end["state"] == "delivered"
        # The endless one has six seconds.
        assert n or took_ms(stack, "quick", end["packet_id"]) < 5_000
    end = settled(stack, "endless", id)
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified")
    assert "the query took longer than 6 s" in end["error"]["message"]
    assert 5_500 < took_ms(stack, "endless", id) < 30_000
    # The thread is free again.
    assert settled(stack, "endless", push(stack, "endless", {"n": 2}))["state"] == "dead_lettered"


def took_ms(stack: Stack, name: str, id: str) -> int:
    events: list[dict[str, Any]] = inspect(stack, name, id)["events"]
    return int(events[-1]["at"] - events[0]["at"])


def test_a_large_result_leaves_a_short_evidence(stack: Stack) -> None:
    end = outcome(stack, "large", {"n": 1})
    assert end["state"] == "delivered"
    (seen,) = (
        e for e in inspect(stack, "large", end["packet_id"])["events"] if "delivered" in e["type"]
    )
    assert "(40000000 characters)" in str(seen["detail"])
    assert len(str(seen["detail"])) < 2_000


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_query_is_said_and_nothing_is_changed(stack: Stack, name: str) -> None:
    end = outcome(stack, name, {"n": 1})
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified")
    assert WRONG[name][2] in end["error"]["message"]
    assert query(stack.workspace / f"{name}.db", "SELECT packet_id, n FROM t") == [
        [end["packet_id"], 1]
    ]
    assert query(stack.workspace / f"{name}.db", "PRAGMA user_version") == [[0]]
    assert not (stack.workspace / "other.db").exists()
