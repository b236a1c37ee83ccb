"""Resolutions: the pipeline's parts around a real journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Arrival, WriteFailed, WriteUnit
from pipo.errors import InvalidState, NotFound, PipoError
from pipo.journal import reads
from pipo.journal.changes import Started
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.payload import decode
from pipo_runner.pipeline.orders.resolving import Resolution, ResolvedUnit
from pipo_runner.pipeline.resuming import loader
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import AT, version
from tests.unit.runner.pipeline.rig import PLAIN, TABLE, Rig, edition_of, pipeline_of, quiet

# A policy may hand over where agents have control.
CONTROLLED = "agent: { control: true }\n"
AT_NODE = (
    "buffer: { max: 3 }\ninput: { via: push }\nnodes:\n"
    "  first: { from: input, transform: map, with: { data: { n: '${data.n + 1}' } } }\n"
    "  second:\n    from: first\n    transform: map\n"
    "    with: { data: { n: '${data.n * 10}' } }\n    on_error: { then: agent }\n"
    f"output: {{ from: second, {TABLE} }}\n"
)
AT_OUTPUT = (
    "input: { via: push }\n"
    f"output: {{ from: input, {TABLE}, on_error: {{ retry: 0, then: agent }} }}\n"
)
SPLIT = (
    "input: { via: push }\nnodes:\n"
    "  a: { from: input, transform: map, with: { data: { n: 1 } } }\n"
    "  b:\n    from: input\n    transform: map\n"
    "    with: { data: { n: 2 } }\n    on_error: { then: agent }\n"
    f"output: {{ from: [a, b], {TABLE} }}\n"
)
LOOP = (
    "input: { via: push }\nnodes:\n  again:\n    from: input\n    transform: map\n"
    "    with: { data: { n: '${data.n + 1}' } }\n"
    "    loop: { back_to: again, until: 'data.n >= 5', max: 2, then: agent }\n"
    f"output: {{ from: again, {TABLE} }}\n"
)


class Waiting:
    """A pipeline whose step or write fails while `broken` is true."""

    def __init__(self, journal: SqliteJournal, body: str) -> None:
        self.journal = journal
        self.rig = Rig(CONTROLLED + body, journal=journal, auto=True)
        self.rig.load = loader(journal)
        self.broken = True
        self.rig.step = self._step
        self.rig.output.answer = self._write

    def _step(self, call: Any) -> None:
        if self.broken and call.node in ("second", "b"):
            raise WriteFailed("the provider is down")

    def _write(self, unit: WriteUnit) -> Any:
        if self.broken and self.rig.pipeline.output.on_error.then == "agent":
            return WriteFailed("the table is gone")
        return {"rowid": 1}

    async def push(self, *data: object) -> list[str]:
        taken = await self.rig.parts.intake.take(
            [Arrival("input", one, "push", "test") for one in data]
        )
        return [one.packet_id for one in taken if hasattr(one, "packet_id")]

    async def rest(self) -> None:
        async with asyncio.timeout(60):
            while self.rig.parts.pending.moving:
                await self.journal.commit()
                await quiet()
        # What was set aside last is on disk, too.
        await self.journal.commit()

    async def escalated(self, *data: object) -> list[str]:
        ids = await self.push(*data)
        await self.rest()
        return ids

    async def resolve(self, *ids: str, action: str = "retry", **words: str) -> Resolution:
        given = {"by": "ada", "by_kind": "", "reason": ""} | words
        return await self.rig.operations.resolutions.resolve(ids, action=action, **given)

    async def state(self, id: str) -> str:
        found = await reads.standing_of(self.journal.rows, id)
        return found[0] if found else "gone"

    async def types(self, id: str) -> list[str]:
        trace = await reads.trace(self.journal.rows, id)
        return [event.type for event in trace.events] if trace else []

    async def told(self, id: str) -> Any:
        """The detail of the newest `packet.resolved`."""
        page = await reads.events(self.journal.rows, limit=1000)
        (*_, event) = (e for e in page.events if e.packet_id == id and e.type == "packet.resolved")
        assert event.detail is not None
        return decode(event.detail)

    async def refused(self, *ids: str, **words: str) -> PipoError:
        with pytest.raises(PipoError) as caught:
            await self.resolve(*ids, **words)
        return caught.value


Make = Callable[[str], Awaitable[Waiting]]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Make]:
    opened: list[Waiting] = []
    journal = open_quick(tmp_path / "people")
    await journal.commit(version(), Started(1, 0, AT))

    async def make(body: str) -> Waiting:
        opened.append(Waiting(journal, body))
        return opened[-1]

    yield make
    for one in opened:
        await one.rig.timers.close(0.0)
        assert one.rig.timers.crashes == []
    await journal.close(clean=True)


async def test_retry_runs_the_step_again_with_its_data(made: Make) -> None:
    waiting = await made(AT_NODE)
    (id,) = await waiting.escalated({"n": 1})
    assert await waiting.state(id) == "escalated"
    waiting.broken = False
    done = await waiting.resolve(id, reason="provider back up")
    assert done == Resolution("retry", [ResolvedUnit(id, "processing", "second")])
    await waiting.rest()
    assert await waiting.state(id) == "delivered"
    # What had succeeded is not run again.
    assert [node for _, node in waiting.rig.ran] == ["first", "second", "second"]
    assert waiting.rig.output.writes[-1][0].data == {"n": 20}
    told = await waiting.told(id)
    assert told.pop("error")["code"] == "node.failed"
    assert told == {
        "action": "retry",
        "by": "ada",
        "by_kind": "human",
        "reason": "provider back up",
    }


async def test_a_failure_after_a_retry_escalates_again(made: Make) -> None:
    waiting = await made(AT_NODE)
    (id,) = await waiting.escalated({"n": 1})
    await waiting.resolve(id)
    await waiting.rest()
    assert await waiting.state(id) == "escalated"
    assert (await waiting.types(id)).count("packet.escalated") == 2


async def test_at_the_output_it_is_written_again_under_its_key(made: Make) -> None:
    waiting = await made(AT_OUTPUT)
    (id,) = await waiting.escalated({"n": 1})
    refusal = await waiting.refused(id, action="drop")
    assert isinstance(refusal, InvalidState)
    assert "waits at the output and cannot be dropped" in refusal.message
    waiting.broken = False
    done = await waiting.resolve(id)
    assert done.resolved == [ResolvedUnit(id, "writing", "$output")]
    await waiting.rest()
    (again,) = waiting.rig.output.writes[-1]
    assert (again.key, again.repeat) == (id, "repeated")
    assert await waiting.state(id) == "delivered"


@pytest.mark.parametrize(
    ("action", "state", "event"),
    [
        ("dead_letter", "dead_lettered", "packet.dead_lettered"),
        ("drop", "filtered", "packet.dropped"),
    ],
)
async def test_it_may_end(made: Make, action: str, state: str, event: str) -> None:
    waiting = await made(AT_NODE)
    (id,) = await waiting.escalated({"n": 1})
    settled = asyncio.create_task(waiting.rig.parts.pending.wait(id, 60.0))
    await quiet()
    done = await waiting.resolve(id, action=action)
    assert done.resolved == [ResolvedUnit(id, state, None)]
    assert ((await settled).state, (await settled).error) == (state, "the provider is down")
    assert (await waiting.types(id))[-2:] == ["packet.resolved", event]
    assert len(waiting.rig.parts.pending) == 0
    # Its place in the buffer is free, and no more than its own.
    assert len(await waiting.push(*[{"n": n} for n in range(5)])) == 3
    await waiting.rest()
    if action == "dead_letter":
        waiting.broken = False
        replayed = await waiting.rig.operations.dead_letters.replay([id], every=False, by="")
        assert replayed.packets[0].units[0].node == "second"
        await waiting.rest()


async def test_a_list_with_a_bad_id_resolves_nothing(made: Make) -> None:
    waiting = await made(AT_NODE)
    one, two = await waiting.escalated({"n": 1}, {"n": 2})
    assert isinstance(await waiting.refused(one, "01NOBODY"), NotFound)
    await waiting.resolve(two, action="drop")
    refusal = await waiting.refused(one, two)
    assert isinstance(refusal, InvalidState)
    assert refusal.message == f"{two} is filtered, not escalated"
    assert "--state escalated" in refusal.hint
    assert await waiting.state(one) == "escalated"
    waiting.broken = False
    answers = await asyncio.gather(
        waiting.resolve(one, one), waiting.resolve(one), return_exceptions=True
    )
    assert isinstance(answers[0], Resolution)
    assert len(answers[0].resolved) == 1
    assert isinstance(answers[1], InvalidState)
    await waiting.rest()
    assert (await waiting.types(one)).count("packet.resolved") == 1


async def test_copies_are_named_for_themselves(made: Make) -> None:
    waiting = await made(SPLIT)
    (id,) = await waiting.escalated({"n": 0})
    refusal = await waiting.refused(id)
    assert refusal.message == f"{id} is split into copies"
    assert f"{id}:a (delivered), {id}:b (escalated)" in refusal.hint
    done = await waiting.resolve(f"{id}:b", action="drop")
    assert done.resolved == [ResolvedUnit(f"{id}:b", "filtered", None)]
    # Another copy was delivered (edge 126).
    assert await waiting.state(id) == "delivered"
    assert len(waiting.rig.parts.pending) == 0


async def test_after_a_loops_limit_its_passes_count_anew(made: Make) -> None:
    waiting = await made(LOOP)
    (id,) = await waiting.escalated({"n": 1})
    await waiting.resolve(id)
    await waiting.rest()
    # Two passes were allowed; without new ones it would have been handed over again.
    looped = (await waiting.types(id)).count("node.looped")
    assert (await waiting.state(id), looped) == ("delivered", 3)


async def test_an_agent_needs_leave_of_the_version_in_force(made: Make) -> None:
    waiting = await made(AT_NODE)
    one, two = await waiting.escalated({"n": 1}, {"n": 2})
    await waiting.resolve(one, action="drop", by_kind="agent", by="")
    told = await waiting.told(one)
    assert (told["by"], told["by_kind"], told["reason"]) == ("api", "agent", None)
    waiting.rig.plans.put_in_force(edition_of(pipeline_of(PLAIN), 2))
    refusal = await waiting.refused(two, by_kind="agent")
    assert isinstance(refusal, InvalidState)
    assert refusal.message == "people lets no agent resolve packets"
    assert "agent: { control: true }" in refusal.hint
    # A person is never kept from it, and the packet's own version runs (edge 294).
    waiting.broken = False
    await waiting.resolve(two)
    await waiting.rest()
    assert waiting.rig.output.writes[-1][0].data == {"n": 30}


async def test_what_is_said_is_redacted_and_cut(tmp_path: Path) -> None:
    journal = open_quick(tmp_path / "people")
    await journal.commit(version(), Started(1, 0, AT))
    waiting = Waiting(journal, AT_NODE)
    waiting.rig.operations.resolutions._redact = lambda text: text.replace("hunter2", "[redacted]")
    (id,) = await waiting.escalated({"n": 1})
    await waiting.resolve(id, action="drop", by="hunter2", reason="hunter2" + "r" * 3000)
    told = await waiting.told(id)
    assert told["by"] == "[redacted]"
    assert told["reason"].startswith("[redacted]rrr")
    assert len(told["reason"]) == 2000
    await waiting.rig.timers.close(0.0)
    await journal.close(clean=True)


async def test_a_pipeline_that_ends_takes_nothing_up(made: Make) -> None:
    waiting = await made(AT_NODE)
    (id,) = await waiting.escalated({"n": 1})
    waiting.rig.refuses = InvalidState("people is draining", hint="start it")
    assert (await waiting.refused(id)).message == "people is draining"
    assert await waiting.state(id) == "escalated"


async def test_in_a_pause_it_waits(made: Make) -> None:
    waiting = await made(AT_NODE)
    (id,) = await waiting.escalated({"n": 1})
    waiting.broken = False
    await waiting.rig.parts.pausing.pause("manual")
    await waiting.resolve(id)
    await quiet()
    assert await waiting.state(id) == "processing"
    await waiting.rig.parts.pausing.resume()
    await waiting.rest()
    assert await waiting.state(id) == "delivered"
