"""R16: field names that are keywords, quotes, twins or nothing never make broken SQL."""

from __future__ import annotations

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
