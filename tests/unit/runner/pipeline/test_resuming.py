"""What an earlier run left goes on, each unit as the table of recovery decides."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import WriteFailed
from pipo.journal import changes as journaled
from pipo.journal.recover import PendingUnit, Recovery
from pipo.payload import encode
from pipo.rpc.stubs.checker_pb2 import Verdict
from pipo_runner.pipeline.resuming import take_up
from tests.unit.runner.pipeline.delivery.test_verification import CHECKED, Checker
from tests.unit.runner.pipeline.rig import AT, PLAIN, Rig, edition_of, pending, quiet

KEYED = """
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: "./${data.place}.db", table: t, key: email, columns: { email: "${data.email}" } }
delivered: { check: record_exists, with: { where: { email: "${meta.key}" } } }
"""


def recovery(*units: PendingUnit) -> Recovery:
    return Recovery(units=list(units), next_queue_seq=len(units) + 1, marks={}, version=1)


async def resumed(body: str, *units: PendingUnit, stored: Any = None) -> tuple[Rig, dict[str, int]]:
    rig = Rig(body, auto=True, opened=False, recovery=recovery(*units), stored=stored)
    rows = await take_up(units, rig.around, rig.parts)
    rig.parts.admission.open()
    rig.parts.executor.open()
    await quiet()
    return rig, dict(rows)


async def test_an_unwritten_unit_runs_in_its_old_place() -> None:
    rig, rows = await resumed(PLAIN, pending(2), pending(1))
    assert rows == {"R1": 2}
    assert rig.output.written == ["u1", "u2"]
    assert {unit.repeat for group in rig.output.writes for unit in group} == {"recovered"}
    assert len(rig.parts.pending) == 0


async def test_what_is_left_of_a_wait_is_waited_for() -> None:
    rig, rows = await resumed(PLAIN, pending(1, attempt=2, retry_at=AT + 700))
    assert rows == {"R2": 1}
    assert rig.timers.waits_s == [0.7]
    assert rig.output.writes == []
    await rig.timers.elapse(0.7)
    assert rig.output.written == ["u1"]
    # From the start on; what the earlier run did is not known.
    assert rig.journal.of(journaled.Written)[0].ms == pytest.approx(700.0)


async def test_a_wait_that_goes_on_holds_its_slot() -> None:
    """Edge 106: with one slot, everything behind it waits, also after a restart."""
    waits = pending(1, attempt=1, retry_at=AT + 700)
    rig, _ = await resumed(PLAIN + "concurrency: 1\n", waits, pending(2))
    assert rig.output.writes == []
    await rig.timers.elapse(0.7)
    assert rig.output.written == ["u1", "u2"]
    assert rig.parts.executor.in_hand == 0


async def test_a_wait_that_ends_during_the_start_is_ready_then() -> None:
    waits = pending(1, attempt=1, retry_at=AT + 700)
    rig = Rig(PLAIN, auto=True, opened=False, recovery=recovery(waits))
    await take_up([waits], rig.around, rig.parts)
    await rig.timers.elapse(0.7)
    assert rig.output.writes == []
    rig.parts.executor.open()
    await quiet()
    assert rig.output.written == ["u1"]
    assert rig.parts.executor.in_hand == 0


async def test_other_slots_go_on_beside_a_wait() -> None:
    waits = pending(1, attempt=1, retry_at=AT + 700)
    rig, _ = await resumed(PLAIN + "concurrency: 2\n", waits, pending(2), pending(3))
    assert rig.output.written == ["u2", "u3"]
    await rig.timers.elapse(0.7)
    assert rig.output.written == ["u2", "u3", "u1"]


async def test_a_payload_left_in_the_journal_is_read_when_its_wait_is_over() -> None:
    waits = pending(1, attempt=1, retry_at=AT + 700, data=None)
    rig, _ = await resumed(PLAIN, waits, stored={"u1": {"n": 9}})
    assert rig.loaded == []
    await rig.timers.elapse(0.7)
    assert rig.output.writes[0][0].data == {"n": 9}


async def test_with_one_slot_a_restart_keeps_to_the_order() -> None:
    """What was written and not verified is ahead of what was only accepted (decision 45)."""
    written = pending(
        1, cursor="$verify", write_no=1, result=b'{"rowid":1}', data=encode({"name": "Ada"})
    )
    behind = pending(2, data=encode({"name": "Bo"}))
    rig, _ = await resumed(CHECKED + "concurrency: 1\n", written, behind)
    assert rig.output.writes == []
    checker = Checker(rig)
    await quiet()
    checker.say("u1:1:1", Verdict.OUTCOME_PASSED)
    await rig.settle()
    assert rig.output.written == ["u2"]
    await quiet()
    checker.say("u2:1:1", Verdict.OUTCOME_PASSED)
    await rig.settle()
    assert rig.parts.executor.in_hand == 0


async def test_a_check_that_cannot_be_rendered_gives_its_slot_back() -> None:
    written = pending(
        1, cursor="$verify", write_no=1, result=b'{"rowid":1}', data=encode({"name": 1})
    )
    rig, _ = await resumed(
        CHECKED + "concurrency: 1\n", written, pending(2, data=encode({"name": "B"}))
    )
    await rig.settle()
    assert rig.output.written == ["u2"]


@pytest.mark.parametrize("cursor", ["$output", "shape"])
async def test_a_clock_that_was_set_back_stretches_no_wait(cursor: str) -> None:
    """The time of the next attempt stands a day ahead; no policy here asks for more than 5 s."""
    policy = "on_error: { retry: 2, delay: 1s, max_delay: 5s }"
    body = f"""
