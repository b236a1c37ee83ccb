from __future__ import annotations

from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.lang.expressions import LanguageError, compile_expression
from pipo.lang.functions import HELPERS


class FixedClock(SystemClock):
    def now_ms(self) -> int:
        return 1_772_368_215_250


def value(text: str, data: Any = None) -> Any:
    return compile_expression(text, clock=FixedClock()).evaluate({"data": data})


def test_the_clock_is_the_callers() -> None:
    assert value("now()") == 1_772_368_215_250
    assert value("iso()") == value("iso(null)") == value("iso('x')") == "2026-03-01T12:30:15.250Z"


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("0", "1970-01-01T00:00:00.000Z"),
        ("-1.9", "1969-12-31T23:59:59.999Z"),
        ("8.64e15", "+275760-09-13T00:00:00.000Z"),
        ("-62167219200001", "-000001-12-31T23:59:59.999Z"),
        ("253402300800000", "+010000-01-01T00:00:00.000Z"),
    ],
)
def test_iso(moment: str, text: str) -> None:
    assert value(f"iso({moment})") == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("lower(1)", "lower() takes a string, not a number"),
        ("upper(null)", "upper() takes a string, not null"),
        ("trim(data.x)", "trim() takes a string, not a missing value"),
        ("matches('a', [])", "matches() takes a string, not an array"),
        ("len(true)", "len() takes no boolean"),
        ("duration('5 m')", "'5 m' is not a duration such as 250ms, 10s, 5m, 1.5h, 7d"),
        ("iso(0/0)", "iso() takes no moment such as nan"),
        ("matches('a', '\\\\u0041')", "bad pattern '\\\\u0041': invalid escape sequence: \\u"),
        ("matches('\\ud83d', 'a')", "matches() takes no half of a surrogate pair"),
        ("matches('a', '\\ud83d')", "the pattern holds half of a surrogate pair"),
    ],
)
def test_refusals_say_what_was_given(call: str, message: str) -> None:
    with pytest.raises(LanguageError) as raised:
        value(call)
    assert raised.value.kind == "runtime"
    assert raised.value.message == message


def test_patterns_are_found_anywhere_and_are_re2s() -> None:
    assert value("matches('xABCx', '(?i)abc')") is True
    assert value("matches('a\\n', '^a$')") is False
    assert value("matches('é', '^.$')") is True
    with pytest.raises(LanguageError) as raised:
        value("matches('a', '(?=a)')")
    assert "no look-around" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("٣", r"\d", False),
        ("é", r"\w", False),
        ("é", r"^\B", True),
        ("\v", r"\s", False),
        ("\u00a0", r"\s", False),
        ("\t\n\f\r ", r"^\s{5}$", True),
        ("\r", "^.$", True),
        ("\u2028", "^.$", True),
        ("\n", ".", False),
        ("\n", "(?s)^.$", True),
        ("a\n", "a$", False),
        ("a\nb", "(?m)a$", True),
        ("A", r"\x{41}", True),
        ("é", r"^\pL$", True),
        ("a.b", r"^\Qa.b\E$", True),
        ("axb", r"^\Qa.b\E$", False),
        ("x", "(?<n>x)(?P<m>)", True),
        ("a{1,", "^a{1,$", True),
        ("a" * 1000, "^a{1000}$", True),
        ("a\0b", "a\0b", True),
        ("🚢", "^.$", True),
        ("", "", True),
    ],
)
def test_patterns(text: str, pattern: str, found: bool) -> None:
    assert value("matches(data[0], data[1])", [text, pattern]) is found


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?!a)", "(?=a)", "(?<=a)", "(?<!a)", r"(a)\1", r"(?P<n>a)(?P=n)", "(?>a)", "a++", "a*+"),
        *(r"\u0041", r"\cA", r"a\Z", "[]", "[^]", r"\p", "a{1001}", "a{2,1}", "(", "a)", "*", "\\"),
        *("[z-a]", "((a{100}){100}){100}", "(?x)a", "\udea2", "a" * 201, "🚢" * 101),
    ],
)
def test_patterns_that_are_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LanguageError) as raised:
        value("matches('a', data)", pattern)
    assert raised.value.kind == "runtime"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("lower('ΑΣ ΣΑΣ Σ')", "ας σας σ"),
        ("lower('İI')", "i̇i"),
        ("upper('ßﬁŉıſ')", "SSFIʼNIS"),
        ("trim('\\u{feff}\\u2028\\u{3000}a\\u{1c}\\u{85}\\u{180e}\\v')", "a\x1c\x85\u180e"),
    ],
)
def test_letters_and_blanks_are_unicodes_as_javascript_reads_them(call: str, text: str) -> None:
    assert value(call) == text


def test_sizes() -> None:
    assert value("size({a: 'é'})") == 10
    # As `in` and `==` see it: a key whose value is missing is a key.
    assert value("len({a: data.x, b: 1})") == 2
    assert value("'a' in {a: data.x}") is True
    assert value("len(data)", {"a": 1, "b": 2}) == 2
    assert value("size('\\ud83d')") == 3


def test_every_helper_says_what_it_does() -> None:
    assert all(helper.summary and helper.name == name for name, helper in HELPERS.items())
    names = "exists len size type lower upper trim matches default json now iso duration"
    assert " ".join(HELPERS) == names
