"""The diff of two versions (edge 354)."""

from __future__ import annotations

from pipo.lang.text_diff import diff
from pipo.lang.texts import Texts

OLD = "".join(f"line {n}\n" for n in range(30))


def test_nearby_changes_are_one_hunk_with_three_lines_around() -> None:
    new = OLD.replace("line 10\n", "ten\n").replace("line 14\n", "")
    made = diff("people", (1, Texts(OLD)), (3, Texts(new)))
    lines = made.diff.splitlines()
    assert lines[:3] == ["--- people v1", "+++ people v3", "@@ -8,11 +8,10 @@"]
    assert (lines[3], lines[-1]) == (" line 7", " line 17")
    assert (made.added, made.removed, made.identical) == (1, 2, False)
    assert made.diff.endswith("\n")


def test_equal_versions_have_no_diff() -> None:
    made = diff("people", (1, Texts(OLD, {"a": "x"})), (3, Texts(OLD, {"a": "x"})))
    assert (made.diff, made.identical, made.added, made.removed) == ("", True, 0, 0)


def test_files_that_differ_follow_each_with_its_own_head() -> None:
    old = Texts("s\n", {"./a.py": "1\n", "./gone.py": "-- x\n", "./same.py": "2\n"})
    new = Texts("s\n", {"./a.py": "1\n2\n", "./same.py": "2\n"})
    made = diff("people", (1, old), (2, new))
    assert [line for line in made.diff.splitlines() if line.startswith(("--- p", "+++ p"))] == [
        "--- people ./a.py v1",
        "+++ people ./a.py v2",
        "--- people ./gone.py v1",
        "+++ people ./gone.py v2",
    ]
    # A removed line that looks like a head is counted all the same.
    assert (made.added, made.removed, made.identical) == (1, 1, False)


def test_an_empty_file_that_comes_is_a_difference() -> None:
    made = diff("people", (1, Texts("s")), (2, Texts("s", {"./__init__.py": ""})))
    assert (made.diff, made.identical) == ("", False)


def test_a_missing_end_of_line_is_said() -> None:
    made = diff("people", (1, Texts("a\n")), (2, Texts("a")))
    assert made.diff.splitlines()[3:] == ["-a", "+a", "\\ No newline at end of file"]


def test_secrets_are_masked_before_lines_are_compared() -> None:
    made = diff(
        "people",
        (1, Texts("token: s3\ncr3t\n")),
        (2, Texts("token: other\n")),
        lambda text: text.replace("s3\ncr3t", "***"),
    )
    assert "-token: ***" in made.diff
    assert "cr3t" not in made.diff
