"""Reruns: the pipeline's parts around a real journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Arrival, WriteFailed, WriteUnit
from pipo.errors import BadRequest, InvalidState, NotFound, PipoError
from pipo.journal import reads, units
from pipo.journal import reruns as looks
from pipo.journal.changes import Started
from pipo.journal.retention import Cleared
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.payload import decode
from pipo_runner.pipeline.definition.versions import added
from pipo_runner.pipeline.orders import reruns
from pipo_runner.pipeline.orders.orders import MovedUnit, SkippedPacket
from pipo_runner.pipeline.orders.rerun_path import RerunStep
from pipo_runner.pipeline.orders.reruns import Answer, Wanted, since_of
from pipo_runner.pipeline.resuming import loader
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import AT
from tests.unit.runner.pipeline.rig import TABLE, Rig, edition_of, pipeline_of, quiet

STEPS = (
    "buffer: { max: 4 }\ninput: { via: push }\nnodes:\n"
    "  first: { from: input, transform: map, with: { data: { n: '${data.n + 1}' } } }\n"
    "  keep: { from: first, filter: 'data.n < 100' }\n"
    "  second: { from: keep, transform: map, with: { data: { n: '${data.n * 10}' } } }\n"
    f"output: {{ from: second, {TABLE} }}\n"
)
FIXED = STEPS.replace("data.n * 10", "data.n * 1000")
SPLIT = (
    "input: { via: push }\nnodes:\n"
    "  head: { from: input, transform: map, with: { data: { n: '${data.n + 1}' } } }\n"
    "  a: { from: head, transform: map, with: { data: { n: '${data.n * 2}' } } }\n"
    "  b: { from: head, transform: map, with: { data: { n: '${data.n * 3}' } } }\n"
    "  c: { from: b, filter: 'true' }\n"
    "  d: { from: b, filter: 'data.n > 50' }\n"
    f"output: {{ from: [a, c, d], {TABLE} }}\n"
)
LOOP = (
    "input: { via: push }\nnodes:\n  again:\n    from: input\n    transform: map\n"
    "    with: { data: { n: '${data.n + 1}' } }\n"
    "    loop: { back_to: again, until: 'data.n >= 3', max: 3 }\n"
    "  then: { from: again, transform: map, with: { data: { n: '${data.n * 10}' } } }\n"
    f"output: {{ from: then, {TABLE} }}\n"
)


class Line:
    """A pipeline whose packets end well, unless their write is in `bad`."""

    def __init__(self, journal: SqliteJournal, body: str) -> None:
        self.journal = journal
        self.rig = Rig(body, journal=journal)
        self.rig.load = loader(journal)
        self.bad: set[str] = set()
        self.rig.output.answer = self._write

    def _write(self, unit: WriteUnit) -> Any:
        return WriteFailed("the table is gone") if unit.id in self.bad else {"rowid": 1}

    async def push(self, *data: object) -> list[str]:
        taken = await self.rig.parts.intake.take(
            [Arrival("input", one, "push", "test") for one in data]
        )
        return [one.packet_id for one in taken if hasattr(one, "packet_id")]

    async def rest(self) -> None:
        async with asyncio.timeout(60):
            while self.rig.parts.pending.moving:
                await self.journal.commit()
                await self.rig.timers.elapse(1.0)
        await self.journal.commit()

    async def settled(self, *data: object) -> list[str]:
        ids = await self.push(*data)
        await self.rest()
        return ids

    async def rerun(self, from_: str, *ids: str, dry: bool = False, **words: Any) -> Answer:
        done = await self.rig.operations.reruns.rerun(Wanted(from_, ids, **words), dry=dry)
        await self.rest()
        return done

    async def refused(self, from_: str, *ids: str, **words: Any) -> PipoError:
        with pytest.raises(PipoError) as caught:
            await self.rerun(from_, *ids, **words)
        return caught.value

    async def apply(self, body: str, version: int) -> None:
        """Another version is in force."""
        edition = edition_of(pipeline_of(body), version, source=f"pipo: 1\nname: people\n{body}")
        await self.journal.commit(added(edition, "human", "human", "applied", AT))
        self.rig.plans.put_in_force(edition)

    async def state(self, id: str) -> str:
        found = await reads.standing_of(self.journal.rows, id)
        return found[0] if found else "gone"

    async def types(self, id: str) -> list[str]:
        trace = await reads.trace(self.journal.rows, id)
        assert trace is not None
        copies = (event for copy in trace.copies if copy.id == id for event in copy.events)
        return [event.type for event in (*trace.events, *copies)]

    async def told(self, id: str) -> list[Any]:
        """The details of the unit's `packet.rerun` events."""
        page = await reads.events(self.journal.rows, limit=1000)
        return [
            decode(event.detail)
            for event in page.events
            if event.packet_id == id and event.type == "packet.rerun" and event.detail
        ]

    @property
    def written(self) -> list[tuple[str, Any]]:
        return [(unit.id, unit.data) for group in self.rig.output.writes for unit in group]


