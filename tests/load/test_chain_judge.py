"""The judge of a chain can find fault: each kind of damage, which needs no engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.load.chain_judge import Journal, faults


def chain() -> list[Journal]:
    """Two packets through three pipelines, as it should be."""
    return [
        Journal({"a1": "delivered", "a2": "delivered"}, handed={"a1": "b1", "a2": "b2"}),
        Journal(
            {"b1": "delivered", "b2": "delivered"},
            made_of={"b1": "a1", "b2": "a2"},
            inbox=[("a1", "b1"), ("a2", "b2")],
            handed={"b1": "c1", "b2": "c2"},
        ),
        Journal(
            {"c1": "delivered", "c2": "delivered"},
            made_of={"c1": "b1", "c2": "b2"},
            inbox=[("b1", "c1"), ("b2", "c2")],
        ),
    ]


ROWS = ["c1", "c2"]


def test_a_chain_as_it_should_be() -> None:
    assert faults(["a1"], chain(), ROWS, 2) == []


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["c1"], "no row for 1, such as c2"),
        (["c1", "c2", "c2"], "more than one row for 1, such as c2"),
        (["c1", "c2", "c3"], "a row for 1 unknown, such as c3"),
    ],
)
def test_rows(rows: list[str], told: str) -> None:
    assert told in faults([], chain(), rows, len(rows))
    assert faults([], chain(), ROWS, 1) == ["1 delivered, and 2 rows"]


def test_an_answer_that_was_lost() -> None:
    assert faults(["a3"], chain(), ROWS, 2) == ["a3 was answered and is lost"]


def test_a_packet_that_is_not_delivered() -> None:
    first, second, third = chain()
    second = replace(second, states={"b1": "delivered", "b2": "dead_lettered"})
    assert faults([], [first, second, third], ROWS, 2) == [
        "1 packets of pipeline 1 are dead_lettered"
    ]


def test_a_packet_that_was_handed_over_twice() -> None:
    first, second, third = chain()
    second = replace(
        second,
        states={**second.states, "b3": "delivered"},
        made_of={**second.made_of, "b3": "a2"},
    )
    third = replace(
        third,
        states={**third.states, "c3": "delivered"},
        made_of={**third.made_of, "c3": "b3"},
        inbox=[*third.inbox, ("b3", "c3")],
    )
    told = faults([], [first, second, third], [*ROWS, "c3"], 3)
    assert "more than one packet of the receiver for 1, such as a2" in told


def test_an_inbox_that_forgot_or_mistook() -> None:
    first, second, third = chain()
    forgot = replace(second, inbox=second.inbox[:1])
    assert "no key of the inbox for 1, such as a2" in faults([], [first, forgot, third], ROWS, 2)
    twice = replace(second, inbox=[*second.inbox, ("a1", "b1")])
    assert "more than one key of the inbox for 1, such as a1" in faults(
        [], [first, twice, third], ROWS, 2
    )
    mistook = replace(second, inbox=[("a1", "b2"), ("a2", "b1")])
    assert "the inbox names another packet for ['a1', 'a2']" in faults(
        [], [first, mistook, third], ROWS, 2
    )
    first = replace(first, handed={"a1": "b2", "a2": "b2"})
    assert "the sender names another packet for ['a1']" in faults(
        [], [first, second, third], ROWS, 2
    )
