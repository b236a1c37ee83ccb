"""What a schema asks for, in the words of the page."""

from __future__ import annotations

from typing import Any

import pytest

from docs.words import code, kind, table, takes_template
from pipo.connectors.schema import (
    anything,
    choice,
    closed,
    duration,
    integer,
    list_of,
    literal,
    map_of,
    path,
    text,
)

EITHER = {"anyOf": [integer(""), text(""), list_of(text(""), "", minItems=1)]}


@pytest.mark.parametrize(
    ("made", "said", "is_template"),
    [
        (text(""), "text", True),
        (literal(""), "text", False),
        (path(""), "path", True),
        (duration(""), "duration", False),
        (anything(""), "any value", True),
        (choice("", "a", "b"), "`a` `b`", False),
        (integer("", minimum=1), "whole number, at least 1", False),
        (integer("", minimum=1, maximum=9), "whole number, 1 to 9", False),
        (list_of(text(""), "", minItems=1), "list of texts, not empty", True),
        (list_of(choice("", "a"), "", uniqueItems=True), "list of `a`, each once", False),
        (map_of(anything(""), ""), "map of names to values", True),
        (EITHER, "whole number or text, or a list of them, not empty", True),
        ({**closed(a=text("")), "minProperties": 1}, "block, not empty", True),
        ({"const": 1}, "`1`", True),
        (text("", pattern="^x|y$"), "text, like `^x|y$`", True),
    ],
)
def test_kinds(made: dict[str, Any], said: str, is_template: bool) -> None:
    assert kind(made) == said
    assert takes_template(made) is is_template


def test_a_bar_in_a_cell_is_no_border() -> None:
    assert table(("a", "b"), [("x|y", "")]) == "| a | b |\n| --- | --- |\n| x\\|y |  |"


def test_an_empty_text_is_seen() -> None:
    assert [code(""), code("7d"), code([1]), code(False)] == ['`""`', "`7d`", "`[1]`", "`false`"]
