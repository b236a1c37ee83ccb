"""Offers, leases and verdicts of written units."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pipo.connectors.contract import Settlement
from pipo.errors import Unavailable
from pipo.journal import changes as journaled
from pipo.rpc.stubs.checker_pb2 import Verdict, Verification, VerificationsReply
from pipo_runner.pipeline.recovery import unit_of
from pipo_runner.pipeline.verification import (
    ALONE_S,
    IDLE_LEASE_S,
    LEASE_S,
    MESSAGE_BYTES_LIMIT,
    Attached,
)
from tests.unit.runner.pipeline.rig import Rig, pending, quiet, until

PASSED = Verdict.OUTCOME_PASSED
FAILED = Verdict.OUTCOME_FAILED
REFUSED = Verdict.OUTCOME_REFUSED

CHECKED = """
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: "./${data.place ?? 'people'}.db", table: people, create: true }
delivered:
  check: record_exists
  with: { where: { name: "${upper(data.name)}", row: "${result.rowid}" } }
  within: 5s
"""


class Checker:
    """One checker's end of the stream, without a wire."""

    def __init__(self, rig: Rig, name: str = "c1", capacity: int = 100) -> None:
        self._rig = rig
        self.hub = rig.parts.verifications
        self.attached: Attached = self.hub.attach(name, capacity)
        self.replies: list[VerificationsReply] = []
        self.ended = False
        self._reading = asyncio.create_task(self._read(), name=f"checker {name}")

    async def _read(self) -> None:
        async for reply in self.hub.offers(self.attached):
            self.replies.append(reply)
        self.ended = True

    @property
    def offers(self) -> list[Verification]:
        return [offer for reply in self.replies for offer in reply.verifications]

    @property
    def withdrawn(self) -> list[str]:
        return [id for reply in self.replies for id in reply.withdrawn]

    def beat(self) -> None:
        self.hub.heard(self.attached)

    def say(self, id: str, outcome: Any, **words: Any) -> None:
        self.beat()
        self.hub.judge(self.attached, [Verdict(id=id, outcome=outcome, **words)])

    def leave(self) -> None:
        self.hub.detach(self.attached)


async def verifying(rig: Rig, *data: Any) -> list[str]:
    """Packets whose write is on disk; their ids."""
    ids = await rig.accept(*data)
    await rig.settle()
    return ids


def with_policy(policy: str) -> str:
    return f"{CHECKED}  on_fail: {{ {policy} }}\n"


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


async def test_passed_is_told_once_it_is_durable() -> None:
    rig = Rig(CHECKED)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    checker.say(f"{unit}:1:1", PASSED, evidence=b'{"rows":1}')
    await quiet()
    (change,) = rig.journal.of(journaled.Delivered)
    assert (change.evidence, change.check) == (b'{"rows":1}', "record_exists")
    assert not told.done()
    await rig.journal.land()
    assert await told == Settlement("delivered")
    assert (len(rig.parts.verifications), len(rig.parts.pending)) == (0, 0)


async def test_failed_commits_the_evidence_and_the_end_together() -> None:
    rig = Rig(CHECKED)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    rig.clock.passed_s += 5.0
    checker.say(f"{unit}:1:1", FAILED, message="no row", attempts=20, evidence=b'{"rows":0}')
    await quiet()
    (handed,) = rig.journal.waiting
    unverified, dead = handed.changes
    assert isinstance(unverified, journaled.Unverified)
    assert isinstance(dead, journaled.DeadLettered)
    assert (unverified.evidence, unverified.verdict) == (b'{"rows":0}', "failed")
    assert dead.node == "$verify"
    error = dead.error
    assert (error.code, error.node, error.attempts) == ("delivery.unverified", "delivered", 20)
    assert error.message == "no row"
    await rig.journal.land()
    assert len(rig.parts.pending) == 0


async def test_refused_says_so() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(f"{unit}:1:1", REFUSED, message="dead-lettered downstream")
    await quiet()
    assert rig.journal.of(journaled.Unverified)[0].verdict == "refused"