Make = Callable[[str], Awaitable[Line]]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Make]:
    opened: list[Line] = []
    journal = open_quick(tmp_path / "people")

    async def make(body: str) -> Line:
        edition = edition_of(pipeline_of(body), 1)
        await journal.commit(added(edition, "human", "human", "first start", AT))
        await journal.commit(Started(1, 0, AT))
        opened.append(Line(journal, body))
        return opened[-1]

    yield make
    for one in opened:
        await one.rig.timers.close(0.0)
        assert one.rig.timers.crashes == []
    await journal.close(clean=True)


async def test_it_goes_back_with_what_it_had_and_runs_down_to_the_output(made: Make) -> None:
    line = await made(STEPS)
    (id,) = await line.settled({"n": 1})
    line.rig.ran.clear()
    done = await line.rerun("second", id, by="ada")
    assert done.packets == [reruns.RerunPacket(id, 1, [MovedUnit(id, "second")])]
    assert (done.rerun, done.dry, done.skipped, done.current) == (1, False, [], None)
    assert line.rig.ran == [(id, "second")]
    assert line.written == [(id, {"n": 20})] * 2
    again = line.rig.output.writes[-1][0]
    assert (again.key, again.repeat) == (id, "repeated")
    assert await line.state(id) == "delivered"
    assert await line.told(id) == [
        {"by": "ada", "from": "second", "version": 1, "was": "delivered"}
    ]
    assert line.journal.counters["all.delivered"] == 1
    # And once more, with the same data: that of the first time.
    await line.rerun("second", id)
    await line.rerun("first", id)
    assert line.written[2:] == [(id, {"n": 20})] * 2


async def test_a_dry_call_changes_nothing(made: Make) -> None:
    line = await made(STEPS)
    ids = await line.settled({"n": 1}, {"n": 200})
    seq, before = line.journal.last_seq, line.written
    done = await line.rerun("keep", last=2, dry=True)
    assert (done.dry, done.rerun) == (True, 2)
    assert [one.packet_id for one in done.packets] == ids[::-1]
    assert done.path == [
        RerunStep("keep", "filter", None),
        RerunStep("second", "transform: map", None),
        RerunStep("output", "output: sqlite", "write"),
    ]
    assert (line.journal.last_seq, line.written) == (seq, before)


async def test_a_filtered_packet_may_be_filtered_again(made: Make) -> None:
    line = await made(STEPS)
    (id,) = await line.settled({"n": 200})
    assert await line.state(id) == "filtered"
    await line.rerun("keep", id)
    assert await line.state(id) == "filtered"
    assert (await line.types(id)).count("packet.filtered") == 2
    assert (await line.told(id))[0]["was"] == "filtered"


