"""Who is offered a written unit, what a checker holds, and whose verdict counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipo.errors import Unavailable
from pipo_runner.pipeline.delivery.offers import (
    ALONE_S,
    IDLE_LEASE_S,
    LEASE_S,
    MESSAGE_BYTES_LIMIT,
)
from tests.unit.runner.pipeline.delivery.test_verification import (
    CHECKED,
    FAILED,
    PASSED,
    REFUSED,
    Checker,
    verifying,
)
from tests.unit.runner.pipeline.rig import Rig, quiet, until


async def test_a_unit_is_offered_once_its_write_is_durable() -> None:
    rig = Rig(CHECKED)
    checker = Checker(rig)
    (unit,) = await rig.accept({"name": "Ada"})
    await quiet()
    assert rig.journal.names(unit)[-1] == "Written"
    assert checker.offers == []
    await rig.journal.land()
    (offer,) = checker.offers
    assert (offer.id, offer.check, offer.output) == (f"{unit}:1:1", "record_exists", "sqlite")
    assert json.loads(getattr(offer, "with")) == {"where": {"name": "ADA", "row": 1}}
    assert json.loads(offer.target) == {"path": "/pipelines/people.db", "table": "people"}
    assert json.loads(offer.result) == {"rowid": 1}
    assert (offer.within_left_ms, offer.within_ms) == (5000, 5000)


async def test_passed_counts_from_any_checker() -> None:
    rig = Rig(CHECKED, auto=True)
    holder, other = Checker(rig, "c1", 10), Checker(rig, "c2", 1)
    (unit,) = await verifying(rig, {"name": "Ada"})
    assert (len(holder.offers), len(other.offers)) == (1, 0)
    other.say(f"{unit}:1:9", PASSED)
    await rig.settle()
    assert rig.journal.names(unit)[-1] == "Delivered"
    assert holder.withdrawn == [f"{unit}:1:1"]
    assert other.withdrawn == []


@pytest.mark.parametrize("outcome", [FAILED, REFUSED])
async def test_failed_and_refused_count_only_from_the_holder(outcome: Any) -> None:
    rig = Rig(CHECKED, auto=True)
    holder, other = Checker(rig, "c1", 10), Checker(rig, "c2", 1)
    (unit,) = await verifying(rig, {"name": "Ada"})
    other.say(f"{unit}:1:1", outcome, message="no row")
    assert len(rig.parts.offers) == 1
    holder.say(f"{unit}:1:1", outcome, message="no row")
    assert len(rig.parts.offers) == 0


async def test_an_older_offers_failure_is_ignored() -> None:
    rig = Rig(CHECKED, auto=True)
    first = Checker(rig, "c1")
    (unit,) = await verifying(rig, {"name": "Ada"})
    first.leave()
    second = Checker(rig, "c2")
    await until(lambda: second.offers)
    assert second.offers[0].id == f"{unit}:1:2"
    second.say(f"{unit}:1:1", FAILED, message="no row")
    assert len(rig.parts.offers) == 1


@pytest.mark.parametrize("id", ["u9:1:1", "{unit}:0:1", "{unit}:2:1", "{unit}", "", ":::"])
async def test_a_verdict_about_another_write_is_ignored(id: str) -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(id.format(unit=unit), PASSED)
    checker.say(id.format(unit=unit), FAILED)
    assert rig.journal.names(unit)[-1] == "Written"


async def test_a_lost_checkers_units_go_to_another_with_what_is_left() -> None:
    rig = Rig(CHECKED, auto=True)
    first, second = Checker(rig, "c1", 10), Checker(rig, "c2", 5)
    (unit,) = await verifying(rig, {"name": "Ada"})
    rig.clock.passed_s += 2.0
    first.leave()
    await until(lambda: first.ended and second.offers)
    (offer,) = second.offers
    assert (offer.id, offer.within_left_ms, offer.within_ms) == (f"{unit}:1:2", 3000, 5000)
    rig.clock.passed_s += 60.0
    second.leave()
    third = Checker(rig, "c3")
    await until(lambda: third.offers)
    # Late, and still to be looked at once.
    assert third.offers[0].within_left_ms == 0


async def test_a_silent_checker_loses_what_it_holds() -> None:
    rig = Rig(CHECKED, auto=True)
    silent, awake = Checker(rig, "c1", 10), Checker(rig, "c2", 5)
    (unit,) = await verifying(rig, {"name": "Ada"})
    for _ in range(12):
        awake.beat()
        await rig.timers.elapse(LEASE_S / 10)
    awake.beat()
    await rig.timers.elapse(LEASE_S / 4)
    assert silent.ended
    assert [offer.id for offer in awake.offers] == [f"{unit}:1:2"]
    assert rig.parts.offers.checkers == 1
    assert ("warning", "checker is silent") in rig.logged


async def test_a_silent_checker_that_holds_nothing_is_offered_nothing() -> None:
    rig = Rig(CHECKED, auto=True)
    silent, awake = Checker(rig, "c1", 10), Checker(rig, "c2", 5)
    await rig.timers.elapse(IDLE_LEASE_S - 1.0)
    assert rig.parts.offers.checkers == 2
    await rig.timers.elapse(2.0)
    awake.beat()
    assert rig.parts.offers.checkers == 1
    (unit,) = await verifying(rig, {"name": "Ada"})
    assert silent.offers == []
    assert silent.ended
    assert [offer.id for offer in awake.offers] == [f"{unit}:1:1"]


async def test_a_lease_begins_with_the_first_that_is_held() -> None:
    """Its checker held nothing, and had said nothing for a while."""
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    await rig.timers.elapse(IDLE_LEASE_S - 1.0)
    await verifying(rig, {"name": "Ada"})
    await rig.timers.elapse(LEASE_S - 1.0)
    assert not checker.ended
    # A second offer is no word of it.
    await verifying(rig, {"name": "Bo"})
    await rig.timers.elapse(LEASE_S / 2)
    assert checker.ended


async def test_a_heartbeat_renews_every_lease() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    await verifying(rig, {"name": "Ada"}, {"name": "Bo"})
    for _ in range(20):
        checker.beat()
        await rig.timers.elapse(3.0)
    assert not checker.ended
    assert len(checker.offers) == 2


async def test_units_wait_while_no_checker_is_attached() -> None:
    rig = Rig(CHECKED, auto=True)
    ids = await verifying(rig, {"name": "Ada"}, {"name": "Bo"})
    await rig.timers.elapse(3600.0)
    assert rig.logged.count(("warning", "no checker attached")) == 1
    assert len(rig.parts.offers) == 2
    checker = Checker(rig)
    await until(lambda: len(checker.offers) == 2)
    assert [offer.id for offer in checker.offers] == [f"{unit}:1:1" for unit in ids]
    # Nobody has looked, so nothing of `within` is used up.
    assert {offer.within_left_ms for offer in checker.offers} == {5000}


async def test_a_checker_that_is_on_its_way_is_not_missed() -> None:
    rig = Rig(CHECKED, auto=True)
    await verifying(rig, {"name": "Ada"})
    await rig.timers.elapse(ALONE_S / 2)
    Checker(rig)
    await rig.timers.elapse(ALONE_S)
    assert ("warning", "no checker attached") not in rig.logged


async def test_only_a_checker_that_was_missed_is_worth_a_line() -> None:
    """Not the first one of a run, nor its leave at a stop: they would be in every log."""
    rig = Rig(CHECKED, auto=True)
    offers = rig.parts.offers

    def told() -> list[str]:
        return [words for _, words in rig.logged if words.startswith("checker ")]

    first = offers.attach("c1", 1)
    assert told() == []
    offers.detach(first)
    offers.attach("c2", 1)
    assert told() == ["checker detached", "checker attached"]
    offers.close()
    assert told() == ["checker detached", "checker attached"]


async def test_a_checker_gets_no_more_than_it_can_hold() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig, capacity=2)
    ids = await verifying(rig, *({"name": str(n)} for n in range(4)))
    assert [offer.id for offer in checker.offers] == [f"{unit}:1:1" for unit in ids[:2]]
    checker.say(f"{ids[0]}:1:1", PASSED)
    await until(lambda: len(checker.offers) == 3)
    assert checker.offers[2].id == f"{ids[2]}:1:1"


async def test_units_go_to_the_checker_with_the_most_room() -> None:
    rig = Rig(CHECKED, auto=True)
    small, large = Checker(rig, "c1", 2), Checker(rig, "c2", 4)
    await verifying(rig, *({"name": str(n)} for n in range(6)))
    assert (len(small.offers), len(large.offers)) == (2, 4)


async def test_messages_stay_below_a_mebibyte() -> None:
    rig = Rig(CHECKED, auto=True, packet_limit=MESSAGE_BYTES_LIMIT)
    checker = Checker(rig)
    ids = await verifying(rig, *({"name": "x" * (MESSAGE_BYTES_LIMIT // 3)} for _ in range(5)))
    assert [offer.id for offer in checker.offers] == [f"{unit}:1:1" for unit in ids]
    assert all(len(reply.SerializeToString()) <= MESSAGE_BYTES_LIMIT for reply in checker.replies)
    assert len(checker.replies) >= 3


async def test_close_ends_every_stream_and_offers_nothing_more() -> None:
    rig = Rig(CHECKED, auto=True)
    one, two = Checker(rig, "c1"), Checker(rig, "c2")
    (unit,) = await verifying(rig, {"name": "Ada"})
    rig.parts.offers.close()
    await until(lambda: one.ended and two.ended)
    with pytest.raises(Unavailable, match="stopping"):
        rig.parts.offers.attach("c3", 1)
    assert rig.journal.names(unit)[-1] == "Written"
    assert ("warning", "no checker attached") not in rig.logged


async def test_a_detached_checkers_passed_still_counts() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.leave()
    checker.leave()
    checker.say(f"{unit}:1:1", FAILED)
    assert len(rig.parts.offers) == 1
    checker.say(f"{unit}:1:1", PASSED)
    await rig.settle()
    assert rig.journal.names(unit)[-1] == "Delivered"
