"""What a unit becomes as a row, and what no table can hold (report R16, decision 17)."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import Refused
from pipo.connectors.sqlite import statements
from pipo.connectors.sqlite.rows import Shape, key_text, row, value_of


def made(data: Any, **settings: Any) -> tuple[tuple[str, ...], list[Any]]:
    found = row(data, {"path": "/x", "table": "t", **settings}, "k1")
    return found.shape.columns, list(found.values)


def refused(data: Any, **settings: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        made(data, **settings)
    return caught.value


def test_fields_become_columns_after_the_key() -> None:
    assert made({"a": 1, "b": "x"}) == (("packet_id", "a", "b"), ["k1", 1, "x"])
    assert made({"a": 1}, key="id") == (("id", "a"), ["k1", 1])


def test_a_field_called_like_the_key_is_lost() -> None:
    assert made({"packet_id": "mine", "rowid": 7, "v": 1}) == (
        ("packet_id", "rowid", "v"),
        ["k1", 7, 1],
    )


def test_columns_are_taken_as_they_are() -> None:
    columns = {"email": "a@b", "tags": ["x"], "ok": True}
    assert made("not an object", key="email", columns=columns) == (
        ("email", "tags", "ok"),
        ["a@b", '["x"]', 1],
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [(None, "null"), ("x", "a text"), ([1], "a list"), (1.5, "a number"), (True, "a boolean")],
)
def test_data_that_is_no_object_points_to_columns(data: Any, kind: str) -> None:
    refusal = refused(data)
    assert refusal.message == f"data is {kind}, and a row is made of an object's fields"
    assert "`columns`" in refusal.hint


@pytest.mark.parametrize(
    "name", ["a]b", 'a"b', "col 1", "schlüssel😀", "", 'x"); drop', "1a", "a\n"]
)
def test_a_name_that_is_no_identifier_points_to_columns(name: str) -> None:
    refusal = refused({name: 1})
    assert repr(name) in refusal.message
    assert "`columns`" in refusal.hint


def test_a_long_name_is_shortened() -> None:
    assert len(refused({"x y" * 1000: 1}).message) < 150


@pytest.mark.parametrize("data", [{"Name": "x", "name": "y"}, {"Packet_ID": 1}])
def test_names_that_differ_in_case_name_both(data: Any) -> None:
    refusal = refused(data)
    assert "are one column" in refusal.message
    assert refusal.message.count("'") == 4


@pytest.mark.parametrize("columns", [{"n": 1}, {"email": None, "n": 1}])
def test_a_key_of_nothing_is_refused(columns: Any) -> None:
    refusal = refused({}, key="email", columns=columns)
    assert "'email' is null or missing" in refusal.message
    assert "${data.email ?? meta.packet_id}" in refusal.hint


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        (-(2**63), -(2**63)),
        (-(2**63) - 1, "-9223372036854775809"),
        (int("9" * 4300), "9" * 4300),
        (True, 1),
        (False, 0),
        (None, None),
        (1.5, 1.5),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ("", ""),
    ],
)
def test_values(value: Any, stored: Any) -> None:
    assert value_of(value) == stored
    assert type(value_of(value)) is type(stored)


def test_the_key_as_text() -> None:
    def key(value: Any) -> str | None:
        return key_text({"key": "id", "columns": {"id": value}})

    assert key("a") == "a"
    assert key(7) == "7"
    assert key(1.5) == "1.5"
    assert key(True) == "1"
    assert key([1]) == "[1]"
    assert key(None) is None
    assert key_text({"key": "id"}) is None


def test_rows_of_one_shape_share_it() -> None:
    settings = {"path": "/x", "table": "t"}
    first, second = row({"a": 1}, settings, "k1"), row({"a": 2}, settings, "k2")
    assert first.shape is second.shape


def shape(*columns: str, upsert: bool = False) -> Shape:
    return Shape(table='a"b', key=columns[0], upsert=upsert, create=True, columns=columns)


def test_the_sql_of_an_insert() -> None:
    key = '"k" COLLATE "NOCASE"'
    assert statements.insert(shape("k", "order"), key, 2) == (
        'INSERT INTO "a""b" ("k", "order") VALUES (?,?),(?,?)'
        ' ON CONFLICT ("k" COLLATE "NOCASE") DO NOTHING'
    )
    assert statements.insert(shape("k", "v", upsert=True), '"k"', 1).endswith(
        'ON CONFLICT ("k") DO UPDATE SET "v" = excluded."v"'
    )
    assert statements.insert(shape("k", upsert=True), '"k"', 1).endswith("DO NOTHING")


def wide(columns: int) -> Shape:
    return shape(*(f"c{n}" for n in range(columns)))


@pytest.mark.parametrize(
    ("columns", "count", "cut"),
    [
        (3, 1, [1]),
        (3, 63, [63]),
        (3, 200, [192, 8]),
        (3, 600, [256, 256, 64, 24]),
        (100, 200, [64, 64, 64, 8]),
        (1000, 20, [7, 7, 6]),
        (40_000, 2, [1, 1]),
    ],
)
def test_a_group_is_cut_into_few_kinds_of_statements(
    columns: int, count: int, cut: list[int]
) -> None:
    assert list(statements.cuts(wide(columns), count)) == cut


def test_the_sql_of_a_table() -> None:
    assert statements.create(shape("k", "v")) == (
        'CREATE TABLE IF NOT EXISTS "a""b" ("k" PRIMARY KEY, "v")'
    )
