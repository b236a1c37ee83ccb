from __future__ import annotations

import re

import pytest

from pipo.lang.document import Place, Scalar, texts
from pipo.lang.load import load
from pipo.lang.placing import place_of

FILE = """\
plain: x ${data.a}
long: x ${data.a} and
  y ${data.b}

  z ${data.c}
single: 'it''s ${data.a} and

   ${data.b}'
double: "t\\u00e9 \\" ${data.a} \\
     ${data.b}
  ${data.c} \\x41${data.d}"
literal: |
  one ${data.a}
    two ${data.b}

  three ${data.c}
keep: |+2
   one ${data.a}
  two ${data.b}

folded: >-   # a comment
  one ${data.a}
  two ${data.b}

    more ${data.c}

  three ${data.d}
anchored: &name !!str "x ${data.a}"
tagged: !!str  # a comment
  "x ${data.a}"
flow: {a: "${data.a}", b: ["x ${data.b}"]}
"""


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_name_is_found_where_it_stands(mark: str) -> None:
    root = load(mark + FILE, "x.pipo").root
    assert root is not None
    lines = FILE.split("\n")
    count = 0
    for key, scalar in texts(root):
        for name in re.finditer(r"data\.[a-z]", scalar.value):
            place = place_of(scalar, name.start())
            assert lines[place.line - 1][place.col - 1 :].startswith(name[0]), (key, name, place)
            count += 1
    assert count == 23


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends(newline: str) -> None:
    text = newline.join(["a: |", "  x", "  y ${b}", "c: 'd", "  ${e}'"])
    root = load(text, "x.pipo").root
    assert root is not None
    (_, block), (_, quoted) = texts(root)
    assert place_of(block, block.value.index("b}")) == Place(3, 7)
    assert place_of(quoted, quoted.value.index("e}")) == Place(5, 5)


def test_what_has_no_source_has_its_own_place() -> None:
    assert place_of(Scalar("abc", "abc", Place(3, 4)), 2) == Place(3, 4)
    assert place_of(Scalar(5, "5", Place(3, 4)), 0) == Place(3, 4)


def test_an_offset_beyond_the_text_stays_inside_the_source() -> None:
    root = load("a: 'xy'\nb: |\n  z\n", "x.pipo").root
    assert root is not None
    (_, quoted), (_, block) = texts(root)
    assert place_of(quoted, 99).line == 1
    assert place_of(block, 99).line <= 4
