"""Written units that wait for an ack: parked, confirmed, late, and every race between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Settlement
from pipo.errors import BadRequest, InvalidState, NotFound, PipoError, Unavailable
from pipo.journal import changes as journaled
from pipo.journal import reads, units
from pipo.journal.changes import Change
from pipo.journal.outcomes import Acknowledged
from pipo.journal.recover import PendingUnit
from pipo.journal.rows import Unreadable
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.payload import encode
from pipo_runner.pipeline.definition.failures import DataDamaged
from pipo_runner.pipeline.definition.masking import BY_DEFAULT
from pipo_runner.pipeline.delivery.acks import GROUP_UNITS_LIMIT, STALE_LIMIT
from pipo_runner.pipeline.flow.units import UNLOADED, Unit
from pipo_runner.pipeline.resuming import take_up
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import accepted, copy_id, fanned_out, packet_id, stepped, version
from tests.unit.runner.pipeline.rig import AT, PLAIN, Rig, edition_of, pending, quiet, until
from tests.unit.runner.pipeline.test_resuming import recovery

PARKS = f"{PLAIN}delivered: {{ check: external, within: 1h }}\n"
ONE_SLOT = f"{PARKS}concurrency: 1\n"
HOUR_S = 3600.0
HOUR_MS = 3_600_000


def failing(policy: str) -> str:
    return PLAIN + f"delivered: {{ check: external, within: 1h, on_fail: {{ {policy} }} }}\n"


def rig_of(body: str = PARKS, **given: Any) -> Rig:
    """A rig whose fake journal answers an ack as the real one does."""
    rig = Rig(body, **given)
    acked: set[str] = set()

    def outcome(change: Change) -> Any:
        if not isinstance(change, journaled.Acked):
            return None
        already = change.unit in acked
        acked.add(change.unit)
        return Acknowledged("verifying", already)

    rig.journal.outcome = outcome
    return rig


def moves(rig: Rig, unit: str) -> list[str]:
    """The names of the unit's own changes, in order."""
    return [type(one).__name__ for one in rig.journal.handed if getattr(one, "unit", "") == unit]


async def parked(rig: Rig, *data: Any) -> list[str]:
    """Packets whose write is on disk; their ids."""
    ids = await rig.accept(*data)
    await rig.settle()
    return ids


def ack(rig: Rig, unit: str, by: str = "ada") -> asyncio.Task[Acknowledged]:
    return asyncio.create_task(rig.parts.acks.ack(unit, by), name=f"ack {unit}")


# ── parking ──────────────────────────────────────────────────────────────────


async def test_the_window_stands_in_the_commit_of_the_write() -> None:
    rig = rig_of()
    (unit,) = await rig.accept({"n": 1})
    await quiet()
    written, window = rig.journal.waiting[-1].changes
    assert isinstance(written, journaled.Written)
    assert isinstance(window, journaled.AwaitingAck)
    assert (window.unit, window.since, window.deadline_at) == (unit, AT, AT + HOUR_MS)
    assert rig.timers.waits_s == []
    await rig.journal.land()
    assert rig.timers.waits_s == [HOUR_S]


@pytest.mark.seed("D047")
async def test_with_one_slot_any_number_waits_at_once() -> None:
    rig = rig_of(ONE_SLOT, auto=True)
    ids = await parked(rig, *({"n": n} for n in range(50)))
    await until(lambda: rig.output.written == ids)
    await rig.settle()
    assert rig.parts.executor.in_hand == 0
    assert [one.unit for one in rig.journal.of(journaled.AwaitingAck)] == ids
    assert rig.journal.of(journaled.Delivered) == []


async def test_a_parked_unit_keeps_no_payload_and_all_share_one_timer() -> None:
    rig = rig_of(auto=True)
    ids = await parked(rig, *({"n": n} for n in range(300)))
    assert all(rig.parts.pending.find(one).data is UNLOADED for one in ids)  # type: ignore[union-attr]
    assert rig.timers.waits_s == [HOUR_S]


async def test_what_waits_for_an_ack_holds_up_a_drain() -> None:
    rig = rig_of(auto=True)
    (unit,) = await parked(rig, {"n": 1})
    drained = asyncio.create_task(rig.parts.pending.emptied(60.0))
    await quiet()
    assert not drained.done()
    await ack(rig, unit)
    assert await drained is True


# ── acks ─────────────────────────────────────────────────────────────────────


async def test_an_ack_and_its_delivery_are_one_commit() -> None:
    rig = rig_of()
    (unit,) = await parked(rig, {"n": 1})
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    asked = ack(rig, unit, "Ada")
    await quiet()
    (handed,) = rig.journal.waiting
    acked, delivered = handed.changes
    assert acked == journaled.Acked(unit, "Ada", AT)
    assert isinstance(delivered, journaled.Delivered)
    assert (delivered.check, json.loads(delivered.evidence or b"")) == (
        "external",
        {"acked_by": "Ada"},
    )
    assert not asked.done()
    assert not told.done()
    await rig.journal.land()
    assert await asked == Acknowledged("verifying", already=False)
    assert await told == Settlement("delivered")
    assert len(rig.parts.pending) == 0
    # Its deadline passes without it.
    await rig.timers.elapse(2 * HOUR_S)
    assert rig.journal.of(journaled.Unverified) == []
    assert rig.timers.waits_s == []


