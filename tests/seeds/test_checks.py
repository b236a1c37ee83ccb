"""Delivery checks, against a real stack (delivery-checks)."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.packets import inspect, outcome, packet, push, run_sql, running, settled
from tests.stack import Stack, lines, query, wait_for

pytestmark = pytest.mark.slow

SHORT = "  within: 600ms\n"


def to_sqlite(name: str, check: str, *, table: str = "t, create: true") -> str:
    """Pushed packets become rows; `check` is the inside of `delivered`."""
    return (
        "secrets: { word: env:WORD }\ninput: { via: push }\noutput:\n  from: input\n  to: sqlite\n"
        f"  with: {{ path: ./{name}.db, table: {table} }}\ndelivered:\n{check}"
    )


def to_file(name: str, check: str, *, path: str = "") -> str:
    """Pushed packets become lines; `check` is the inside of `delivered`."""
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: file\n"
        f'  with: {{ path: "{path or f"./out/{name}.jsonl"}" }}\ndelivered:\n{check}'
    )


def looks(check: str, settings: str, within: str = SHORT) -> str:
    return f"  check: {check}\n  with: {{ {settings} }}\n{within}"


OWN_ROW = looks("record_exists", 'where: { packet_id: "${meta.packet_id}" }')
ORDER_LINES = (
    'query: "SELECT 1 FROM order_lines WHERE order_id = ?", params: ["${data.order_id}"], min: %s'
)
INVOICE = (
    'sql: "SELECT total = ? FROM invoices WHERE id = ?",'
    ' params: ["${data.total}", "${data.invoice_id}"]'
)
HEARTBEAT_LOST = """\
input: { via: schedule, with: { every: 1s, payload: { status: alive } } }
output:
  from: input
  to: file
  with: { path: ./out/heartbeat-lost.jsonl, format: jsonl }
delivered:
  check: line_contains
  with: { value: "${meta.packet_id}", path: ./elsewhere.jsonl }
  within: 1s
  on_fail:
    then: dead_letter
    message: "No line for ${meta.packet_id} after ${error.elapsed}"
"""
EACH_FILE = "./out/each/${data.n}.jsonl"
# What each name must be for the check to pass (D010).
NAMES = {
    "env": "${env.WHO}",
    "secrets": "${secrets.word}",
    "output": "${output.with.table}",
    "result": "row ${result.rowid} of ${result.changes}",
}
FORGETS = (
    "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER);"
    "CREATE TRIGGER forget AFTER INSERT ON t BEGIN DELETE FROM t; END;"
)
RENDERED = """\
input: { via: push }
nodes: { render: { from: input, transform: map, with: { data: "${data}" } } }
output:
  from: render
  to: file
  with: { path: "./rendered/out/${meta.packet_id}.json", format: json, mode: write }
delivered:
  check: file_nonempty
