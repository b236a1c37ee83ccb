"""Split packets: copies are born whole, and their ends settle what they came of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pipo.errors import Internal
from pipo.journal import reads
from pipo.journal.changes import Change, Copy, PacketError
from pipo.journal.outcomes import Acknowledged
from pipo.journal.sheet import IllegalChange, ancestors
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.packets import (
    AT,
    accepted,
    acked,
    copies,
    copy_id,
    dead_lettered,
    delivered,
    dropped,
    fanned_out,
    filtered,
    looped,
    of_copy,
    packet_id,
    replayed,
    rerun,
    stepped,
    version,
    written,
)
from tests.unit.journal.recount import counted, recount


def split(n: int, *branches: str) -> list[Change]:
    """A packet that splits after one step."""
    return [accepted(n), stepped(n, cursor="shape"), fanned_out(n, *branches)]


async def test_an_ack_before_the_split_is_for_each_copy(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1), acked(1, "Ada"), *split(1, "a", "output")[1:])
    for branch in ("a", "output"):
        assert await journal.commit(of_copy(acked(1), 1, branch)) == [
            Acknowledged("processing" if branch == "a" else "writing", already=True)
        ]
    found = await journal.rows.rows("SELECT acked_write_no, ack_by FROM units WHERE root <> ''")
    assert found == [(1, "Ada")] * 2


async def test_an_ack_of_an_earlier_write_is_for_no_copy(journal: SqliteJournal) -> None:
    """A rerun from before the split waits for new acks (decision 12)."""
    await journal.commit(accepted(1), written(1), acked(1), delivered(1), rerun(1))
    await journal.commit(stepped(1, cursor="shape"), fanned_out(1, "a", "b"))
    found = await journal.rows.rows("SELECT acked_write_no, ack_by FROM units WHERE root <> ''")
    assert found == [(None, None)] * 2


def settle(n: int, branch: str, end: str) -> list[Change]:
    ways: dict[str, list[Any]] = {
        "delivered": [written(n), delivered(n)],
        "filtered": [filtered(n)],
        "dropped": [dropped(n)],
        "dead_lettered": [dead_lettered(n)],
    }
    return [of_copy(change, n, branch) for change in ways[end]]


async def states(journal: SqliteJournal) -> dict[str, str]:
    found = await journal.rows.rows("SELECT branch, state FROM units")
    return dict(found)


async def told(journal: SqliteJournal, unit: str) -> list[tuple[Any, ...]]:
    return await journal.rows.rows(
        "SELECT type, node, state FROM events WHERE unit = ? ORDER BY seq", (unit,)
    )


def test_the_ancestors_of_a_copy_stand_in_its_id() -> None:
    assert ancestors("p") == []
    assert ancestors("p:a") == ["p"]
    assert ancestors("p:a/b/c") == ["p:a/b", "p:a", "p"]


async def test_a_split_at_the_input_is_one_transaction(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, copies=copies(1, "a", "output"), data=b'{"n":7}'))
    assert await states(journal) == {"": "branched", "a": "processing", "output": "writing"}
    assert await told(journal, packet_id(1)) == [
        ("packet.accepted", "input", "accepted"),
        ("packet.fanned_out", "input", "branched"),
    ]
    assert await told(journal, copy_id(1, "a")) == [("packet.branched", "input", "processing")]
    detail = await journal.rows.rows("SELECT detail FROM events WHERE type = 'packet.fanned_out'")
    assert detail == [('{"branches":["a","output"]}',)]
    assert counted(journal.counters)["now.branched"] == 1
    assert journal.counters["all.accepted"] == 1


async def test_a_copy_inherits_all_but_its_place(journal: SqliteJournal) -> None:
    await journal.commit(version(2))
    await journal.commit(
        accepted(1, version=2, trigger="pipeline", source="s", upstream=b'{"depth":1}'),
        looped(1),
        stepped(1, cursor="shape"),
    )
    # Read anew, as after a restart: what is inherited must be loaded.
    journal._writer._transactions._live.clear()
    await journal.commit(fanned_out(1, "a", "b", data=b'{"born":1}'))
    root, a, _ = (await journal.recover()).units
    assert (a.id, a.root, a.parent, a.branch) == (copy_id(1, "a"), root.id, root.id, "a")
    assert (a.version, a.input, a.trigger, a.source) == (2, "input", "pipeline", "s")
    assert (a.iteration, a.hops, a.received_at) == (1, 2, AT + 1)
    assert (a.upstream, a.data, a.cursor, a.queue_seq) == (
        b'{"depth":1}',
        b'{"born":1}',
        "a",
        101,
    )
    assert (root.state, root.cursor, root.data) == ("branched", "", None)


@pytest.mark.parametrize(
    ("ends", "root"),
    [
        (("delivered", "delivered"), "delivered"),
        (("delivered", "filtered"), "delivered"),
        (("filtered", "delivered"), "delivered"),
        (("filtered", "filtered"), "filtered"),
        (("dropped", "filtered"), "filtered"),
        (("dead_lettered", "delivered"), "dead_lettered"),
        (("delivered", "dead_lettered"), "dead_lettered"),
        (("filtered", "dead_lettered"), "dead_lettered"),
    ],
)
async def test_the_last_copy_settles_the_packet(
    journal: SqliteJournal, ends: tuple[str, str], root: str
) -> None:
    await journal.commit(*split(1, "a", "b"))
    await journal.commit(*settle(1, "a", ends[0]))
    assert (await states(journal))[""] == "branched", "never before the last copy"
    await journal.commit(*settle(1, "b", ends[1]))
    assert (await states(journal))[""] == root
    (settled,) = [event for event in await told(journal, packet_id(1)) if event[2] == root]
    assert settled == (f"packet.{root}", None, root)
    assert counted(journal.counters) == await recount(journal.rows)
    counters = journal.counters
    assert (counters.get(f"now.{root}"), counters.get("now.branched", 0)) == (1, 0)
    assert counters[f"total.packet.{root}"] == 1, "a packet counts once, whatever its copies"
    assert counters.get("all.delivered", 0) == (root == "delivered")


async def test_a_dead_copy_names_itself_at_the_packet(journal: SqliteJournal) -> None:
    await journal.commit(*split(1, "a", "b"))
    error = PacketError("output.failed", "disk full", None, "output", 4)
    await journal.commit(*settle(1, "b", "delivered"))
    dead = dead_lettered(1, "$output", ms=None)
    await journal.commit(of_copy(type(dead)(dead.unit, error, "$output", AT + 9), 1, "a"))
    trace = await reads.trace(journal.rows, packet_id(1))
    assert trace is not None
    assert trace.packet is not None
    assert trace.packet.error is not None
    assert (trace.packet.error.code, trace.packet.error.node) == (
        "branch.dead_lettered",
        "output",
    )
    assert trace.packet.error.message == "copy a failed: disk full"
    assert trace.packet.error.attempts == 4


async def test_copies_of_copies_settle_up_to_the_packet(journal: SqliteJournal) -> None:
    await journal.commit(*split(1, "x", "y"))
    await journal.commit(of_copy(stepped(1, cursor="shape"), 1, "x"))
    await journal.commit(fanned_out(1, "x/x", "x/y", unit=copy_id(1, "x")))
    await journal.commit(*settle(1, "y", "filtered"), *settle(1, "x/x", "delivered"))
    assert (await states(journal))["x"] == "branched"
    await journal.commit(*settle(1, "x/y", "dead_lettered"))
    assert await states(journal) == {
        "": "dead_lettered",
        "x": "dead_lettered",
        "y": "filtered",
        "x/x": "delivered",
        "x/y": "dead_lettered",
    }
    found = await journal.rows.rows(
        "SELECT error ->> 'message' FROM units WHERE branch IN ('', 'x')"
    )
    assert {row[0] for row in found} == {"copy x/y failed: it broke"}
    assert [event[0] for event in await told(journal, copy_id(1, "x"))] == [
        "packet.branched",
        "node.done",
        "packet.fanned_out",
        "packet.dead_lettered",
    ]
    assert counted(journal.counters) == await recount(journal.rows)


@pytest.mark.parametrize("anew", [False, True])
async def test_a_replay_opens_what_the_copy_came_of(journal: SqliteJournal, anew: bool) -> None:
    await journal.commit(*split(1, "x", "y"))
    await journal.commit(fanned_out(1, "x/x", "x/y", unit=copy_id(1, "x")))
    for branch, end in (("y", "delivered"), ("x/x", "dead_lettered"), ("x/y", "dead_lettered")):
        await journal.commit(*settle(1, branch, end))
    if anew:
        journal._writer._transactions._live.clear()
    again = [of_copy(replayed(1), 1, branch) for branch in ("x/x", "x/y")]
    await journal.commit(*again)
    assert await states(journal) == {
        "": "branched",
        "x": "branched",
        "y": "delivered",
        "x/x": "processing",
        "x/y": "processing",
    }
    found = await journal.rows.rows(
        "SELECT unit, detail FROM events WHERE type = 'dlq.replayed' ORDER BY seq"
    )
    assert [row[0] for row in found] == [
        copy_id(1, "x/x"),
        copy_id(1, "x"),
        packet_id(1),
        copy_id(1, "x/y"),
    ]
    root = msgspec.json.decode(found[2][1])
    assert (root["by"], root["error"]["code"]) == ("ada", "branch.dead_lettered")
    assert await journal.rows.rows("SELECT id FROM units WHERE error IS NOT NULL") == []
    await journal.commit(*settle(1, "x/x", "filtered"), *settle(1, "x/y", "delivered"))
    assert (await states(journal))[""] == "delivered"
    ends = [
        e[0] for e in await told(journal, packet_id(1)) if e[2] in ("dead_lettered", "delivered")
    ]
    assert ends == ["packet.dead_lettered", "packet.delivered"], "a second settle event"
    assert counted(journal.counters) == await recount(journal.rows)


async def test_the_error_is_that_of_a_copy_that_is_still_dead(journal: SqliteJournal) -> None:
    await journal.commit(*split(1, "a", "b"))
    await journal.commit(*settle(1, "a", "dead_lettered"), *settle(1, "b", "dead_lettered"))
    await journal.commit(of_copy(replayed(1), 1, "a"))
    await journal.commit(*settle(1, "a", "delivered"))
    found = await journal.rows.rows("SELECT error ->> 'message' FROM units WHERE root IS NULL")
    assert found == [("copy b failed: it broke",)]


async def test_a_rerun_copy_takes_its_packet_out_of_delivered(journal: SqliteJournal) -> None:
    await journal.commit(*split(1, "a", "b"))
    await journal.commit(*settle(1, "a", "delivered"), *settle(1, "b", "filtered"))
    assert journal.counters["all.delivered"] == 1
    await journal.commit(of_copy(rerun(1, "a"), 1, "a"))
    assert (journal.counters["all.delivered"], journal.counters["now.branched"]) == (0, 1)
    assert [e for e in await told(journal, packet_id(1)) if e[0] == "packet.rerun"] == [
        ("packet.rerun", None, "branched")
    ]
    await journal.commit(*settle(1, "a", "filtered"))
    assert (await states(journal))[""] == "filtered"
    assert counted(journal.counters) == await recount(journal.rows)


async def test_branches_that_cannot_be_are_refused(journal: SqliteJournal) -> None:
    await journal.commit(*split(1, "a", "b"))
    before = await journal.rows.rows("SELECT count(*) FROM units")
    with pytest.raises(Internal, match="no branch of"):
        await journal.commit(accepted(2), fanned_out(2, "a/b"))
    with pytest.raises(Internal, match="splits into nothing"):
        await journal.commit(accepted(2), type(fanned_out(2))(packet_id(2), "n", (), b"1", AT))
    with pytest.raises(IllegalChange, match="a, which is processing"):
        await journal.commit(accepted(2, copies=(Copy("a", "a", 1), Copy("a", "a", 2))))
    assert await journal.rows.rows("SELECT count(*) FROM units") == before


async def test_both_copies_may_end_in_one_transaction(journal: SqliteJournal) -> None:
    await journal.commit(
        *split(1, "a", "b"), *settle(1, "a", "delivered"), *settle(1, "b", "filtered")
    )
    assert (await states(journal))[""] == "delivered"
    assert counted(journal.counters) == await recount(journal.rows)


async def test_a_heavy_payload_is_each_copys_own(journal: SqliteJournal) -> None:
    heavy = b'"' + b"x" * 300_000 + b'"'
    await journal.commit(accepted(1, copies=copies(1, "a", "b"), data=heavy))
    for branch in ("a", "b"):
        assert await reads.data_of(journal.rows, copy_id(1, branch)) == heavy


async def test_a_trace_tells_of_every_copy(journal: SqliteJournal) -> None:
    await journal.commit(accepted(1, copies=copies(1, "a", "output"), data=b'{"n":7}'))
    await journal.commit(*settle(1, "a", "filtered"), *settle(1, "output", "delivered"))
    trace = await reads.trace(journal.rows, packet_id(1))
    assert trace is not None
    assert [(s.step, s.event) for s in trace.steps] == [
        ("input", "packet.accepted"),
        ("input", "packet.fanned_out"),
        (None, "packet.delivered"),
    ]
    assert [(copy.id, copy.branch, copy.state) for copy in trace.copies] == [
        (copy_id(1, "a"), "a", "filtered"),
        (copy_id(1, "output"), "output", "delivered"),
    ]
    assert [(s.step, s.event, s.data) for s in trace.copies[1].steps] == [
        ("input", "packet.branched", b'{"n":7}'),
        ("$output", "output.written", None),
        ("$verify", "packet.delivered", None),
    ]


async def test_listings_and_counts_are_of_packets(journal: SqliteJournal) -> None:
    await journal.commit(*split(1, "a", "b"), accepted(2))
    await journal.commit(*settle(1, "a", "delivered"))
    page = await reads.packets(journal.rows)
    assert [(row.packet_id, row.state) for row in page.packets] == [
        (packet_id(2), "accepted"),
        (packet_id(1), "branched"),
    ]
    assert page.total == 2
    assert await reads.last_delivery_at(journal.rows) is None, "no packet is delivered yet"
    await journal.commit(*settle(1, "b", "delivered"))
    assert await reads.last_delivery_at(journal.rows) == AT + 6