async def test_an_ack_before_the_write_delivers_on_arrival() -> None:
    rig = rig_of()
    rig.output.hold()
    (unit,) = await rig.accept({"n": 1})
    asked = ack(rig, unit)
    await rig.settle()
    assert (await asked).already is False
    rig.output.let_go()
    await quiet()
    (handed,) = rig.journal.waiting
    assert [type(one).__name__ for one in handed.changes] == ["Written", "Delivered"]
    await rig.journal.land()
    assert len(rig.parts.pending) == 0
    assert rig.parts.executor.in_hand == 0
    assert rig.journal.of(journaled.AwaitingAck) == []


async def test_with_one_slot_an_early_ack_gives_the_slot_back_once() -> None:
    rig = rig_of(ONE_SLOT, auto=True)
    rig.output.hold()
    first, second = await rig.accept({"n": 1}, {"n": 2})
    await ack(rig, first)
    rig.output.let_go()
    await rig.settle()
    assert moves(rig, first)[-1] == "Delivered"
    assert rig.output.written == [first, second]
    assert rig.parts.executor.in_hand == 0


async def test_an_ack_beside_the_commit_of_the_write_delivers_after_it() -> None:
    rig = rig_of()
    (unit,) = await rig.accept({"n": 1})
    await quiet()
    assert moves(rig, unit)[-2:] == ["Written", "AwaitingAck"]
    asked = ack(rig, unit)
    await quiet()
    assert moves(rig, unit)[-1] == "Acked"
    await rig.settle()
    assert (await asked).already is False
    assert moves(rig, unit)[-2:] == ["Acked", "Delivered"]
    assert len(rig.parts.pending) == 0
    assert rig.timers.waits_s == []


async def test_an_ack_that_is_repeated_before_it_is_on_disk_delivers_once() -> None:
    rig = rig_of()
    (unit,) = await parked(rig, {"n": 1})
    first, second = ack(rig, unit), ack(rig, unit)
    await quiet()
    assert not second.done()
    await rig.settle()
    assert [(await one).already for one in (first, second)] == [False, True]
    assert len(rig.journal.of(journaled.Delivered)) == 1


async def test_who_acks_is_redacted_before_it_is_cut() -> None:
    rig = rig_of(auto=True, secrets={"token": "hunter2hunter2"})
    unit, other = await parked(rig, {"n": 1}, {"n": 2})
    await ack(rig, unit, "x" * 190 + "hunter2hunter2")
    await ack(rig, other, "")
    by, nobody = (one.by for one in rig.journal.of(journaled.Acked))
    assert by == "x" * 190 + "***"
    assert nobody == BY_DEFAULT
    assert "hunter2" not in str(rig.journal.of(journaled.Delivered)[0].evidence)


async def test_a_missing_id_is_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="packet_id is missing"):
        await rig_of().parts.acks.ack("", "ada")


async def test_a_caller_that_gives_up_keeps_no_unit_from_its_end() -> None:
    rig = rig_of()
    (unit,) = await parked(rig, {"n": 1})
    asked = ack(rig, unit)
    await quiet()
    asked.cancel()
    await rig.settle()
    assert asked.cancelled()
    assert len(rig.parts.pending) == 0


@pytest.mark.parametrize("paused", [False, True])
async def test_an_ack_that_the_journal_has_no_room_for_is_as_if_never_sent(paused: bool) -> None:
    rig = rig_of()
    (unit,) = await parked(rig, {"n": 1})
    if paused:
        pausing = asyncio.create_task(rig.parts.pausing.pause("manual"))
        await rig.settle()
        await pausing
    rig.journal.refuses = Unavailable("too many changes wait", hint="try again")
    with pytest.raises(Unavailable, match="too many"):
        await ack(rig, unit)
    rig.journal.refuses = None
    if paused:
        resuming = asyncio.create_task(rig.parts.pausing.resume())
        await rig.settle()
        await resuming
    assert rig.journal.of(journaled.Delivered) == []
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert moves(rig, unit)[-2:] == ["Unverified", "DeadLettered"]
    assert rig.timers.crashes == []


async def test_a_refused_ack_can_be_sent_again() -> None:
    rig = rig_of(auto=True)
    (unit,) = await parked(rig, {"n": 1})
    rig.journal.refuses = Unavailable("too many changes wait", hint="try again")
    with pytest.raises(Unavailable):
        await ack(rig, unit)
    rig.journal.refuses = None
    assert (await ack(rig, unit)).already is False
    assert moves(rig, unit)[-1] == "Delivered"


