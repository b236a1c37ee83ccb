"""Replays and purges: the pipeline's parts around a real journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipo.connectors.contract import Arrival, WriteFailed, WriteUnit
from pipo.errors import InvalidState, NotFound, PipoError
from pipo.journal import reads, units
from pipo.journal.changes import Change, DeadLettered, PacketError, Started
from pipo.journal.interventions import Purged
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.payload import decode
from pipo_runner.pipeline.flow.units import Unit
from pipo_runner.pipeline.orders import dead_letters
from pipo_runner.pipeline.orders.dead_letters import Replays
from pipo_runner.pipeline.orders.orders import SkippedPacket
from pipo_runner.pipeline.resuming import loader
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import AT, accepted, looped, packet_id, version
from tests.unit.runner.pipeline.rig import TABLE, Rig, edition_of, quiet

PLAIN = (
    f"buffer: {{ max: 4 }}\ninput: {{ via: push }}\n"
    f"output: {{ from: input, {TABLE}, on_error: {{ retry: 1, delay: 1s }} }}\n"
)
STEPS = (
    "input: { via: push }\nnodes:\n"
    "  first: { from: input, transform: map, with: { data: { n: '${data.n + 1}' } } }\n"
    "  second: { from: first, transform: map, with: { data: { n: '${data.n * 10}' } } }\n"
    f"output: {{ from: second, {TABLE} }}\n"
)
SPLIT = (
    "input: { via: push }\nnodes:\n"
    "  a: { from: input, transform: map, with: { data: { n: 1 } } }\n"
    "  b: { from: input, transform: map, with: { data: { n: 2 } } }\n"
    "  c: { from: b, transform: map, with: { data: { n: 3 } } }\n"
    "  d: { from: b, transform: map, with: { data: { n: 4 } } }\n"
    f"output: {{ from: [a, c, d], {TABLE} }}\n"
)
HEAD = "pipo: 1\nname: people\n"


class Queue:
    """A pipeline whose output fails for the units in `bad`, or for all while it is None."""

    def __init__(self, journal: SqliteJournal, body: str = PLAIN) -> None:
        self.journal = journal
        self.rig = Rig(body, journal=journal)
        self.rig.load = loader(journal)
        self.bad: set[str] | None = None
        self.rig.output.answer = self._answer

    def _answer(self, unit: WriteUnit) -> dict[str, int] | WriteFailed:
        if self.bad is None or unit.id in self.bad:
            return WriteFailed("the table is gone")
        return {"rowid": 1}

    async def push(self, *data: object) -> list[str]:
        taken = await self.rig.parts.intake.take(
            [Arrival("input", one, "push", "test") for one in data]
        )
        return [one.packet_id for one in taken if hasattr(one, "packet_id")]

    async def rest(self) -> None:
        """Until nothing is on its way, with the waits that are due."""
        async with asyncio.timeout(60):
            while self.rig.parts.pending.moving:
                await self.journal.commit()
                await self.rig.timers.elapse(1.0)

    async def dead(self, *data: object) -> list[str]:
        ids = await self.push(*data)
        await self.rest()
        assert list(await units.dead_letters(self.journal.rows)) == sorted(ids, reverse=True)
        return ids

    async def replay(self, *ids: str, every: bool = False, by: str = "ada") -> Replays:
        return await self.rig.operations.dead_letters.replay(ids, every=every, by=by)

    async def state(self, id: str) -> str:
        found = await reads.standing_of(self.journal.rows, id)
        return found[0] if found else "gone"

    async def types(self, id: str) -> list[str]:
        trace = await reads.trace(self.journal.rows, id)
        return [event.type for event in trace.events] if trace else []

    def stats(self, name: str) -> int:
        return self.journal.counters.get(f"now.{name}", 0)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    made = open_quick(tmp_path / "people")
    await made.commit(version(), Started(1, 0, AT))
    yield made
    await made.close(clean=True)


@pytest.fixture
async def queue(journal: SqliteJournal) -> AsyncIterator[Queue]:
    made = Queue(journal)
    yield made
    await made.rig.timers.close(0.0)
    assert made.rig.timers.crashes == []


def died(n: int, error: PacketError) -> DeadLettered:
    return DeadLettered(unit=packet_id(n), error=error, node=error.node, at=AT + n, ms=1.0)


async def refused(queue: Queue, *ids: str) -> PipoError:
    with pytest.raises(PipoError) as caught:
        await queue.replay(*ids)
    return caught.value


async def test_it_is_written_again_with_all_attempts_and_the_same_key(queue: Queue) -> None:
    (id,) = await queue.dead({"n": 1})
    assert len(queue.rig.output.writes) == 2
    done = await queue.replay(id)
    assert (done.replayed, done.skipped) == (1, [])
    assert [(p.packet_id, [(u.id, u.node) for u in p.units]) for p in done.packets] == [
        (id, [(id, "$output")])
    ]
    await queue.rest()
    again = queue.rig.output.writes[2:]
    assert [(unit.key, unit.repeat, unit.data) for (unit,) in again] == [
        (id, "repeated", {"n": 1})
    ] * 2
    (row,) = (await reads.packets(queue.journal.rows)).packets
    assert (row.state, row.error and row.error.attempts) == ("dead_lettered", 2)


async def test_it_goes_on_at_its_step_with_the_data_it_had_there(journal: SqliteJournal) -> None:
    queue = Queue(journal, STEPS)
    queue.bad = set()
    queue.rig.step = lambda call: fail() if call.node == "second" else None

    def fail() -> None:
        raise WriteFailed("broken")

    (id,) = await queue.dead({"n": 1})
    queue.rig.step = None
    assert (await queue.replay(id)).packets[0].units[0].node == "second"
    await queue.rest()
    assert await queue.state(id) == "delivered"
    assert [node for _, node in queue.rig.ran] == ["first", "second", "second"]
    assert queue.rig.output.writes[-1][0].data == {"n": 20}
    await queue.rig.timers.close(0.0)


async def test_a_list_with_a_bad_id_changes_nothing(queue: Queue) -> None:
    one, two = await queue.dead({"n": 1}, {"n": 2})
    queue.bad = set()
    unknown = await refused(queue, one, "01NOBODY")
    assert isinstance(unknown, NotFound)
    assert unknown.message == "pipeline 'people' has no packet '01NOBODY'"
    copy = await refused(queue, one, f"{two}:a")
    assert isinstance(copy, NotFound)
    assert copy.hint == f"nothing was changed; name the packet {two}, not a copy of it"
    (alive,) = await queue.push({"n": 3})
    await queue.rest()
    delivered = await refused(queue, one, alive)
    assert isinstance(delivered, InvalidState)
    assert delivered.message == f"{alive} is delivered, not dead_lettered"
    assert list(await units.dead_letters(queue.journal.rows)) == [two, one]
    assert (await queue.replay(one, one)).replayed == 1
    await queue.rest()
    assert isinstance(await refused(queue, one), InvalidState)
    assert await queue.types(one) == [
        "packet.accepted",
        "step.retry",
        "packet.dead_lettered",
        "dlq.replayed",
        "output.written",
        "packet.delivered",
    ]


async def test_what_died_again_is_not_taken_twice_by_one_call(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "GROUP_PACKETS_LIMIT", 1)
    ids = await queue.dead(1, 2, 3)
    before = len(queue.rig.output.written)
    done = await queue.replay(every=True)
    # Those that came first go first.
    assert [one.packet_id for one in done.packets] == ids
    await queue.rest()
    assert len(queue.rig.output.written) == before + 6
    assert list(await units.dead_letters(queue.journal.rows)) == ids[::-1]
    assert [(await queue.types(id)).count("dlq.replayed") for id in ids] == [1, 1, 1]


async def test_one_that_died_anew_after_the_call_began_is_left(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await queue.dead(1, 2)
    before = await units.dead_letters(queue.journal.rows)
    await queue.replay(two)
    await queue.rest()

    async def as_it_was(rows: object) -> dict[str, int]:
        return before

    monkeypatch.setattr(units, "dead_letters", as_it_was)
    done = await queue.replay(every=True)
    assert [packet.packet_id for packet in done.packets] == [one]
    assert done.skipped == [SkippedPacket(two, f"{two} died again meanwhile")]


async def test_all_of_nothing(queue: Queue) -> None:
    assert await queue.replay(every=True) == Replays(0, [], [])


async def test_the_buffer_refuses_no_replay_and_counts_it(queue: Queue) -> None:
    dead = await queue.dead(1, 2)
    await queue.rig.parts.pausing.pause("manual")
    assert len(await queue.push(3, 4, 5, 6)) == 4
    assert (await queue.replay(every=True)).replayed == 2
    assert (queue.stats("dead_lettered"), queue.stats("writing")) == (0, 2)
    assert len(queue.rig.parts.pending) == 6
    assert await queue.push(7) == []
    # Held like all others.
    await quiet()
    assert queue.rig.output.written.count(dead[0]) == 2
    queue.bad = set()
    await queue.rig.parts.pausing.resume()
    await queue.rest()
    # New places in the queue: behind whoever came before.
    assert queue.rig.output.written[-2:] == dead
    # Every place was given back, and no more than there are.
    assert len(await queue.push(*range(7, 13))) == 4


async def test_only_dead_copies_move_and_the_packet_settles_again(journal: SqliteJournal) -> None:
    queue = Queue(journal, SPLIT)
    (id,) = await queue.push({"n": 0})
    queue.bad = {f"{id}:a", f"{id}:b/c"}
    await queue.rest()
    assert await queue.state(id) == "dead_lettered"
    queue.bad = set()
    before = len(queue.rig.output.written)
    queue.rig.output.hold()
    done = await queue.replay(id)
    assert [(unit.id, unit.node) for unit in done.packets[0].units] == [
        (f"{id}:a", "$output"),
        (f"{id}:b/c", "$output"),
    ]
    assert [await queue.state(one) for one in (id, f"{id}:b")] == ["branched", "branched"]
    waiting = asyncio.create_task(queue.rig.parts.pending.wait(id, 60.0))
    await quiet()
    queue.rig.output.let_go()
    await queue.rest()
    assert (await waiting).state == "delivered"
    assert [await queue.state(one) for one in (id, f"{id}:b")] == ["delivered", "delivered"]
    assert sorted(queue.rig.output.written[before:]) == [f"{id}:a", f"{id}:b/c"]
    assert (await queue.types(id))[-3:] == [
        "packet.dead_lettered",
        "dlq.replayed",
        "packet.delivered",
    ]
    assert len(queue.rig.parts.pending) == 0
    assert journal.counters["all.delivered"] == 1
    await queue.rig.timers.close(0.0)
    assert queue.rig.timers.crashes == []


async def test_a_copy_that_dies_again_takes_its_packet_along(journal: SqliteJournal) -> None:
    queue = Queue(journal, SPLIT)
    (id,) = await queue.push({"n": 0})
    queue.bad = {f"{id}:b/c"}
    await queue.rest()
    await queue.replay(id)
    waiting = asyncio.create_task(queue.rig.parts.pending.wait(id, 60.0))
    await queue.rest()
    settled = await waiting
    assert (settled.state, settled.error) == (
        "dead_lettered",
        "copy b/c failed: the table is gone",
    )
    assert list(await units.dead_letters(journal.rows)) == [id]
    assert (await queue.types(id)).count("dlq.replayed") == 1
    await queue.rig.timers.close(0.0)


@pytest.mark.parametrize("every", [False, True])
async def test_a_step_that_its_version_does_not_have(queue: Queue, every: bool) -> None:
    gone, fine = packet_id(1), packet_id(2)
    lost = PacketError("node.failed", "it broke", None, "vanished", 1)
    late = PacketError("output.failed", "it broke", None, "output", 1)
    await queue.journal.commit(accepted(1), died(1, lost), accepted(2), died(2, late))
    if every:
        done = await queue.replay(every=True)
        assert [one.packet_id for one in done.packets] == [fine]
        assert done.skipped == [SkippedPacket(gone, "its version v1 has no step 'vanished'")]
        return
    error = await refused(queue, fine, gone)
    assert isinstance(error, InvalidState)
    assert error.message == f"{gone} cannot be replayed: its version v1 has no step 'vanished'"
    assert f"pipo dlq purge people {gone}" in error.hint
    assert "push its data again" in error.hint
    assert await queue.state(fine) == "dead_lettered"


async def test_the_plan_of_an_older_version_is_made_when_it_is_needed(queue: Queue) -> None:
    queue.rig.plans.put_in_force(edition_of(queue.rig.pipeline, 2))
    queue.rig.plans._plans.pop(1)
    late = PacketError("node.failed", "it broke", None, "second", 1)
    await queue.journal.commit(accepted(1, data=b'{"n":3}'), died(1, late))
    error = await refused(queue, packet_id(1))
    assert "its version v1 does not run any more: the journal has packets of v1" in error.message
    queue.rig.sources[1] = HEAD + STEPS
    queue.bad = set()
    await queue.replay(packet_id(1))
    await queue.rest()
    assert queue.rig.output.writes[-1][0].data == {"n": 30}


async def test_a_loops_passes_count_anew(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(journal, STEPS)
    queue.bad = set()
    await queue.journal.commit(
        accepted(1),
        looped(1),
        died(1, PacketError("loop.max", "3 times", None, "second", 3)),
    )
    seen: list[int] = []
    enqueue = queue.rig.parts.executor.enqueue

    def look(unit: Unit) -> None:
        seen.append(unit.iteration)
        enqueue(unit)

    operation = queue.rig.operations.dead_letters
    monkeypatch.setattr(operation, "_way_back", replace(operation._way_back, enqueue=look))
    await queue.replay(packet_id(1))
    assert seen == [0]
    await queue.rest()
    assert await queue.state(packet_id(1)) == "delivered"
    await queue.rig.timers.close(0.0)


async def test_a_pipeline_that_ends_takes_nothing_up(queue: Queue) -> None:
    (id,) = await queue.dead(1)
    queue.rig.refuses = InvalidState("people is draining", hint="start it")
    for every in (False, True):
        with pytest.raises(InvalidState, match="people is draining"):
            await queue.replay(*(() if every else (id,)), every=every)
        with pytest.raises(InvalidState, match="people is draining"):
            await queue.rig.operations.dead_letters.purge([id], every=False, by="")
    assert await queue.state(id) == "dead_lettered"


async def test_an_end_amid_all_leaves_the_rest_and_says_so(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "GROUP_PACKETS_LIMIT", 1)
    first, second = await queue.dead(1, 2)
    take_places = queue.rig.parts.admission.take_again

    def end(count: int) -> None:
        take_places(count)
        queue.rig.refuses = InvalidState("people is draining", hint="start it")

    operation = queue.rig.operations.dead_letters
    monkeypatch.setattr(operation, "_way_back", replace(operation._way_back, take_places=end))
    done = await queue.replay(every=True)
    assert [one.packet_id for one in done.packets] == [first]
    assert done.skipped == [SkippedPacket(second, "people is draining")]


async def test_answers_list_at_most_a_hundred_and_count_all(queue: Queue) -> None:
    late = PacketError("output.failed", "it broke", None, "output", 1)
    changes: list[Change] = []
    for n in range(1, 301):
        changes += [accepted(n), died(n, late)]
    await queue.journal.commit(*changes)
    queue.bad = set()
    done = await queue.replay(*(packet_id(n) for n in range(1, 151)))
    assert (done.replayed, len(done.packets)) == (150, 100)
    purged = await queue.rig.operations.dead_letters.purge([], every=True, by="ada")
    assert (purged.purged, len(purged.packet_ids)) == (150, 100)
    assert purged.packet_ids[0] == packet_id(151)
    await queue.rest()


async def test_a_group_is_looked_up_anew_when_something_came_between(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean-up of old packets waits for nobody."""
    one, two = await queue.dead(1, 2)
    families = units.families
    between: list[Change] = [Purged(one, "clean-up", AT)]

    async def found(*words: object) -> object:
        made = await families(*words)  # type: ignore[arg-type]
        while between:
            await queue.journal.commit(between.pop())
        return made

    monkeypatch.setattr(units, "families", found)
    done = await queue.replay(every=True)
    assert [packet.packet_id for packet in done.packets] == [two]
    assert [skipped.packet_id for skipped in done.skipped] == [one]


