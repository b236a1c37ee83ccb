from __future__ import annotations

import math
from typing import Any

import pytest

from pipo.lang.expressions import MISSING, LanguageError
from pipo.lang.templates import Hole, compile_template, is_lone, is_template, split


def render(source: Any, **scope: Any) -> Any:
    return compile_template(source).render(scope)


def test_a_map_is_rendered_at_any_depth() -> None:
    source = {"a": "${data.n}", "b": ["x ${data.s}", {"c": "${data.gone}", "d": None}], "e": 5}
    got = render(source, data={"n": [1], "s": "é"})
    assert got == {"a": [1], "b": ["x é", {"d": None}], "e": 5}


def test_missing_keys_are_left_out_and_missing_items_are_null() -> None:
    assert render({"a": "${data.x}", "b": ["${data.x}", "${data.x}!"]}, data={}) == {
        "b": [None, "!"]
    }
    assert render("${data.x}", data={}) is MISSING


def test_a_rendered_value_is_json() -> None:
    got = render(["${0/0}", "${-0}", "${[1/0, data.x]}", "${ {a: data.x, b: -0} }"], data={})
    assert got == [None, 0, [None, None], {"b": 0}]
    assert type(got[1]) is int
    assert str(render("${data.x}", data={"x": -0.0})) == "0"
    # Reading from a value that the hole itself makes is no reading from data.
    assert render(["${[0/0][0]}", "${ {a: [data.x]}.a }", math.inf], data={}) == [
        None,
        [None],
        None,
    ]


def test_evaluate_keeps_what_json_cannot_hold() -> None:
    assert math.isnan(compile_template("${0/0}").evaluate({}))
    assert compile_template("=${0/0}").evaluate({}) == "=NaN"


def test_text_for_messages() -> None:
    scope = {"data": {"a": [1], "t": "x"}}
    texts = {"${data.gone}": "", "${data.a}": "[1]", "${0/0}": "NaN", "n ${1e21}": "n 1e+21"}
    assert {source: compile_template(source).text(scope) for source in texts} == texts


def test_constant_parts_are_folded() -> None:
    constant = compile_template({"a": ["$${x}", 1, {"b": None}]})
    assert constant.constant
    assert constant.render({}) is constant.render({}) == {"a": ["${x}", 1, {"b": None}]}
    mixed = compile_template({"a": ["x"], "b": "${data}"})
    assert not mixed.constant
    assert mixed.render({"data": 1})["a"] is mixed.render({"data": 2})["a"]


def test_names_and_static_prefix() -> None:
    template = compile_template({"a": "${data.x} ${env.HOME}", "b": ["${len(meta)}"]})
    assert template.names == {"data", "env", "meta"}
    assert template.static_prefix == ""
    assert compile_template("./out/$${${data.x}/y").static_prefix == "./out/${"
    assert compile_template("./plain").static_prefix == "./plain"
    assert compile_template("${data.x}/y").static_prefix == ""
    assert compile_template("").render({}) == ""


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a $ { } ${x}b", ["a $ { } ", Hole("x", 10), "b"]),
        ("$$${x}", ["$${x}"]),
        ("$${${x}", ["${", Hole("x", 5)]),
        ('${\'}\'}${ {a: "\\"}"} }', [Hole("'}'", 2), Hole(' {a: "\\"}"} ', 8)]),
        ("${a}${b}", [Hole("a", 2), Hole("b", 6)]),
    ],
)
def test_where_holes_end(text: str, parts: list[str | Hole]) -> None:
    assert split(text) == parts


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("ab ${x", 3, "`${` is not closed"),
        ("ab ${'}", 3, "`${` is not closed"),
        ("ab ${ {x }", 3, "`${` is not closed"),
        ("ab ${}", 3, "there is nothing in `${}`"),
        ("ab ${  }", 3, "there is nothing in `${}`"),
        ("ab ${x} ${1 +}", 13, "the expression ends too early"),
    ],
)
def test_a_template_that_does_not_parse(text: str, position: int, message: str) -> None:
    with pytest.raises(LanguageError) as raised:
        compile_template({"deep": [text]})
    assert (raised.value.kind, raised.value.position) == ("syntax", position)
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("text", "position"), [("${nope}", 2), ("ab ${ nope }", 6), ("${data}, ${ len(data.x)}", 12)]
)
def test_a_hole_that_cannot_be_evaluated_has_its_place(text: str, position: int) -> None:
    with pytest.raises(LanguageError) as raised:
        compile_template(text).evaluate({"data": {"x": 1}})
    assert raised.value.position == position


def test_a_lone_hole() -> None:
    assert is_lone("${data.x}")
    assert not any(map(is_lone, ("${data.x} ", "data.x", "", "$${x}", "${a}${b}")))


def test_what_counts_as_a_template() -> None:
    assert is_template("x ${y}")
    assert is_template("${")
    assert is_template("$${${x}")
    assert not is_template("$${x} $ {}")
    assert not is_template("$$${{x}")


def test_numbers_beyond_what_python_prints_are_the_languages_own_error() -> None:
    for source in ("x${data}", "${data}", ["x${data}"]):
        template = compile_template(source)
        with pytest.raises(LanguageError, match="out of range"):
            template.text({"data": 10**5000})


def test_keys_are_no_templates() -> None:
    assert render({"${data}": "${data}"}, data=1) == {"${data}": 1}