async def test_a_pipeline_that_ends_takes_no_ack() -> None:
    rig = rig_of(auto=True)
    (unit,) = await parked(rig, {"n": 1})
    rig.parts.acks.close()
    with pytest.raises(Unavailable, match="stopping"):
        await ack(rig, unit)
    await rig.timers.elapse(2 * HOUR_S)
    assert rig.journal.of(journaled.Unverified) == []


async def test_the_heap_forgets_what_was_acked() -> None:
    rig = rig_of(auto=True)
    await parked(rig, {"n": "nobody acks it"})
    for _ in range(STALE_LIMIT // 256 + 3):
        ids = await parked(rig, *({"n": n} for n in range(256)))
        await asyncio.gather(*(ack(rig, one) for one in ids))
    assert len(rig.parts.acks._heap) <= STALE_LIMIT + 2
    assert rig.timers.waits_s == [HOUR_S]


# ── deadlines ────────────────────────────────────────────────────────────────


@pytest.mark.seed("D053")
async def test_a_missed_deadline_is_a_dead_letter() -> None:
    rig = rig_of(auto=True)
    (unit,) = await parked(rig, {"n": 1})
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    await rig.timers.elapse(HOUR_S - 0.01)
    assert rig.journal.of(journaled.Unverified) == []
    await rig.timers.elapse(0.01)
    await rig.settle()
    (unverified,) = rig.journal.of(journaled.Unverified)
    assert (unverified.check, unverified.verdict, unverified.at) == (
        "external",
        "failed",
        AT + HOUR_MS,
    )
    error = unverified.error
    assert (error.code, error.node, error.attempts) == ("delivery.unverified", "delivered", 0)
    assert error.message == "not acknowledged within 1h00m"
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.node, dead.error) == ("$verify", error)
    assert await told == Settlement("dead_lettered", error.message)
    assert len(rig.parts.pending) == 0
    assert rig.timers.waits_s == []
    assert [message for _, message in rig.logged] == ["not acknowledged in time"]


async def test_each_deadline_counts_from_its_own_write() -> None:
    """D050: however long a packet took before the output."""
    rig = rig_of(auto=True)
    (first,) = await parked(rig, {"n": 1})
    await rig.timers.elapse(600.0)
    (second,) = await parked(rig, {"n": 2})
    await rig.timers.elapse(3000.0)
    await rig.settle()
    assert [one.unit for one in rig.journal.of(journaled.DeadLettered)] == [first]
    assert rig.timers.waits_s == [600.0]
    await rig.timers.elapse(600.0)
    await rig.settle()
    assert [one.unit for one in rig.journal.of(journaled.DeadLettered)] == [first, second]


async def test_a_message_sees_the_packet_the_result_and_how_long_it_was_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def result_of(rows: Any, unit: str) -> bytes:
        return b'{"rowid":8}'

    monkeypatch.setattr(units, "result_of", result_of)
    message = "Nobody confirmed ${data.n} (${result.rowid}) after ${error.elapsed}"
    rig = rig_of(failing(f'message: "{message}"'), auto=True)
    await parked(rig, {"n": 7})
    assert rig.loaded == []
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert dead.error.message == "Nobody confirmed 7 (8) after 1h00m"


async def test_a_damaged_payload_falls_back_to_the_plain_message() -> None:
    rig = rig_of(failing('message: "Nobody confirmed ${data.n.deep}"'), auto=True)
    (unit,) = await parked(rig, {"n": 7})

    async def damaged(one: Unit) -> None:
        raise DataDamaged("no JSON")

    rig.load = damaged
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert moves(rig, unit)[-1] == "DeadLettered"
    assert rig.timers.crashes == []


async def test_many_deadlines_at_once_are_worked_off_in_groups() -> None:
    rig = rig_of(auto=True)
    ids = await parked(rig, *({"n": n} for n in range(2 * GROUP_UNITS_LIMIT + 1)))
    rig.journal.auto = False
    await rig.timers.elapse(HOUR_S)
    (handed,) = rig.journal.waiting
    assert len(handed.changes) == 2 * GROUP_UNITS_LIMIT
    rig.journal.auto = True
    await rig.settle()
    assert [one.unit for one in rig.journal.of(journaled.DeadLettered)] == ids
    assert len(rig.parts.pending) == 0


async def test_an_ack_that_is_handed_over_first_beats_its_deadline() -> None:
    rig = rig_of()
    (unit,) = await parked(rig, {"n": 1})
    asked = ack(rig, unit)
    await quiet()
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert (await asked).already is False
    assert moves(rig, unit)[-2:] == ["Acked", "Delivered"]
    assert rig.journal.of(journaled.Unverified) == []


