"""The sqlite output, against a real stack (outputs, "sqlite")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import outcome, push, run_sql, running, settled
from tests.stack import Stack, query, wait_for

pytestmark = pytest.mark.slow


def table(name: str, more: str = "") -> str:
    """Pushed packets become rows of `t`."""
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: sqlite\n"
        f"  with: {{ path: ./{name}.db, table: t{more} }}\n"
    )


PEOPLE = """\
inputs:
  normalize: { via: push }
output:
  from: normalize
  to: sqlite
  with:
    path: ./data/people.db
    table: people
    create: true
    mode: upsert
    key: email
    columns:
      email: "${lower(data.email)}"
      name: "${data.name}"
      age: "${data.age}"
      tags: "${data.tags}"
      seen_at: "${iso(meta.received_at)}"
"""
TYPES = """\
input: { via: push }
output:
  from: input
  to: sqlite
  with:
    path: ./types.db
    table: t
    create: true
    columns: { packet_id: "${meta.key}", v: "${data.v}", text: "v=${data.v}" }
"""
BUSINESS_KEY = ", create: true, mode: %s, key: id, columns: { id: '${data.id}', v: '${data.v}' }"
RESULT = """\
delivered:
  check: query
  with: { sql: "SELECT ? = max(rowid) AND ? = 1 FROM t", params: ["${result.rowid}", "${result.changes}"] }
  within: 2s
"""
RETRIED = """\
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: ./altered.db, table: t, create: true }
  on_error: { retry: 200, delay: 100ms }
"""

KEYS = """\
input: { via: push }
nodes:
  both:
    from: input
    transform: map
    with: { data: { key: "${meta.key}", id: "${meta.packet_id}" } }