input: {{ via: push }}
nodes: {{ shape: {{ from: input, transform: map, with: {{ data: 1 }}, {policy} }} }}
output: {{ from: shape, to: file, with: {{ path: ./out.jsonl }}, {policy} }}
"""
    rig, _ = await resumed(body, pending(1, cursor=cursor, attempt=1, retry_at=AT + 86_400_000))
    assert rig.timers.waits_s == [5.0]


async def test_attempts_of_the_earlier_run_count() -> None:
    body = f"{PLAIN[:-3]}, on_error: {{ retry: 2, delay: 1s }} }}\n"
    rig, _ = await resumed(body, pending(1, attempt=2, retry_at=AT + 500))
    rig.output.answer = lambda unit: WriteFailed("still no")
    await rig.timers.elapse(0.5)
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert dead.error.attempts == 3


async def test_a_write_that_was_its_own_check_is_delivered() -> None:
    rig, rows = await resumed(PLAIN, pending(1, cursor="$verify", write_no=1, result=b"{}"))
    assert rows == {"R3": 1}
    assert rig.journal.names() == ["Delivered"]
    assert (rig.output.writes, len(rig.parts.pending)) == ([], 0)


async def test_a_written_unit_is_checked_and_not_written_again() -> None:
    unit = pending(
        1,
        cursor="$verify",
        write_no=2,
        key="a@b.c",
        result=b'{"rowid":7}',
        data=encode({"place": "x", "email": "new@b.c"}),
    )
    rig, rows = await resumed(KEYED, unit)
    assert rows == {"R4": 1}
    checker = Checker(rig)
    await quiet()
    (offer,) = checker.offers
    assert offer.id == "u1:2:1"
    assert getattr(offer, "with") == b'{"where":{"email":"a@b.c"}}'
    assert (offer.result, offer.within_left_ms) == (b'{"rowid":7}', 10_000)
    assert rig.output.writes == []
    # A crash may have left a journal beside the database that only a writer can roll back.
    assert [settings["path"] for settings in rig.output.recovered] == ["/pipelines/x.db"]


async def test_a_payload_left_in_the_journal_is_read_for_its_check() -> None:
    unit = pending(1, cursor="$verify", write_no=1, data=None, result=b'{"rowid":7}')
    rig, _ = await resumed(CHECKED, unit, stored={"u1": {"name": "Ada"}})
    checker = Checker(rig)
    await quiet()
    assert getattr(checker.offers[0], "with") == b'{"where":{"name":"ADA","row":7}}'


async def test_a_check_that_cannot_be_rendered_ends_its_unit_alone() -> None:
    bad = pending(1, cursor="$verify", write_no=1, result=b"{}", data=encode({"place": ".."}))
    good = pending(
        2,
        cursor="$verify",
        write_no=1,
        result=b"{}",
        data=encode({"place": "x", "email": "a@b.c"}),
    )
    rig, rows = await resumed(KEYED, bad, good)
    assert rows == {"R4": 2}
    assert [change.unit for change in rig.journal.of(journaled.DeadLettered)] == ["u1"]
    assert len(rig.parts.offers) == 1


async def test_a_destination_that_cannot_be_opened_holds_up_nothing() -> None:
    unit = pending(1, cursor="$verify", write_no=1, result=b"{}", data=encode({"name": "Ada"}))
    rig = Rig(CHECKED, auto=True, opened=False, recovery=recovery(unit))

    async def recover(settings: Any) -> None:
        raise WriteFailed("the database is locked")

    rig.output.recover = recover  # type: ignore[method-assign]
    await take_up([unit], rig.around, rig.parts)
    assert len(rig.parts.offers) == 1
    assert ("warning", "the destination was not looked at") in rig.logged


async def test_recovered_units_count_against_the_buffer() -> None:
    body = PLAIN + "buffer: { max: 2 }\n"
    rig = Rig(body, auto=True, recovery=recovery(pending(1), pending(2)))
    (taken,) = await rig.parts.intake.take([rig.arrival(1)])
    assert "buffer full" in taken.message  # type: ignore[union-attr]


async def test_new_packets_come_behind_the_recovered() -> None:
    rig, _ = await resumed(PLAIN, pending(1), pending(2))
    await rig.accept(1)
    assert [change.queue_seq for change in rig.journal.of(journaled.Accepted)] == [3]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_unit_runs_on_the_version_it_is_pinned_to(version: int) -> None:
    old = pending(1, version=version, cursor="$verify", write_no=1, result=b"{}")
    rig = Rig(PLAIN, auto=True, recovery=recovery(old))
    rig.plans.put_in_force(edition_of(Rig(CHECKED).pipeline, 2))
    stored = {"name": "Ada"}
    rig.stored["u1"] = stored
    rows = await take_up([old], rig.around, rig.parts)
    # Version 1 is settled by its write, version 2 wants a look.
    assert dict(rows) == ({"R3": 1} if version == 1 else {"R4": 1})
