from __future__ import annotations

import math

import pytest

from pipo.lang.faults import LanguageError
from pipo.lang.missing import MISSING
from pipo.lang.printing import json_text, jsonable, mixed_text, number_text, to_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        (-12.25, "-12.25"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (18446744073709551616, "18446744073709551616"),
    ],
)
def test_numbers_print_as_javascript_prints_them(value: float, text: str) -> None:
    assert number_text(value) == text


def test_json_is_javascripts() -> None:
    value = {"b": 1.0, "2": "é", "1": [MISSING, math.nan, True], "gone": MISSING, "01": None}
    assert json_text(value) == '{"1":[null,null,true],"2":"é","b":1,"01":null}'
    assert json_text("\ud83d\u2028\x7f\x00") == '"\\ud83d\u2028\x7f\\u0000"'
    assert json_text(10**30) == "1" + "0" * 30
    assert json_text({"4294967295": 1, "4294967294": 2}) == '{"4294967294":2,"4294967295":1}'
    with pytest.raises(LanguageError, match="is not a JSON value"):
        json_text({1, 2})


def test_text_of_values() -> None:
    assert to_text([1, [None, MISSING, "a"], {}]) == "1,,,a,[object Object]"
    assert mixed_text([1, {"a": MISSING}]) == "[1,{}]"
    assert mixed_text(None) == mixed_text(MISSING) == ""
    assert mixed_text(True) == "true"
    assert to_text(MISSING) == "undefined"


def test_what_a_rendered_value_becomes() -> None:
    got = jsonable({"a": [-0.0, math.inf, MISSING], "b": MISSING, "c": 10**30})
    assert got == {"a": [0, None, None], "c": 10**30}
    assert type(got["a"][0]) is int
    assert jsonable(MISSING) is MISSING