async def test_two_replays_at_once_run_a_packet_once(queue: Queue) -> None:
    (id,) = await queue.dead(1)
    queue.bad = set()
    answers = await asyncio.gather(
        queue.replay(id), queue.replay(id), queue.replay(every=True), return_exceptions=True
    )
    await queue.rest()
    assert isinstance(answers[0], Replays)
    assert answers[0].replayed == 1
    assert isinstance(answers[1], InvalidState)
    assert isinstance(answers[2], Replays)
    assert answers[2].replayed == 0
    assert (await queue.types(id)).count("dlq.replayed") == 1


async def test_a_version_is_made_ready_by_one_call_at_a_time(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that two calls open at once would be opened twice."""
    ids = await queue.dead(1, 2)
    inside = most = 0

    async def prepare(versions: set[int]) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await quiet()
        inside -= 1

    monkeypatch.setattr(queue.rig.operations.dead_letters, "_prepare", prepare)
    await asyncio.gather(*(queue.replay(id) for id in ids))
    assert most == 1
    await queue.rest()


async def test_a_caller_that_goes_away_leaves_it_done(queue: Queue) -> None:
    (id,) = await queue.dead(1)
    queue.bad = set()
    asked = asyncio.create_task(queue.replay(id))
    await asyncio.sleep(0)
    asked.cancel()
    async with asyncio.timeout(60):
        while await queue.state(id) != "delivered":
            await queue.journal.commit()
            await quiet()


async def test_who_did_it_is_kept_with_the_old_error(queue: Queue) -> None:
    one, two = await queue.dead(1, 2)
    await queue.replay(one, by="a" * 300)
    await queue.rig.operations.dead_letters.purge([two], every=False, by="")
    page = await reads.events(queue.journal.rows, limit=1000)
    (replayed,) = (event for event in page.events if event.type == "dlq.replayed")
    (purged,) = (event for event in page.events if event.packet_id == two)
    assert replayed.detail is not None
    assert purged.detail is not None
    told = decode(replayed.detail)
    assert (told["by"], told["error"]["code"]) == ("a" * 200, "output.failed")
    assert decode(purged.detail)["by"] == "api"
    with pytest.raises(NotFound):
        await queue.rig.operations.dead_letters.purge([two], every=False, by="")
    await queue.rest()