"""

PIPELINES = {
    "rendered": RENDERED,
    "slowest": to_sqlite("slowest", "  check: query\n  with: { sql: 'SELECT 0' }\n"),
    "waits": to_sqlite(
        "waits", looks("query", "sql: 'SELECT count(*) FROM seen'", "  within: 1m\n")
    ),
    "heartbeat-lost": HEARTBEAT_LOST,
    "own-row": to_sqlite(
        "own-row",
        looks(
            "record_exists",
            'where: { n: "${data.want}", packet_id: "${meta.packet_id}" }',
        ),
    ),
    "names": to_sqlite("names", looks("record_exists", 'where: { "${x}": 1 }')),
    **{
        f"name-{name}": to_sqlite(
            f"name-{name}",
            looks("query", f'sql: "SELECT ? = ?", params: ["${{data.want}}", "{text}"]'),
        )
        for name, text in NAMES.items()
    },
    "own-message": "errors: { message: 'from errors', retry: 3 }\n"
    + to_sqlite("own-message", looks("query", "sql: 'SELECT 0'")),
    "no-table": to_sqlite(
        "no-table", looks("query", "sql: 'SELECT 1 FROM later'", "  within: 20s\n")
    ),
    "never-table": to_sqlite(
        "never-table", looks("query", "sql: 'SELECT 1 FROM never'", "  within: 1s\n")
    ),
    **{
        f"writes-{n}": to_sqlite(f"writes-{n}", looks("query", f'sql: "{sql}"'))
        for n, sql in enumerate(
            (
                "INSERT INTO t (packet_id) VALUES ('forged') RETURNING 1",
                "UPDATE t SET n = 100 RETURNING 1",
                "DELETE FROM t RETURNING 1",
            )
        )
    },
    "bound": to_sqlite(
        "bound", looks("query", "sql: 'SELECT 1 FROM t WHERE name = ?', params: ['${data.wanted}']")
    ),
    "counted": to_sqlite(
        "counted", looks("row_count", ORDER_LINES % 1), table="orders, create: true"
    ),
    "counted-twice": to_sqlite("counted-twice", looks("row_count", ORDER_LINES % 2)),
    "totals": to_sqlite("totals", looks("query", INVOICE)),
    "here": to_file("here", looks("file_exists", "")),
    "here-own": to_file("here-own", "  check: file_exists\n" + SHORT, path=EACH_FILE),
    "filled-own": to_file("filled-own", "  check: file_nonempty\n" + SHORT, path=EACH_FILE),
    "line-own": to_file(
        "line-own", looks("line_contains", 'value: "${meta.packet_id}"'), path=EACH_FILE
    ),
    "sum-own": to_file("sum-own", looks("checksum", 'sha256: "${data.sum}"'), path=EACH_FILE),
    "here-at": to_file("here-at", looks("file_exists", 'path: "./at/${data.at}"')),
    "filled-at": to_file("filled-at", looks("file_nonempty", 'path: "./at/${data.at}"')),
    "line-at": to_file(
        "line-at", looks("line_contains", 'value: "${data.value}", path: "./at/${data.at}"')
    ),
    "sum-at": to_file(
        "sum-at", looks("checksum", 'sha256: "${data.sum}", path: "./at/${data.at}"')
    ),
    "nothing": to_sqlite("nothing", "  check: none\n", table="t"),
    "trusting": to_sqlite("trusting", "  check: ack\n"),
    "looking": to_sqlite("looking", OWN_ROW.replace("600ms", "1s")),
}
BEFORE = {
    "counted.db": "CREATE TABLE order_lines (order_id); INSERT INTO order_lines VALUES (1), (2), (2)",
    "counted-twice.db": "CREATE TABLE order_lines (order_id); INSERT INTO order_lines VALUES (1), (2), (2)",
    "totals.db": "CREATE TABLE invoices (id, total); INSERT INTO invoices VALUES (1, 20), (2, 30)",
    "waits.db": "CREATE TABLE seen (n)",
    "nothing.db": FORGETS,
}
del PIPELINES["names"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    environment = {"WHO": "ada", "WORD": "open-sesame"}
    config = "engine: { env_allow: [WHO] }\n"
    folder = tmp_path_factory.mktemp("checks")
    at = folder / "workspace/at"
    at.mkdir(parents=True)
    (at / "empty").write_bytes(b"")
    (at / "one").write_bytes(b"x")
    (at / "lines").write_text("alpha\r\nbeta gamma\n")
    with running(folder, PIPELINES, env=environment, config=config, before=BEFORE) as made:
        made.slowest = push(made, "slowest", {"n": 1})  # type: ignore[attr-defined]
        yield made


def state(stack: Stack, name: str, data: Any) -> str:
    """Where one packet ends; a dead letter is always the check's."""
    end = outcome(stack, name, data)
    if end["state"] == "dead_lettered":
        assert end["error"]["code"] == "delivery.unverified", end
        assert end["error"]["node"] == "delivered"
    return str(end["state"])


def written(database: Path, count: int) -> bool:
    return len(query(database, "SELECT * FROM t")) == count


PASSED, FAILED = "delivered", "dead_lettered"


@pytest.mark.seed("D001")
def test_a_written_row_is_not_yet_delivered(stack: Stack) -> None:
    id = push(stack, "waits", {"n": 1})
    wait_for(lambda: packet(stack, "waits", id)["state"] == "verifying")
    assert query(stack.workspace / "waits.db", "SELECT packet_id FROM t") == [[id]]
    assert stack.stats("waits")["delivered"] == 0
    assert "verifying" in stack.pipo("inspect", "waits", id).stdout
    run_sql(stack.workspace / "waits.db", "INSERT INTO seen VALUES (1)")
    assert settled(stack, "waits", id)["state"] == PASSED


@pytest.mark.seed("D004")
def test_a_heartbeat_without_its_line(stack: Stack) -> None:
    out = stack.workspace / "out/heartbeat-lost.jsonl"
    wait_for(lambda: out.exists() and lines(out))
    id = lines(out)[0]["packet_id"]
    end = settled(stack, "heartbeat-lost", id)
    message = end["error"]["message"]
    assert (end["state"], end["error"]["code"]) == (FAILED, "delivery.unverified")
    before, _, elapsed = message.rpartition(" ")
    assert before == f"No line for {id} after"
    assert elapsed.endswith("s")
    assert 1.0 <= float(elapsed[:-1]) < 30.0
    assert message in stack.pipo("inspect", "heartbeat-lost", id).stdout


