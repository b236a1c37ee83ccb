"""What policies and people do to a packet: holds, escalations, replays, reruns, purges, acks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pipo.errors import Internal
from pipo.journal import reads, units
from pipo.journal.changes import AwaitingAck, Change
from pipo.journal.outcomes import Acknowledged, Applied
from pipo.journal.sheet import IllegalChange
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import (
    AT,
    accepted,
    acked,
    awaiting_ack,
    batched,
    cleared,
    copies,
    copy_id,
    dead_lettered,
    delivered,
    dropped,
    error,
    escalated,
    expired,
    filtered,
    held,
    looped,
    of_copy,
    packet_id,
    purged,
    rejected,
    replayed,
    rerun,
    resolved,
    retried,
    stepped,
    unheld,
    unverified,
    version,
    written,
)


async def detail_of(journal: SqliteJournal, type_: str) -> Any:
    """The newest event of a type."""
    found = await journal.rows.rows(
        "SELECT detail FROM events WHERE type = ? ORDER BY seq DESC LIMIT 1", (type_,)
    )
    return msgspec.json.decode(found[0][0])


async def row_of(journal: SqliteJournal, columns: str, n: int = 1) -> tuple[Any, ...]:
    return (await journal.rows.rows(f"SELECT {columns} FROM units WHERE id = ?", (packet_id(n),)))[
        0
    ]


# ── held ─────────────────────────────────────────────────────────────────────


async def test_a_held_unit_stands_where_it_was_with_all_its_attempts(
    journal: SqliteJournal,
) -> None:
    await journal.commit(accepted(1), retried(1, 2), held(1))
    assert await row_of(journal, "state, cursor, held, attempt, retry_at, error") == (
        "accepted",
        "shape",
        "pause",
        0,
        None,
        None,
    )
    assert await detail_of(journal, "packet.held") == {
        "how": "pause",
        "error": {
            "code": "node.failed",
            "message": "it broke",
            "rule": None,
            "node": "shape",
            "attempts": 1,
        },
    }
    (found,) = (await journal.recover()).units
    assert found.held == "pause"


@pytest.mark.parametrize(
    "move",
    [
        [stepped(1)],
        [retried(1)],
        [written(1)],
        [batched(1)],
        [unheld(1)],
        [dead_lettered(1)],
        [escalated(1)],
        [filtered(1)],
    ],
)
async def test_whatever_moves_a_held_unit_ends_the_hold(
    journal: SqliteJournal, move: list[Change]
) -> None:
    await journal.commit(accepted(1), held(1))
    await journal.commit(*move)
    assert await row_of(journal, "held") == (None,)


async def test_an_ack_leaves_a_held_unit_held(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), written(1), held(1, node="$verify"), acked(1))
    assert await row_of(journal, "state, held, acked_write_no") == ("verifying", "pause", 1)


# ── awaiting an ack ──────────────────────────────────────────────────────────


async def test_a_write_has_one_window_and_a_hold_opens_a_fresh_one(journal: SqliteJournal) -> None:
    since = 1_790_000_000_000
    await journal.commit(accepted(1), written(1))
    await journal.commit(AwaitingAck(packet_id(1), since + 60_000, since, since + 1))
    assert await detail_of(journal, "delivery.awaiting_ack") == {
        "deadline": since + 60_000,
        "since": since,
        "deadline_iso": "2026-09-21T14:14:20.000Z",
    }
    with pytest.raises(IllegalChange, match="waits for its ack already"):
        await journal.commit(awaiting_ack(1))
    assert await units.awaiting_ack(journal.rows) == 1
    await journal.commit(unverified(1), held(1, node="$verify"))
    assert await units.awaiting_ack(journal.rows) == 0
    await journal.commit(unheld(1), awaiting_ack(1, 77))
    (found,) = (await journal.recover()).units
    assert found.deadline_at == 77
    await journal.commit(acked(1), delivered(1))
    assert await row_of(journal, "deadline_at") == (None,)
    assert await units.awaiting_ack(journal.rows) == 0


# ── acks ─────────────────────────────────────────────────────────────────────


async def test_an_ack_confirms_one_write(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), written(1))
    assert await journal.commit(acked(1)) == [Acknowledged("verifying", already=False)]
    seq = journal.last_seq
    assert await journal.commit(acked(1)) == [Acknowledged("verifying", already=True)]
    assert journal.last_seq == seq, "no second event"
    await journal.commit(delivered(1))
    assert await journal.commit(acked(1)) == [Acknowledged("delivered", already=True)]
    await journal.commit(rerun(1, "$output"), written(1))
    assert await journal.commit(acked(1)) == [Acknowledged("verifying", already=False)]
    assert await row_of(journal, "write_no, acked_write_no, ack_by") == (2, 2, "ada")


@pytest.mark.parametrize(
    "way",
    [
        [accepted(1)],
        [accepted(1), stepped(1, cursor="next")],
        [accepted(1), stepped(1)],
        [accepted(1), escalated(1)],
    ],
)
async def test_an_early_ack_is_for_the_write_to_come(
    journal: SqliteJournal, way: list[Change]
) -> None:
    await journal.commit(*way)
    (outcome,) = await journal.commit(acked(1, "x" * 300))
    assert isinstance(outcome, Acknowledged)
    assert not outcome.already
    assert await row_of(journal, "write_no, acked_write_no, length(ack_by)") == (0, 1, 200)
    (again,) = await journal.commit(acked(1))
    assert isinstance(again, Acknowledged)
    assert again.already


@pytest.mark.parametrize(
    ("way", "state"),
    [
        ([accepted(1), written(1), delivered(1)], "delivered"),
        ([accepted(1), acked(1), filtered(1)], "filtered"),
        ([accepted(1), written(1), acked(1), dead_lettered(1)], "dead_lettered"),
        ([accepted(1, copies=copies(1, "a", "b"))], "branched"),
        ([], None),
    ],
)
async def test_an_ack_of_what_waits_for_none_is_refused(
    journal: SqliteJournal, way: list[Change], state: str | None
) -> None:
    await journal.commit(*way)
    with pytest.raises(IllegalChange) as caught:
        await journal.commit(acked(1))
    assert caught.value.state == state


async def test_an_ack_already_and_a_change_answer_each_for_itself(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), written(1), acked(1))
    assert await journal.commit(acked(1), delivered(1)) == [
        Acknowledged("verifying", already=True),
        Applied(),
    ]


# ── escalated and resolved ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cursor", "waits"),
    [("shape", "shape"), ("$output", "$output"), ("$batch", "$output"), ("$verify", "$output")],
)
async def test_an_escalated_unit_waits_before_its_step(
    journal: SqliteJournal, cursor: str, waits: str
) -> None:
    await journal.commit(accepted(1), written(1), awaiting_ack(1))
    await journal.commit(escalated(1, cursor=cursor, reason="stall", stall="stuck for 5m"))
    assert await row_of(journal, "state, cursor, deadline_at, queue_seq") == (
        "escalated",
        waits,
        None,
        1,
    )
    detail = await detail_of(journal, "packet.escalated")
    assert (detail["reason"], detail["stall"], detail["error"]["code"]) == (
        "stall",
        "stuck for 5m",
        "node.failed",
    )
    page = await reads.packets(journal.rows, "escalated")
    assert [row.packet_id for row in page.packets] == [packet_id(1)]


async def test_a_rejection_may_be_told_and_waits_for_nobody(journal: SqliteJournal) -> None:
    await journal.commit(rejected(1, escalate=True))
    assert await row_of(journal, "state") == ("rejected",)
    detail = await detail_of(journal, "packet.escalated")
    assert (detail["reason"], detail["waiting"], detail["error"]["code"]) == (
        "rejected",
        False,
        "input.invalid",
    )
    assert journal.counters.get("now.escalated", 0) == 0
    trace = await reads.trace(journal.rows, packet_id(1))
    assert trace is not None
    assert [step.event for step in trace.steps] == ["packet.rejected"]


@pytest.mark.parametrize(("cursor", "state"), [("shape", "processing"), ("$output", "writing")])
async def test_a_resolved_unit_runs_again(journal: SqliteJournal, cursor: str, state: str) -> None:
    await journal.commit(accepted(1), retried(1, 3), escalated(1, cursor=cursor))
    assert (await row_of(journal, "attempt"))[0] == 3
    await journal.commit(resolved(1, reason="  "))
    assert await row_of(journal, "state, cursor, attempt, error, queue_seq") == (
        state,
        cursor,
        0,
        None,
        1001,
    )
    detail = await detail_of(journal, "packet.resolved")
    assert {key: detail[key] for key in ("action", "by", "by_kind", "reason")} == {
        "action": "retry",
        "by": "ada",
        "by_kind": "human",
        "reason": None,
    }
    assert detail["error"]["message"] == "it broke"


async def test_a_resolution_may_end_a_unit(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), escalated(1), accepted(2), escalated(2))
    await journal.commit(resolved(1, "dead_letter", reason="r" * 3000), resolved(2, "drop"))
    assert await row_of(journal, "state, cursor, error ->> 'node'") == (
        "dead_lettered",
        None,
        "shape",
    )
    assert await row_of(journal, "state, error ->> 'code'", 2) == ("filtered", "node.failed")
    types = await journal.rows.rows("SELECT type, state FROM events ORDER BY seq DESC LIMIT 4")
    assert types == [
        ("packet.dropped", "filtered"),
        ("packet.resolved", None),
        ("packet.dead_lettered", "dead_lettered"),
        ("packet.resolved", None),
    ]
    found = await journal.rows.rows(
        "SELECT length(detail ->> 'reason') FROM events WHERE type = 'packet.resolved'"
    )
    assert found[0] == (2000,)
    assert (journal.counters["all.filtered"], journal.counters["now.escalated"]) == (1, 0)


async def test_what_waits_at_the_output_cannot_be_dropped(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), escalated(1, cursor="$output"))
    with pytest.raises(IllegalChange, match="cannot be dropped") as caught:
        await journal.commit(resolved(1, "drop"))
    assert caught.value.hint == "retry it, or dead_letter it"


async def test_dropping_the_one_escalated_copy_delivers_the_packet(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, copies=copies(1, "a", "b")))
    for change in (written(1), delivered(1)):
        await journal.commit(of_copy(change, 1, "a"))
    await journal.commit(of_copy(escalated(1), 1, "b"))
    assert (await row_of(journal, "state"))[0] == "branched"
    page = await reads.packets(journal.rows, "escalated")
    assert ([row.packet_id for row in page.packets], page.total) == ([copy_id(1, "b")], 1)
    await journal.commit(of_copy(resolved(1, "drop"), 1, "b"))
    assert (await row_of(journal, "state"))[0] == "delivered"


# ── replayed and rerun ───────────────────────────────────────────────────────


async def test_a_replay_takes_a_dead_letter_up(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), retried(1, 2), looped(1), dead_lettered(1))
    await journal.commit(replayed(1, "$output"))
    assert await row_of(
        journal, "state, cursor, error, attempt, queue_seq, iteration, settled_at, version"
    ) == ("writing", "$output", None, 0, 1001, 1, None, 1)
    detail = await detail_of(journal, "dlq.replayed")
    assert (detail["by"], detail["error"]["message"]) == ("ada", "it broke")
    with pytest.raises(IllegalChange) as caught:
        await journal.commit(replayed(1))
    assert caught.value.state == "writing"


async def test_an_error_that_came_and_went_at_once_is_none(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), dead_lettered(1), replayed(1))
    assert await row_of(journal, "error, error IS NULL") == (None, 1)
    await journal.commit(escalated(1))
    await journal.commit(resolved(1), escalated(1), resolved(1))
    assert await row_of(journal, "error IS NULL, state") == (1, "processing")
    assert (await journal.commit(filtered(1), rerun(1)))[0] == Applied()


@pytest.mark.parametrize("how", ["replay", "resolve"])
async def test_after_a_loops_limit_the_passes_count_anew(journal: SqliteJournal, how: str) -> None:
    limit = error("loop.max")
    dead = dead_lettered(1)
    ends: dict[str, list[Change]] = {
        "replay": [type(dead)(packet_id(1), limit, "shape", AT), replayed(1)],
        "resolve": [escalated(1, error=limit), resolved(1)],
    }
    await journal.commit(accepted(1), looped(1), looped(1), *ends[how])
    assert await row_of(journal, "iteration") == (0,)


async def test_after_another_error_the_passes_count_on(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), looped(1), dead_lettered(1), replayed(1))
    assert await row_of(journal, "iteration") == (1,)


async def test_a_split_packet_is_replayed_by_its_copies(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, copies=copies(1, "a", "b")))
    for branch in ("a", "b"):
        await journal.commit(of_copy(dead_lettered(1), 1, branch))
    for change in (replayed(1), rerun(1)):
        with pytest.raises(IllegalChange, match="split into copies"):
            await journal.commit(change)


async def test_a_rerun_goes_back_with_the_data_it_first_had(journal: SqliteJournal) -> None:
    await journal.commit(version(2))
    await journal.commit(
        accepted(1, data=b'{"n":1}'),
        stepped(1, before={"n": 1}, after={"n": 2}),
        written(1),
        delivered(1),
    )
    await journal.commit(rerun(1, data=b'{"n":1}', version=2))
    assert await detail_of(journal, "packet.rerun") == {
        "by": "ada",
        "from": "shape",
        "version": 2,
        "was": "delivered",
        "from_version": 1,
    }
    assert await row_of(journal, "state, cursor, version, patched") == ("processing", "shape", 2, 0)
    (found,) = (await journal.recover()).units
    assert found.data == b'{"n":1}'
    await journal.commit(stepped(1, before={"n": 1}, after={"n": 5}))
    assert await reads.data_of(journal.rows, packet_id(1)) == b'{"n":5}'
    trace = await reads.trace(journal.rows, packet_id(1))
    assert trace is not None
    assert [(s.step, s.event, s.data) for s in trace.steps[-2:]] == [
        ("shape", "packet.rerun", b'{"n":1}'),
        ("shape", "node.done", b'{"n":5}'),
    ]


async def test_a_rerun_moves_the_counts_and_forgets_the_error(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), dropped(1), accepted(2), filtered(2))
    assert journal.counters["all.filtered"] == 2
    await journal.commit(rerun(1))
    assert journal.counters["all.filtered"] == 1
    assert await row_of(journal, "state, error") == ("processing", None)
    assert "from_version" not in await detail_of(journal, "packet.rerun")


async def test_a_rerun_needs_a_version_that_is_there(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), filtered(1))
    with pytest.raises(Internal, match="pinned to version 9"):
        await journal.commit(rerun(1, version=9))
    assert await row_of(journal, "state, version") == ("filtered", 1)


# ── purged, expired, cleared ─────────────────────────────────────────────────


async def whole(journal: SqliteJournal, but: str) -> list[Any]:
    """Every row that is not of this packet."""
    return await journal.rows.together(
        (f"SELECT * FROM units WHERE id NOT LIKE '{but}%' ORDER BY id", ()),
        (f"SELECT * FROM events WHERE coalesce(unit, '') NOT LIKE '{but}%' ORDER BY seq", ()),
        ("SELECT * FROM inbox ORDER BY key", ()),
        ("SELECT * FROM versions", ()),
    )


async def test_a_purge_leaves_one_record_and_everything_else(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, copies=copies(1, "a", "b"), key="k"), accepted(2), filtered(2))
    await journal.commit(*(of_copy(dead_lettered(1), 1, branch) for branch in ("a", "b")))
    before = await whole(journal, packet_id(1))
    await journal.commit(purged(1))
    assert await whole(journal, packet_id(1)) == before
    trace = await reads.trace(journal.rows, packet_id(1))
    assert trace is not None
    assert trace.packet is None
    (record,) = trace.events
    assert record.type == "dlq.purged"
    detail = msgspec.json.decode(record.detail or b"")
    assert (detail["by"], detail["version"], detail["received_at"]) == ("ada", 1, AT + 1)
    assert detail["error"]["code"] == "branch.dead_lettered"
    assert journal.counters["all.accepted"] == 2, "decision 36"
    assert journal.counters["now.dead_lettered"] == 0
    with pytest.raises(IllegalChange) as caught:
        await journal.commit(purged(1))
    assert caught.value.state is None
    assert await journal.rows.rows("PRAGMA foreign_key_check") == []


async def test_a_copy_is_purged_with_its_packet_only(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, copies=copies(1, "a", "b")))
    await journal.commit(*(of_copy(dead_lettered(1), 1, branch) for branch in ("a", "b")))
    with pytest.raises(IllegalChange, match="is a copy") as caught:
        await journal.commit(of_copy(purged(1), 1, "a"))
    assert caught.value.hint == f"name its packet {packet_id(1)}"


async def test_nothing_moves_once_it_is_purged_in_the_same_transaction(
    journal: SqliteJournal,
) -> None:
    await journal.commit(accepted(1, copies=copies(1, "a", "b")))
    await journal.commit(*(of_copy(dead_lettered(1), 1, branch) for branch in ("a", "b")))
    with pytest.raises(IllegalChange, match="does not exist"):
        await journal.commit(purged(1), of_copy(replayed(1), 1, "a"))
    assert (await row_of(journal, "state"))[0] == "dead_lettered", "taken back whole"
    await journal.commit(purged(1))


async def test_a_packet_that_came_and_went_at_once_leaves_no_count(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), dead_lettered(1), purged(1), accepted(2))
    assert journal.counters.get("now.dead_lettered", 0) == 0
    assert await journal.rows.rows("SELECT id FROM units") == [(packet_id(2),)]


async def test_an_expired_packet_goes_with_its_key(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, key="k"), written(1), delivered(1), accepted(2, key="l"))
    await journal.commit(expired(1))
    assert await journal.rows.rows("SELECT packet FROM inbox") == [(packet_id(2),)]
    assert await journal.rows.rows("SELECT DISTINCT unit FROM events WHERE unit IS NOT NULL") == [
        (packet_id(2),)
    ]
    assert (journal.counters["now.delivered"], journal.counters["all.delivered"]) == (0, 1)


async def test_a_cleared_payload_is_gone_and_its_story_stays(journal: SqliteJournal) -> None:
    notes = (("log", {"message": "secret"}), ("order.seen", b'{"x":1}'))
    await journal.commit(
        accepted(1),
        stepped(1, before={"n": 1}, after={"n": 2}, notes=notes),
        retried(1, 1, "$output"),
        written(1),
        delivered(1, b'{"line":3}'),
    )
    at = await row_of(journal, "updated_at, settled_at")
    await journal.commit(cleared(1))
    assert await row_of(journal, "data, result, state") == (None, None, "delivered")
    assert await row_of(journal, "updated_at, settled_at") == at, "its age is not touched"
    found = await journal.rows.rows(
        "SELECT type, detail IS NOT NULL, patch FROM events WHERE unit = ? ORDER BY seq",
        (packet_id(1),),
    )
    assert found == [
        ("packet.accepted", 0, None),
        ("log", 0, None),
        ("order.seen", 0, None),
        ("node.done", 0, None),
        ("step.retry", 1, None),
        ("output.written", 1, None),
        ("packet.delivered", 1, None),
    ]
    assert await reads.data_of(journal.rows, packet_id(1)) is None


# ── what operations look at ──────────────────────────────────────────────────


async def test_families_and_units_stand_for_operations(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, copies=copies(1, "b", "a")), accepted(2), looped(2))
    await journal.commit(of_copy(dead_lettered(1), 1, "a"))
    found = await units.families(journal.rows, [packet_id(1), packet_id(2), "nobody"])
    assert {packet: [unit.branch for unit in family] for packet, family in found.items()} == {
        packet_id(1): ["", "a", "b"],
        packet_id(2): [""],
    }
    dead = found[packet_id(1)][1]
    assert (dead.state, dead.packet_id, dead.cursor) == ("dead_lettered", packet_id(1), None)
    assert dead.error is not None
    assert dead.error.node == "shape"
    assert found[packet_id(2)][0].iteration == 1
    both = await units.units(journal.rows, [copy_id(1, "a"), packet_id(2), "nobody"])
    assert set(both) == {copy_id(1, "a"), packet_id(2)}
    await journal.commit(of_copy(filtered(1), 1, "b"), dead_lettered(2))
    assert list(await units.dead_letters(journal.rows)) == [packet_id(2), packet_id(1)]


async def test_what_was_set_aside_is_found_by_the_next_run(tmp_path: Any) -> None:
    journal = open_quick(tmp_path)
    await journal.commit(version(), accepted(1), held(1, "halt"), accepted(2), looped(2), acked(2))
    await journal.commit(accepted(3), written(3), awaiting_ack(3, 99), accepted(4), escalated(4))
    await journal.close(clean=False)
    journal = open_quick(tmp_path)
    one, two, three, four = (await journal.recover()).units
    assert (one.held, two.iteration, two.acked_write_no, two.ack_by) == ("halt", 1, 1, "ada")
    assert (three.deadline_at, four.state, four.cursor) == (99, "escalated", "shape")
    await journal.commit(resolved(4), delivered(3))
    await journal.close(clean=True)