async def test_a_failed_units_payload_is_there_for_its_message() -> None:
    rig = Rig(with_policy('message: "${data.name}: ${error.message}"'), auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(f"{unit}:1:1", FAILED, message="no row")
    await rig.settle()
    assert rig.journal.of(journaled.DeadLettered)[0].error.message == "Ada: no row"


async def test_a_message_that_cannot_be_rendered_costs_nothing() -> None:
    rig = Rig(with_policy('message: "${upper(data.n)}"'), auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada", "n": 1})
    checker.say(f"{unit}:1:1", FAILED, message="no row")
    await rig.settle()
    message = rig.journal.of(journaled.DeadLettered)[0].error.message
    assert message.startswith("no row [the message template failed: ")


async def test_a_verdict_is_redacted() -> None:
    rig = Rig(CHECKED, auto=True, secrets={"key": "s3cr3t-value"})
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(f"{unit}:1:1", FAILED, message="denied for s3cr3t-value")
    await rig.settle()
    assert rig.journal.of(journaled.Unverified)[0].error.message == "denied for ***"


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
    assert len(rig.parts.verifications) == 1
    holder.say(f"{unit}:1:1", outcome, message="no row")
    assert len(rig.parts.verifications) == 0


async def test_an_older_offers_failure_is_ignored() -> None:
    rig = Rig(CHECKED, auto=True)
    first = Checker(rig, "c1")
    (unit,) = await verifying(rig, {"name": "Ada"})
    first.leave()
    second = Checker(rig, "c2")
    await until(lambda: second.offers)
    assert second.offers[0].id == f"{unit}:1:2"
    second.say(f"{unit}:1:1", FAILED, message="no row")
    assert len(rig.parts.verifications) == 1


@pytest.mark.parametrize("id", ["u9:1:1", "{unit}:0:1", "{unit}:2:1", "{unit}", "", ":::"])
async def test_a_verdict_about_another_write_is_ignored(id: str) -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(id.format(unit=unit), PASSED)
    checker.say(id.format(unit=unit), FAILED)
    assert rig.journal.names(unit)[-1] == "Written"


async def test_a_second_verdict_changes_nothing() -> None:
    rig = Rig(CHECKED)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(f"{unit}:1:1", PASSED)
    checker.say(f"{unit}:1:1", FAILED)
    checker.say(f"{unit}:1:1", PASSED)
    await rig.settle()
    assert rig.journal.names(unit).count("Delivered") == 1
    assert "Unverified" not in rig.journal.names(unit)


async def test_one_message_may_hold_a_verdict_twice() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    one = Verdict(id=f"{unit}:1:1", outcome=PASSED)
    rig.parts.verifications.judge(checker.attached, [one, one])
    await rig.settle()
    assert rig.journal.names(unit).count("Delivered") == 1


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
    assert rig.parts.verifications.checkers == 1
    assert ("warning", "checker is silent") in rig.logged


async def test_a_silent_checker_that_holds_nothing_is_offered_nothing() -> None:
    rig = Rig(CHECKED, auto=True)
    silent, awake = Checker(rig, "c1", 10), Checker(rig, "c2", 5)
    await rig.timers.elapse(IDLE_LEASE_S - 1.0)
    assert rig.parts.verifications.checkers == 2
    await rig.timers.elapse(2.0)
    awake.beat()
    assert rig.parts.verifications.checkers == 1
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
    assert len(rig.parts.verifications) == 2
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
    verifications = rig.parts.verifications

    def told() -> list[str]:
        return [words for _, words in rig.logged if words.startswith("checker ")]

    first = verifications.attach("c1", 1)
    assert told() == []
    verifications.detach(first)
    verifications.attach("c2", 1)
    assert told() == ["checker detached", "checker attached"]
    verifications.close()
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


async def test_a_check_that_cannot_be_rendered_fails_at_once() -> None:
    rig = Rig(CHECKED)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": 1})
    assert checker.offers == []
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.unit, dead.error.code) == (unit, "delivery.unverified")
    assert "upper() takes a string" in dead.error.message
    assert len(rig.parts.pending) == 0


async def test_waiting_holds_no_slot() -> None:
    rig = Rig(CHECKED + "concurrency: 2\n", auto=True)
    ids = await verifying(rig, *({"name": str(n)} for n in range(6)))
    assert rig.output.written == ids
    assert rig.parts.executor.in_hand == 0


async def test_with_one_slot_the_next_waits_for_the_verdict() -> None:
    rig = Rig(CHECKED + "concurrency: 1\n", auto=True)
    checker = Checker(rig)
    ids = await verifying(rig, {"name": "a"}, {"name": "b"}, {"name": "c"})
    assert rig.output.written == ids[:1]
    checker.say(f"{ids[0]}:1:1", PASSED)
    await rig.settle()
    assert rig.output.written == ids[:2]
    checker.say(f"{ids[1]}:1:1", FAILED, message="no")
    await rig.settle()
    assert rig.output.written == ids


async def test_with_one_slot_a_check_that_cannot_be_rendered_frees_it() -> None:
    rig = Rig(CHECKED + "concurrency: 1\n", auto=True)
    ids = await verifying(rig, {"name": 1}, {"name": "b"})
    assert rig.output.written == ids
    assert rig.journal.names(ids[0])[-1] == "DeadLettered"


async def test_a_recovered_unit_is_offered_with_a_full_within() -> None:
    rig = Rig(CHECKED, auto=True, stored={"u1": {"name": "Ada"}})
    unit = unit_of(pending(1, cursor="$verify", write_no=2, data=b'{"name":"Ada"}'))
    rig.parts.pending.add(unit)
    plan = rig.plans.current()
    settings = {"path": "/pipelines/people.db", "table": "people"}
    rig.parts.verifications.add(unit, plan, settings, b'{"rowid":7}')
    checker = Checker(rig)
    await until(lambda: checker.offers)
    (offer,) = checker.offers
    assert (offer.id, offer.within_left_ms) == ("u1:2:1", 5000)


async def test_close_ends_every_stream_and_offers_nothing_more() -> None:
    rig = Rig(CHECKED, auto=True)
    one, two = Checker(rig, "c1"), Checker(rig, "c2")
    (unit,) = await verifying(rig, {"name": "Ada"})
    rig.parts.verifications.close()
    await until(lambda: one.ended and two.ended)
    with pytest.raises(Unavailable, match="stopping"):
        rig.parts.verifications.attach("c3", 1)
    assert rig.journal.names(unit)[-1] == "Written"
    assert ("warning", "no checker attached") not in rig.logged


async def test_a_detached_checkers_passed_still_counts() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.leave()
    checker.leave()
    checker.say(f"{unit}:1:1", FAILED)
    assert len(rig.parts.verifications) == 1
    checker.say(f"{unit}:1:1", PASSED)
    await rig.settle()
    assert rig.journal.names(unit)[-1] == "Delivered"


async def test_an_end_that_the_journal_refuses_stops_the_process() -> None:
    rig = Rig(CHECKED)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(f"{unit}:1:1", PASSED)
    await rig.journal.fail(RuntimeError("illegal change"))
    assert [str(error) for error in rig.journal.raised] == ["illegal change"]