async def test_an_ack_while_a_late_unit_is_loaded_wins() -> None:
    rig = rig_of(failing('message: "no ack for ${data.n}"'), auto=True)
    unit, other = await parked(rig, {"n": 1}, {"n": 2})
    loading, loaded = asyncio.Event(), asyncio.Event()

    async def slowly(one: Unit) -> None:
        loading.set()
        await loaded.wait()
        one.data = rig.stored[one.id]

    rig.load = slowly
    await rig.timers.elapse(HOUR_S)
    assert loading.is_set()
    await ack(rig, unit)
    loaded.set()
    await rig.settle()
    assert moves(rig, unit)[-2:] == ["Acked", "Delivered"]
    assert [one.unit for one in rig.journal.of(journaled.DeadLettered)] == [other]


async def test_a_pause_while_a_late_unit_is_loaded_puts_it_off() -> None:
    rig = rig_of(failing('message: "no ack for ${data.n}"'), auto=True)
    (unit,) = await parked(rig, {"n": 1})
    loading, loaded = asyncio.Event(), asyncio.Event()

    async def slowly(one: Unit) -> None:
        loading.set()
        await loaded.wait()
        one.data = rig.stored[one.id]

    rig.load = slowly
    await rig.timers.elapse(HOUR_S)
    assert loading.is_set()
    await rig.parts.pausing.pause("manual")
    loaded.set()
    await rig.settle()
    assert rig.journal.of(journaled.Unverified) == []
    await rig.parts.pausing.resume()
    await rig.timers.elapse(0.0)
    await rig.settle()
    assert moves(rig, unit)[-1] == "DeadLettered"


async def test_then_agent_escalates_and_the_next_write_wants_its_own_ack() -> None:
    rig = rig_of(failing("then: agent") + "agent: { control: true }\n", auto=True)
    (unit,) = await parked(rig, {"n": 1})
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert moves(rig, unit)[-2:] == ["Unverified", "Escalated"]
    found = rig.parts.pending.find(unit)
    assert found is not None
    assert (found.cursor, found.next_write_no, found.acked) == ("$output", 2, False)
    assert rig.parts.pending.moving == 0


# ── pauses ───────────────────────────────────────────────────────────────────


@pytest.mark.seed("D052")
async def test_an_ack_during_a_pause_is_kept_and_delivers_after_it() -> None:
    rig = rig_of(auto=True)
    (unit,) = await parked(rig, {"n": 1})
    await rig.parts.pausing.pause("manual")
    assert (await ack(rig, unit)).already is False
    assert (await ack(rig, unit)).already is True
    await rig.timers.elapse(2 * HOUR_S)
    assert moves(rig, unit)[-2:] == ["Acked", "Acked"]
    await rig.parts.pausing.resume()
    await rig.settle()
    assert moves(rig, unit)[-1] == "Delivered"
    assert rig.journal.of(journaled.Unverified) == []
    assert len(rig.parts.pending) == 0


async def test_a_deadline_in_a_pause_is_missed_at_the_resume() -> None:
    rig = rig_of(auto=True)
    (unit,) = await parked(rig, {"n": 1})
    await rig.parts.pausing.pause("manual")
    await rig.timers.elapse(2 * HOUR_S)
    assert rig.journal.of(journaled.Unverified) == []
    await rig.parts.pausing.resume()
    await rig.timers.elapse(0.0)
    await rig.settle()
    assert moves(rig, unit)[-2:] == ["Unverified", "DeadLettered"]


async def test_a_pause_moves_no_deadline() -> None:
    rig = rig_of(auto=True)
    (unit,) = await parked(rig, {"n": 1})
    await rig.parts.pausing.pause("manual")
    await rig.timers.elapse(1800.0)
    await rig.parts.pausing.resume()
    await rig.timers.elapse(1799.0)
    assert rig.journal.of(journaled.Unverified) == []
    await rig.timers.elapse(1.0)
    await rig.settle()
    assert moves(rig, unit)[-1] == "DeadLettered"


async def test_a_write_that_ends_in_a_pause_with_its_ack_delivers_after_it() -> None:
    rig = rig_of(auto=True)
    rig.output.hold()
    (unit,) = await rig.accept({"n": 1})
    await ack(rig, unit)
    await rig.parts.pausing.pause("manual")
    rig.output.let_go()
    await rig.settle()
    assert moves(rig, unit)[-1] == "Written"
    await rig.parts.pausing.resume()
    await rig.settle()
    assert moves(rig, unit)[-1] == "Delivered"
    assert rig.journal.of(journaled.AwaitingAck) == []


