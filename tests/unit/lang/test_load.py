from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from pipo.lang.document import Items, Map, Place, Scalar, paths, plain
from pipo.lang.load import ALIAS_NODES_LIMIT, VALUES_LIMIT, decode, load


def read(text: str) -> Any:
    loaded = load(text, "x.pipo")
    assert loaded.root is not None, loaded.findings
    return plain(loaded.root)


def places(text: str) -> list[tuple[int, int, str]]:
    findings = load(text, "x.pipo").findings
    assert {f.code for f in findings} == {"P001"}
    return [(f.line, f.col, f.message) for f in findings]


def test_scalars_are_yaml_1_2() -> None:
    text = """
    {a: no, b: on, c: 12:30, d: 1_000, e: 2026-01-02, f: 0x1F, g: 0o17, h: 017, i: 1.10, j: 1e3,
     k: ~, l: "true", m: true, n: =, o: 08, p: -0, q: .5, r: "1", s: Null, t: , u: +5, v: 1.0}
    """
    assert read(text) == {
        "a": "no",
        "b": "on",
        "c": "12:30",
        "d": "1_000",
        "e": "2026-01-02",
        "f": 31,
        "g": 15,
        "h": 17,
        "i": 1.1,
        "j": 1000,
        "k": None,
        "l": "true",
        "m": True,
        "n": "=",
        "o": 8,
        "p": 0,
        "q": 0.5,
        "r": "1",
        "s": None,
        "t": None,
        "u": 5,
        "v": 1,
    }
    assert read("18446744073709551616") == 18446744073709551616
    assert type(read("1.0")) is int


def test_keys_are_text() -> None:
    assert read("{1: a, true: b, ~: c, 0x1F: d, on: e, '': f}") == {
        "1": "a",
        "true": "b",
        "~": "c",
        "0x1F": "d",
        "on": "e",
        "": "f",
    }


def test_tags_of_the_core_schema() -> None:
    assert read("{a: !!str 5, b: !!int '5', c: !!float 1, d: !!null '', e: ! 7, f: !!map {}}") == {
        "a": "5",
        "b": 5,
        "c": 1,
        "d": None,
        "e": "7",
        "f": {},
    }


def test_every_key_and_value_has_its_place() -> None:
    root = load("a: 1\nb:\n  - x\n  - {c: y}\n", "x.pipo").root
    assert root is not None
    found = {path: node.place for node, path in paths(root) if not isinstance(node, Map | Items)}
    assert found == {
        "a": Place(1, 4),
        "b": Place(2, 1),
        "b[0]": Place(3, 5),
        "b[1].c": Place(4, 9),
    }


def test_an_alias_has_the_place_of_its_use() -> None:
    root = load("a: &x {k: [1, v]}\nb: *x\nc: [*x]\n", "x.pipo").root
    assert isinstance(root, Map)
    copied = root.get("b")
    assert isinstance(copied, Map)
    assert plain(copied) == {"k": [1, "v"]}
    key, value = copied.entries["k"]
    assert isinstance(value, Items)
    assert [copied.place, key.place, value.place, value.items[1].place] == [Place(2, 4)] * 4
    assert isinstance(value.items[1], Scalar)
    assert value.items[1].span is None


def test_merge_keys() -> None:
    text = """
    base: &base {a: 1, b: 1}
    more: &more {b: 2, c: 2}
    one: {<<: *base, b: 3}
    two: {a: 0, <<: [*more, *base]}
    plain: {"<<": 1}
    """
    data = read(text)
    assert data["one"] == {"a": 1, "b": 3}
    assert data["two"] == {"a": 0, "b": 2, "c": 2}
    assert data["plain"] == {"<<": 1}
    root = load("a: &a {k: 1}\nb:\n  <<: *a\n", "x.pipo").root
    assert isinstance(root, Map)
    merged = root.get("b")
    assert isinstance(merged, Map)
    assert merged.entries["k"][0].place == Place(3, 7)


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "a: b: c", "a: \x07", "\ta: 1", "{a: 1, a: 2}"])
def test_a_byte_order_mark_is_no_part_of_a_file(text: str) -> None:
    assert places("\ufeff" + text) == places(text)
    assert read("\ufeffa: 1") == {"a": 1}


def test_an_empty_text_is_a_null() -> None:
    assert read("") is None
    assert read("# nothing\n") is None
    assert read("---\n...\n") is None


