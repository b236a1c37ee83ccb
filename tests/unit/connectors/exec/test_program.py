"""What a program is given: arguments, variables and input, from rendered settings."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import Refused
from pipo.connectors.exec.program import Program, program


def made(**settings: Any) -> Program:
    return program({"command": "tool", "cwd": "/w", **settings})


def test_the_defaults() -> None:
    found = made()
    assert (found.args, found.env, found.stdin, found.files) == ((), {}, b"", ())
    assert (found.timeout_s, found.success) == (300.0, frozenset({0}))


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("$(rm -rf /) * 'a' \"b\" \n", "$(rm -rf /) * 'a' \"b\" \n"),
        ("--", "--"),
        (12345678901234567890, "12345678901234567890"),
        (0.5, "0.5"),
        (True, "true"),
        (None, ""),
        ({"a": [1]}, '{"a":[1]}'),
        ("", ""),
    ],
)
def test_every_item_is_exactly_one_argument(value: Any, word: str) -> None:
    assert made(args=["a", value, "b"]).args == ("a", word, "b")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"args": ["a", "b\0c"]}, r"`args\[1\]` holds a NUL"),
        ({"args": ["\ud83d"]}, r"`args\[0\]` holds text that is no UTF-8"),
        ({"command": "a\0"}, "`command` holds a NUL"),
        ({"env": {"A": "\0"}}, "`env.A` holds a NUL"),
        ({"env": {"A=B": "1"}}, "'A=B' is no name of a variable"),
        ({"env": {"": "1"}}, "'' is no name of a variable"),
        ({"env": {"\udcff": "1"}}, "no UTF-8"),
    ],
)
def test_what_no_program_can_be_given_is_refused(settings: dict[str, Any], told: str) -> None:
    """R08."""
    with pytest.raises(Refused, match=told):
        made(**settings)


def test_variables_that_render_to_nothing_are_not_set() -> None:
    assert made(env={"A": None, "B": "", "C": 7, "D": [1]}).env == {"B": "", "C": "7", "D": "[1]"}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("text é\n", "text é\n".encode()),
        ({"n": 12345678901234567890}, b'{"n":12345678901234567890}'),
        (None, b""),
        ([], b"[]"),
        (False, b"false"),
        ("half \ud83d", b"half \\ud83d"),
    ],
)
def test_what_it_reads_is_a_text_or_json(given: Any, read: bytes) -> None:
    assert made(stdin=given).stdin == read


def test_nothing_of_its_variables_or_input_is_shown() -> None:
    found = made(env={"K": "s3cr3t"}, stdin="s3cr3t")
    assert "s3cr3t" not in repr(found)


def test_a_long_command_is_shown_by_its_end() -> None:
    assert made(command="/x" * 150 + "/tool").shown.endswith("/x/tool")
    assert len(made(command="/x" * 150).shown) == 200