@pytest.mark.seed("D009")
def test_each_packet_is_checked_with_its_own_values(stack: Stack) -> None:
    assert state(stack, "own-row", {"n": 1, "want": 1}) == PASSED
    assert state(stack, "own-row", {"n": 2, "want": 2}) == PASSED
    assert state(stack, "own-row", {"n": 3, "want": 1}) == FAILED


@pytest.mark.seed("D010")
@pytest.mark.parametrize(
    ("name", "right"),
    [("env", "ada"), ("secrets", "open-sesame"), ("output", "t"), ("result", "row 1 of 1")],
)
def test_what_a_check_can_name(stack: Stack, name: str, right: str) -> None:
    assert state(stack, f"name-{name}", {"want": right}) == PASSED
    assert state(stack, f"name-{name}", {"want": f"not {right}"}) == FAILED


def test_on_fail_takes_nothing_from_errors(stack: Stack) -> None:
    end = outcome(stack, "own-message", {"n": 1})
    assert end["error"]["code"] == "delivery.unverified"
    assert "from errors" not in end["error"]["message"]
    types = [event["type"] for event in inspect(stack, "own-message", end["packet_id"])["events"]]
    assert types == [
        "packet.accepted",
        "output.written",
        "delivery.unverified",
        "packet.dead_lettered",
    ]


@pytest.mark.seed("D019")
def test_a_check_that_cannot_run_is_tried_again(stack: Stack) -> None:
    never = push(stack, "never-table", {"n": 1})
    id = push(stack, "no-table", {"n": 1})
    end = settled(stack, "never-table", never)
    assert "never" in end["error"]["message"]
    assert_waited(stack, "never-table", never, 1000)
    assert packet(stack, "no-table", id)["state"] == "verifying"
    run_sql(stack.workspace / "no-table.db", "CREATE TABLE later (n); INSERT INTO later VALUES (1)")
    assert settled(stack, "no-table", id)["state"] == PASSED


@pytest.mark.seed("D020")
def test_the_last_error_of_a_check_is_the_packets(stack: Stack) -> None:
    end = outcome(stack, "never-table", {"n": 2})
    assert end["error"]["code"] == "delivery.unverified"
    assert "no such table: never" in end["error"]["message"]
    assert "no such table: never" in stack.pipo("inspect", "never-table", end["packet_id"]).stdout


@pytest.mark.seed("D025")
@pytest.mark.parametrize("n", range(3), ids=["insert", "update", "delete"])
def test_a_check_changes_nothing(stack: Stack, n: int) -> None:
    end = outcome(stack, f"writes-{n}", {"n": 7})
    assert (end["state"], end["error"]["code"]) == (FAILED, "delivery.unverified")
    found = query(stack.workspace / f"writes-{n}.db", "SELECT packet_id, n FROM t")
    assert found == [[end["packet_id"], 7]]


@pytest.mark.seed("D026")
def test_params_are_bound(stack: Stack) -> None:
    assert state(stack, "bound", {"name": "Ada", "wanted": "Ada"}) == PASSED
    for evil in ("' OR 1=1 --", "x'; DROP TABLE t; --"):
        assert state(stack, "bound", {"name": "Bo", "wanted": evil}) == FAILED
        assert state(stack, "bound", {"name": evil, "wanted": evil}) == PASSED
    assert query(stack.workspace / "bound.db", "SELECT count(*) FROM t") == [[5]]


@pytest.mark.seed("D028")
def test_row_count_needs_its_min(stack: Stack) -> None:
    # Order 2 has two lines, order 1 one, order 0 none.
    ends = [
        [state(stack, name, {"order_id": order}) for order in (0, 1, 2)]
        for name in ("counted", "counted-twice")
    ]
    assert ends == [[FAILED, PASSED, PASSED], [FAILED, FAILED, PASSED]]


@pytest.mark.seed("D029")
def test_query_needs_a_true_value(stack: Stack) -> None:
    assert state(stack, "totals", {"invoice_id": 1, "total": 20}) == PASSED
    assert state(stack, "totals", {"invoice_id": 2, "total": 20}) == FAILED
    assert state(stack, "totals", {"invoice_id": 2, "total": None}) == FAILED
    assert state(stack, "totals", {"invoice_id": 9, "total": 20}) == FAILED


