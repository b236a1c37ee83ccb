"""The journal as its users hold it: durable answers, order, illegal callers, the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pipo.errors import Internal, Unavailable
from pipo.journal import reads, writer
from pipo.journal.changes import Change, Draining, InputMoved, Marked
from pipo.journal.connection import open_reader, run
from pipo.journal.opening import FILE
from pipo.journal.sheet import IllegalChange
from pipo.journal.sqlite_journal import Applied, Duplicate, JournalFailed, SqliteJournal
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import (
    DATA,
    accepted,
    dead_lettered,
    delivered,
    packet_id,
    rejected,
    stepped,
    version,
    writing,
    written,
)
from tests.unit.journal.recount import counted, recount


def on_disk(folder: Path, sql: str) -> list[tuple[object, ...]]:
    db = open_reader(folder / FILE, vfs=None)
    try:
        return run(db, sql)
    finally:
        db.close()


async def test_a_change_is_on_disk_when_commit_returns(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    assert await journal.commit(accepted(1), accepted(2)) == [Applied(), Applied()]
    found = on_disk(tmp_path, "SELECT id, state, data FROM units ORDER BY id")
    assert found == [(packet_id(n), "accepted", DATA.decode()) for n in (1, 2)]


async def test_staged_changes_keep_their_order_and_join_the_next_commit(
    journal: SqliteJournal,
) -> None:
    groups: list[int] = []
    journal.commit_observer = lambda size, seconds: groups.append(size)
    journal.stage(accepted(1))
    journal.stage(stepped(1))
    await journal.commit(written(1), delivered(1))
    assert groups == [3]
    found = await journal.rows.rows("SELECT type FROM events WHERE seq > 1 ORDER BY seq")
    assert [row[0] for row in found] == [
        "packet.accepted",
        "node.done",
        "output.written",
        "packet.delivered",
    ]


async def test_staged_changes_alone_are_written_after_a_moment(journal: SqliteJournal) -> None:
    before = journal.last_seq
    journal.stage(accepted(1))
    assert await journal.wait_beyond(before, 5.0) == before + 1
    assert journal.counters["now.accepted"] == 1


async def test_done_is_told_once_the_changes_are_on_disk(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    journal.stage(accepted(1), done=told.set_result)
    assert await told is None
    assert on_disk(tmp_path, "SELECT count(*) FROM units") == [(1,)]


async def test_an_illegal_caller_fails_alone(journal: SqliteJournal) -> None:
    told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    one = asyncio.ensure_future(journal.commit(accepted(1)))
    bad = asyncio.ensure_future(journal.commit(accepted(2), delivered(1)))
    worse = asyncio.ensure_future(journal.commit(accepted(1)))
    journal.stage(written(3), done=told.set_result)
    other = asyncio.ensure_future(journal.commit(written(1), accepted(4)))
    assert await one == [Applied()]
    with pytest.raises(
        IllegalChange, match=f"Delivered does not apply to {packet_id(1)}, which is accepted"
    ):
        await bad
    with pytest.raises(
        IllegalChange, match=f"Accepted does not apply to {packet_id(1)}, which is accepted"
    ):
        await worse
    assert isinstance(await told, IllegalChange)
    assert await other == [Applied(), Applied()]
    found = await journal.rows.rows("SELECT id, state FROM units ORDER BY id")
    assert found == [(packet_id(1), "verifying"), (packet_id(4), "accepted")]
    assert counted(journal.counters) == await recount(journal.rows)


async def test_an_id_that_exists_on_disk_fails_its_caller_alone(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), written(1), delivered(1))
    again = asyncio.ensure_future(journal.commit(accepted(1)))
    fresh = asyncio.ensure_future(journal.commit(accepted(2)))
    with pytest.raises(IllegalChange, match="which is delivered"):
        await again
    assert await fresh == [Applied()]
    assert counted(journal.counters) == await recount(journal.rows)


@pytest.mark.parametrize("wrong", [{"source": "half \ud800"}, {"queue_seq": 2**80}])
async def test_what_sqlite_cannot_hold_fails_its_caller_alone(
    journal: SqliteJournal, wrong: dict[str, object]
) -> None:
    bad = asyncio.ensure_future(journal.commit(accepted(1), accepted(2, **wrong)))
    good = asyncio.ensure_future(journal.commit(accepted(3)))
    with pytest.raises(Internal, match="cannot hold this change"):
        await bad
    assert await good == [Applied()]
    assert await journal.rows.rows("SELECT id FROM units") == [(packet_id(3),)]
    assert counted(journal.counters) == await recount(journal.rows)


async def test_a_negative_duration_is_refused_by_the_schema_for_its_caller_alone(
    journal: SqliteJournal,
) -> None:
    bad = asyncio.ensure_future(journal.commit(accepted(1), stepped(1, ms=-1.0)))
    good = asyncio.ensure_future(journal.commit(accepted(2), stepped(2), written(2)))
    with pytest.raises(Internal, match="CHECK constraint failed"):
        await bad
    assert await good == [Applied()] * 3
    assert await journal.commit(delivered(2)) == [Applied()]
    assert await journal.rows.rows("SELECT id, state FROM units") == [(packet_id(2), "delivered")]
    assert counted(journal.counters) == await recount(journal.rows)


async def test_memory_that_differs_from_the_disk_alters_nothing(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    await journal.commit(accepted(1))
    # Nobody but a test may do this: the row moves behind the writer's back.
    for sql in (
        "UPDATE units SET state = 'processing'",
        "UPDATE counters SET name = 'now.processing' WHERE name = 'now.accepted'",
    ):
        journal._db.execute(sql).fetchall()
    with pytest.raises(IllegalChange, match="which is processing"):
        await journal.commit(delivered(1))
    assert await journal.commit(written(1)) == [Applied()]
    assert on_disk(tmp_path, "SELECT state FROM units") == [("verifying",)]


async def test_a_key_that_comes_again_answers_with_its_packet(journal: SqliteJournal) -> None:
    first = await journal.commit(accepted(1, key="k", source="sender"))
    again = await journal.commit(accepted(2, key="k", source="sender"), accepted(3))
    assert first == [Applied()]
    assert again == [Duplicate(packet_id(1)), Applied()]
    found = await journal.rows.rows("SELECT sender, key, packet, input FROM inbox")
    assert found == [("sender", "k", packet_id(1), "input")]
    assert journal.counters["all.accepted"] == 2


async def test_an_input_remembers_with_its_packet(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, state={"a.txt": "5"}), rejected(2, state={"b.txt": "6"}))
    await journal.commit(accepted(3, state={"a.txt": "7"}), Marked({"/out.jsonl": 2**40}))
    assert await reads.input_state(journal.rows, "input") == {"a.txt": "7", "b.txt": "6"}
    assert (await journal.recover()).marks == {"/out.jsonl": 2**40}


async def test_an_input_remembers_without_a_packet(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, state={"offset": "5", "more": "1"}))
    before = journal.last_seq
    await journal.commit(InputMoved("input", {"offset": "9"}), InputMoved("other", {"offset": "2"}))
    assert journal.last_seq == before
    assert await reads.input_state(journal.rows, "input") == {"offset": "9", "more": "1"}
    assert await reads.input_state(journal.rows, "other") == {"offset": "2"}


async def test_an_input_forgets_in_the_packets_transaction(journal: SqliteJournal) -> None:
    await journal.commit(
        accepted(1, state={"a.txt": "5", "b.txt": "6"}), InputMoved("other", {"a.txt": "7"})
    )
    await journal.commit(accepted(2, state={"a.txt": None}), rejected(3, state={"c.txt": "8"}))
    assert await reads.input_state(journal.rows, "input") == {"b.txt": "6", "c.txt": "8"}
    await journal.commit(InputMoved("input", {"b.txt": None, "c.txt": None, "d.txt": None}))
    assert await reads.input_state(journal.rows, "input") == {}
    assert await reads.input_state(journal.rows, "other") == {"a.txt": "7"}


@pytest.mark.parametrize(
    "text",
    [
        '"\\u0000 \\"quoted\\" \\\\ \\n"',
        '"Ünï ☃ 🦉"',
        "123456789012345678901234567890",
        "1.5e300",
        "null",
    ],
)
async def test_texts_and_numbers_arrive_exactly(journal: SqliteJournal, text: str) -> None:
    source = "a\x00b'\"\\ ☃ 🦉 \x01"
    await journal.commit(
        accepted(1, data=text.encode(), source=source), written(1, result=text.encode())
    )
    found = await journal.rows.rows("SELECT data, result, source, queue_seq FROM units")
    assert found == [(text, text, source, 1)]


async def test_heavy_texts_arrive_exactly(journal: SqliteJournal) -> None:
    heavy = b'{"text":"' + b"x" * 300_000 + b'"}'
    more = {"text": "y" * 300_000}
    before = {"text": "x" * 300_000}
    await journal.commit(
        accepted(1, data=heavy), accepted(2), stepped(1, cursor="b", before=before, after=more)
    )
    assert await journal.rows.rows("SELECT octet_length(data) FROM units ORDER BY id") == [
        (len(heavy),),
        (len(DATA),),
    ]
    found = await journal.recover()
    assert found.units[0].data == b'{"text":"' + b"y" * 300_000 + b'"}'


async def test_a_cancelled_commit_is_written_all_the_same(journal: SqliteJournal) -> None:
    before = journal.last_seq
    task = asyncio.ensure_future(journal.commit(accepted(1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await journal.wait_beyond(before, 5.0) == before + 1


async def test_counters_equal_a_recount_over_many_ways(journal: SqliteJournal) -> None:
    ways: list[list[Change]] = [
        [accepted(1), stepped(1), writing(1), written(1), delivered(1)],
        [accepted(2), dead_lettered(2)],
        [rejected(3)],
        [accepted(4), stepped(4, cursor="b")],
        [accepted(5), written(5)],
    ]
    for changes in ways:
        for change in changes:
            await journal.commit(change)
    assert counted(journal.counters) == await recount(journal.rows)
    assert journal.counters["now.accepted"] == 0


async def test_a_large_crowd_is_one_group_after_another(journal: SqliteJournal) -> None:
    groups: list[int] = []
    journal.commit_observer = lambda size, seconds: groups.append(size)
    await asyncio.gather(*(journal.commit(accepted(n)) for n in range(1, 801)))
    assert sum(groups) == 800
    assert len(groups) < 80
    assert counted(journal.counters) == await recount(journal.rows)


async def test_a_transaction_is_bounded(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TRANSACTION_CHANGES", 10)
    groups: list[int] = []
    journal.commit_observer = lambda size, seconds: groups.append(size)
    await asyncio.gather(*(journal.commit(accepted(n), written(n)) for n in range(1, 41)))
    assert sum(groups) == 40
    assert max(groups) <= 5


async def test_too_many_waiting_changes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "QUEUE_CHANGES_LIMIT", 3)
    journal = open_quick(tmp_path, flush_delay_s=60.0)
    journal.stage(version(), *(accepted(n) for n in range(1, 5)))
    with pytest.raises(Unavailable, match="5 changes wait"):
        journal.stage(accepted(9))
    with pytest.raises(Unavailable, match="5 changes wait"):
        await journal.commit(accepted(9))
    await journal.close(clean=True)
    assert journal.counters["all.accepted"] == 4


async def test_a_listener_that_raises_keeps_the_news_from_nobody(journal: SqliteJournal) -> None:
    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: heard.append(str(context["message"]))
    )

    def broken(error: BaseException | None) -> None:
        raise RuntimeError("mine")

    journal.stage(accepted(1), done=broken)
    assert await journal.commit(accepted(2)) == [Applied()]
    assert heard == ["a listener of the journal raised"]


async def test_an_illegal_staged_change_that_nobody_waits_for_fails_the_journal(
    tmp_path: Path,
) -> None:
    journal = open_quick(tmp_path)
    journal.stage(delivered(1))
    assert isinstance(await asyncio.wait_for(journal.failed, 60), IllegalChange)
    with pytest.raises(JournalFailed, match="which does not exist"):
        await journal.commit(version())
    await journal.close(clean=False)


async def test_waiting_for_events_ends_with_the_first_or_at_the_time(
    journal: SqliteJournal,
) -> None:
    seq = journal.last_seq
    assert await journal.wait_beyond(seq, 0.001) == seq
    waiting = asyncio.ensure_future(journal.wait_beyond(seq, 5.0))
    await asyncio.sleep(0)
    await journal.commit(accepted(1))
    assert await waiting == seq + 1
    assert await journal.wait_beyond(seq, 5.0) == seq + 1


async def test_closing_writes_what_has_queued_and_is_safe_twice(tmp_path: Path) -> None:
    journal = open_quick(tmp_path, flush_delay_s=60.0)
    told: list[BaseException | None] = []
    journal.stage(version(), accepted(1), done=told.append)
    await journal.close(clean=True)
    await journal.close(clean=True)
    assert told == [None]
    assert not (tmp_path / f"{FILE}-wal").exists()
    with pytest.raises(JournalFailed, match="closed"):
        await journal.commit(accepted(2))
    with pytest.raises(JournalFailed, match="closed"):
        journal.stage(accepted(2))
    assert on_disk(tmp_path, "SELECT count(*) FROM units") == [(1,)]


async def test_an_unused_journal_closes(tmp_path: Path) -> None:
    await open_quick(tmp_path).close(clean=True)
    journal = open_quick(tmp_path)
    assert journal.last_seq == 0
    await journal.close(clean=True)


async def test_counters_and_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    journal = open_quick(tmp_path)
    await journal.commit(version(), accepted(1), written(1), delivered(1))
    counters, seq = dict(journal.counters), journal.last_seq
    await journal.close(clean=False)
    journal = open_quick(tmp_path)
    assert (counted(journal.counters), journal.last_seq) == (counted(counters), seq)
    await journal.commit(Draining(5))
    assert journal.last_seq == seq + 1
    await journal.close(clean=True)