async def test_then_pause_holds_and_a_resume_opens_a_fresh_window() -> None:
    rig = rig_of(failing("then: pause"), auto=True)
    unit, other = await parked(rig, {"n": 1}, {"n": 2})
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert moves(rig, unit)[-2:] == ["Unverified", "Held"]
    # Both were late in that moment; there is one pause (edge 138).
    assert [one.unit for one in rig.journal.of(journaled.Held)] == [unit, other]
    assert [one.reason for one in rig.journal.of(journaled.Paused)] == ["error at $verify"]
    await rig.timers.elapse(600.0)
    await rig.parts.pausing.resume()
    await rig.settle()
    window = rig.journal.of(journaled.AwaitingAck)[-1]
    assert window.since == AT + HOUR_MS + 600_000
    assert window.deadline_at == window.since + HOUR_MS
    assert rig.output.written == [unit, other]
    assert rig.timers.waits_s == [HOUR_S]
    await ack(rig, unit)
    assert moves(rig, unit)[-1] == "Delivered"
    # The other one is late again, and held again (edge 139).
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert moves(rig, other)[-1] == "Held"


async def test_a_pause_is_that_of_all_who_are_late() -> None:
    """Edge 138: however many groups they are."""
    rig = rig_of(failing("then: pause"), auto=True)
    ids = await parked(rig, *({"n": n} for n in range(2 * GROUP_UNITS_LIMIT + 1)))
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert [one.unit for one in rig.journal.of(journaled.Held)] == ids
    assert len(rig.journal.of(journaled.Paused)) == 1


async def test_those_who_are_late_in_turn_let_a_resume_last() -> None:
    rig = rig_of(failing("then: pause"), auto=True)
    (unit,) = await parked(rig, {"n": 1})
    await rig.timers.elapse(60.0)
    (other,) = await parked(rig, {"n": 2})
    await rig.timers.elapse(HOUR_S - 60.0)
    await rig.settle()
    assert moves(rig, unit)[-1] == "Held"
    # The other one's deadline is over in the pause, and missed at the resume.
    await rig.timers.elapse(2 * HOUR_S)
    await rig.parts.pausing.resume()
    await rig.timers.elapse(0.0)
    await rig.settle()
    assert moves(rig, other)[-2:] == ["Unverified", "Held"]
    assert moves(rig, unit)[-1] == "Unheld"
    await rig.timers.elapse(2 * HOUR_S)
    await rig.parts.pausing.resume()
    await rig.timers.elapse(HOUR_S - 1.0)
    await rig.settle()
    assert rig.parts.pausing.reason is None
    assert [moves(rig, one)[-1] for one in (unit, other)] == ["AwaitingAck", "AwaitingAck"]
    await ack(rig, unit)
    await ack(rig, other)
    assert len(rig.parts.pending) == 0


async def test_an_ack_before_the_window_is_opened_delivers_at_the_resume() -> None:
    rig = rig_of(failing("then: pause"), auto=True)
    (unit,) = await parked(rig, {"n": 1})
    await rig.timers.elapse(60.0)
    await parked(rig, {"n": 2})
    await rig.timers.elapse(HOUR_S - 60.0)
    await rig.settle()
    await rig.timers.elapse(HOUR_S)
    await rig.parts.pausing.resume()
    await rig.timers.elapse(0.0)
    await rig.settle()
    assert rig.parts.pausing.reason == "error at $verify"
    await ack(rig, unit)
    assert moves(rig, unit)[-2:] == ["Unheld", "Acked"]
    await rig.parts.pausing.resume()
    await rig.settle()
    assert moves(rig, unit)[-1] == "Delivered"


async def test_an_ack_of_a_held_unit_delivers_it_at_the_resume() -> None:
    rig = rig_of(failing("then: pause"), auto=True)
    (unit,) = await parked(rig, {"n": 1})
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    await ack(rig, unit)
    assert moves(rig, unit)[-1] == "Acked"
    await rig.parts.pausing.resume()
    await rig.settle()
    assert moves(rig, unit)[-1] == "Delivered"
    assert len(rig.journal.of(journaled.AwaitingAck)) == 1


async def test_then_halt_holds_and_says_why() -> None:
    rig = rig_of(failing("then: halt"), auto=True)
    halted: list[str] = []
    rig.parts.endings.on_halt = halted.append
    (unit,) = await parked(rig, {"n": 1})
    await rig.timers.elapse(HOUR_S)
    await rig.settle()
    assert moves(rig, unit)[-2:] == ["Unverified", "Held"]
    assert halted == ["error at $verify: not acknowledged within 1h00m"]


# ── restarts ─────────────────────────────────────────────────────────────────


def left(number: int, **given: Any) -> PendingUnit:
    """A written unit whose window ends in 100 s, as a journal hands it over."""
    made: dict[str, Any] = {
        "cursor": "$verify",
        "state": "verifying",
        "write_no": 1,
        "result": b'{"rowid":1}',
        "deadline_at": AT + 100_000,
        "data": encode({"n": number}),
    }
    return pending(number, **made | given)


async def restarted(body: str, *found: PendingUnit, **given: Any) -> tuple[Rig, dict[str, int]]:
    rig = rig_of(body, auto=True, opened=False, recovery=recovery(*found), **given)
    rows = await take_up(found, rig.around, rig.parts)
    rig.parts.admission.open()
    rig.parts.executor.open()
    await quiet()
    return rig, dict(rows)


