"""The gate: buffer, run state, and places that come back."""

from __future__ import annotations

import pytest

from pipo.connectors.contract import RefusedArrival
from pipo_runner.pipeline.intake.admission import Admission

USED_UP = RefusedArrival("lifetime.max_packets (3) is reached")


def test_a_full_buffer_refuses_and_names_its_key() -> None:
    gate = Admission(buffer_max=2, pending=1)
    gate.open()
    assert gate.reserve("hook") is None
    refusal = gate.reserve("hook")
    assert refusal is not None
    assert refusal.message == "buffer full (2 packets pending)"
    assert "buffer.max" in refusal.hint
    gate.give_back()
    assert gate.reserve("hook") is None
    assert gate.refused == {("hook", "buffer_full"): 1}


def test_a_closed_gate_names_the_state() -> None:
    gate = Admission(buffer_max=2, pending=0)
    assert gate.reserve("hook") is not None
    gate.open()
    gate.close("draining")
    refusal = gate.reserve("hook")
    assert refusal is not None
    assert refusal.message == "pipeline is draining"


def test_what_moves_again_is_never_refused_and_counts() -> None:
    gate = Admission(buffer_max=2, pending=1)
    gate.open()
    gate.take_again(3)
    gate.give_back(2)
    assert gate.reserve("hook") is not None
    gate.give_back()
    assert gate.reserve("hook") is None


def gate_of(*, accepted: int = 0, buffer_max: int = 10) -> Admission:
    made = Admission(buffer_max=buffer_max, pending=0, quota=3, accepted=accepted, used_up=USED_UP)
    made.open()
    return made


@pytest.mark.seed("L004")
def test_no_more_are_accepted_than_the_quota() -> None:
    """Edge 5: what is on its way counts, and what was accepted by an earlier run."""
    gate = gate_of(accepted=1)
    assert [gate.reserve("hook") for _ in range(4)] == [None, None, USED_UP, USED_UP]
    # A packet that settles makes room in the buffer, and none in the quota.
    gate.give_back(2)
    assert gate.reserve("hook") is USED_UP
    # What was never accepted leaves its place to another.
    gate.not_accepted()
    assert gate.reserve("hook") is None
    assert gate.refused == {("hook", "lifetime"): 3}


def test_the_lifetime_comes_before_the_run_state_and_the_buffer() -> None:
    """Edge 1, 4."""
    gate = gate_of(accepted=3, buffer_max=1)
    gate.close("draining")
    assert gate.reserve("hook") is USED_UP
    why = RefusedArrival("lifetime.until (true) is reached")
    gate = gate_of(buffer_max=1)
    assert gate.reserve("hook") is None
    gate.end_lifetime(why)
    gate.close("draining")
    assert gate.reserve("hook") is why


def test_what_moves_again_takes_nothing_from_the_quota() -> None:
    gate = gate_of(accepted=2)
    gate.take_again(5)
    assert gate.reserve("hook") is None
    assert gate.reserve("hook") is USED_UP
