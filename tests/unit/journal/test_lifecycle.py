"""What happens to the pipeline itself: its events, and what outlives the run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pipo.journal.changes import (
    BatchSplit,
    Change,
    Completed,
    Draining,
    Failed,
    LifetimeEnded,
    LifetimeError,
    Paused,
    PipelineEscalated,
    Resumed,
    Retried,
    Stalled,
    Started,
    Stopped,
    Unjammed,
    VersionApplied,
)
from pipo.journal.endings import last_ending
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import AT, accepted, batched, packet_id, retried, version


@pytest.mark.parametrize(
    ("change", "type_", "detail"),
    [
        (Paused("manual", AT), "pipeline.paused", {"reason": "manual"}),
        (
            Paused("stall", AT, restored=True),
            "pipeline.paused",
            {"reason": "stall", "restored": True},
        ),
        (Resumed(AT), "pipeline.resumed", None),
        (
            Stalled("stuck", "pause", b'{"pending":3}', b'{"accepted":9}', AT),
            "pipeline.stall",
            {
                "message": "stuck",
                "then": "pause",
                "stall": {"pending": 3},
                "stats": {"accepted": 9},
            },
        ),
        (Unjammed(AT), "pipeline.unjammed", None),
        (
            PipelineEscalated("stall", "agent", True, 2, 0, AT),
            "pipeline.escalated",
            {"reason": "stall", "then": "agent", "handle": True, "escalated": 2, "marked": 0},
        ),
        (
            PipelineEscalated("stall", "notify", False, None, None, AT),
            "pipeline.escalated",
            {"reason": "stall", "then": "notify", "handle": False},
        ),
        (
            LifetimeEnded("max_packets", "max_packets 5", b'{"accepted":5}', AT),
            "pipeline.lifetime",
            {"reason": "max_packets", "stats": {"accepted": 5}},
        ),
        (
            LifetimeError("stats.x > 1", "no x", AT),
            "pipeline.lifetime_error",
            {"expression": "stats.x > 1", "error": "no x"},
        ),
        (
            VersionApplied(2, 1, "ada", "human", "wider", AT),
            "version.applied",
            {
                "version": 2,
                "previous": 1,
                "author": "ada",
                "author_kind": "human",
                "reason": "wider",
            },
        ),
        (
            BatchSplit(5, (3, 2), "locked", AT),
            "output.batch_split",
            {"size": 5, "into": [3, 2], "error": "locked"},
        ),
        (
            Started(1, 0, AT, ttl="2h"),
            "pipeline.started",
            {"version": 1, "recovered": 0, "ttl": "2h"},
        ),
    ],
)
async def test_each_change_of_a_pipeline_is_one_event(
    journal: SqliteJournal, change: Change, type_: str, detail: Any
) -> None:
    await journal.commit(change)
    found = await journal.rows.rows(
        "SELECT type, unit, state, detail FROM events ORDER BY seq DESC LIMIT 1"
    )
    assert found[0][:3] == (type_, None, None)
    assert (msgspec.json.decode(found[0][3]) if found[0][3] else None) == detail
    assert journal.counters[f"total.{type_}"] >= 1


async def test_a_pause_outlives_a_crash_and_a_suspension_only(tmp_path: Any) -> None:
    async def next_run(*changes: Change) -> str | None:
        journal = open_quick(tmp_path)
        reason = (await journal.recover()).pause_reason
        await journal.commit(*changes)
        await journal.close(clean=False)
        return reason

    await next_run(version(), Started(1, 0, AT), Paused("error at $output", AT))
    assert await next_run(Paused("error at $output", AT, restored=True)) == "error at $output"
    assert await next_run(Stopped("shutdown", AT)) == "error at $output"
    assert await next_run(Resumed(AT)) == "error at $output"
    assert await next_run(Paused("manual", AT), Stopped("stop", AT)) is None
    # An engine's stop of a crashed pipeline says the pause again behind it (edge 306).
    again = (Paused("stall", AT), Stopped("stop", AT), Paused("stall", AT, restored=True))
    assert await next_run(*again) is None
    assert await next_run(Paused("stall", AT), Failed("halt", AT)) == "stall"
    assert await next_run(Paused("stall", AT), Completed("until", AT)) is None
    assert await next_run() is None


async def test_the_end_of_a_lifetime_outlives_a_crash_and_a_suspension_only(tmp_path: Any) -> None:
    async def next_run(*changes: Change) -> str | None:
        journal = open_quick(tmp_path)
        over = (await journal.recover()).lifetime_over
        await journal.commit(*changes)
        await journal.close(clean=False)
        return over

    reached = LifetimeEnded("until", "until stats.uptime > 600", b"{}", AT)
    await next_run(version(), Started(1, 0, AT), reached, Draining(AT))
    assert await next_run(Started(1, 0, AT)) == "until stats.uptime > 600"
    assert await next_run(Stopped("shutdown", AT)) == "until stats.uptime > 600"
    assert await next_run(Completed("until", AT)) == "until stats.uptime > 600"
    assert await next_run(reached, Stopped("restart", AT)) is None
    assert await next_run() is None


async def test_a_pause_behind_a_stop_hides_no_ending(journal: SqliteJournal) -> None:
    await journal.commit(Stopped("stop", AT), Paused("manual", AT, restored=True))
    ending = await last_ending(journal.rows)
    assert ending is not None
    assert ending.kind == "stopped"


@pytest.mark.parametrize(
    ("wait_ms", "told"), [(100.0, "100"), (600_000, "600000"), (1.5, "1.5"), (0.0, "0")]
)
async def test_a_retry_tells_its_wait_in_milliseconds(
    journal: SqliteJournal, wait_ms: float, told: str
) -> None:
    await journal.commit(accepted(1), Retried(packet_id(1), "$output", 1, wait_ms, AT, "no", AT))
    found = await journal.rows.rows("SELECT detail FROM events WHERE type = 'step.retry'")
    assert found == [(f'{{"attempt":1,"wait":{told},"error":"no"}}',)]


async def test_a_retry_of_a_batch_tells_its_size(journal: SqliteJournal) -> None:
    one = retried(1, node="$batch")
    await journal.commit(
        accepted(1), batched(1), type(one)(one.unit, "$batch", 1, 9, AT, "no", AT, 4)
    )
    found = await journal.rows.rows("SELECT node, detail FROM events WHERE type = 'step.retry'")
    assert found == [("output", '{"attempt":1,"wait":9,"error":"no","batch":4}')]
    (unit,) = (await journal.recover()).units
    assert (unit.state, unit.cursor, unit.attempt) == ("writing", "$batch", 1)
