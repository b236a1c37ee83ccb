"""What a body must hold (decision 15, edge 199)."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import CheckError
from pipo.connectors.http.matching import difference


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": {"b": None}}, {"a": {"b": None, "c": 1}}),
        ([], [1]),
        ([2, 1], [1, 2, 3]),
        ([{"id": 2}], [{"id": 1}, {"id": 2, "n": "x"}]),
        ([[1]], [[2, 1], []]),
        (1, 1.0),
        (10**30, 10**30),
        ("x", "x"),
        (None, None),
        (True, True),
    ],
)
def test_what_matches(wanted: Any, found: Any) -> None:
    assert difference(wanted, found) == ""


@pytest.mark.parametrize(
    ("wanted", "found", "told"),
    [
        ({"a": 1}, {"a": 2}, "a is 2, not 1"),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, 'a.b is "y", not "x"'),
        ({"a": {"b": 1}}, {"a": {}}, "there is no a.b"),
        ({"a": None}, {}, "there is no a"),
        ({"a": 1}, {"a": "1"}, 'a is "1", not 1'),
        ({"a": True}, {"a": 1}, "a is 1, not true"),
        ({"a": 0}, {"a": False}, "a is false, not 0"),
        ({"a": 1}, [{"a": 1}], 'the body is [{"a":1}], not {"a":1}'),
        ([1], {"0": 1}, 'the body is {"0":1}, not [1]'),
        ([{"id": 3}], [{"id": 1}], 'no element of the body is {"id":3}'),
        ({"l": [1, 4]}, {"l": [1, 2]}, "no element of l is 4"),
        ({"a": 1}, {"a": "x" * 300}, "a is a value of 302 characters, not 1"),
        ({"a": 10**30}, {"a": 10**30 + 1}, f"a is {10**30 + 1}, not {10**30}"),
    ],
)
def test_what_does_not_match_is_named(wanted: Any, found: Any, told: str) -> None:
    assert difference(wanted, found) == told


def test_two_long_lists_are_not_compared_for_minutes() -> None:
    wanted, found = [[n] for n in range(5000)], [[n] for n in range(5000, 10_000)]
    assert difference(wanted[:1], found) == "no element of the body is [0]"
    with pytest.raises(CheckError, match="expect less of the body"):
        difference(list(range(5000)), list(range(5000))[::-1])
