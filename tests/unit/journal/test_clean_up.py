"""The clean-up: what is past its age goes, in order and in small steps; nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.journal import clean_up, reads
from pipo.journal.changes import Change, Stopped
from pipo.journal.clean_up import Cleaned, CleanUp, NoRoom
from pipo.journal.sheet import IllegalChange
from pipo.journal.sqlite_journal import Fenced, JournalFailed, SqliteJournal
from pipo.lang.model import Retention
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import (
    AT,
    accepted,
    cleared,
    copies,
    dead_lettered,
    delivered,
    escalated,
    expired,
    filtered,
    of_copy,
    packet_id,
    rejected,
    rerun,
    version,
    written,
)
from tests.unit.journal.recount import recount

DAY = 86_400_000
KEEP = Retention(data_ms=2 * DAY, trail_ms=9 * DAY, rejected_ms=1 * DAY, dlq_ms=None)


@dataclass
class At(SystemClock):
    """A clock whose time of day is set."""

    ms: int = AT

    def now_ms(self) -> int:
        return self.ms


def days(count: float) -> At:
    """A clock that shows so many days after the packets of these tests."""
    return At(AT + int(count * DAY))


async def fill(journal: SqliteJournal) -> None:
    """One packet of every state; 8 waits for one of its copies, 9 is split and delivered."""
    await journal.commit(
        accepted(1), written(1), delivered(1),
        accepted(2), filtered(2),
        rejected(3),
        accepted(4), dead_lettered(4),
        accepted(5),
        accepted(6), escalated(6),
        accepted(7), written(7),
        accepted(8, copies=copies(8, "a", "b")),
        accepted(9, copies=copies(9, "a", "b")),
        *(of_copy(change, 8, "a") for change in (written(8), delivered(8))),
        *(of_copy(change, 9, "a") for change in (written(9), delivered(9))),
        of_copy(filtered(9), 9, "b"),
    )  # fmt: skip


async def payloads(journal: SqliteJournal) -> dict[str, bool]:
    found = await journal.rows.rows(
        "SELECT substr(id, 26), data IS NOT NULL OR result IS NOT NULL FROM units"
    )
    return {unit: bool(full) for unit, full in found}


async def test_payloads_go_before_their_packets(journal: SqliteJournal) -> None:
    await fill(journal)
    everything = await payloads(journal)
    assert all(everything.values())
    assert await CleanUp(journal, days(0.5)).run(KEEP) == Cleaned(0, 0)
    assert await CleanUp(journal, days(1.5)).run(KEEP) == Cleaned(1, 0)
    assert {unit for unit, full in (await payloads(journal)).items() if not full} == {"3"}
    assert await CleanUp(journal, days(2.5)).run(KEEP) == Cleaned(6, 0)
    gone = {"1", "2", "3", "8:a", "9", "9:a", "9:b"}
    assert {unit for unit, full in (await payloads(journal)).items() if not full} == gone
    trace = await reads.trace(journal.rows, packet_id(1))
    assert trace is not None
    assert [step.event for step in trace.steps] == [
        "packet.accepted",
        "output.written",
        "packet.delivered",
    ]
    assert await CleanUp(journal, days(9.5)).run(KEEP) == Cleaned(0, 4)
    assert set(await payloads(journal)) == {"4", "5", "6", "7", "8", "8:a", "8:b"}
    left = {unit for unit, full in (await payloads(journal)).items() if full}
    assert left == {"4", "5", "6", "7", "8", "8:b"}


async def test_a_second_pass_finds_nothing(journal: SqliteJournal) -> None:
    await fill(journal)
    passes = CleanUp(journal, days(99))
    first = await passes.run(KEEP)
    seq = journal.last_seq
    assert first == Cleaned(7, 4)
    assert await passes.run(KEEP) == Cleaned(0, 0)
    assert await CleanUp(journal, days(99)).run(KEEP) == Cleaned(0, 0)
    assert journal.last_seq == seq, "a clean-up leaves no event"
    now = {k: v for k, v in (await recount(journal.rows)).items() if k.startswith("now.")}
    counts = {k: v for k, v in journal.counters.items() if k.startswith("now.") and v}
    assert counts == now


@pytest.mark.seed("C024")
async def test_the_key_of_a_hand_over_goes_with_its_packet(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, key="theirs"), filtered(1), accepted(2, key="other"))
    inbox = "SELECT key, packet FROM inbox ORDER BY key"
    both = [("other", packet_id(2)), ("theirs", packet_id(1))]
    await CleanUp(journal, days(2.5)).run(KEEP)
    assert await journal.rows.rows(inbox) == both, "while the packet stands, its key does"
    await CleanUp(journal, days(99)).run(KEEP)
    assert await journal.rows.rows(inbox) == both[:1]


async def test_dead_letters_go_only_where_a_time_is_given(journal: SqliteJournal) -> None:
    await fill(journal)
    await CleanUp(journal, days(9_000)).run(KEEP)
    assert "4" in await payloads(journal)
    some = Retention(data_ms=2 * DAY, trail_ms=9 * DAY, rejected_ms=DAY, dlq_ms=DAY)
    assert await CleanUp(journal, days(1.5)).run(some) == Cleaned(0, 1)
    assert "4" not in await payloads(journal)


async def test_only_what_is_strictly_older_goes(journal: SqliteJournal) -> None:
    await journal.commit(rejected(3))
    settled = AT + 3
    assert await CleanUp(journal, At(settled + DAY)).run(KEEP) == Cleaned(0, 0)
    assert await CleanUp(journal, At(settled + DAY + 1)).run(KEEP) == Cleaned(1, 0)


async def test_pipeline_events_and_versions_stay(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), filtered(1), version(2), Stopped("stop", AT))
    await CleanUp(journal, days(99)).run(KEEP)
    found = await journal.rows.rows("SELECT type FROM events ORDER BY seq")
    assert found == [("pipeline.started",), ("pipeline.stopped",)]
    assert await journal.rows.rows("SELECT version FROM versions") == [(1,), (2,)]


async def test_a_packet_that_moved_meanwhile_stays_and_holds_nobody_up(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.commit(*(c for n in (1, 2, 3) for c in (accepted(n), filtered(n))))
    commit = journal.commit
    moved = False

    async def after_a_rerun(*changes: Change) -> Any:
        nonlocal moved
        if not moved:
            moved = True
            await commit(rerun(2))
        return await commit(*changes)

    monkeypatch.setattr(journal, "commit", after_a_rerun)
    assert await CleanUp(journal, days(2.5)).run(KEEP) == Cleaned(2, 0)
    assert await payloads(journal) == {"1": False, "2": True, "3": False}


@pytest.mark.parametrize("change", [expired(1), cleared(1)])
async def test_a_packet_that_settled_anew_is_not_old(journal: SqliteJournal, change: Any) -> None:
    await journal.commit(accepted(1), filtered(1))
    with pytest.raises(IllegalChange, match="settled anew"):
        await journal.commit(type(change)(packet_id(1), AT + 5))
    await journal.commit(type(change)(packet_id(1), AT + 6))


async def test_a_longer_age_begins_anew(journal: SqliteJournal) -> None:
    await journal.commit(rejected(1))
    passes = CleanUp(journal, days(1.5))
    assert await passes.run(KEEP) == Cleaned(1, 0)
    longer = Retention(data_ms=2 * DAY, trail_ms=9 * DAY, rejected_ms=1.2 * DAY)
    assert await passes.run(longer) == Cleaned(0, 0)
    # Settled in what the shorter age had covered and the longer one has not.
    await journal.commit(rejected(2, at=AT + int(0.4 * DAY)))
    assert await passes.run(KEEP) == Cleaned(1, 0)


def test_the_pace_follows_the_clock() -> None:
    pace = clean_up._Pace(64, 100)
    sizes = []
    step = clean_up.STEP_S
    for seconds in (step / 25, step / 25, step * 0.8, step * 1.2, 9.0):
        pace.took(seconds)
        sizes.append(pace.size)
    assert sizes == [100, 100, 100, 50, 25]
    for _ in range(9):
        pace.took(1.0)
    assert pace.size == 1


async def test_a_pass_goes_in_steps_and_lets_others_in(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_up, "BATCH_MAX", 40)
    ids = range(1, 201)
    await journal.commit(*(c for n in ids for c in (accepted(n), filtered(n))))
    groups: list[int] = []
    commit = journal.commit

    async def noted(*changes: Change) -> Any:
        groups.append(len(changes))
        return await commit(*changes)

    monkeypatch.setattr(journal, "commit", noted)
    passing = asyncio.create_task(CleanUp(journal, days(99)).run(KEEP))
    pushed = 0
    while not passing.done():
        await commit(accepted(1_000 + pushed))
        pushed += 1
    assert await passing == Cleaned(200, 200)
    assert max(groups) <= 40
    assert pushed > 1


# ── compaction ───────────────────────────────────────────────────────────────


async def filled_and_deleted(folder: Path) -> SqliteJournal:
    journal = open_quick(folder)
    big = b'"' + b"x" * 20_000 + b'"'
    await journal.commit(version())
    for n in range(1, 101):
        await journal.commit(accepted(n, data=big), filtered(n))
    await CleanUp(journal, days(99)).run(KEEP)
    return journal


def pages_of(folder: Path) -> int:
    return (folder / "journal.db").stat().st_size // 4096


@pytest.mark.seed("L053")
async def test_the_first_start_only_starts_the_clock(tmp_path: Path) -> None:
    journal = await filled_and_deleted(tmp_path)
    assert not await CleanUp(journal, days(1)).compact()
    assert not await CleanUp(journal, days(1.99)).compact()
    await journal.fold()
    before = pages_of(tmp_path)
    assert await CleanUp(journal, days(2)).compact()
    after = pages_of(tmp_path)
    assert before - after > 400
    assert await journal.rows.rows("PRAGMA freelist_count") == [(0,)]
    assert not await CleanUp(journal, days(2.5)).compact()
    assert await CleanUp(journal, days(3)).compact()
    await journal.close(clean=True)


async def test_a_full_disk_puts_a_compaction_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await filled_and_deleted(tmp_path)
    await CleanUp(journal, days(1)).compact()
    monkeypatch.setattr(journal, "disk_left", lambda: 99_999)
    before = await journal.rows.rows("PRAGMA freelist_count")
    with pytest.raises(NoRoom, match=r"needs 4,\d{3},\d{3} bytes and its disk has 99,999 left"):
        await CleanUp(journal, days(3)).compact()
    assert await journal.rows.rows("PRAGMA freelist_count") == before
    monkeypatch.undo()
    assert journal.disk_left() > 0
    assert await CleanUp(journal, days(3)).compact()
    await journal.close(clean=True)


async def test_a_clock_set_back_starts_the_day_anew(journal: SqliteJournal) -> None:
    await CleanUp(journal, days(9)).compact()
    assert not await CleanUp(journal, days(2)).compact()
    assert await CleanUp(journal, days(3)).compact()


async def test_space_is_given_back_in_steps(tmp_path: Path) -> None:
    journal = await filled_and_deleted(tmp_path)
    left = await journal.give_back(10)
    assert await journal.give_back(10) == left - 10
    assert await journal.commit(accepted(500))
    assert await journal.rows.rows("PRAGMA integrity_check") == [("ok",)]
    await journal.close(clean=True)


async def test_a_replaced_writer_gives_nothing_back(tmp_path: Path) -> None:
    journal = await filled_and_deleted(tmp_path)
    other = open_quick(tmp_path)
    with pytest.raises(JournalFailed) as caught:
        await journal.give_back(10)
    assert isinstance(caught.value.__cause__, Fenced)
    await other.close(clean=False)
    await journal.close(clean=False)


async def test_listings_of_the_clean_up_never_walk_the_table(journal: SqliteJournal) -> None:
    for query in (clean_up.SETTLED_UNITS, clean_up.SETTLED_PACKETS):
        plan: Sequence[Any] = await journal.rows.rows(
            f"EXPLAIN QUERY PLAN {query}", ("delivered", 0, 0, 9, 9)
        )
        assert [row[3] for row in plan] == [
            "SEARCH units USING INDEX units_settled (state=? AND settled_at>? AND settled_at<?)"
        ]