@pytest.mark.parametrize(
    ("text", "line", "col", "message"),
    [
        ("a: 1\na: 2\n", 2, 1, "the key `a` stands here twice"),
        ("a: {b: 1, 'b': 2}", 1, 11, "the key `b` stands here twice"),
        ("a:\n\tb: 1\n", 2, 1, "a tab cannot be indentation"),
        ("a: b\n\t\n", 2, 1, "a tab cannot be indentation"),
        ("a: 1\n--- \nb: 1\n", 2, 1, "a second document starts here"),
        ("a: *b", 1, 4, "there is no anchor `&b` before"),
        ("a: &a [*a]", 1, 8, "`*a` stands inside its own anchor"),
        ("? [a]\n: b", 1, 3, "a key must be a single text"),
        ("&x {a: 1}: b", 1, 1, "a key must be a single text"),
        ("a: &x [1]\n*x : b", 2, 1, "a key must be a single text"),
        ("a: !mine b", 1, 4, "the tag !mine is not known here"),
        ("a: !!set {b}", 1, 4, "the tag !!set is not known here"),
        ("a: !!int x", 1, 4, "'x' is not a value of the tag !!int"),
        ("a: b\nc: \x07", 2, 4, "the character U+0007 cannot stand in a file"),
        ("a: \udcff", 1, 4, "the character U+DCFF cannot stand in a file"),
        ("<<: 5", 1, 5, "`<<` merges a map, or a list of maps"),
        ("a: " + "9" * 5000, 1, 4, "a whole number of 5000 digits is too long"),
        ("a: 0x" + "f" * 5000, 1, 4, "a whole number of 5002 digits is too long"),
        ("a: {b: ${c}}", 1, 9, "inside `{ }` and `[ ]` a plain text cannot hold a `{`"),
        ("[" * 101 + "]" * 101, 1, 101, "nested more than 100 levels deep"),
        ("a: b: c", 1, 5, "not well-formed YAML: mapping values are not allowed in this context"),
    ],
)
def test_faults_have_their_place(text: str, line: int, col: int, message: str) -> None:
    assert places(text) == [(line, col, message)]


def test_an_unclosed_bracket_is_placed_inside_the_file() -> None:
    [(line, col, message)] = places("a: [1,\n  2\n\n")
    assert (line, col) == (2, 4)
    assert "a flow sequence that starts at 1:4" in message


def test_every_doubled_key_is_shown() -> None:
    assert [p[:2] for p in places("a: 1\na: 2\nb: {c: 1, c: 2}\na: 3")] == [(2, 1), (3, 11), (4, 1)]


def test_faults_are_ordered_by_position() -> None:
    assert [p[:2] for p in places("a: 1\na:\n  {b: 1, b: 2}\nc: *d")] == [(2, 1), (3, 10), (4, 4)]


def test_aliases_do_not_explode() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]")
    [(line, _, message)] = places("\n".join(lines))
    assert message == f"aliases make more than {ALIAS_NODES_LIMIT:,} values"
    assert line == 4


def test_a_file_has_no_more_values_than_can_be_looked_at() -> None:
    text = "- x\n" * (VALUES_LIMIT - 1)
    assert len(read(text)) == VALUES_LIMIT - 1
    [(line, _, message)] = places(text + "- {}\n- x\n")
    assert message == f"the file has more than {VALUES_LIMIT:,} keys and values"
    assert line == VALUES_LIMIT + 1


def test_aliases_make_no_mass_of_text() -> None:
    text = '- &a "' + "x" * 10_000 + '"\n' + "- *a\n" * 20
    assert len(read(text)) == 21
    [(line, col, message)] = places(text + "- *a\n")
    assert (line, col) == (22, 3)
    assert message == "aliases make texts of more than 200,000 characters"


def test_aliases_do_not_pile_up() -> None:
    lines = [
        "a: &a [[x]]",
        *(f"{b}: &{b} {'[' * 30}*{a}{']' * 30}" for a, b in pairwise("abcdefgh")),
    ]
    assert read("\n".join(lines[:4]))["d"] is not None
    [(line, col, message)] = places("\n".join(lines))
    assert (line, col, message) == (5, 37, "nested more than 100 levels deep")


def test_a_file_is_at_most_one_mebibyte() -> None:
    assert places("#" * (1024 * 1024 + 1))[0][2] == "the file is larger than 1 MiB"
    assert places("#" + "é" * (512 * 1024))[0][2] == "the file is larger than 1 MiB"


def test_bytes_that_are_not_utf_8_are_placed() -> None:
    assert places(decode(b"a: 1\nb: x\xff\n"))[0][:2] == (2, 5)
