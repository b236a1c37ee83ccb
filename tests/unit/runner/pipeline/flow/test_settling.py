"""Pending units and those who wait for their end."""

from __future__ import annotations

import asyncio

import pytest

from pipo.connectors.contract import Settlement
from pipo_runner.pipeline.flow.settling import Pending
from tests.unit.runner.pipeline.flow.test_units import unit


async def elsewhere(packet_id: str) -> Settlement:
    return Settlement("filtered")


async def test_a_wait_ends_with_the_units_end() -> None:
    pending = Pending(elsewhere)
    pending.add(unit(1))
    wait = asyncio.ensure_future(pending.wait("u1", 5.0))
    await asyncio.sleep(0)
    pending.settled(["u1"], Settlement("delivered"))
    assert await wait == Settlement("delivered")
    assert len(pending) == 0


async def test_a_wait_that_is_too_short_says_accepted() -> None:
    pending = Pending(elsewhere)
    pending.add(unit(1))
    assert await pending.wait("u1", 0.0) == Settlement("accepted")


async def test_a_packet_that_has_ended_is_looked_up() -> None:
    assert await Pending(elsewhere).wait("gone", 1.0) == Settlement("filtered")


async def test_emptied_waits_for_the_last_unit() -> None:
    pending = Pending(elsewhere)
    pending.add(unit(1))
    assert not await pending.emptied(0.0)
    wait = asyncio.ensure_future(pending.emptied(5.0))
    await asyncio.sleep(0)
    pending.settled(["u1"], Settlement("filtered"))
    assert await wait


@pytest.mark.seed("L042")
async def test_a_harder_end_stops_waiting_for_the_drain() -> None:
    pending = Pending(elsewhere)
    pending.add(unit(1))
    wait = asyncio.ensure_future(pending.emptied(5.0))
    await asyncio.sleep(0)
    pending.give_up_waiting()
    assert not await wait


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    pending = Pending(elsewhere)
    pending.add(unit(1))
    left = asyncio.ensure_future(pending.wait("u1", 5.0))
    stays = asyncio.ensure_future(pending.wait("u1", 5.0))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    pending.settled(["u1"], Settlement("dead_lettered", "no ink"))
    assert await stays == Settlement("dead_lettered", "no ink")
    assert left.cancelled()


async def test_a_stop_lets_every_wait_go() -> None:
    pending = Pending(elsewhere)
    pending.add(unit(1))
    waits = [asyncio.ensure_future(pending.wait("u1", 5.0)) for _ in range(2)]
    await asyncio.sleep(0)
    pending.release_waits()
    assert [await wait for wait in waits] == [Settlement("accepted")] * 2
    assert len(pending) == 1


async def test_an_end_is_told_with_the_units_it_is_about() -> None:
    told: list[tuple[list[str], str]] = []
    pending = Pending(elsewhere)
    pending.on_settled = lambda ended, settlement: told.append(
        ([one.id for one in ended], settlement.state)
    )
    for one in (unit(1), unit(2)):
        pending.add(one)
    pending.settled(["u1", "u2", "stranger"], Settlement("delivered"))
    pending.settled(["u1"], Settlement("delivered"))
    assert told == [(["u1", "u2"], "delivered"), ([], "delivered")]