@pytest.mark.seed("D030")
def test_the_path_of_a_file_check_is_the_outputs(stack: Stack) -> None:
    for name in ("here-own", "filled-own", "line-own"):
        for n in (1, 2):
            assert state(stack, name, {"n": f"{name}-{n}"}) == PASSED
    wrong = {"n": "sum", "sum": "0" * 64}
    end = outcome(stack, "sum-own", wrong)
    assert end["state"] == FAILED
    assert str(stack.workspace / "out/each/sum.jsonl") in end["error"]["message"]
    missing = {"at": "missing", "value": "x", "sum": "0" * 64}
    for name in ("here-at", "filled-at", "line-at", "sum-at"):
        assert state(stack, name, missing) == FAILED


@pytest.mark.seed("D031")
def test_file_exists_also_when_it_is_empty(stack: Stack) -> None:
    assert state(stack, "here-at", {"at": "empty"}) == PASSED
    assert state(stack, "here-at", {"at": "one"}) == PASSED
    assert state(stack, "here-at", {"at": "none"}) == FAILED


@pytest.mark.seed("D032")
def test_a_file_for_each_packet_and_the_check_of_it(stack: Stack) -> None:
    checked = stack.pipo("check", "rendered.pipo")
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.endswith("  ok\n")
    ids = [push(stack, "rendered", {"n": n}) for n in range(3)]
    for id in ids:
        assert settled(stack, "rendered", id)["state"] == PASSED
    found = sorted((stack.workspace / "rendered/out").iterdir())
    assert [path.name for path in found] == [f"{id}.json" for id in ids]
    assert [json.loads(path.read_text()) for path in found] == [{"n": n} for n in range(3)]


@pytest.mark.seed("D032")
def test_file_nonempty_wants_a_byte(stack: Stack) -> None:
    assert state(stack, "filled-at", {"at": "empty"}) == FAILED
    assert state(stack, "filled-at", {"at": "one"}) == PASSED


@pytest.mark.seed("D033")
def test_line_contains(stack: Stack) -> None:
    for value, end in (
        ("beta", PASSED),
        ("alpha", PASSED),
        ("delta", FAILED),
        ("alpha\r\nbeta", FAILED),
    ):
        assert state(stack, "line-at", {"at": "lines", "value": value}) == end, value


@pytest.mark.seed("D035")
def test_checksum_of_a_file_known_in_advance(stack: Stack) -> None:
    right = hashlib.sha256(b"alpha\r\nbeta gamma\n").hexdigest()
    for sum, end in ((right, PASSED), (right.upper(), PASSED), (right[::-1], FAILED)):
        assert state(stack, "sum-at", {"at": "lines", "sum": sum}) == end


@pytest.mark.seed("D055")
def test_none_looks_at_nothing(stack: Stack) -> None:
    id = push(stack, "nothing", {"n": 1})
    end = settled(stack, "nothing", id)
    assert end["state"] == PASSED
    assert "evidence" not in end or end["evidence"] is None
    assert query(stack.workspace / "nothing.db", "SELECT * FROM t") == []
    written, delivered = inspect(stack, "nothing", id)["events"][1:]
    assert (written["type"], delivered["type"]) == ("output.written", "packet.delivered")
    # Not at the end of `within`, which is ten seconds.
    assert delivered["at"] - written["at"] < 5_000


@pytest.mark.seed("D075")
def test_a_database_put_in_place_by_someone_else(stack: Stack) -> None:
    checker = stack.service_pid("checker")
    assert checker is not None
    for name, end in (("trusting", PASSED), ("looking", FAILED)):
        assert state(stack, name, {"n": 1}) == PASSED
        database = stack.workspace / f"{name}.db"
        os.kill(checker, signal.SIGSTOP)
        try:
            id = push(stack, name, {"n": 2})
            wait_for(partial(written, database, 2))
            other = stack.workspace / "other.db"
            run_sql(other, "CREATE TABLE t (packet_id PRIMARY KEY, n)")
            os.replace(other, database)
        finally:
            os.kill(checker, signal.SIGCONT)
        assert settled(stack, name, id)["state"] == end
        assert query(database, "SELECT * FROM t") == []


@pytest.mark.seed("D008")
def test_within_is_ten_seconds_unless_set(stack: Stack) -> None:
    id: str = stack.slowest  # type: ignore[attr-defined]
    settled(stack, "slowest", id)
    assert_waited(stack, "slowest", id, 10_000)


def assert_waited(stack: Stack, name: str, id: str, ms: int) -> None:
    """The dead letter came `ms` after the write, not earlier and not much later."""
    at = {event["type"]: event["at"] for event in inspect(stack, name, id)["events"]}
    assert ms <= at["packet.dead_lettered"] - at["output.written"] < ms + 2_500
