"""Patches: every fold gives the bytes that the run would have printed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipo import payload
from pipo.journal import patches

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "d.e", "", "0"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def through(before: Any, after: Any, *, whole: bool = False) -> bytes:
    made = patches.make(before, after, whole=whole)
    stored = [] if made is None else [made[0]]
    return patches.fold(payload.encode(before), stored)


@given(VALUES, VALUES, st.booleans())
@settings(deadline=None)
def test_a_fold_prints_what_the_run_printed(before: Any, after: Any, whole: bool) -> None:
    assert through(before, after, whole=whole) == payload.encode(after)


@given(st.lists(VALUES, min_size=2, max_size=6))
@settings(deadline=None, max_examples=50)
def test_patches_fold_in_order(values: list[Any]) -> None:
    steps = itertools.pairwise(values)
    made = [patches.make(before, after, whole=False) for before, after in steps]
    stored = [one[0] for one in made if one is not None]
    assert patches.fold(payload.encode(values[0]), stored) == payload.encode(values[-1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 1.0),
        (True, 1),
        ({"a": 1}, {"a": True}),
        (0.0, -0.0),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": {"x": 1, "y": 2}, "pad": "p" * 80}, {"a": {"y": 2, "x": 1}, "pad": "p" * 80}),
        ([], {}),
        ([1, 2, 3], [1]),
        ([1], [1, 2, 3]),
        ({"a": None}, {}),
        ({}, {"a": None}),
        (
            {"list": [{"deep": [1, 2]}], "pad": "p" * 80},
            {"list": [{"deep": [1, 3, 4]}], "pad": "p" * 80},
        ),
    ],
)
def test_what_differs_in_its_text_is_a_change(before: Any, after: Any) -> None:
    assert patches.make(before, after, whole=False) is not None
    assert through(before, after) == payload.encode(after)


def test_nothing_changed_is_no_patch() -> None:
    value = {"a": [1, {"b": None}], "c": 1.5}
    assert patches.make(value, value, whole=False) is None
    assert patches.make(value, {"a": [1, {"b": None}], "c": 1.5}, whole=True) is None


def test_the_shorter_of_patch_and_value_is_stored() -> None:
    long = {"text": "x" * 100, "n": 1}
    assert patches.make(long, {**long, "n": 2}, whole=False) == ('{"ops":[[["n"],2]]}', False)
    assert patches.make(long, {"n": 2}, whole=False) == ('{"value":{"n":2}}', True)
    assert patches.make(long, {**long, "n": 2}, whole=True) == (
        '{"value":{"text":"' + "x" * 100 + '","n":2}}',
        True,
    )


def test_removals_and_appends_name_their_place() -> None:
    pad = "x" * 100
    before = {"pad": pad, "gone": 1, "list": [1, 2, 3]}
    made = patches.make(before, {"pad": pad, "list": [1, 5], "new": None}, whole=False)
    assert made == ('{"ops":[[["gone"]],[["list",2]],[["list",1],5],[["new"],null]]}', False)


def test_the_deepest_payload_has_a_patch() -> None:
    before: Any = 0
    after: Any = 1
    for _ in range(payload.DEPTH_LIMIT):
        before, after = [before], [after]
    assert through(before, after) == payload.encode(after)


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(payload.BadPayload):
        patches.make({"a": 1}, {"a": object()}, whole=False)