async def test_from_the_output_only_the_write_runs(made: Make) -> None:
    line = await made(STEPS)
    (id,) = await line.settled({"n": 1})
    line.rig.ran.clear()
    done = await line.rerun("output", id)
    assert done.packets[0].units == [MovedUnit(id, "$output")]
    assert done.path == [RerunStep("output", "output: sqlite", "write")]
    assert (line.rig.ran, line.written) == ([], [(id, {"n": 20})] * 2)


async def test_a_selection_skips_what_cannot_run_and_says_why(made: Make) -> None:
    line = await made(STEPS)
    one, filtered = await line.settled({"n": 1}, {"n": 200})
    cleared, dead = await line.push({"n": 2}, {"n": 3})
    line.bad = {dead}
    await line.rest()
    assert await line.state(dead) == "dead_lettered"
    (two,) = await line.settled({"n": 4})
    await line.journal.commit(Cleared(cleared, AT * 2))
    gone = SkippedPacket(cleared, "its payload was already cleared by retention")
    never = SkippedPacket(filtered, "it never reached 'second'")
    done = await line.rerun("second", dry=True)
    assert [packet.packet_id for packet in done.packets] == [two, one]
    assert done.skipped == [gone, never]
    # The newest n that can run, and what was passed over on the way to them.
    for last, ready, skipped in (
        (1, [two], []),
        (2, [two, one], [gone, never]),
        (3, [two, one], [gone, never]),
    ):
        done = await line.rerun("second", last=last, dry=True)
        assert [packet.packet_id for packet in done.packets] == ready
        assert (done.skipped, done.skipped_count) == (skipped, len(skipped))
    ran = await line.rerun("second")
    assert [packet.packet_id for packet in ran.packets] == [two, one]
    assert ran.skipped == [gone, never]
    # Those that came first went first.
    assert [id for id, _ in line.written[-2:]] == [one, two]


async def test_since_counts_from_what_was_received(made: Make) -> None:
    line = await made(STEPS)
    (old,) = await line.settled({"n": 1})
    line.rig.clock.passed_s += 3600
    (new,) = await line.settled({"n": 2})
    for since, ids in ("10m", [new]), ("2h", [new, old]):
        done = await line.rerun("first", since_ms=since_of(since), dry=True)
        assert [packet.packet_id for packet in done.packets] == ids
    done = await line.rerun("first", since_ms=since_of("2h"), last=1, dry=True)
    assert [packet.packet_id for packet in done.packets] == [new]
    with pytest.raises(BadRequest) as caught:
        since_of("yesterday")
    assert "24h" in caught.value.hint


async def test_named_packets_are_all_rerun_or_none(made: Make) -> None:
    line = await made(STEPS)
    one, filtered = await line.settled({"n": 1}, {"n": 200})
    (dead,) = await line.push({"n": 3})
    line.bad = {dead}
    await line.rest()
    seq = line.journal.last_seq
    for ids, kind, message in (
        ((one, "01NOBODY"), NotFound, "pipeline 'people' has no packet '01NOBODY'"),
        ((one, filtered), InvalidState, f"{filtered} cannot be rerun: it never reached 'second'"),
        (
            (one, dead),
            InvalidState,
            f"{dead} cannot be rerun: it is dead_lettered, not delivered or filtered",
        ),
    ):
        for dry in (True, False):
            error = await line.refused("second", *ids, dry=dry)
            assert isinstance(error, kind)
            assert error.message == message
    assert f"pipo dlq replay people {dead}" in error.hint
    assert line.journal.last_seq == seq
    error = await line.refused("nowhere", one)
    missing = "its version v1 has no node 'nowhere' (it has first, keep, second, output)"
    assert error.message == f"{one} cannot be rerun: {missing}"
    done = await line.rerun("second", one, one)
    assert done.rerun == 1
    assert (await line.types(one)).count("packet.rerun") == 1


