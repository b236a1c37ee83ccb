"""The pause: nothing is taken, nothing is lost, and its end starts everything again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pipo.connectors.contract import RefusedArrival, WriteFailed
from pipo.errors import Unavailable
from pipo.journal import changes as journaled
from pipo.journal.recover import PendingUnit
from pipo_runner.pipeline.resuming import take_up
from tests.unit.runner.pipeline.delivery.test_verification import CHECKED, FAILED, PASSED, Checker
from tests.unit.runner.pipeline.rig import AT, PLAIN, Rig, pending, quiet, until
from tests.unit.runner.pipeline.test_resuming import recovery

RETRIED = f"{PLAIN[:-3]}, on_error: {{ retry: 2, delay: 1s }} }}\n"
HOLDS = f"{PLAIN[:-3]}, on_error: {{ then: pause }} }}\n"
SMALL = PLAIN + "buffer: { max: 2 }\n"


async def test_a_paused_pipeline_accepts_and_processes_nothing() -> None:
    rig = Rig(SMALL, auto=True)
    assert await rig.parts.pausing.pause("manual") is False
    (unit, other) = await rig.accept({"n": 1}, {"n": 2})
    await rig.settle()
    assert rig.journal.names(unit) == ["Paused", "Accepted"]
    assert rig.output.writes == []
    (refused,) = await rig.parts.intake.take([rig.arrival({"n": 3})])
    assert isinstance(refused, RefusedArrival)
    assert "buffer full" in refused.message
    assert await rig.parts.pausing.resume() is False
    await rig.settle()
    assert rig.output.written == [unit, other]
    assert rig.parts.pausing.reason is None


async def test_the_first_reason_stays() -> None:
    rig = Rig(auto=True)
    await rig.parts.pausing.pause("manual")
    assert await rig.parts.pausing.pause("agent") is True
    assert rig.parts.pausing.reason == "manual"
    assert [one.reason for one in rig.journal.of(journaled.Paused)] == ["manual"]


@pytest.mark.parametrize(
    ("reason", "level"), [("manual", "info"), ("agent", "info"), ("error at $output", "warning")]
)
async def test_a_pause_that_nobody_asked_for_is_a_warning(reason: str, level: str) -> None:
    rig = Rig(auto=True)
    await rig.parts.pausing.pause(reason)
    assert (level, "pipeline paused") in rig.logged


async def test_a_pipeline_that_runs_has_nothing_to_resume() -> None:
    rig = Rig(auto=True)
    assert await rig.parts.pausing.resume() is True
    assert rig.journal.of(journaled.Resumed) == []


async def test_a_write_in_hand_finishes_and_the_next_one_does_not_begin() -> None:
    rig = Rig(auto=True)
    rig.output.hold()
    (first,) = await rig.accept({"n": 1})
    (second,) = await rig.accept({"n": 2})
    await rig.parts.pausing.pause("manual")
    rig.output.let_go()
    await rig.settle()
    assert rig.journal.names(first)[-1] == "Delivered"
    assert rig.output.written == [first]
    assert rig.parts.executor.in_hand == 0
    await rig.parts.pausing.resume()
    await rig.settle()
    assert rig.output.written == [first, second]


async def test_a_wait_that_ends_in_a_pause_goes_on_after_it() -> None:
    rig = Rig(RETRIED, auto=True)
    rig.output.whole = WriteFailed("no ink")
    (unit,) = await rig.accept({"n": 1})
    await rig.parts.pausing.pause("manual")
    await rig.timers.elapse(5.0)
    assert len(rig.output.writes) == 1
    assert rig.parts.executor.in_hand == 0
    rig.output.whole = None
    await rig.parts.pausing.resume()
    await rig.settle()
    # The attempt before the pause counts; only a held unit begins anew.
    assert [one.attempt for one in rig.journal.of(journaled.Retried)] == [1]
    assert rig.output.writes[-1][0].repeat == "recovered"
    assert rig.journal.names(unit)[-1] == "Delivered"


async def test_a_node_that_waits_when_the_pause_comes_goes_on_after_it() -> None:
    body = PLAIN.replace("from: input", "from: shape") + (
        'nodes: { shape: { from: input, transform: map, with: { data: "${data}" },'
        " on_error: { retry: 1, delay: 1s } } }\n"
    )
    rig = Rig(body, auto=True)
    rig.step = lambda call: (_ for _ in ()).throw(WriteFailed("no ink"))
    await rig.accept({"n": 1})
    await rig.parts.pausing.pause("manual")
    await rig.timers.elapse(5.0)
    assert len(rig.ran) == 1
    rig.step = None
    await rig.parts.pausing.resume()
    await rig.settle()
    assert len(rig.output.written) == 1


async def test_a_payload_that_comes_back_in_a_pause_starts_nothing() -> None:
    rig = Rig(auto=True, opened=False, stored={"u1": {"n": 1}})
    loading = asyncio.Event()
    rig.load = lambda unit: _load_slowly(rig, unit, loading)
    found = [pending(1, data=None)]
    await take_up(found, rig.around, rig.parts)
    rig.parts.executor.open()
    await quiet()
    await rig.parts.pausing.pause("manual")
    loading.set()
    await quiet()
    assert rig.output.writes == []
    assert rig.parts.executor.in_hand == 0
    await rig.parts.pausing.resume()
    await rig.settle()
    assert rig.output.written == ["u1"]


async def _load_slowly(rig: Rig, unit: object, loading: asyncio.Event) -> None:
    await loading.wait()
    await rig._load_stored(unit)  # type: ignore[arg-type]


async def test_a_resume_works_through_the_backlog_at_full_concurrency() -> None:
    rig = Rig(PLAIN + "concurrency: 3\n", auto=True)
    await rig.parts.pausing.pause("manual")
    await rig.accept(*({"n": n} for n in range(9)))
    rig.output.hold()
    await rig.parts.pausing.resume()
    await quiet()
    assert rig.parts.executor.in_hand == 3
    rig.output.let_go()
    await rig.settle()
    assert len(rig.output.written) == 9


# ── what is told, and when ───────────────────────────────────────────────────


async def test_a_pause_is_told_once_it_is_durable() -> None:
    rig = Rig()
    pause = asyncio.create_task(rig.parts.pausing.pause("manual"))
    await quiet()
    assert not pause.done()
    await rig.journal.land()
    assert await pause is False


async def test_who_comes_second_hears_no_sooner() -> None:
    rig = Rig()
    pauses = [asyncio.create_task(rig.parts.pausing.pause("manual")) for _ in range(2)]
    await quiet()
    assert not any(pause.done() for pause in pauses)
    await rig.journal.land()
    assert [await pause for pause in pauses] == [False, True]
    resumes = [asyncio.create_task(rig.parts.pausing.resume()) for _ in range(2)]
    await quiet()
    assert not any(resume.done() for resume in resumes)
    await rig.journal.land()
    assert [await resume for resume in resumes] == [False, True]


async def test_a_second_pause_that_the_journal_refuses_leaves_the_first() -> None:
    rig = Rig(auto=True)
    await rig.parts.pausing.pause("manual")
    rig.journal.refuses = Unavailable("too many wait")
    with pytest.raises(Unavailable):
        await rig.parts.pausing.pause("agent")
    assert rig.parts.pausing.reason == "manual"
    assert not rig.parts.executor.taking


async def test_nothing_is_taken_before_the_end_of_the_pause_is_durable() -> None:
    rig = Rig(auto=True)
    await rig.parts.pausing.pause("manual")
    await rig.accept({"n": 1})
    rig.journal.auto = False
    resume = asyncio.create_task(rig.parts.pausing.resume())
    await quiet()
    assert rig.output.writes == []
    await rig.journal.land()
    assert await resume is False
    assert len(rig.output.writes) == 1


async def test_who_goes_away_while_it_resumes_takes_nothing_back() -> None:
    rig = Rig(auto=True)
    await rig.parts.pausing.pause("manual")
    await rig.accept({"n": 1})
    rig.journal.auto = False
    resume = asyncio.create_task(rig.parts.pausing.resume())
    await until(lambda: rig.journal.waiting)
    resume.cancel()
    await quiet()
    rig.journal.auto = True
    await rig.settle()
    assert len(rig.output.writes) == 1


async def test_a_pause_that_begins_while_the_last_one_ends_stands() -> None:
    rig = Rig(HOLDS, auto=True)
    rig.output.whole = WriteFailed("no ink")
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    rig.journal.auto = False
    resume = asyncio.create_task(rig.parts.pausing.resume())
    await until(lambda: rig.journal.waiting)
    pause = asyncio.create_task(rig.parts.pausing.pause("manual"))
    await rig.settle()
    assert await resume is False
    assert await pause is False
    assert rig.parts.pausing.reason == "manual"
    # What was held is held no longer; it waits with the others.
    assert rig.parts.pausing.held == 0
    assert rig.output.written == [unit]
    rig.output.whole = None
    rig.journal.auto = True
    await rig.parts.pausing.resume()
    await rig.settle()
    assert rig.output.written == [unit, unit]


async def test_a_journal_that_takes_no_pause_leaves_it_running() -> None:
    rig = Rig(auto=True)
    rig.journal.refuses = Unavailable("too many wait")
    with pytest.raises(Unavailable):
        await rig.parts.pausing.pause("manual")
    rig.journal.refuses = None
    assert rig.parts.pausing.reason is None
    await rig.accept({"n": 1})
    await rig.settle()
    assert len(rig.output.writes) == 1


async def test_a_journal_that_takes_no_resume_leaves_it_paused() -> None:
    rig = Rig(HOLDS, auto=True)
    rig.output.whole = WriteFailed("no ink")
    await rig.accept({"n": 1})
    await rig.settle()
    rig.journal.refuses = Unavailable("too many wait")
    with pytest.raises(Unavailable):
        await rig.parts.pausing.resume()
    rig.journal.refuses = None
    assert (rig.parts.pausing.reason, rig.parts.pausing.held) == ("error at $output", 1)
    rig.output.whole = None
    await rig.parts.pausing.resume()
    await rig.settle()
    assert len(rig.parts.pending) == 0


async def test_a_journal_that_fails_in_a_resume_stops_the_process() -> None:
    rig = Rig(auto=True)
    await rig.parts.pausing.pause("manual")
    rig.journal.auto = False
    resume = asyncio.create_task(rig.parts.pausing.resume())
    await until(lambda: rig.journal.waiting)
    await rig.journal.fail(OSError("disk gone"))
    with pytest.raises(OSError, match="disk gone"):
        await resume
    assert [str(error) for error in rig.journal.raised] == ["disk gone"]


async def test_listeners_hear_of_both() -> None:
    rig = Rig(auto=True)
    heard: list[str] = []
    rig.parts.pausing.on_pause.append(lambda: heard.append("pause"))
    rig.parts.pausing.on_resume.append(lambda: heard.append("resume"))
    rig.parts.pausing.later(lambda: heard.append("now"))
    await rig.parts.pausing.pause("manual")
    await rig.parts.pausing.pause("manual")
    rig.parts.pausing.later(lambda: heard.append("later"))
    await rig.parts.pausing.resume()
    await rig.parts.pausing.resume()
    assert heard == ["now", "pause", "later", "resume"]


async def test_nothing_pauses_what_ends() -> None:
    rig = Rig(HOLDS, auto=True)
    rig.parts.pausing.end()
    rig.output.whole = WriteFailed("no ink")
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    assert [one.unit for one in rig.journal.of(journaled.Held)] == [unit]
    assert rig.journal.of(journaled.Paused) == []
    # A drain ends beside it.
    assert await rig.parts.pending.emptied(0.0)


async def test_a_unit_that_somebody_moved_is_no_matter_of_the_resume() -> None:
    rig = Rig(HOLDS, auto=True)
    rig.output.whole = WriteFailed("no ink")
    (unit,) = await rig.accept({"n": 1})
    await rig.settle()
    rig.parts.pausing.let_go(unit)
    await rig.parts.pausing.resume()
    await rig.settle()
    assert rig.journal.of(journaled.Unheld) == []
    assert rig.output.written == [unit]


# ── checks ───────────────────────────────────────────────────────────────────


async def test_a_check_that_was_offered_goes_on_in_a_pause_and_none_is_offered() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (offered,) = await rig.accept({"name": "ada"})
    await rig.settle()
    rig.output.hold()
    (written,) = await rig.accept({"name": "bob"})
    await rig.parts.pausing.pause("manual")
    rig.output.let_go()
    await rig.settle()
    assert rig.journal.names(written)[-1] == "Written"
    assert [offer.id for offer in checker.offers] == [f"{offered}:1:1"]
    checker.say(f"{offered}:1:1", PASSED)
    await rig.settle()
    assert rig.journal.names(offered)[-1] == "Delivered"
    await rig.parts.pausing.resume()
    await rig.settle()
    assert [offer.id for offer in checker.offers] == [f"{offered}:1:1", f"{written}:1:1"]


async def test_a_check_that_lost_its_checker_in_a_pause_has_its_full_time_after_it() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await rig.accept({"name": "ada"})
    await rig.settle()
    await rig.parts.pausing.pause("manual")
    checker.leave()
    other = Checker(rig, "c2")
    rig.clock.passed_s += 60.0
    other.beat()
    await rig.settle()
    assert other.offers == []
    await rig.parts.pausing.resume()
    await rig.settle()
    (again,) = other.offers
    assert (again.id, again.within_left_ms) == (f"{unit}:1:2", 5000)


async def test_a_check_that_fails_in_a_pause_ends_as_its_policy_says() -> None:
    rig = Rig(CHECKED, auto=True)
    checker = Checker(rig)
    (unit,) = await rig.accept({"name": "ada"})
    await rig.settle()
    await rig.parts.pausing.pause("manual")
    checker.say(checker.offers[0].id, FAILED, message="not there")
    await rig.settle()
    assert rig.journal.names(unit)[-1] == "DeadLettered"


# ── a pause that is restored ─────────────────────────────────────────────────


async def restored(body: str, *units: PendingUnit) -> tuple[Rig, dict[str, int]]:
    found = replace(recovery(*units), pause_reason="manual")
    rig = Rig(body, auto=True, opened=False, recovery=found)
    rows = await take_up(units, rig.around, rig.parts)
    rig.parts.admission.open()
    rig.parts.executor.open()
    await quiet()
    return rig, dict(rows)


async def test_a_restored_pause_moves_nothing_that_was_recovered() -> None:
    rig, rows = await restored(
        RETRIED,
        pending(1),
        pending(2, attempt=1, retry_at=AT + 500),
        pending(3, state="verifying", cursor="$verify", write_no=1, result=b"{}"),
        pending(4, held="pause"),
        pending(5, state="escalated"),
    )
    assert rows == {"R1": 1, "R2": 1, "R3": 1, "R5": 1, "R6": 1}
    await rig.timers.elapse(2.0)
    assert rig.journal.handed == []
    assert rig.output.writes == []
    rig.stored.update({f"u{n}": {"n": n} for n in range(1, 6)})
    await rig.parts.pausing.resume()
    await rig.settle()
    assert sorted(rig.output.written) == ["u1", "u2", "u4"]
    assert [one.unit for one in rig.journal.of(journaled.Unheld)] == ["u4"]
    assert {one.unit for one in rig.journal.of(journaled.Delivered)} == {"u1", "u2", "u3", "u4"}
    # The escalated one is nobody's but theirs who resolve it.
    assert (len(rig.parts.pending), rig.parts.pending.moving) == (1, 0)


@pytest.mark.parametrize("held", ["pause", None])
@pytest.mark.parametrize("more", ["", "concurrency: 1\n"])
async def test_a_restored_pause_offers_no_check(held: str | None, more: str) -> None:
    one = pending(
        1,
        state="verifying",
        cursor="$verify",
        write_no=1,
        result=b'{"rowid":1}',
        held=held,
        data=b'{"name":"ada"}',
    )
    rig, rows = await restored(CHECKED + more, one)
    checker = Checker(rig)
    await quiet()
    assert rows == {"R5" if held else "R4": 1}
    assert checker.offers == []
    rig.stored["u1"] = {"name": "ada"}
    await rig.parts.pausing.resume()
    await rig.settle()
    assert [offer.id for offer in checker.offers] == ["u1:1:1"]
    assert rig.output.writes == []
    assert rig.parts.executor.in_hand == (1 if more else 0)
    checker.say("u1:1:1", PASSED)
    await rig.settle()
    assert rig.parts.executor.in_hand == 0
    assert len(rig.parts.pending) == 0


async def test_a_unit_that_was_held_runs_where_there_is_no_pause() -> None:
    rig = Rig(auto=True, opened=False, recovery=recovery(pending(1, held="halt")))
    rows = await take_up([pending(1, held="halt")], rig.around, rig.parts)
    rig.parts.executor.open()
    await rig.settle()
    assert rows == {"R1": 1}
    assert rig.output.written == ["u1"]
