"""What is asked of the checkers, and what comes of their verdicts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipo.connectors.contract import Settlement
from pipo.journal import changes as journaled
from pipo.rpc.stubs.checker_pb2 import Verdict, Verification, VerificationsReply
from pipo_runner.pipeline.delivery.offers import (
    Attached,
)
from pipo_runner.pipeline.life.recovery import unit_of
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
        self.hub = rig.parts.offers
        self.attached: Attached = self.hub.attach(name, capacity)
        self.replies: list[VerificationsReply] = []
        self.ended = False
        self._reading = asyncio.create_task(self._read(), name=f"checker {name}")

    async def _read(self) -> None:
        async for reply in self.hub.replies(self.attached):
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
        self.hub.on_verdicts(self.attached, [Verdict(id=id, outcome=outcome, **words)])

    def leave(self) -> None:
        self.hub.detach(self.attached)


async def verifying(rig: Rig, *data: Any) -> list[str]:
    """Packets whose write is on disk; their ids."""
    ids = await rig.accept(*data)
    await rig.settle()
    return ids


def with_policy(policy: str) -> str:
    return f"{CHECKED}  on_fail: {{ {policy} }}\n"


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
    assert (len(rig.parts.offers), len(rig.parts.pending)) == (0, 0)


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


@pytest.mark.seed("L029")
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


async def test_an_end_that_the_journal_refuses_stops_the_process() -> None:
    rig = Rig(CHECKED)
    checker = Checker(rig)
    (unit,) = await verifying(rig, {"name": "Ada"})
    checker.say(f"{unit}:1:1", PASSED)
    await rig.journal.fail(RuntimeError("illegal change"))
    assert [str(error) for error in rig.journal.raised] == ["illegal change"]
