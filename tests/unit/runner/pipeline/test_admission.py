"""The gate: buffer, run state, and places that come back."""

from __future__ import annotations

from pipo_runner.pipeline.admission import Admission


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
