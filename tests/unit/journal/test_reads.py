"""Listings, events, counts and times."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pipo.errors import BadRequest
from pipo.journal import reads, units
from pipo.journal.changes import Draining, Purged
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.packets import (
    AT,
    accepted,
    dead_lettered,
    delivered,
    dropped,
    escalated,
    fanned_out,
    filtered,
    of_copy,
    packet_id,
    rejected,
    resolved,
    stepped,
    writing,
    written,
)


async def fill(journal: SqliteJournal) -> None:
    """One packet in each state that a packet of this version can reach."""
    await journal.commit(
        accepted(1),
        *(accepted(2), stepped(2, cursor="next")),
        *(accepted(3), writing(3)),
        *(accepted(4), written(4)),
        *(accepted(5), written(5), delivered(5)),
        *(accepted(6), filtered(6)),
        *(accepted(7), writing(7), dead_lettered(7, "$output")),
        rejected(8),
        *(accepted(9), dropped(9)),
    )


async def test_packets_stand_newest_first_with_the_node_they_are_at(journal: SqliteJournal) -> None:
    await fill(journal)
    page = await reads.packets(journal.rows)
    assert [(row.packet_id[-1], row.state, row.node) for row in page.packets] == [
        ("9", "filtered", None),
        ("8", "rejected", "input"),
        ("7", "dead_lettered", "output"),
        ("6", "filtered", None),
        ("5", "delivered", None),
        ("4", "verifying", "$verify"),
        ("3", "writing", "$output"),
        ("2", "processing", "next"),
        ("1", "accepted", "shape"),
    ]
    assert (page.total, page.next) == (9, None)
    dead = page.packets[2]
    assert dead.error is not None
    assert (dead.error.code, dead.error.attempts, dead.attempt) == ("node.failed", 1, 0)
    assert (dead.received_at, dead.updated_at, dead.version) == (AT + 7, AT + 11, 1)
    assert page.packets[0].error is not None, "a dropped packet keeps its error"
    assert page.packets[4].error is None


@pytest.mark.parametrize(
    ("state", "ids"),
    [
        ("accepted", "1"), ("processing", "2"), ("writing", "3"), ("verifying", "4"),
        ("delivered", "5"), ("filtered", "96"), ("dead_lettered", "7"), ("rejected", "8"),
        ("branched", ""), ("escalated", ""),
    ],
)  # fmt: skip
async def test_packets_of_one_state(journal: SqliteJournal, state: str, ids: str) -> None:
    await fill(journal)
    page = await reads.packets(journal.rows, state)
    assert "".join(row.packet_id[-1] for row in page.packets) == ids
    assert (page.total, page.next) == (len(ids), None)


@pytest.mark.parametrize("state", [None, "accepted", "delivered"])
async def test_pages_join_to_the_whole_list(journal: SqliteJournal, state: str | None) -> None:
    for n in range(1, 8):
        await journal.commit(accepted(n))
        if state == "delivered":
            await journal.commit(written(n), delivered(n))
    found: list[str] = []
    after: str | None = None
    pages = 0
    while pages == 0 or after is not None:
        page = await reads.packets(journal.rows, state, 3, after)
        assert page.total == 7
        found += [row.packet_id for row in page.packets]
        after = page.next
        pages += 1
    assert found == [packet_id(n) for n in range(7, 0, -1)]
    assert pages == 3
    exact = await reads.packets(journal.rows, state, 7)
    assert exact.next is None


async def test_a_listing_refuses_what_it_cannot_answer(journal: SqliteJournal) -> None:
    with pytest.raises(BadRequest, match="no state 'done'") as caught:
        await reads.packets(journal.rows, "done")
    assert "dead_lettered" in caught.value.hint
    for limit in (0, 1001):
        with pytest.raises(BadRequest, match=f"limit is {limit}"):
            await reads.packets(journal.rows, None, limit)
        with pytest.raises(BadRequest, match=f"limit is {limit}"):
            await reads.events(journal.rows, 0, limit)
    with pytest.raises(BadRequest, match="after_seq is -1"):
        await reads.events(journal.rows, -1)


async def test_listings_never_walk_the_table(journal: SqliteJournal) -> None:
    rows = journal.rows
    for sql, params in (
        (reads.ALL_PACKETS, ("~", 9)),
        (reads.SETTLED_PACKETS, ("delivered", "~", 9)),
        (reads.PENDING_PACKETS, ("accepted", "~", 9)),
        (reads.OLDEST_PENDING, ()),
        (reads.LAST_DELIVERY, ()),
        (reads.ACCEPTED_SINCE, ("0",)),
        (reads.LATENCY, ("n", 9)),
        (reads.EVENTS, (0, 9)),
        (reads.UNIT_PATCHES, ("u", "u")),
        (units.FAMILIES, ('["u"]',)),
        (units.UNITS, ('["u"]',)),
        (units.DEAD_LETTERS, ()),
        (units.AWAITING_ACK, ()),
        (units.CHECK_OF, (1,)),
        (units.RESULT_OF, ("u",)),
    ):
        plan = [row[3] for row in await rows.rows(f"EXPLAIN QUERY PLAN {sql}", params)]
        scans = [step for step in plan if step.startswith("SCAN")]
        walks = [step for step in scans if "USING" not in step and "json_each" not in step]
        assert not walks, f"{sql}: {plan}"


async def test_events_stand_in_order_with_their_details(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), written(1, size=3), delivered(1, b'{"row":1}'))
    await journal.commit(Draining(AT + 9))
    page = await reads.events(journal.rows, 1, 3)
    assert [(e.seq, e.type, e.node, e.detail) for e in page.events] == [
        (2, "packet.accepted", "input", None),
        (3, "output.written", "output", b'{"size":3}'),
        (4, "packet.delivered", "delivered", b'{"evidence":{"row":1}}'),
    ]
    assert (page.last_seq, page.more) == (4, True)
    assert {e.packet_id for e in page.events} == {packet_id(1)}
    last = await reads.events(journal.rows, page.last_seq)
    assert [(e.type, e.packet_id, e.pipeline) for e in last.events] == [
        ("pipeline.draining", "", "people")
    ]
    assert (last.last_seq, last.more) == (5, False)
    none = await reads.events(journal.rows, 5)
    assert (none.events, none.last_seq, none.more) == ([], 5, False)


async def test_the_first_event_of_a_fresh_journal(journal: SqliteJournal) -> None:
    first = (await reads.events(journal.rows)).events[0]
    assert (first.seq, first.type) == (1, "pipeline.started")
    assert first.detail == b'{"version":1,"recovered":0}'


async def test_counts_and_times(journal: SqliteJournal) -> None:
    assert await reads.oldest_pending(journal.rows) is None
    assert await reads.last_delivery_at(journal.rows) is None
    await fill(journal)
    await journal.commit(accepted(20, at=AT - 50))
    oldest = await reads.oldest_pending(journal.rows)
    assert oldest is not None
    assert (oldest.packet_id, oldest.received_at) == (packet_id(20), AT - 50)
    assert await reads.last_delivery_at(journal.rows) == AT + 10
    assert await reads.counters(journal.rows) == journal.counters
    assert await reads.standing_of(journal.rows, packet_id(7)) == ("dead_lettered", "it broke")
    assert await reads.standing_of(journal.rows, "nobody") is None
    assert await reads.data_of(journal.rows, "nobody") is None


async def test_the_oldest_pending_packet_may_wait_for_a_person_or_for_its_copies(
    journal: SqliteJournal,
) -> None:
    """Edge 377: whatever it waits for, and never a copy."""
    await journal.commit(*(accepted(n, at=AT + n) for n in (1, 2, 3)))
    await journal.commit(*(stepped(n, cursor="shape") for n in (1, 2)))
    await journal.commit(escalated(1), fanned_out(2, "a", "b"))

    async def oldest() -> tuple[str, int]:
        found = await reads.oldest_pending(journal.rows)
        assert found is not None
        return found.packet_id, found.received_at

    assert await oldest() == (packet_id(1), AT + 1)
    await journal.commit(resolved(1, "drop"))
    assert await oldest() == (packet_id(2), AT + 2)
    for branch in ("a", "b"):
        await journal.commit(of_copy(dead_lettered(2, "shape"), 2, branch))
    assert await oldest() == (packet_id(3), AT + 3)


async def test_the_last_minute_is_told_by_the_ids(journal: SqliteJournal) -> None:
    # The first ten letters of a ULID are its milliseconds in Crockford's base 32.
    for n, letters in enumerate(("01M4KTMCZ6", "01M4KTMCZ7", "01M4KTMCZ8"), start=1):
        await journal.commit(accepted(n, unit=letters + "0" * 16))
    await journal.commit(rejected(9, unit="01M4KTMCZ90000000000000000"))
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    at = 0
    for letter in "01M4KTMCZ7":
        at = at * 32 + alphabet.index(letter)
    assert await reads.accepted_since(journal.rows, at) == {AT // 1000: 2}
    assert await reads.accepted_since(journal.rows, at + 2) == {}
    assert await reads.accepted_since(journal.rows, -60_000) == {AT // 1000: 3}


async def test_latency_is_of_the_newest_hundred_steps(journal: SqliteJournal) -> None:
    for n in range(1, 151):
        journal.stage(accepted(n), stepped(n, ms=float(n)))
    await journal.commit(written(1), *(dead_lettered(n, "$output", ms=7.4) for n in (2, 3)))
    shape, output, other = await reads.latency(journal.rows, ["shape", "$output", "other"])
    assert (shape.node, shape.count) == ("shape", 100)
    assert (shape.p50_ms, shape.p95_ms, shape.max_ms) == (100.0, 145.0, 150.0)
    assert (output.node, output.count, output.p50_ms, output.max_ms) == ("output", 3, 7.0, 7.0)
    assert (other.count, other.p50_ms, other.p95_ms, other.max_ms) == (0, None, None, None)


@pytest.mark.parametrize(
    ("count", "p50", "p95"), [(1, 1.0, 1.0), (2, 1.0, 2.0), (4, 2.0, 4.0), (20, 10.0, 19.0)]
)
async def test_percentiles_are_by_nearest_rank(
    journal: SqliteJournal, count: int, p50: float, p95: float
) -> None:
    await journal.commit(
        *(c for n in range(1, count + 1) for c in (accepted(n), stepped(n, ms=float(n))))
    )
    (found,) = await reads.latency(journal.rows, ["shape"])
    assert (found.p50_ms, found.p95_ms, found.max_ms) == (p50, p95, float(count))


async def test_sequence_numbers_have_no_gaps(journal: SqliteJournal) -> None:
    await fill(journal)
    page = await reads.events(journal.rows, 0, 1000)
    assert all(b.seq == a.seq + 1 for a, b in pairwise(page.events))
    assert page.last_seq == journal.last_seq


async def test_what_was_handed_over_is_found_whatever_became_of_it(journal: SqliteJournal) -> None:
    await journal.commit(
        accepted(1, source="gate", key="k1"),
        *(accepted(2, source="gate", key="k2"), writing(2), dead_lettered(2, "$output")),
        accepted(3, source="other", key="k1"),
    )
    await journal.commit(Purged(packet_id(2), "me", AT))
    keys = [("gate", "k1"), ("gate", "k2"), ("gate", "k3"), ("other", "k1")]
    assert await reads.handed_over(journal.rows, keys) == {
        ("gate", "k1"): (packet_id(1), "accepted"),
        ("gate", "k2"): (packet_id(2), "gone"),
        ("other", "k1"): (packet_id(3), "accepted"),
    }
