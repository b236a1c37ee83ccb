from __future__ import annotations

import pytest

from pipo.lang import durations


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [("0s", 0), ("250ms", 250), ("1.5h", 5_400_000), ("7d", 604_800_000), ("007s", 7000)],
)
def test_parse(text: str, span_ms: float) -> None:
    assert durations.parse(text) == span_ms


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "+5s", " 5s", "5s\n", "5 s", "5S", "1h30m", "1.s", "٥s", "5w"]
)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 250ms"):
        durations.parse(text)


def test_an_endless_one_is_refused() -> None:
    with pytest.raises(ValueError, match="is longer than any duration"):
        durations.parse("9" * 400 + "d")


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0ms"),
        (-3, "0ms"),
        (12.9, "12ms"),
        (999.9, "999ms"),
        (1500, "1.5s"),
        (2000, "2s"),
        (59_999, "59.9s"),
        (61_000, "1m01s"),
        (3_599_999, "59m59s"),
        (3_720_000, "1h02m"),
        (93_600_000, "26h00m"),
    ],
)
def test_show(span_ms: float, text: str) -> None:
    assert durations.show(span_ms) == text
