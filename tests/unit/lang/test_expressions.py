from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from pipo.lang import utf16
from pipo.lang.expressions import MISSING, LanguageError, compile_expression, dotted
from pipo.lang.templates import compile_template

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
    # A number in the text is a double, and so is what it is compared with.
    assert value("data.id == 9007199254740993 && data.id in [9007199254740993]", data=data) is True
    assert value("data.id == data.near", data={**data, "near": BIG - 1}) is False


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


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_data_may_nest_as_deep_as_memory_holds(wrap: Callable[[Any], Any]) -> None:
    deep, other = wrap(1), wrap(1)
    for _ in range(3_000):
        deep, other = wrap(deep), wrap(other)
    scope = {"data": deep, "other": other}
    size = len(compile_expression("json(data)").evaluate(scope))
    assert compile_expression("size([data])").evaluate(scope) == size + 2
    assert compile_expression("data == other && data in [other]").evaluate(scope) is True
    assert compile_expression("data == [other]").evaluate(scope) is False
    assert len(compile_expression("[data] + ''").evaluate(scope)) in (1, len("[object Object]"))
    for source in ("x${data}", "${data}", "${[data]}", {"k": "${ {a: data} }"}):
        template = compile_template(source)
        assert template.render(scope) is not MISSING
        assert template.text(scope)


@pytest.mark.parametrize(
    "text",
    [
        "json(" * 30 + "'\"'" + ")" * 30,
        "data + data",
        "[data, data] + ''",
        "json([data, {a: data}])",
        "size([[data], data])",
    ],
)
def test_no_text_grows_beyond_the_largest_packet(text: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(utf16, "TEXT_LIMIT", 1000)
    with pytest.raises(LanguageError, match="a text would have over 1,000 characters"):
        value(text, data="x" * 600)
    with pytest.raises(LanguageError, match="a text would have over 1,000 characters"):
        compile_template("${data}${data}").render({"data": "x" * 600})
    assert value("data", data="x" * 6000) == "x" * 6000


def test_numbers_beyond_what_python_prints_are_the_languages_own_error() -> None:
    with pytest.raises(LanguageError, match="out of range"):
        value("json(data)", data=10**5000)


def test_paths_that_an_expression_reads() -> None:
    tree = compile_expression("secrets['a b'].c").tree
    assert dotted(tree) == ("secrets", "a b", "c")
    assert dotted(compile_expression("secrets[data.x]").tree) == ()
    assert dotted(compile_expression("1").tree) == ()
    assert dotted(compile_expression("secrets[true]").tree) == ("secrets", "true")
    assert repr(compile_expression("a")) == "Expression('a')"
