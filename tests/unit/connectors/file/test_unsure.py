"""Where a recovered unit is looked for stays bounded, and misses no part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipo.connectors.file.unsure import APPENDS_LOOKED_AT, SPANS_MAX, Span, Unsure


def test_the_latest_appends_are_looked_at_and_no_more() -> None:
    unsure = Unsure()
    unsure.forget(5, 10)
    for number in range(APPENDS_LOOKED_AT + 50):
        unsure.appended(10 + number)
    size = 10 + APPENDS_LOOKED_AT + 50
    assert unsure.spans(size) == [Span(5, 10), Span(60, size)]


def test_nothing_appended_and_nothing_unsure_is_nothing_to_read() -> None:
    assert Unsure().spans(7) == [Span(7, 7)]


def test_what_is_forgotten_anew_takes_the_place_of_all_else() -> None:
    unsure = Unsure()
    unsure.add(1, 2)
    unsure.appended(3)
    unsure.forget(0, 9)
    assert unsure.spans(9) == [Span(0, 9), Span(9, 9)]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20)), max_size=60))
def test_added_parts_stay_few_and_cover_what_was_added(parts: list[tuple[int, int]]) -> None:
    unsure = Unsure()
    for start, length in parts:
        unsure.add(start, start + length)
    spans = unsure.spans(1000)
    assert len(spans) <= SPANS_MAX + 1
    for start, length in parts:
        assert any(span.start <= start and start + length <= span.end for span in spans)


def test_many_parts_that_lie_apart_become_few() -> None:
    unsure = Unsure()
    for number in range(10 * SPANS_MAX):
        unsure.add(100 * number, 100 * number + 1)
    spans = unsure.spans(0)
    assert len(spans) == SPANS_MAX + 1
    assert spans[SPANS_MAX - 1].end == 100 * (10 * SPANS_MAX - 1) + 1
