from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

from pipo.lang.values import (
    MISSING,
    equal,
    member,
    number,
    text_to_number,
    truthy,
    within,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        (" \ufeff12\u00a0", 12),
        ("0x1F", 31),
        ("0o17", 15),
        ("0b11", 3),
        (".5", 0.5),
        ("5.", 5),
        ("1e3", 1000),
        ("-Infinity", -math.inf),
        ("1" + "0" * 400, math.inf),
    ],
)
def test_texts_that_are_numbers(text: str, value: float) -> None:
    assert text_to_number(text) == value


@pytest.mark.parametrize("text", ["12px", "1_000", "-0x1F", "٣", "infinity", "1 2", "\x85", "+"])
def test_texts_that_are_no_numbers(text: str) -> None:
    assert math.isnan(text_to_number(text))


def test_a_whole_double_becomes_an_int_but_minus_zero_stays() -> None:
    assert type(number(2.0)) is int
    assert type(number(2.0**53 - 1)) is int
    # The double of 2^53 + 1 as well: beside a whole number from data it is compared as a double.
    assert type(number(2.0**53)) is float
    assert math.copysign(1, number(-0.0)) == -1
    assert number(0.5) == 0.5


@pytest.mark.parametrize("value", [False, 0, -0.0, "", None, MISSING, math.nan])
def test_falsy(value: Any) -> None:
    assert not truthy(value)


@pytest.mark.parametrize("value", [True, -1, 0.1, "0", " ", [], {}, math.inf])
def test_truthy(value: Any) -> None:
    assert truthy(value)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (0, -0.0, True),
        (1, True, False),
        ("1", 1, False),
        (None, MISSING, False),
        (MISSING, MISSING, True),
        (math.nan, math.nan, False),
        ([1, [2]], [1.0, [2]], True),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": None}, {"b": None, "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        # Whole numbers from data keep their digits; beside a double they are doubles.
        (2**53 + 1, 2**53, False),
        (2**53 + 1, float(2**53), True),
        (10**400, math.inf, True),
    ],
)
def test_equality_is_strict_and_deep(left: Any, right: Any, same: bool) -> None:
    assert equal(left, right) is same
    assert equal(right, left) is same


@pytest.mark.parametrize(
    ("value", "key", "got"),
    [
        ({"7": "x"}, 7, "x"),
        ({"7": "x"}, 7.0, "x"),
        ({"true": 1}, True, 1),
        ([1, 2], "1", 2),
        ([1, 2], "01", MISSING),
        ([1, 2], 1.5, MISSING),
        ([1, 2], -1, MISSING),
        ([1, 2], 10**30, MISSING),
        ("abc", 1, "b"),
        (None, "a", MISSING),
        (5, "a", MISSING),
        ([1], "length", MISSING),
    ],
)
def test_members_are_own_keys_items_and_units(value: Any, key: Any, got: Any) -> None:
    assert member(value, key) is got if got is MISSING else member(value, key) == got


def test_membership() -> None:
    assert within(2, [1, 2.0])
    assert within("b", "abc")
    assert within(1, {"1": None})
    assert not within(1, "123")
    assert not within("a", None)


def test_there_is_one_missing() -> None:
    assert copy.deepcopy(MISSING) is MISSING
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING
    assert not MISSING
    assert repr(MISSING) == "MISSING"