async def test_what_still_moves_is_no_candidate(made: Make) -> None:
    line = await made(STEPS)
    line.rig.output.hold()
    (id,) = await line.push({"n": 1})
    await quiet()
    await line.journal.commit()
    assert (await line.rig.operations.reruns.rerun(Wanted("second"), dry=False)).rerun == 0
    with pytest.raises(InvalidState, match="not delivered or filtered"):
        await line.rig.operations.reruns.rerun(Wanted("second", [id]), dry=False)
    line.rig.output.let_go()
    await line.rest()
    assert len(line.written) == 1


async def test_the_version_is_its_own_or_for_good_the_one_in_force(made: Make) -> None:
    line = await made(STEPS)
    (id,) = await line.settled({"n": 1})
    await line.apply(FIXED, 2)
    assert (await line.rerun("second", id)).packets[0].version == 1
    done = await line.rerun("second", id, current=True)
    assert (done.packets[0].version, done.current) == (2, 2)
    assert (await line.rerun("second", id)).packets[0].version == 2
    assert [data["n"] for _, data in line.written] == [20, 20, 2000, 2000]
    versions = [(one["version"], one.get("from_version")) for one in await line.told(id)]
    assert versions == [(1, None), (2, 1), (2, None)]


async def test_the_version_in_force_must_have_the_node(made: Make) -> None:
    line = await made(STEPS)
    (id,) = await line.settled({"n": 1})
    await line.apply(STEPS.replace("second", "other"), 2)
    error = await line.refused("second", id, current=True)
    assert isinstance(error, BadRequest)
    assert error.message == "v2 has no node 'second'"
    assert error.hint == "one of first, keep, other, output"
    (newer,) = await line.settled({"n": 2})
    done = await line.rerun("second", dry=True)
    assert [packet.packet_id for packet in done.packets] == [id]
    missing = "its version v2 has no node 'second' (it has first, keep, other, output)"
    assert done.skipped == [SkippedPacket(newer, missing)]
    # The packet went by a node of another name, which the new version has, too.
    done = await line.rerun("other", current=True, dry=True)
    assert done.skipped == [SkippedPacket(id, "it never reached 'other'")]


async def test_steps_of_several_versions_are_told_once_for_each_kind(made: Make) -> None:
    line = await made(STEPS)
    await line.settled({"n": 1})
    await line.apply(STEPS.replace("filter: 'data.n < 100'", "tap: log"), 2)
    await line.settled({"n": 2})
    done = await line.rerun("keep", dry=True)
    assert [(one.step, one.kind) for one in done.path] == [
        ("keep", "tap: log"),
        ("second", "transform: map"),
        ("keep", "filter"),
        ("output", "output: sqlite"),
    ]


