"""`pipo status --watch` on a screen."""

from __future__ import annotations

from pipo_cli.observe import over_the_last


def test_an_answer_leaves_nothing_of_a_longer_one() -> None:
    """Each line clears its rest, and the last one all that is below it, such as `engine: down`."""
    assert over_the_last(["a", "b"]) == ["a\x1b[K", "b\x1b[J"]
    assert over_the_last(["no pipelines"]) == ["no pipelines\x1b[J"]
