"""Retry decisions: waits, caps, and what the receiver asked for."""

from __future__ import annotations

import pytest

from pipo.lang.model import ErrorPolicy
from pipo_runner.pipeline.definition.policy import GiveUp, Wait, decide


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


@pytest.mark.parametrize(("ms", "over_at"), [(100.0, 1100), (1.5, 1002), (0.0, 1000)])
def test_a_wait_that_outlives_its_process_is_no_shorter(ms: float, over_at: int) -> None:
    assert Wait(ms, 1).over_at(1000) == over_at


@pytest.mark.parametrize("backoff", ["fixed", "exponential"])
def test_one_wait_is_never_longer_than_the_cap(backoff: str) -> None:
    """Facts 2.4: both kinds, and the wait that a receiver asked for."""
    capped = policy(backoff=backoff, delay_ms=9_000.0, max_delay_ms=700.0)
    assert decide(capped, failures=1) == Wait(700.0, 1)
    assert decide(capped, failures=1, asked_ms=8_000.0) == Wait(700.0, 1)


def test_waits_are_exact_whatever_their_number_and_size() -> None:
    """No jitter, and no number of retries that a float could not hold."""
    endless = policy(retry=10**9, backoff="exponential", delay_ms=0.5, max_delay_ms=86_400_000.0)
    waits = [decide(endless, failures=n) for n in (1, 2, 10, 28, 29, 10**9)]
    assert [move.ms for move in waits if isinstance(move, Wait)] == [
        0.5, 1.0, 256.0, 67_108_864.0, 86_400_000.0, 86_400_000.0,
    ]  # fmt: skip