async def test_a_restart_keeps_the_deadline_and_journals_nothing() -> None:
    rig, rows = await restarted(ONE_SLOT, *(left(n) for n in range(1, 400)))
    assert rows == {"R7": 399}
    assert rig.journal.handed == []
    assert rig.timers.waits_s == [100.0]
    assert rig.parts.executor.in_hand == 0
    assert rig.parts.pending.find("u1").data is UNLOADED  # type: ignore[union-attr]
    await ack(rig, "u1")
    assert moves(rig, "u1") == ["Acked", "Delivered"]
    await rig.timers.elapse(100.0)
    await rig.settle()
    assert moves(rig, "u2") == ["Unverified", "DeadLettered"]


async def test_a_restart_after_the_deadline_fails_at_once_as_it_would_have() -> None:
    rig, _ = await restarted(
        failing('message: "waited ${error.elapsed}"'), left(1, deadline_at=AT - 5 * HOUR_MS)
    )
    await rig.timers.elapse(0.0)
    await rig.settle()
    (dead,) = rig.journal.of(journaled.DeadLettered)
    assert (dead.error.code, dead.error.message) == ("delivery.unverified", "waited 1h00m")
    assert rig.journal.of(journaled.AwaitingAck) == []


async def test_a_clock_that_was_set_back_lengthens_no_wait_beyond_within() -> None:
    rig, _ = await restarted(PARKS, left(1, deadline_at=AT + 900 * HOUR_MS))
    assert rig.timers.waits_s == [HOUR_S]


async def test_an_ack_of_the_earlier_run_delivers_at_the_start() -> None:
    found = left(1, acked_write_no=1, ack_by="Ada")
    rig, rows = await restarted(PARKS, found)
    await rig.settle()
    assert rows == {"R8": 1}
    (delivered,) = rig.journal.handed
    assert isinstance(delivered, journaled.Delivered)
    assert json.loads(delivered.evidence or b"") == {"acked_by": "Ada"}
    assert len(rig.parts.pending) == 0


async def test_an_early_ack_of_the_earlier_run_counts() -> None:
    rig, rows = await restarted(PARKS, pending(1, acked_write_no=1, ack_by="Ada"))
    await rig.settle()
    assert rows == {"R1": 1}
    assert moves(rig, "u1")[-2:] == ["Written", "Delivered"]


async def test_an_ack_of_an_earlier_write_counts_no_more() -> None:
    """Edge 226: what is replayed waits for a new one."""
    rig, _ = await restarted(PARKS, pending(1, write_no=1, acked_write_no=1, ack_by="Ada"))
    await rig.settle()
    assert moves(rig, "u1")[-2:] == ["Written", "AwaitingAck"]


async def test_a_window_that_a_hold_closed_is_opened_anew() -> None:
    found = left(1, deadline_at=None, held="halt")
    rig, rows = await restarted(PARKS, found)
    await rig.settle()
    assert rows == {"R8": 1}
    (window,) = rig.journal.of(journaled.AwaitingAck)
    assert window.deadline_at == AT + HOUR_MS
    assert rig.timers.waits_s == [HOUR_S]


async def test_a_restored_pause_moves_nothing_until_the_resume() -> None:
    """Edge 303."""
    found = (
        left(1),
        left(2, deadline_at=AT - 1),
        left(3, acked_write_no=1, ack_by="Ada"),
        left(4, deadline_at=None, held="pause"),
    )
    paused = replace(recovery(*found), pause_reason="manual")
    rig = rig_of(auto=True, opened=False, recovery=paused)
    rows = await take_up(found, rig.around, rig.parts)
    rig.parts.executor.open()
    await rig.timers.elapse(1.0)
    assert dict(rows) == {"R7": 2, "R8": 1, "R5": 1}
    assert rig.journal.handed == []
    await rig.parts.pausing.resume()
    await rig.timers.elapse(0.0)
    await rig.settle()
    assert moves(rig, "u3") == ["Delivered"]
    assert moves(rig, "u4") == ["Unheld", "AwaitingAck"]
    assert moves(rig, "u2") == ["Unverified", "DeadLettered"]
    assert moves(rig, "u1") == []
    assert rig.timers.waits_s[0] == 99.0


# ── copies ───────────────────────────────────────────────────────────────────

SPLITS = (
    "input: { via: push }\nnodes:\n"
    "  first: { from: input, filter: 'data.n > 0' }\n"
    "  a: { from: first, filter: 'data.n > 0' }\n"
    "  b: { from: first, filter: 'data.n > 0' }\n"
    + PARKS.partition("\n")[2].replace("from: input", "from: [a, b]")
)


