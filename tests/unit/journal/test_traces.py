"""A packet's trace: its steps, their retries and notes, its data where it changed."""

from __future__ import annotations

from pipo.journal import reads
from pipo.journal.changes import DeadLettered, Held, Retried
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.journal.traces import Trace
from tests.unit.journal.packets import (
    AT,
    accepted,
    dead_lettered,
    delivered,
    error,
    filtered,
    packet_id,
    rejected,
    stepped,
    unverified,
    version,
    writing,
    written,
)


async def traced(journal: SqliteJournal, n: int = 1) -> Trace:
    found = await reads.trace(journal.rows, packet_id(n))
    assert found is not None
    return found


async def test_a_dead_letter_tells_its_steps_retries_and_times(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, data=b'{"msg":"yo"}', at=AT))
    await journal.commit(stepped(1, at=AT + 2, before={"msg": "yo"}, after={"msg": "yo"}))
    journal.stage(writing(1))
    journal.stage(Retried(packet_id(1), "$output", 1, 100, AT + 105, "refused", AT + 5))
    failed = error("output.failed", "output", 2)
    await journal.commit(DeadLettered(packet_id(1), failed, "$output", AT + 108))
    found = await traced(journal)
    assert [(s.step, s.event, s.ms, s.attempts) for s in found.steps] == [
        ("input", "packet.accepted", None, 1),
        ("shape", "node.done", 2.0, 1),
        ("$output", "packet.dead_lettered", 106.0, 2),
    ]
    assert [s.data for s in found.steps] == [b'{"msg":"yo"}', None, None]
    (retry,) = found.steps[2].retries
    assert (retry.attempt, retry.wait_ms, retry.error) == (1, 100.0, "refused")
    assert found.packet is not None
    assert (found.packet.state, found.packet.node, found.packet.attempt) == (
        "dead_lettered",
        "output",
        1,
    )
    assert found.packet.error is not None
    assert found.packet.error.message == "it broke"
    assert found.packet.updated_at - found.packet.received_at == 108


async def test_a_try_before_a_hold_counts_among_the_attempts(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), stepped(1), writing(1))
    await journal.commit(Retried(packet_id(1), "$output", 1, 100, AT, "refused", AT))
    failed = error("output.failed", "output", 2)
    await journal.commit(Held(packet_id(1), "pause", failed, "$output", AT))
    await journal.commit(written(1))
    last = (await traced(journal)).steps[-1]
    assert (last.event, last.attempts, len(last.retries)) == ("output.written", 3, 1)


async def test_the_head_of_a_trace_says_who_sent_it_and_when(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, trigger="push", source="cli", at=AT))
    packet = (await traced(journal)).packet
    assert packet is not None
    assert (packet.packet_id, packet.version, packet.state) == (packet_id(1), 1, "accepted")
    assert (packet.trigger, packet.source, packet.input) == ("push", "cli", "input")
    assert (packet.received_at, packet.node) == (AT, "shape")


async def test_data_stands_after_each_step_where_it_changed(journal: SqliteJournal) -> None:
    await journal.commit(
        accepted(1, data=b'{"a":1,"big":12345678901234567890}'),
        stepped(1, cursor="b", before={"a": 1}, after={"a": 2, "big": 12345678901234567890}),
        stepped(1, node="b", cursor="c"),
        stepped(1, node="c", before={"a": 2}, after=None),
        written(1),
        delivered(1, b'{"line":3}'),
    )
    found = await traced(journal)
    assert [(s.step, s.data) for s in found.steps] == [
        ("input", b'{"a":1,"big":12345678901234567890}'),
        ("shape", b'{"a":2,"big":12345678901234567890}'),
        ("b", None),
        ("c", b"null"),
        ("$output", None),
        ("$verify", None),
    ]
    assert found.packet is not None
    assert found.packet.data == b"null"
    assert (found.packet.result, found.packet.evidence) == (b'{"rowid":7}', b'{"line":3}')
    assert (found.packet.node, found.packet.error) == (None, None)


async def test_notes_belong_to_the_step_that_follows(journal: SqliteJournal) -> None:
    await journal.commit(
        accepted(1),
        stepped(1, notes=(("log", {"message": "hi"}),)),
        written(1),
        unverified(1, evidence=b'{"rows":0}'),
    )
    waiting = await traced(journal)
    assert [s.step for s in waiting.steps] == ["input", "shape", "$output"]
    assert waiting.packet is not None
    assert waiting.packet.evidence == b'{"rows":0}'
    assert [e.type for e in waiting.events][-1] == "delivery.unverified"
    await journal.commit(dead_lettered(1, "$verify"))
    found = await traced(journal)
    assert [[n.type for n in s.notes] for s in found.steps] == [
        [],
        ["log"],
        [],
        ["delivery.unverified"],
    ]
    note = found.steps[1].notes[0]
    assert (note.packet_id, note.node, note.detail) == (packet_id(1), "shape", b'{"message":"hi"}')
    assert found.steps[3].step == "$verify"
    assert len(found.events) == 6


async def test_good_and_early_ends(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), filtered(1), rejected(2))
    assert [(s.step, s.event) for s in (await traced(journal, 1)).steps] == [
        ("input", "packet.accepted"),
        ("adults", "packet.filtered"),
    ]
    refused = await traced(journal, 2)
    assert [(s.step, s.event, s.data) for s in refused.steps] == [
        ("input", "packet.rejected", b'{"n":1}')
    ]
    assert refused.packet is not None
    assert refused.packet.error is not None
    assert (refused.packet.node, refused.packet.error.rule) == ("input", "data.age > 1")


async def test_a_trace_is_of_known_packets_only(journal: SqliteJournal) -> None:
    assert await reads.trace(journal.rows, packet_id(1)) is None


async def test_a_purged_packet_keeps_its_record(journal: SqliteJournal) -> None:
    journal._db.execute(
        "INSERT INTO events (seq, at, unit, type, detail) VALUES (99, 1, 'gone', 'dlq.purged', '{}')"
    ).fetchall()
    found = await reads.trace(journal.rows, "gone")
    assert found is not None
    assert (found.packet, found.steps) == (None, [])
    assert [e.type for e in found.events] == ["dlq.purged"]


async def test_copies_have_their_own_steps(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), version(2))
    copy = f"{packet_id(1)}:left"
    for sql in (
        f"UPDATE units SET state = 'branched' WHERE id = '{packet_id(1)}'",
        "INSERT INTO units (id, root, parent, branch, state, cursor, queue_seq, version, input, "
        "trigger, source, received_at, updated_at, data) "
        f"SELECT '{copy}', id, id, 'left', 'processing', 'shape', 2, 1, input, trigger, source, "
        "received_at, updated_at, data FROM units",
        "INSERT INTO events (seq, at, unit, type, node, state) VALUES "
        f"(90, 5, '{copy}', 'packet.branched', 'split', 'processing')",
    ):
        journal._db.execute(sql).fetchall()
    found = await traced(journal)
    assert [s.step for s in found.steps] == ["input"]
    (made,) = found.copies
    assert (made.id, made.branch, made.state) == (copy, "left", "processing")
    assert [(s.step, s.event) for s in made.steps] == [("split", "packet.branched")]
    page = await reads.packets(journal.rows)
    assert [row.packet_id for row in page.packets] == [packet_id(1)]