async def test_a_version_that_does_not_run_any_more_is_skipped(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await made(STEPS)
    (old,) = await line.settled({"n": 1})
    await line.apply(FIXED, 2)
    (new,) = await line.settled({"n": 2})

    async def prepare(versions: set[int]) -> None:
        if 1 in versions:
            raise InvalidState("its secret is gone")

    monkeypatch.setattr(line.rig.operations.reruns, "_prepare", prepare)
    reason = "its version v1 does not run any more: its secret is gone"
    done = await line.rerun("second", last=5)
    assert ([p.packet_id for p in done.packets], done.skipped) == (
        [new],
        [SkippedPacket(old, reason)],
    )
    assert (await line.refused("second", old)).message == f"{old} cannot be rerun: {reason}"


async def test_a_split_packet_runs_again_inside_its_branches(made: Make) -> None:
    line = await made(SPLIT)
    (id,) = await line.settled({"n": 1})
    assert sorted(one for one, _ in line.written) == [f"{id}:a", f"{id}:b/c"]
    for node in ("head", "b"):
        error = await line.refused(node, id)
        assert "fanned out at or after" in error.message
        assert "inside the branch" in error.message
        assert (await line.rerun(node, dry=True)).skipped_count == 1
    error = await line.refused("a", f"{id}:a")
    assert isinstance(error, InvalidState)
    assert f"name the packet {id}" in error.hint
    done = await line.rerun("a", id)
    assert done.packets[0].units == [MovedUnit(f"{id}:a", "a")]
    assert await line.state(id) == "delivered"
    assert line.written[-1] == (f"{id}:a", {"n": 4})
    assert (await line.types(id)).count("packet.rerun") == 1
    assert (await line.types(id)).count("packet.delivered") == 2
    # Those that passed the node, and no other.
    done = await line.rerun("output", id)
    assert [unit.id for unit in done.packets[0].units] == [f"{id}:a", f"{id}:b/c"]
    done = await line.rerun("d", id)
    assert [unit.id for unit in done.packets[0].units] == [f"{id}:b/d"]
    assert [await line.state(one) for one in (id, f"{id}:b")] == ["delivered", "delivered"]
    assert line.journal.counters["all.delivered"] == 1
    assert len(line.rig.parts.pending) == 0


async def test_a_copy_that_dies_takes_its_packet_along(made: Make) -> None:
    line = await made(SPLIT)
    (id,) = await line.settled({"n": 1})
    line.bad = {f"{id}:a"}
    waiting: list[Any] = []
    line.rig.output.hold()
    asked = asyncio.create_task(line.rig.operations.reruns.rerun(Wanted("a", [id]), dry=False))
    await asked
    waiting.append(asyncio.create_task(line.rig.parts.pending.wait(id, 60.0)))
    await quiet()
    line.rig.output.let_go()
    await line.rest()
    assert (await waiting[0]).state == "dead_lettered"
    assert list(await units.dead_letters(line.journal.rows)) == [id]


async def test_a_loop_goes_on_from_where_it_stood(made: Make) -> None:
    line = await made(LOOP)
    (id,) = await line.settled({"n": 0})
    start = (await looks.starts(line.journal.rows, "then", [id]))[id]
    assert (decode(start.data), start.iteration) == ({"n": 3}, 2)
    start = (await looks.starts(line.journal.rows, "again", [id]))[id]
    assert (decode(start.data), start.iteration) == ({"n": 0}, 0)
    await line.rerun("again", id)
    assert line.written[-1] == (id, {"n": 30})
    # After the rerun it is the first time that counts, still.
    start = (await looks.starts(line.journal.rows, "then", [id]))[id]
    assert (decode(start.data), start.iteration) == ({"n": 3}, 2)


async def test_the_buffer_refuses_none_and_a_pause_holds_them(made: Make) -> None:
    line = await made(STEPS)
    ids = await line.settled(*({"n": n} for n in range(4)))
    await line.rig.parts.pausing.pause("manual")
    assert len(await line.push(*({"n": n} for n in range(5)))) == 4
    before = len(line.written)
    done = await line.rig.operations.reruns.rerun(Wanted("second"), dry=False)
    assert done.rerun == 4
    assert [await line.state(id) for id in ids] == ["processing"] * 4
    assert (len(line.rig.parts.pending), line.journal.counters["now.processing"]) == (8, 4)
    await quiet()
    assert len(line.written) == before
    await line.rig.parts.pausing.resume()
    await line.rest()
    # Behind whoever came before, and every place was given back.
    assert [id for id, _ in line.written[-4:]] == ids
    assert len(await line.push(*({"n": n} for n in range(5)))) == 4


async def test_two_reruns_at_once_are_two_and_each_runs_once(made: Make) -> None:
    line = await made(STEPS)
    (id,) = await line.settled({"n": 1})
    line.rig.output.hold()
    answers = await asyncio.gather(
        *(line.rig.operations.reruns.rerun(Wanted("second", [id]), dry=False) for _ in range(2)),
        return_exceptions=True,
    )
    line.rig.output.let_go()
    await line.rest()
    # While it moves it is no candidate.
    assert isinstance(answers[0], Answer)
    assert isinstance(answers[1], InvalidState)
    assert (await line.types(id)).count("packet.rerun") == 1


async def test_what_retention_takes_meanwhile_is_left(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await made(STEPS)
    one, two = await line.settled({"n": 1}, {"n": 2})
    named = looks.named

    async def cleared_first(*words: Any, **more: Any) -> Any:
        await line.journal.commit(Cleared(one, AT * 2))
        return await named(*words, **more)

    monkeypatch.setattr(looks, "named", cleared_first)
    done = await line.rerun("second")
    assert [packet.packet_id for packet in done.packets] == [two]
    assert done.skipped == [SkippedPacket(one, "its payload was already cleared by retention")]


async def test_what_retention_takes_in_the_last_moment_runs_all_the_same(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rerun keeps the data whole: nothing that was accepted for it is lost."""
    line = await made(STEPS)
    (id,) = await line.settled({"n": 1})
    starts = looks.starts

    async def cleared_behind(*words: Any) -> Any:
        found = await starts(*words)
        await line.journal.commit(Cleared(id, AT * 2))
        return found

    monkeypatch.setattr(looks, "starts", cleared_behind)
    await line.rerun("second", id)
    assert await line.state(id) == "delivered"
    assert line.written == [(id, {"n": 20})] * 2


async def test_many_go_in_groups_and_an_end_leaves_the_rest(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reruns, "GROUP_PACKETS_LIMIT", 1)
    line = await made(STEPS)
    one, two = await line.settled({"n": 1}, {"n": 2})
    take_places = line.rig.parts.admission.take_again

    def end(count: int) -> None:
        take_places(count)
        line.rig.refuses = InvalidState("people is draining", hint="start it")

    operation = line.rig.operations.reruns
    monkeypatch.setattr(operation, "_way_back", replace(operation._way_back, take_places=end))
    done = await line.rerun("second")
    assert [packet.packet_id for packet in done.packets] == [one]
    assert done.skipped == [SkippedPacket(two, "people is draining")]
    assert (await line.refused("second", two)).message == "people is draining"


async def test_a_list_too_large_for_one_commit_is_refused(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await made(STEPS)
    ids = await line.settled({"n": 1}, {"n": 2})
    monkeypatch.setattr(reruns, "NAMED_BYTES_LIMIT", 10)
    error = await line.refused("second", *ids)
    assert "hold 14 bytes, and 10 is the most for one list" in error.message
    monkeypatch.setattr(reruns, "GROUP_BYTES_LIMIT", 10)
    assert (await line.rerun("second")).rerun == 2


async def test_answers_list_at_most_a_hundred_and_count_all(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reruns, "LISTED_LIMIT", 2)
    line = await made(STEPS)
    await line.settled(*({"n": n} for n in range(4)))
    await line.settled(*({"n": n} for n in (200, 201, 202)))
    done = await line.rerun("second")
    assert (done.rerun, len(done.packets)) == (4, 2)
    assert (done.skipped_count, len(done.skipped)) == (3, 2)


async def test_a_packet_becomes_what_its_copies_become_now(made: Make) -> None:
    """What the copy had been before counts no more."""
    ways = (
        "input: { via: push }\nnodes:\n"
        "  a: { from: input, filter: 'KEPT' }\n"
        "  b: { from: input, filter: 'false' }\n"
        f"output: {{ from: [a, b], {TABLE} }}\n"
    )
    line = await made(ways.replace("KEPT", "true"))
    (id,) = await line.settled({"n": 1})
    assert await line.state(id) == "delivered"
    await line.apply(ways.replace("KEPT", "false"), 2)
    await line.rig.parts.pausing.pause("manual")
    await line.rig.operations.reruns.rerun(Wanted("a", [id], current=True), dry=False)
    waiting = asyncio.create_task(line.rig.parts.pending.wait(id, 60.0))
    await quiet()
    await line.rig.parts.pausing.resume()
    await line.rest()
    assert ((await waiting).state, await line.state(id)) == ("filtered", "filtered")
    assert line.journal.counters["all.delivered"] == 0