@pytest.mark.seed("R050")
async def test_each_copy_waits_for_its_own_ack() -> None:
    rig = rig_of(SPLITS, auto=True)
    (unit,) = await parked(rig, {"n": 1})
    told = asyncio.create_task(rig.parts.intake.settled(unit, 60.0))
    await ack(rig, f"{unit}:b")
    await rig.settle()
    assert moves(rig, f"{unit}:b")[-2:] == ["Acked", "Delivered"]
    assert moves(rig, f"{unit}:a")[-1] == "AwaitingAck"
    assert not told.done()
    await ack(rig, f"{unit}:a")
    assert await told == Settlement("delivered")
    assert len(rig.parts.pending) == 0


async def test_an_ack_before_the_split_is_for_each_copy() -> None:
    rig = rig_of(SPLITS, auto=True)
    rig.parts.executor.close()
    (unit,) = await rig.accept({"n": 1})
    await ack(rig, unit)
    rig.parts.executor.open()
    await rig.settle()
    for copy in (f"{unit}:a", f"{unit}:b"):
        assert moves(rig, copy)[-2:] == ["Written", "Delivered"]
    assert rig.journal.of(journaled.AwaitingAck) == []
    assert len(rig.parts.pending) == 0


# ── refusals, from a real journal ────────────────────────────────────────────

COMPILED = b'{"delivered":{"check":"%s"}}'


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """Version 1 has `check: external`, version 2 has `check: ack`."""
    made = open_quick(tmp_path / "people")
    await made.commit(
        version(1, compiled=COMPILED % b"external"), version(2, compiled=COMPILED % b"ack")
    )
    yield made
    await made.close(clean=True)


async def refusal(journal: SqliteJournal, unit: str) -> PipoError:
    rig = Rig(PARKS, journal=journal)
    with pytest.raises(PipoError) as caught:
        await rig.parts.acks.ack(unit, "ada")
    assert await count_of(journal, "packet.acked") == 0
    return caught.value


async def count_of(journal: SqliteJournal, event: str) -> int:
    page = await reads.events(journal.rows, limit=1000)
    return sum(one.type == event for one in page.events)


def window(n: int, **given: Any) -> list[Change]:
    """A packet that is written and waits for its ack."""
    unit = packet_id(n)
    return [
        accepted(n, cursor="$output", **given),
        journaled.Written(unit, b"null", 1.0, 1, AT),
        journaled.AwaitingAck(unit, AT + HOUR_MS, AT, AT),
    ]


async def test_an_unknown_id_says_how_copies_are_named(journal: SqliteJournal) -> None:
    error = await refusal(journal, "01NOBODY")
    assert isinstance(error, NotFound)
    assert error.message == "pipeline 'people' has no packet '01NOBODY'"
    assert "<packet_id>:<branch>" in error.hint


async def test_another_check_is_named(journal: SqliteJournal) -> None:
    unit = packet_id(1)
    await journal.commit(
        accepted(1, version=2, cursor="$output"),
        journaled.Written(unit, b"null", 1.0, 1, AT),
        journaled.Delivered(unit, None, AT, check="ack"),
    )
    error = await refusal(journal, unit)
    assert isinstance(error, InvalidState)
    assert error.message == f"{unit} waits for no ack: its version v2 has check: ack"


async def test_another_check_of_a_packet_on_its_way_is_named(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, version=2, cursor="$output"))
    rig = Rig(PLAIN, journal=journal)
    rig.plans.put_in_force(edition_of(rig.pipeline, 2))
    rig.parts.pending.add(_unit(packet_id(1), version=2))
    with pytest.raises(InvalidState, match="its version v2 has check: ack"):
        await rig.parts.acks.ack(packet_id(1), "ada")


async def test_a_dead_letter_points_to_its_queue(journal: SqliteJournal) -> None:
    unit = packet_id(1)
    dead = journaled.PacketError("delivery.unverified", "nobody", None, "delivered", 0)
    await journal.commit(*window(1), journaled.DeadLettered(unit, dead, "$verify", AT))
    error = await refusal(journal, unit)
    assert isinstance(error, InvalidState)
    assert "is dead_lettered" in error.message
    assert f"pipo dlq replay people {unit}" in error.hint


async def test_a_settled_packet_that_was_never_acked_says_how_it_ended(
    journal: SqliteJournal,
) -> None:
    await journal.commit(accepted(1), journaled.Filtered(packet_id(1), "adults", 1.0, AT))
    error = await refusal(journal, packet_id(1))
    assert isinstance(error, InvalidState)
    assert "is filtered" in error.message


async def test_delivered_and_acked_are_not_the_same(journal: SqliteJournal) -> None:
    unit = packet_id(1)
    await journal.commit(*window(1), journaled.Delivered(unit, None, AT, check="external"))
    error = await refusal(journal, unit)
    assert "is delivered: nothing waits for its ack" in error.message


