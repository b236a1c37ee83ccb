from __future__ import annotations

import math
from typing import Any

import pytest

from pipo.lang.expressions import MISSING, LanguageError, compile_expression, dotted

BIG = 9007199254740993


def value(text: str, **scope: Any) -> Any:
    return compile_expression(text).evaluate(scope)


def test_a_rule_as_authors_write_it() -> None:
    rule = compile_expression('data.age >= 18 && lower(trim(data.email)) != ""')
    assert rule.evaluate({"data": {"age": 18, "email": " A@B.c "}}) is True
    assert rule.evaluate({"data": {"age": 17, "email": "x"}}) is False
    assert rule.evaluate({"data": {"age": 20, "email": "  "}}) is False
    assert rule.holds({"data": {"age": 20, "email": "x"}})
    assert rule.names == {"data"}


def test_a_shared_expression_keeps_nothing() -> None:
    rule = compile_expression("data.n + 1")
    assert [rule.evaluate({"data": {"n": n}}) for n in (1, "1", None)] == [2, "11", 1]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("nope", "unknown_name"), ("nope.a.b", "unknown_name"), ("nope[0]", "unknown_name")],
)
def test_an_unknown_variable_is_an_error_when_reached(text: str, kind: str) -> None:
    with pytest.raises(LanguageError) as raised:
        value(f"true && {text}")
    assert raised.value.kind == kind
    assert raised.value.position == 8
    assert value(f"true || {text}") is True


def test_an_unknown_variable_is_compared_with_those_there_are() -> None:
    with pytest.raises(LanguageError) as raised:
        value("dta.x", data={}, meta={})
    assert raised.value.hint == "did you mean `data`? the variables are: data, meta"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("len(1)", 0),
        ("true && len(1)", 8),
        ("len(len(trim(1)))", 8),
        ('matches("a", "(") ', 0),
        ('[1, matches(upper(2), "a")]', 12),
    ],
)
def test_a_helper_that_refuses_is_found_where_it_was_called(text: str, position: int) -> None:
    with pytest.raises(LanguageError) as raised:
        value(text)
    assert (raised.value.kind, raised.value.position) == ("runtime", position)


def test_whole_numbers_keep_their_digits_until_arithmetic() -> None:
    data = {"id": BIG, "huge": 10**30}
    assert value("data.id", data=data) == BIG
    assert value("[data.id, {a: data.huge}]", data=data) == [BIG, {"a": 10**30}]
    assert value("json(data)", data=data) == f'{{"id":{BIG},"huge":{10**30}}}'
    assert value("data.id + ''", data=data) == str(BIG)
    assert value("data.id + 0", data=data) == BIG - 1
    assert value("data.id - 0 == 9007199254740992", data=data) is True
    assert value("-data.huge", data=data) == -1e30
    assert value("data.id > 9007199254740992", data=data) is False
    assert value("data.id == data.id", data=data) is True


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("2 + 3 * 4 - 1", 13),
        ("7 % -3", 1),
        ("9007199254740992 + 1", 9007199254740992),
        ("4503599627370496 * 4", 18014398509481984),
        ("1 / 3 * 3", 1),
        ('"5" * "2"', 10),
        ('"5" - 2', 3),
        ("[1,2] + ''", "1,2"),
        ("{} + 1", "[object Object]1"),
        ("true + true", 2),
        ("+'12'", 12),
        ("null >= 0", True),
        ("'b' > 'a'", True),
        ("[10] > 9", True),
        ("'\\ud83d' + '\\udea2'", "🚢"),
        ("!0", True),
        ("0 || null ?? 'x'", "x"),
        ("len('🚢') + size('🚢')", 6),
        ("{a: data.gone}.a ?? 1", 1),
        ("default([1,2,3][5], 7)", 7),
        ("[1,2][data.gone]", MISSING),
    ],
)
def test_values(text: str, got: Any) -> None:
    result = value(text, data={})
    assert result is got if got is MISSING else result == got


@pytest.mark.parametrize("text", ["0 * -1", "-0", "0 / -1", "-4 % 2", "-(0)", "-0 - 0", "-0 + -0"])
def test_minus_zero_is_a_double(text: str) -> None:
    result = value(text)
    assert result == 0
    assert math.copysign(1, result) == -1


def test_spare_arguments_are_ignored_and_missing_ones_are_missing() -> None:
    assert value("len('abc', 1, 2)") == 3
    assert value("type()") == "undefined"
    assert value("len(iso())") == 24
    assert value("exists()") is False
    with pytest.raises(LanguageError):
        value("len('abc', nope)")


def test_data_that_nests_too_deep_is_the_languages_own_error() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for text in ("json(data)", "data + ''", "data == other", "data in [other]"):
        with pytest.raises(LanguageError, match="nests too deep"):
            value(text, data=deep, other=[deep])


def test_numbers_beyond_what_python_prints_are_the_languages_own_error() -> None:
    with pytest.raises(LanguageError, match="out of range"):
        value("json(data)", data=10**5000)


def test_paths_that_an_expression_reads() -> None:
    tree = compile_expression("secrets['a b'].c").tree
    assert dotted(tree) == ("secrets", "a b", "c")
    assert dotted(compile_expression("secrets[data.x]").tree) == ()
    assert dotted(compile_expression("1").tree) == ()
    assert repr(compile_expression("a")) == "Expression('a')"
