"""R16: field names that are keywords, quotes, twins or nothing never make broken SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import outcome, running
from tests.stack import Stack, query

pytestmark = pytest.mark.slow


def cols(name: str, more: str = "") -> str:
    return f"""\
input: {{ via: http, with: {{ path: /cols }} }}
output:
  from: input
  to: sqlite
  with: {{ path: ./{name}.db, table: order, create: true{more} }}
"""


KEYWORDS = """\
delivered:
  check: record_exists
  with: { where: { order: "${data.order}", group: "${data.group}", when: "${data.when}", select: "${data.select}" } }
  within: 2s
"""
# A name in double quotes that is no column would be a text to SQLite, and equal to itself.
ASKED = ("nope", "a]b", 'a"b', "a b", 'x"); drop table "order";--')


def asks(name: str) -> str:
    where = json.dumps({name: name})
    return f"delivered: {{ check: record_exists, with: {{ where: {where} }}, within: 300ms }}\n"


COLUMNS = (
    ', columns: { packet_id: "${meta.key}", order: "${data.order}", group: "${data.group}",'
    ' when: "${data.when}", select: "${data.select}" }'
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    pipelines = {
        "words": cols("words") + KEYWORDS,
        "spelt": cols("spelt", COLUMNS) + KEYWORDS,
        "cols": cols("cols"),
        **{f"asked-{n}": cols(f"asked-{n}") + asks(name) for n, name in enumerate(ASKED)},
    }
    with running(tmp_path_factory.mktemp("cols"), pipelines) as made:
        yield made


@pytest.mark.parametrize("name", ["words", "spelt"])
def test_keywords_are_columns(stack: Stack, name: str) -> None:
    end = outcome(stack, name, {"order": 1, "group": "g", "when": "w", "select": 2})
    assert end["state"] == "delivered", end
    database = stack.workspace / f"{name}.db"
    columns = query(database, "SELECT name FROM pragma_table_info('order')")
    assert [row[0] for row in columns] == ["packet_id", "order", "group", "when", "select"]
    assert query(database, 'SELECT * FROM "order"') == [[end["packet_id"], 1, "g", "w", 2]]


ODD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "brackets": ({"a]b": 2}, ["a]b"]),
    "a quote": ({'a"b': 3}, ['a"b']),
    "a blank": ({"col 1": 4}, ["col 1"]),
    "other letters": ({"schlüssel\U0001f600": 5}, ["schl"]),
    "case twins": ({"Name": "x", "name": "y"}, ["Name", "name"]),
    "no name": ({"": 1}, ["''"]),
    "an injection": ({'x"); drop table "order";--': 1}, ["drop table"]),
}


@pytest.mark.parametrize("case", ODD)
def test_a_name_that_is_no_column_is_the_packets_own_error(stack: Stack, case: str) -> None:
    data, named = ODD[case]
    assert outcome(stack, "cols", {"v": 1})["state"] == "delivered"
    count = query(stack.workspace / "cols.db", 'SELECT count(*) FROM "order"')
    end = outcome(stack, "cols", {"v": 1, **data})
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.failed")
    for word in (*named, "columns"):
        assert word in end["error"]["message"]
    assert "syntax" not in end["error"]["message"]
    assert query(stack.workspace / "cols.db", 'SELECT count(*) FROM "order"') == count


def test_the_packets_id_is_ours(stack: Stack) -> None:
    end = outcome(stack, "cols", {"packet_id": "mine", "v": 1})
    assert end["state"] == "delivered"
    [row] = query(
        stack.workspace / "cols.db",
        f"SELECT packet_id, v FROM \"order\" WHERE packet_id = '{end['packet_id']}'",
    )
    assert row == [end["packet_id"], 1]
    assert (
        query(stack.workspace / "cols.db", "SELECT 1 FROM \"order\" WHERE packet_id = 'mine'") == []
    )


def test_a_field_called_rowid(stack: Stack) -> None:
    end = outcome(stack, "cols", {"packet_id": "mine", "rowid": 7, "v": 1})
    # `rowid` is a column like any other: this table has none of that name.
    assert end["state"] == "dead_lettered"
    assert "rowid" in end["error"]["message"]


@pytest.mark.parametrize("n", range(len(ASKED)))
def test_a_check_for_a_name_that_is_no_column(stack: Stack, n: int) -> None:
    end = outcome(stack, f"asked-{n}", {"v": 1})
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified")
    assert "syntax" not in end["error"]["message"]
    assert "column" in end["error"]["message"]
    rows = query(stack.workspace / f"asked-{n}.db", 'SELECT v FROM "order"')
    assert rows == [[1]]


def test_such_a_name_in_columns_is_refused_by_the_check(stack: Stack) -> None:
    for name in ASKED[1:]:
        given = json.dumps({"packet_id": "${meta.packet_id}", name: 1})
        text = cols("odd", f", columns: {given}")
        path = stack.write("odd.pipo", f"pipo: 1\nname: odd\n{text}")
        try:
            done = stack.pipo("check", "odd.pipo")
        finally:
            path.unlink()
        assert done.returncode == 1
        assert "error  P002" in done.stdout