@pytest.mark.parametrize("known", [True, False])
async def test_a_split_packet_lists_its_copies_with_their_states(
    journal: SqliteJournal, known: bool
) -> None:
    """Edge 123: whether the process counts the packet itself as pending or not."""
    unit = packet_id(1)
    await journal.commit(accepted(1), stepped(1, cursor="shape"), fanned_out(1, "a", "output"))
    rig = Rig(PARKS, journal=journal)
    if known:
        rig.parts.pending.add(_unit(unit, cursor=""))
    with pytest.raises(InvalidState) as caught:
        await rig.parts.acks.ack(unit, "ada")
    assert caught.value.message == f"{unit} is split into copies"
    assert caught.value.hint == (f"ack its copies: {unit}:a (processing), {unit}:output (writing)")
    assert await count_of(journal, "packet.acked") == 0


async def test_a_copy_is_acked_by_its_own_id(journal: SqliteJournal) -> None:
    unit = copy_id(1, "output")
    await journal.commit(accepted(1), stepped(1, cursor="shape"), fanned_out(1, "a", "output"))
    rig = Rig(PARKS, journal=journal)
    rig.parts.pending.add(_unit(unit, cursor="$output"))
    done = await rig.parts.acks.ack(unit, "ada")
    assert done == Acknowledged("writing", already=False)
    assert (await rig.parts.acks.ack(unit, "bo")).already is True
    assert await count_of(journal, "packet.acked") == 1


async def test_an_ack_says_the_state_of_that_moment(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, cursor="shape"), *window(2))
    rig = Rig(PARKS, journal=journal)
    early, waiting = _unit(packet_id(1)), _unit(packet_id(2), cursor="$verify", write_no=1)
    for unit in (early, waiting):
        rig.parts.pending.add(unit)
    waiting.deadline_at = AT + HOUR_MS
    rig.parts.acks.park(waiting)
    assert await rig.parts.acks.ack(early.id, "ada") == Acknowledged("accepted", already=False)
    assert await rig.parts.acks.ack(waiting.id, "ada") == Acknowledged("verifying", already=False)
    trace = await reads.trace(journal.rows, waiting.id)
    assert trace is not None
    assert [one.type for one in trace.events][-2:] == ["packet.acked", "packet.delivered"]
    # Repeated after delivery: nothing more is journaled (edge 217).
    assert await rig.parts.acks.ack(waiting.id, "bo") == Acknowledged("delivered", already=True)
    assert await count_of(journal, "packet.acked") == 2
    assert journal.counters["total.check.external.passed"] == 1


async def test_an_ack_that_comes_behind_the_missed_deadline_is_told_so(
    journal: SqliteJournal,
) -> None:
    """The deadline's commit is on its way when the ack comes: one of them wins, and both know."""
    await journal.commit(*window(1))
    rig = Rig(PARKS, journal=journal)
    unit = _unit(packet_id(1), cursor="$verify", write_no=1)
    rig.parts.pending.add(unit)
    unit.deadline_at = AT - 1
    rig.parts.acks.park(unit)
    failing = asyncio.create_task(rig.timers.elapse(0.0))
    await until(lambda: not rig.parts.acks._parked)
    with pytest.raises(InvalidState, match="is dead_lettered"):
        await rig.parts.acks.ack(unit.id, "ada")
    await failing
    assert await count_of(journal, "packet.acked") == 0
    assert await count_of(journal, "packet.delivered") == 0
    assert await count_of(journal, "delivery.unverified") == 1


async def test_a_packet_that_is_taken_up_right_now_is_asked_for_once_more(
    journal: SqliteJournal,
) -> None:
    await journal.commit(accepted(1))
    error = await refusal(journal, packet_id(1))
    assert isinstance(error, Unavailable)
    assert error.hint == "ack it once more"


async def test_a_journal_that_cannot_be_read_is_the_askers_news_alone(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(rows: Any, ids: Any) -> Any:
        raise Unreadable("the disk is away", hint="try again")

    monkeypatch.setattr(units, "units", unreadable)
    rig = Rig(PARKS, journal=journal)
    with pytest.raises(Unavailable, match="the disk is away"):
        await rig.parts.acks.ack("01NOBODY", "ada")
    await quiet()
    assert rig.timers.crashes == []


async def test_the_result_of_a_write_is_read_back(journal: SqliteJournal) -> None:
    await journal.commit(*window(1))
    assert await units.result_of(journal.rows, packet_id(1)) == b"null"
    assert await units.result_of(journal.rows, "01NOBODY") is None
    assert await units.check_of(journal.rows, 2) == "ack"
    assert await units.check_of(journal.rows, 9) is None


def _unit(unit: str, **given: Any) -> Unit:
    made: dict[str, Any] = {
        "version": 1,
        "input": "input",
        "trigger": "push",
        "source": "test",
        "received_at": AT,
        "queue_seq": 1,
        "cursor": "shape",
        "data": {"n": 1},
        "size": 7,
    }
    return Unit(id=unit, **made | given)
