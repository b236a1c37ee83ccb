from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipo import durations


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


@pytest.mark.parametrize("least", durations.SHORTER)
@given(
    number=st.one_of(
        st.integers(0, 2_000).map(str),
        st.decimals(0, 2, places=2).map(str),
        st.sampled_from(["000", "0.0", "0999.9", "01000", "999.99"]),
    ),
    unit=st.sampled_from(["ms", "s", "m", "h", "d"]),
)
def test_the_form_of_shorter_ones_is_that_of_what_is_shorter(
    least: str, number: str, unit: str
) -> None:
    # A fraction of a long unit may be shorter too: an editor takes it, the check does not.
    found = re.search(durations.SHORTER[least], number + unit) is not None
    shorter = durations.is_shorter(number + unit, least)
    assert found == shorter or (shorter and "." in number and unit != "ms")
