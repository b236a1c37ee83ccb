from __future__ import annotations

import pytest

from pipo.lang.expressions import parse_expression
from pipo.lang.faults import LanguageError
from pipo.lang.tree import Access, Binary, Logical, Unary, printed


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("20 - 5 - 3", "((20 - 5) - 3)"),
        ("a || b && c ?? d", "((a || (b && c)) ?? d)"),
        ("a == b < c", "(a === (b < c))"),
        ("!a.b in c", '((!a["b"]) in c)'),
        ("- -x", "(-(-x))"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("a ? b ? 1 : 2 : 3", "(a ? (b ? 1 : 2) : 3)"),
        ("((a)).b[0]?.c?.[d]", 'a["b"][0]["c"][d]'),
        ("(1 + 2).x", '(1 + 2)["x"]'),
        ("len (a).b", 'len(a)["b"]'),
        ("{a, 'b c': 1, 2: x, 1e3: y,}", '{"a": a, "b c": 1, "2": x, "1000": y}'),
        ("[1,[2,],]", "[1, [2]]"),
        ("{in: 1, new: 2}.new", '{"in": 1, "new": 2}["new"]'),
        ("a.true.in", 'a["true"]["in"]'),
        ("010 + 1.", "(10 + 1)"),
        ("größe.ñ", 'größe["ñ"]'),
        ("ำ.ͺ", 'ำ["ͺ"]'),
        ("data.नाम\u200c९", 'data["नाम\u200c९"]'),
        ('"\\u{000000041}"', '"A"'),
        ("a\u00a0+\ufeffb", "(a + b)"),
        ("1e999", "1e999"),
        ('"in" in "op"', '("in" in "op")'),
        ('("(")', '"("'),
    ],
)
def test_precedence_and_grouping(text: str, tree: str) -> None:
    assert printed(parse_expression(text)) == tree
    assert printed(parse_expression(tree)) == tree


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "a =", "a = 1", "a += 1", "a++", "++a", "--x", "a; b", "a, b", "a => a"),
        *("new Set()", "this", "typeof a", "a instanceof b", "in", "in a", "a in"),
        *("a | b", "a & b", "a ^ b", "~a", "a << 1", "a >> 1", "a >>> 1", "2 ** 3"),
        *("`x`", "/x/", "...a", "[...a]", "len(...a)", "a.b()", "a()", "(len)(a)", "len(a)(b)"),
        *("nope(1)", "true || nope(1)", "{[a]: 1}", "{a.b: 1}", "{a: 1 b: 2}", "{,}", "{true}"),
        *("[1 2]", "[,]", "[1,,2]", "len(1,)", "len(,1)", 'len("a" "b")', ".e5", "1.2.3", "12px"),
        *("0x10", "1_000", "1e", "1e+", "a ?.5 : 1", "a ? b", "a ? : b", "a : b", "(a", "a)", "[a"),
        *("{a", "a.", "a.1", "a[", "a[]", "'open", '"a\\', '"\\u12"', '"\\u{110000}"', "a b", "#"),
        *("a.__proto__", "a.constructor", "a?.prototype", "{__proto__: 1}", "{'constructor': 1}"),
        *("\u200ca", "a\u200bb", "९", '"\\u{}"', '"\\u{0110000}"', "1.5.a", "1..a"),
        *("{constructor}", "@", "\x00", "a ??= 1", "// x", "{this}"),
    ],
)
def test_refused_when_parsed(text: str) -> None:
    with pytest.raises(LanguageError) as raised:
        parse_expression(text)
    assert raised.value.kind == "syntax"
    assert 0 <= raised.value.position <= len(text)


@pytest.mark.parametrize(
    ("text", "position", "message", "hint"),
    [
        ("data.a > ", 9, "the expression ends too early", ""),
        ("a = 4", 2, "`=` (assignment) is not allowed", "to compare, write `==`"),
        ("a b", 2, "unexpected `b`", ""),
        ("lenn(a)", 0, "there is no helper `lenn`", "did you mean `len`? the helpers are: exists"),
        ("a.b(1)", 3, "only helpers can be called", "they are: exists"),
        ("(a", 2, "expected `)` for the `(` before, found the end", ""),
        ('x + "y', 4, 'the text that starts here has no closing "', ""),
        ("a.constructor", 2, "the key `constructor` is not allowed here", '["constructor"]'),
        ("12px", 0, "`12px` is not a number", ""),
    ],
)
def test_a_refusal_has_its_place_and_a_hint(
    text: str, position: int, message: str, hint: str
) -> None:
    with pytest.raises(LanguageError) as raised:
        parse_expression(text)
    assert (raised.value.position, raised.value.message) == (position, message)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "!" * 32 + "1",
        " + ".join("1" * 33),
        "a" + ".b" * 32,
        "[" * 32 + "1" + "]" * 32,
        "len(" * 32 + "a" + ")" * 32,
        "a ? b : " * 32 + "c",
        "(1 + " * 400 + "1" + ")" * 400,
        "[" + ",".join("0" * 256) + "]",
        "'" + "x" * 1999 + "'",
        "🚢" * 1001,
    ],
)
def test_limits(text: str) -> None:
    with pytest.raises(LanguageError) as raised:
        parse_expression(text)
    assert raised.value.kind == "limit"


@pytest.mark.parametrize(
    "text",
    [
        "!" * 31 + "1",
        " + ".join("1" * 32),
        "a" + ".b" * 31,
        "[" * 31 + "1" + "]" * 31,
        "[" + ",".join("0" * 255) + "]",
        "'" + "x" * 1998 + "'",
        "(" * 999 + "1" + ")" * 999,
        "(" * 300 + "1" + ") + 1" * 15 + ")" * 285,
    ],
)
def test_up_to_the_limits(text: str) -> None:
    parse_expression(text)


def test_nodes_know_where_they_start() -> None:
    tree = parse_expression("  a.b + !c && d")
    assert isinstance(tree, Logical)
    assert isinstance(tree.left, Binary)
    assert isinstance(tree.left.left, Access)
    assert isinstance(tree.left.right, Unary)
    assert [tree.position, tree.left.right.position, tree.right.position] == [2, 8, 14]
    assert tree.depth == 4
