"""Retry decisions: waits, caps, and what the receiver asked for."""

from __future__ import annotations

import pytest

from pipo.lang.model import ErrorPolicy
from pipo_runner.pipeline.policy import GiveUp, Wait, decide


def policy(**changes: object) -> ErrorPolicy:
    fields = {"retry": 3, "delay_ms": 100.0, "max_delay_ms": 60_000.0}
    return ErrorPolicy(**{**fields, **changes})  # type: ignore[arg-type]


def test_fixed_waits_are_the_delay_and_the_last_failure_gives_up() -> None:
    moves = [decide(policy(), failures=n) for n in (1, 2, 3, 4)]
    assert moves == [Wait(100.0, 1), Wait(100.0, 2), Wait(100.0, 3), GiveUp("dead_letter", 4)]


def test_exponential_waits_double_up_to_the_cap() -> None:
    growing = policy(retry=99, backoff="exponential", delay_ms=500.0, max_delay_ms=3000.0)
    waits = [decide(growing, failures=n) for n in (1, 2, 3, 4, 80)]
    assert [move.ms for move in waits if isinstance(move, Wait)] == [500, 1000, 2000, 3000, 3000]


@pytest.mark.parametrize(
    ("asked_ms", "wait_ms"), [(7_000.0, 7_000.0), (50.0, 100.0), (86_400_000.0, 60_000.0)]
)
def test_the_receivers_pause_counts_up_to_max_delay(asked_ms: float, wait_ms: float) -> None:
    assert decide(policy(), failures=1, asked_ms=asked_ms) == Wait(wait_ms, 1)


def test_a_hopeless_failure_is_not_retried() -> None:
    assert decide(policy(), failures=1, hopeless=True) == GiveUp("dead_letter", 1)
