"""Whatever a text is, it parses or is refused in the language's own words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipo import durations
from pipo.lang.cron import BadCron, Cron
from pipo.lang.document import Key, Map, Place, Scalar, paths, texts
from pipo.lang.expressions import MISSING, LanguageError, compile_expression, parse_expression
from pipo.lang.functions import HELPERS
from pipo.lang.grammar import LENGTH_LIMIT, PRECEDENCE
from pipo.lang.load import load
from pipo.lang.placing import place_of
from pipo.lang.printing import json_text
from pipo.lang.templates import compile_template
from pipo.lang.tree import printed
from tests.unit.lang.reading import PUSH, STDOUT, findings, model

pytestmark = pytest.mark.slow

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(few, max_examples=200)

any_text = st.text(st.characters(), max_size=60)
words = st.sampled_from(
    [
        *(
            "data",
            "meta",
            ".a",
            "[0]",
            "['k']",
            "?.b",
            "len",
            "(",
            ")",
            "json(",
            "trim(",
            "matches(",
        ),
        *(
            "+",
            "-",
            "*",
            "/",
            "%",
            "<",
            "<=",
            "==",
            "!=",
            "&&",
            "||",
            "??",
            "?",
            ":",
            "!",
            "in",
            ",",
        ),
        *("1", "0", "1e21", ".5", "'x'", '"é"', "'\\ud83d'", "true", "null", "[", "]", "{", "}"),
        *("a:", "=", "=>", "$", "${", "}", "$${", "\\", "`", "nope", "9007199254740993", " "),
    ]
)
expression_text = st.lists(words, max_size=14).map(" ".join)
yaml_words = st.sampled_from(
    [
        *(
            "pipo: 1",
            "name: x",
            "input:",
            "via: http",
            "with:",
            "nodes:",
            "  n:",
            "    from: input",
        ),
        *(
            "    tap: log",
            "output:",
            "  to: stdout",
            "  from: n",
            "- a",
            "? k",
            ": v",
            "&a [x]",
            "*a",
        ),
        *("<<: *a", "{", "}", "[", "]", ",", "|", ">-", '"', "'", "#", "!!str", "---", "\t", "  "),
        *("${data.", "on_error: {then: drop}", "schema: x.json", "fn: ./x.py", "filter: data.x >"),
    ]
)
yaml_text = st.lists(st.tuples(yaml_words, st.sampled_from(["\n", "\n  ", " "])), max_size=16).map(
    lambda parts: "".join(word + gap for word, gap in parts)
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)

# What no packet may hold, and yet a step or an expression may make.
wild_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 2**53 + 1, MISSING])
    | st.floats()
    | st.text(st.characters(), max_size=4)
    | st.sampled_from(["\ud83d", "\udea2", "0x1F", " 12 ", "1e400", "5m", "(a", "9" * 400]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
leaves = st.sampled_from(
    ["data", "meta", "1", "0.1", "9007199254740993", "1e400", "'a'", "'\\ud83d'", "null", "true"]
)
calls = st.sampled_from([*HELPERS])
operators = st.sampled_from([*PRECEDENCE])
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(inner, operators, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(st.sampled_from("!+-"), inner).map(lambda t: f"({t[0]} {t[1]})")
        | st.tuples(inner, inner).map(lambda t: f"{t[0]}[{t[1]}]")
        | st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})")
        | st.tuples(calls, st.lists(inner, max_size=2)).map(lambda t: f"{t[0]}({', '.join(t[1])})")
        | st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.tuples(inner, inner).map(lambda t: f"{{a: {t[0]}, 1: {t[1]}}}")
    ),
    max_leaves=10,
)


def nested(value: Any, levels: int, in_lists: bool) -> Any:
    """A value inside lists, or inside objects."""
    for _ in range(levels):
        value = [value] if in_lists else {"a": value}
    return value


@few
@given(any_text | yaml_text)
@example("a: &a [*a]")
@example("? ? ?")
@example("\ufeff")
def test_the_loader_takes_any_text(text: str) -> None:
    loaded = load(text, "x.pipo")
    assert (loaded.root is None) == bool(loaded.findings)
    lines = text.count("\n") + text.count("\r") + 2
    for finding in loaded.findings:
        assert finding.code == "P001"
        assert 1 <= finding.line <= lines
        assert finding.col >= 1
    if loaded.root is not None:
        for node, _ in paths(loaded.root):
            assert node.place.line >= 1


@few
@given(yaml_text | any_text.map(lambda text: PUSH + STDOUT + "description: " + json.dumps(text)))
def test_the_check_takes_any_text(text: str) -> None:
    found = findings(text)
    assert found == sorted(found, key=lambda f: (f.line, f.col))


@few
@given(
    json_values, st.sampled_from(["description", "name", "nodes", "output", "input", "delivered"])
)
def test_the_check_takes_any_value_anywhere(value: Any, key: str) -> None:
    blocks = {
        "pipo": 1,
        "name": "x",
        "input": {"via": "push"},
        "output": {"from": "input", "to": "stdout"},
    }
    findings(json.dumps({**blocks, key: value}))
    findings(json.dumps({**blocks, "input": {"via": "http", "with": value, "validate": value}}))
    findings(json.dumps({**blocks, "nodes": {"n": {"from": value, "tap": "log", "with": value}}}))


@few
@given(any_text | expression_text, json_values)
def test_expressions_give_a_value_or_their_own_error(text: str, data: Any) -> None:
    scope = {"data": data, "meta": {}}
    error = refusal(lambda: compile_expression(text).evaluate(scope))
    assert error is None or 0 <= error.position <= len(text)


@few
@given(any_text | expression_text | expressions)
def test_parse_print_parse_is_stable(text: str) -> None:
    if refusal(lambda: parse_expression(text)) is not None:
        return
    once = printed(parse_expression(text))
    error = refusal(lambda: parse_expression(once))
    if error is None:
        assert printed(parse_expression(once)) == once
    else:
        # The parentheses that printing adds may only be too many characters.
        assert (error.kind, len(once) > LENGTH_LIMIT) == ("limit", True)


@many
@given(expressions, wild_values, st.sampled_from([0, 1, 512, 3000]), st.booleans(), json_values)
@example("json(data)", 1, 512, False, None)
@example("data == meta", 1, 3000, True, None)
def test_evaluation_gives_a_value_or_its_own_error(
    text: str, value: Any, levels: int, in_lists: bool, meta: Any
) -> None:
    scope = {"data": nested(value, levels, in_lists), "meta": meta}
    for source in (text, f"json({text})", f"[{text}] == [{text}]", f"({text}) + ''"):
        refusal(partial(evaluate, source, scope))
    for source in (f"${{{text}}}", f"x ${{{text}}}"):
        refusal(partial(render, source, scope))


def evaluate(text: str, scope: Any) -> Any:
    return compile_expression(text).evaluate(scope)


@few
@given(st.lists(words | any_text, min_size=1, max_size=3).map("".join).filter(bool))
@example("(")
@example("${'")
@example("json(")
def test_time_grows_like_the_text(part: str) -> None:
    """At most 50 ms for each KiB, read or refused."""
    short, long = ((part * size)[:size] for size in (LENGTH_LIMIT, 8 * 1024))
    for read, text in (
        (parse_expression, short),
        (compile_template, long),
        (compile_template, "${" + long),
        (durations.parse, long),
        (Cron, long),
        (Cron, "* * * * " + long),
    ):
        start = time.process_time()
        with suppress(LanguageError, BadCron, ValueError):
            read(text)
        assert time.process_time() - start < 0.05 * len(text) / 1024, read


@few
@given(any_text | expression_text | expressions.map("${{{}}}".format), json_values)
def test_templates_give_json_or_their_own_error(text: str, data: Any) -> None:
    scope = {"data": data, "meta": {}}
    error = refusal(lambda: json.dumps(render(text, scope), allow_nan=False))
    assert error is None or 0 <= error.position <= len(text)


def render(text: str, scope: Any) -> Any:
    assert isinstance(compile_template(text).text(scope), str)
    return compile_template({"a": [text], "b": text}).render(scope)


@few
@given(any_text | st.from_regex(r"[0-9]{1,3}(\.[0-9]+)?(ms|s|m|h|d)?", fullmatch=True))
def test_durations_take_any_text(text: str) -> None:
    with suppress(ValueError):
        assert durations.parse(text) >= 0


@few
@given(
    any_text
    | st.lists(st.sampled_from([*"0123456789*/-,", "L", "#", "MON", " "]), max_size=14).map("".join)
    | st.lists(
        st.from_regex(r"(\*|[0-7](-[7-9])?)(/[1-9])?", fullmatch=True), min_size=5, max_size=5
    ).map(" ".join)
)
def test_cron_takes_any_text(text: str) -> None:
    with suppress(BadCron):
        assert Cron(text).next_after(1_800_000_000_000) > 1_800_000_000_000


@few
@given(json_values)
def test_json_is_a_subset_of_the_language(value: Any) -> None:
    """What JSON says, an expression says too, and prints again."""
    text = json.dumps(value)
    if refusal(lambda: parse_expression(text)) is None:
        printed_again = json_text(compile_expression(text).evaluate({}))
        assert json.loads(printed_again, parse_int=float) == json.loads(text, parse_int=float)


def refusal(call: Callable[[], Any]) -> LanguageError | None:
    """The language's own error that a call raises; any other one passes through."""
    try:
        call()
    except LanguageError as error:
        return error
    return None


@few
@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30), st.sampled_from("'\"|>")
)
def test_every_character_of_a_scalar_has_a_place_in_the_file(text: str, style: str) -> None:
    quoted = {
        "'": "'" + text.replace("'", "''") + "'",
        '"': json.dumps(text),
        "|": "|\n  x" + text,
        ">": ">\n  x" + text,
    }[style]
    source = f"key: {quoted}\nnext: 1\n"
    root = load(source, "x").root
    if not isinstance(root, Map):
        return
    for _, scalar in texts(root):
        for offset in range(len(scalar.value) + 1):
            place = place_of(scalar, offset)
            assert 1 <= place.line <= 4
            assert place.col >= 1


def test_places_are_ordered_like_the_text() -> None:
    source = PUSH + STDOUT
    root = load(source, "x").root
    assert isinstance(root, Map)
    keys = [node.place for node, _ in paths(root) if isinstance(node, Key)]
    assert keys == sorted(keys)
    assert model(source).name == "tried"
    assert place_of(Scalar(MISSING, "", Place(1, 1)), 0) == Place(1, 1)