output: { from: both, to: sqlite, with: { path: ./keys.db, table: t, create: true } }
"""

PIPELINES = {
    "keys": KEYS,
    "plain": table("plain", ", create: true"),
    "keyed": table("keyed", ", create: true, key: email"),
    "people": PEOPLE,
    "types": TYPES,
    "first-wins": table("first-wins", BUSINESS_KEY % "insert"),
    "unsaid": table("unsaid", BUSINESS_KEY.replace(", mode: %s", "")),
    "last-wins": table("last-wins", BUSINESS_KEY % "upsert"),
    "unique": table("unique", BUSINESS_KEY % "upsert"),
    "bare": table("bare", ""),
    "absent": table("absent", ""),
    "altered": RETRIED,
    "result": table("result", ", create: true") + RESULT,
}
BEFORE = {
    "unique.db": "CREATE TABLE t (id UNIQUE, v)",
    "bare.db": "CREATE TABLE t (packet_id TEXT, n INTEGER)",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("sqlite"), PIPELINES, before=BEFORE) as made:
        yield made


def rows(stack: Stack, name: str, sql: str) -> list[list[Any]]:
    return query(stack.workspace / f"{name}.db", sql)


@pytest.mark.seed("O004", "O013", "O014", "O019", "O021")
def test_without_columns_the_fields_and_the_key_are_the_row(stack: Stack) -> None:
    for name, key in (("plain", "packet_id"), ("keyed", "email")):
        end = outcome(stack, name, {"email": "ada@example.com", "n": 7})
        assert end["state"] == "delivered", end
        fields = {"email": "ada@example.com", "n": 7, key: end["packet_id"]}
        made = query(
            stack.workspace / f"{name}.db", "SELECT name, type, pk FROM pragma_table_info('t')"
        )
        columns = {column: (kind, pk) for column, kind, pk in made}
        assert columns == {column: ("", int(column == key)) for column in fields}
        order = ", ".join(fields)
        assert rows(stack, name, f"SELECT {order} FROM t") == [list(fields.values())]


@pytest.mark.seed("O015")
@pytest.mark.parametrize("data", [["a"], "text", 7, True, None], ids=repr)
def test_data_that_is_no_object_needs_columns(stack: Stack, data: Any) -> None:
    end = outcome(stack, "plain", data)
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.failed")
    assert "columns" in end["error"]["message"]


@pytest.mark.seed("O013", "O016", "O024")
def test_the_people_of_the_seed_are_upserted(stack: Stack) -> None:
    # The one of these that is in a folder, which nobody has made.
    assert not (stack.workspace / "data").exists()
    first = {"email": "Ada@Example.com", "name": "Ada", "age": 36, "tags": ["a", {"b": 1}]}
    outcome(stack, "people", first)
    end = outcome(stack, "people", {"email": "ADA@example.com", "name": "Ada L.", "tags": None})
    assert end["state"] == "delivered"
    sql = (
        "SELECT email, name, age, tags,"
        " CAST(round((julianday(seen_at) - 2440587.5) * 86400000) AS INTEGER) FROM people"
    )
    assert query(stack.workspace / "data/people.db", sql) == [
        ["ada@example.com", "Ada L.", None, None, end["received_at"]]
    ]
    assert stack.stats("people")["delivered"] == 2
    end = outcome(stack, "people", {**first, "email": "bo@example.com"})
    sql = "SELECT name, age, json(tags), tags, seen_at FROM people WHERE email = 'bo@example.com'"
    [[name, age, tags, stored, seen_at]] = query(stack.workspace / "data/people.db", sql)
    assert (name, age, tags) == ("Ada", 36, '["a",{"b":1}]')
    assert stored == tags
    assert len(seen_at) == len("2026-10-10T21:13:48.263Z")
    assert seen_at.endswith("Z")


@pytest.mark.seed("O017")
@pytest.mark.parametrize(
    ("value", "kind", "stored", "text"),
    [
        (7, "integer", 7, "v=7"),
        (-(2**63), "integer", -(2**63), "v=-9223372036854775808"),
        (2.5, "real", 2.5, "v=2.5"),
        (True, "integer", 1, "v=true"),
        (False, "integer", 0, "v=false"),
        (None, "null", None, "v="),
        ("7", "text", "7", "v=7"),
        ({"a": [1, None]}, "text", '{"a":[1,null]}', 'v={"a":[1,null]}'),
        ([1, "é"], "text", '[1,"é"]', 'v=[1,"é"]'),
    ],
    ids=repr,
)
def test_a_single_template_keeps_its_type(
    stack: Stack, value: Any, kind: str, stored: Any, text: str
) -> None:
    id = outcome(stack, "types", {"v": value})["packet_id"]
    sql = f"SELECT typeof(v), v, text FROM t WHERE packet_id = '{id}'"
    assert rows(stack, "types", sql) == [[kind, stored, text]]


@pytest.mark.seed("O023", "O024", "O025", "O026")
def test_insert_keeps_the_first_and_upsert_takes_the_last(stack: Stack) -> None:
    for name, kept, changes in (("first-wins", "one", 0), ("last-wins", "two", 1)):
        one, two = (outcome(stack, name, {"id": 7, "v": value}) for value in ("one", "two"))
        assert one["state"] == two["state"] == "delivered"
        assert one["result"] == {"rowid": 1, "changes": 1}
        assert two["result"] == {"rowid": 1, "changes": changes}
        assert rows(stack, name, "SELECT id, v FROM t") == [[7, kept]]
        assert stack.stats(name)["delivered"] == 2
    # Without a mode, the first write wins.
    for value in ("one", "two"):
        assert outcome(stack, "unsaid", {"id": 7, "v": value})["state"] == "delivered"
    assert rows(stack, "unsaid", "SELECT id, v FROM t") == [[7, "one"]]
    for _ in range(2):
        assert outcome(stack, "result", {"same": 1})["state"] == "delivered"
    assert rows(stack, "result", "SELECT same FROM t") == [[1], [1]]
    assert stack.stats("result")["delivered"] == 2


@pytest.mark.seed("O019")
def test_a_unique_column_of_an_own_table_is_key_enough(stack: Stack) -> None:
    for value in ("one", "two"):
        assert outcome(stack, "unique", {"id": "a", "v": value})["state"] == "delivered"
    assert rows(stack, "unique", "SELECT id, v FROM t") == [["a", "two"]]


@pytest.mark.seed("O020")
def test_an_own_table_whose_key_is_not_unique(stack: Stack) -> None:
    error = outcome(stack, "bare", {"n": 1})["error"]
    assert error["code"] == "output.failed"
    assert "packet_id" in error["message"]
    assert "UNIQUE" in error["message"]
    assert rows(stack, "bare", "SELECT * FROM t") == []


def test_a_missing_table_without_create_says_so(stack: Stack) -> None:
    message = outcome(stack, "absent", {"n": 1})["error"]["message"]
    assert "has no table 't'" in message
    assert "create" in message


@pytest.mark.seed("O022")
def test_a_new_field_waits_for_its_column(stack: Stack) -> None:
    assert outcome(stack, "altered", {"n": 1})["state"] == "delivered"
    defined = "SELECT sql FROM sqlite_schema WHERE name = 't'"
    before = rows(stack, "altered", defined)
    id = push(stack, "altered", {"n": 2, "more": "x"})
    wait_for(lambda: stack.pipo("inspect", "altered", id).stdout.count("retry ") >= 2)
    assert rows(stack, "altered", defined) == before
    run_sql(stack.workspace / "altered.db", "ALTER TABLE t ADD COLUMN more")
    assert settled(stack, "altered", id)["state"] == "delivered"
    assert rows(stack, "altered", "SELECT n, more FROM t ORDER BY n") == [[1, None], [2, "x"]]


@pytest.mark.seed("O025")
def test_the_result_is_rowid_and_changes(stack: Stack) -> None:
    for _ in range(2):
        end = outcome(stack, "result", {"same": 2})
        assert end["state"] == "delivered"
        sql = f"SELECT rowid FROM t WHERE packet_id = '{end['packet_id']}'"
        [[rowid]] = rows(stack, "result", sql)
        assert end["result"] == {"rowid": rowid, "changes": 1}
    # More than one row by now, so that no constant is right.
    assert rowid > 1


@pytest.mark.seed("O049")
def test_the_default_key_is_the_packets_id(stack: Stack) -> None:
    id = outcome(stack, "keys", {})["packet_id"]
    assert rows(stack, "keys", "SELECT packet_id, key, id FROM t") == [[id, id, id]]
