"""Packet ids: shape, order, and agreement with an independent library."""

from __future__ import annotations

import pytest
from ulid import ULID

from pipo_runner.pipeline.flow.ids import PacketIds


@pytest.mark.seed("R011")
def test_an_id_is_a_ulid_whose_time_is_its_receive_time() -> None:
    made = PacketIds().next(1_760_130_828_263)
    assert len(made) == 26
    assert ULID.from_str(made).milliseconds == 1_760_130_828_263


def test_ids_rise_within_a_millisecond_and_behind_a_clock_that_steps_back() -> None:
    ids = PacketIds()
    made = [ids.next(now) for now in (5, 5, 5, 7, 6, 1, 7, 8)]
    assert made == sorted(set(made))
    assert ULID.from_str(made[5]).milliseconds == 7


def test_a_carry_passes_from_letter_to_letter() -> None:
    ids = PacketIds(entropy=lambda count: b"\xff" * count)
    first, second = ids.next(1), ids.next(1)
    assert int(ULID.from_str(second)) == int(ULID.from_str(first)) + 1


@pytest.mark.seed("R011")
def test_ids_go_on_above_those_of_earlier_runs() -> None:
    before = PacketIds().next(1_760_130_828_263)
    later = PacketIds(after=before)
    behind, ahead = later.next(5), later.next(1_760_130_828_264)
    assert before < behind < ahead


def test_a_run_makes_no_id_that_one_before_it_made_of_a_packet_that_is_gone() -> None:
    """Behind the newest packet that is left stood others, purged or expired by now."""
    before = PacketIds()
    left, gone = before.next(1_760_130_828_263), before.next(1_760_130_828_263)
    later = PacketIds(after=left)
    made = later.next(5)
    assert gone not in (made, later.next(1_760_130_828_263))
    assert ULID.from_str(made).milliseconds == 1_760_130_828_264
