"""Tables: widths, sides, and nothing that a terminal would obey."""

from pipo_cli.render.tables import Column, one_line, printable, table, width


def test_columns_stand_two_blanks_apart_and_lines_end_clean() -> None:
    lines = table(
        [Column("NAME"), Column("COUNT", "right"), Column("NOTE")],
        [["a", "1", ""], ["longer", "1,234", "x"]],
    )
    assert lines == ["NAME    COUNT  NOTE", "a           1", "longer  1,234  x"]


def test_wide_characters_take_two_columns() -> None:
    assert width("名前") == 4
    assert table([Column("A"), Column("B")], [["名", "x"], ["ab", "y"]])[1:] == ["名  x", "ab  y"]


def test_escape_sequences_are_shown_not_obeyed() -> None:
    assert printable("a\x1b[2Jb\r\nc\td") == "a\\x1b[2Jb\nc\td"
    assert one_line("first\nsecond") == "first second"
