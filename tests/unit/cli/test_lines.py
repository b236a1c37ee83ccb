"""Cutting pieces into lines, and telling log lines from other text."""

import pytest

from pipo_cli import lines


def test_pieces_become_lines() -> None:
    cutter = lines.Lines()
    assert cutter.feed(b"one\ntw") == ["one"]
    assert cutter.feed(b"o\n\nthree") == ["two", ""]
    assert cutter.rest() == ["three"]
    assert cutter.rest() == []


def test_a_character_cut_in_two_is_whole_again() -> None:
    cutter = lines.Lines()
    assert cutter.feed("ä".encode()[:1]) == []
    assert cutter.feed("ä\n".encode()[1:]) == ["ä"]


def test_an_endless_line_is_handed_on_in_pieces() -> None:
    cutter = lines.Lines()
    assert cutter.feed(b"x" * (lines.LINE_BYTES_MAX + 1)) == ["x" * (lines.LINE_BYTES_MAX + 1)]
    assert cutter.rest() == []


@pytest.mark.parametrize(
    ("line", "level", "shown"),
    [
        ("2026-10-10T21:13:48.263Z info  started action=x", "info", False),
        ("2026-10-10T21:13:48.263Z warn  slow", "warn", True),
        ("2026-10-10T21:13:48.263Z error broken", "error", True),
        ("Traceback (most recent call last):", None, True),
        ('{"hello":"world"}', None, True),
    ],
)
def test_levels(line: str, level: str | None, shown: bool) -> None:
    assert lines.level(line) == level
    assert lines.worth_showing(line) is shown
