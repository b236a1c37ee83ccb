"""What a run finds when it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipo.journal import reads, versions
from pipo.journal import recover as recovery
from pipo.journal.changes import Started, Stopped
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import (
    AT,
    accepted,
    copy_id,
    dead_lettered,
    delivered,
    escalated,
    fanned_out,
    of_copy,
    packet_id,
    rejected,
    replayed,
    resolved,
    retried,
    stepped,
    version,
    writing,
    written,
)


async def test_pending_units_stand_in_the_order_of_their_queue(journal: SqliteJournal) -> None:
    await journal.commit(
        accepted(1, queue_seq=9), accepted(2, queue_seq=3), accepted(3, queue_seq=5)
    )
    await journal.commit(
        accepted(4), written(4), delivered(4), rejected(5), accepted(6), dead_lettered(6)
    )
    found = await journal.recover()
    assert [unit.id for unit in found.units] == [packet_id(n) for n in (2, 3, 1)]
    assert (found.next_queue_seq, found.version) == (10, 1)


async def test_a_unit_is_found_where_its_last_commit_left_it(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, data=b'{"a":1}'), retried(1, 2))
    await journal.commit(
        accepted(2), stepped(2, before={"n": 1}, after={"n": 1.0}), writing(2, "ada")
    )
    await journal.commit(accepted(3), written(3, b'{"rowid":3}', 4))
    one, two, three = (await journal.recover()).units
    assert (one.state, one.cursor, one.attempt, one.retry_at) == ("accepted", "shape", 2, AT + 103)
    assert (one.data, one.received_at) == (b'{"a":1}', AT + 1)
    assert (two.state, two.cursor, two.key, two.hops) == ("writing", "$output", "ada", 1)
    assert two.data == b'{"n":1.0}'
    assert (three.state, three.cursor, three.write_no) == ("verifying", "$verify", 1)
    assert (three.result, three.group_size) == (b'{"rowid":3}', 4)


async def test_a_packet_that_is_taken_up_again_is_told_with_its_copies(
    journal: SqliteJournal,
) -> None:
    """What it wrote may be older than any mark, and so may be what its copies wrote."""
    await journal.commit(accepted(1), accepted(2), dead_lettered(2), accepted(3), escalated(3))
    await journal.commit(accepted(4), fanned_out(4, "a", "b"))
    await journal.commit(*(of_copy(dead_lettered(4), 4, branch) for branch in ("a", "b")))
    assert {unit.taken_up for unit in (await journal.recover()).units} == {False}
    await journal.commit(replayed(2), resolved(3), of_copy(replayed(4), 4, "a"))
    again = {unit.id for unit in (await journal.recover()).units if unit.taken_up}
    assert again == {packet_id(2), packet_id(3), packet_id(4), copy_id(4, "a")}


async def test_a_split_packet_is_told_with_how_its_copies_stand(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), fanned_out(1, "a", "b", "c"), accepted(2))
    await journal.commit(
        of_copy(dead_lettered(1), 1, "a"),
        *(of_copy(one(1), 1, "b") for one in (written, delivered)),
    )
    found = await journal.recover()
    assert found.packets == 2
    by_id = {unit.id: unit for unit in found.units}
    assert by_id.keys() == {packet_id(1), copy_id(1, "c"), packet_id(2)}
    copies = by_id[packet_id(1)].copies
    assert copies is not None
    assert (copies.open, copies.delivered, copies.filtered) == (1, 1, 0)
    assert [dead for dead, _ in copies.dead] == [copy_id(1, "a")]
    assert by_id[copy_id(1, "c")].copies is None


async def test_units_of_one_place_are_loaded_together_or_not_at_all(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "DATA_BYTES_LIMIT", 250)
    text = b'"' + b"x" * 98 + b'"'
    split = fanned_out(2, "b", "a", data=text)
    place = tuple(replace(copy, queue_seq=2) for copy in split.copies)
    await journal.commit(accepted(1, data=text), accepted(2, data=text))
    await journal.commit(replace(split, copies=place))
    units = [unit for unit in (await journal.recover()).units if unit.state != "branched"]
    assert [unit.id for unit in units] == [packet_id(1), copy_id(2, "a"), copy_id(2, "b")]
    assert [unit.data for unit in units] == [text, None, None]


@pytest.mark.parametrize("steps", [1, 31, 32, 33, 70])
async def test_data_is_the_fold_of_every_patch(journal: SqliteJournal, steps: int) -> None:
    value = {"pad": "p" * 90, "n": 0}
    await journal.commit(accepted(1, data=b'{"pad":"' + b"p" * 90 + b'","n":0}'))
    for n in range(1, steps + 1):
        after = {**value, "n": n}
        journal.stage(stepped(1, cursor="again", before=value, after=after))
        value = after
    await journal.commit(accepted(2))
    wanted = b'{"pad":"' + b"p" * 90 + b'","n":%d}' % steps
    found = await journal.recover()
    assert found.units[0].data == wanted
    assert await reads.data_of(journal.rows, packet_id(1)) == wanted


async def test_large_payloads_are_left_in_the_journal(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "DATA_BYTES_LIMIT", 250)
    text = b'"' + b"x" * 98 + b'"'
    await journal.commit(*(accepted(n, data=text) for n in (1, 2, 3, 4)))
    units = (await journal.recover()).units
    assert [unit.data for unit in units] == [text, text, None, None]
    assert await reads.data_of(journal.rows, units[3].id) == text


async def test_one_payload_is_loaded_however_large(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "DATA_BYTES_LIMIT", 2)
    await journal.commit(accepted(1), accepted(2))
    assert [unit.data is None for unit in (await journal.recover()).units] == [False, True]


async def test_an_empty_journal_starts_from_nothing(empty: SqliteJournal) -> None:
    found = await empty.recover()
    assert (found.units, found.next_queue_seq, found.version) == ([], 1, None)
    assert (found.marks, found.pause_reason, found.ttl_anchor) == ({}, None, None)


async def test_the_ttl_anchor_survives_all_but_a_clean_end(tmp_path: Path) -> None:
    async def run_once(started: int, *end: Stopped) -> int | None:
        journal = open_quick(tmp_path)
        if (await journal.recover()).version is None:
            await journal.commit(version())
        await journal.commit(Started(1, 0, started))
        anchor = (await journal.recover()).ttl_anchor
        await journal.commit(*end)
        await journal.close(clean=bool(end))
        return anchor

    assert await run_once(100) == 100
    assert await run_once(200, Stopped("shutdown", 250)) == 100
    assert await run_once(300, Stopped("stop", 350)) == 100
    assert await run_once(400) == 400


async def test_versions_are_kept_with_everything_they_name(journal: SqliteJournal) -> None:
    await journal.commit(version(2, source="pipo: two"))
    newest = await versions.latest(journal.rows)
    assert newest is not None
    assert (newest.version, newest.source, newest.hash) == (2, "pipo: two", "h2")
    assert (newest.compiled, newest.files) == (b"\x00\xffcompiled", {"a.fn.py": "x = 1\n"})
    assert (newest.author, newest.author_kind, newest.reason) == ("ada", "human", "first start")
    first = await versions.one(journal.rows, 1)
    assert first is not None
    assert first.source == "pipo: 1"
    assert await versions.one(journal.rows, 3) is None
    assert await reads.input_state(journal.rows, "input") == {}
