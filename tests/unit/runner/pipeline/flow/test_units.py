"""The ready queue: order, and the limit on resident payloads."""

from __future__ import annotations

from itertools import permutations

import pytest

from pipo_runner.pipeline.flow.units import UNLOADED, ReadyQueue, Unit


def unit(seq: int, size: int = 10) -> Unit:
    return Unit(
        id=f"u{seq}",
        version=1,
        input="input",
        trigger="push",
        source="test",
        received_at=0,
        queue_seq=seq,
        cursor="$output",
        data={"n": seq},
        size=size,
    )


def test_units_come_out_by_queue_seq() -> None:
    queue = ReadyQueue()
    for seq in (3, 1, 2):
        queue.put(unit(seq))
    assert [queue.pop().queue_seq for _ in range(3)] == [1, 2, 3]  # type: ignore[union-attr]
    assert queue.pop() is None


def test_payloads_beyond_the_limit_are_left_in_the_journal() -> None:
    queue = ReadyQueue(resident_bytes_limit=25)
    waiting = [unit(1), unit(2), unit(3)]
    for one in waiting:
        queue.put(one)
    assert [one.data is UNLOADED for one in waiting] == [False, False, True]
    assert queue.pop() is waiting[0]
    queue.put(unit(4))
    assert waiting[1].data is not UNLOADED


@pytest.mark.parametrize("arrived", list(permutations(range(1, 6))), ids=str)
def test_any_order_of_arrival_comes_out_in_order(arrived: tuple[int, ...]) -> None:
    """Also when units are taken in between: what comes again is ahead of what is new."""
    queue = ReadyQueue()
    for seq in arrived[:3]:
        queue.put(unit(seq))
    first = queue.pop()
    assert first is not None
    assert first.queue_seq == min(arrived[:3])
    for seq in arrived[3:]:
        queue.put(unit(seq))
    queue.put(first)
    assert len(queue) == 5
    assert [one.queue_seq for one in iter(queue.pop, None)] == [1, 2, 3, 4, 5]
