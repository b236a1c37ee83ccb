from __future__ import annotations

import asyncio
from typing import Any

from pipo.rpc.stubs.checker_pb2 import Verdict, VerificationsRequest
from pipo_checker.outbox import GROUP_VERDICTS_MAX, Outbox


def test_verdicts_leave_in_order_and_in_groups() -> None:
    outbox = Outbox()
    for number in range(GROUP_VERDICTS_MAX + 5):
        outbox.put(Verdict(id=str(number)))
    first, second = outbox.take(), outbox.take()
    assert [int(v.id) for v in first + second] == list(range(GROUP_VERDICTS_MAX + 5))
    assert len(first) == GROUP_VERDICTS_MAX
    assert outbox.take() == []


def test_a_group_stays_under_a_mebibyte() -> None:
    outbox = Outbox()
    for _ in range(40):
        outbox.put(Verdict(id="u", evidence=b"x" * 64 * 1024))
    sizes = []
    while group := outbox.take():
        sizes.append(VerificationsRequest(verdicts=group).ByteSize())
    assert len(sizes) > 4
    assert max(sizes) < 1024 * 1024


def test_a_wait_ends_with_the_first_verdict(patiently: Any) -> None:
    async def scene(clock: Any) -> float:
        outbox = Outbox()
        asyncio.get_running_loop().call_later(0.5, outbox.put, Verdict(id="u"))
        began = clock.monotonic()
        assert await outbox.filled(3.0)
        return float(clock.monotonic() - began)

    assert patiently(scene) == 0.5


def test_a_wait_ends_in_time_without_one(patiently: Any) -> None:
    async def scene(clock: Any) -> bool:
        return await Outbox().filled(3.0)

    assert patiently(scene) is False
