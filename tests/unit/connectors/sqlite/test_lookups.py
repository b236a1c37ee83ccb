"""The queries of the checks, and how they are told."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.sqlite import lookups
from pipo.connectors.sqlite.lookups import WantedShape, wanted

SHAPE: WantedShape = ("t", ("a", "b", "c"))


def test_a_group_of_any_size_meets_few_statements() -> None:
    sizes = {len(lookups.padded([(1, 2, 3)] * count)) for count in range(1, 513)}
    assert sizes == {1 << n for n in range(10)}


@pytest.mark.parametrize(("columns", "most"), [(1, 16_384), (3, 8_192), (2_000, 8), (30_001, 1)])
def test_a_query_holds_no_more_values_than_sqlite_takes(columns: int, most: int) -> None:
    shape = ("t", tuple(f"c{n}" for n in range(columns)))
    assert lookups.rows_max(shape) == most
    assert columns == 30_001 or most * columns <= 30_000


def test_the_query_of_a_group() -> None:
    assert lookups.which_exist(('a"b', ("order", "k")), 2) == (
        "WITH wanted(n, v0, v1) AS (VALUES (0, ?, ?), (1, ?, ?)) SELECT n FROM wanted"
        ' WHERE EXISTS (SELECT 1 FROM "a""b" AS found'
        ' WHERE found."order" = wanted.v0 AND found."k" = wanted.v1)'
    )
    assert lookups.as_one(("t", ("order",))) == 'SELECT 1 FROM "t" WHERE "order" = ?'


def test_a_wish_in_words() -> None:
    assert lookups.as_text(wanted("t", {"a": 1, "b": "x"})) == "t where a = 1 and b = 'x'"
    text = lookups.as_text(wanted("t", {"a": None, "b": "x" * 1_000_000}))
    assert text.startswith("t where a = NULL and b = 'xxx")
    assert text.endswith("… (nothing equals NULL)")
    assert len(text) < 300


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("short", "short"),
        ("x" * 1_000, "x" * 1_000),
        ("x" * 1_001, "x" * 200 + "… (1001 characters)"),
        (b"123", "3 bytes"),
        (float("inf"), "inf"),
        (1.5, 1.5),
        (7, 7),
        (None, None),
    ],
)
def test_what_evidence_keeps_of_a_value(value: Any, kept: Any) -> None:
    assert lookups.shown(value) == kept


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("…/a.db: no such column: found.na me", "table 't' has no column 'na me'"),
        ("…/a.db: no such column: other", "…/a.db: no such column: other"),
        (
            "Incorrect number of bindings supplied. The current statement uses 2, and there is"
            " 1 supplied.",
            "the query has 2 `?`, and `params` holds 1",
        ),
    ],
)
def test_what_sqlite_says_in_the_authors_words(said: str, told: str) -> None:
    assert lookups.explained(said, "t") == told
