"""Random pipelines over a real journal, cut short anywhere: every unit ends as the walk says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipo.connectors.contract import Accepted, Refused, Settlement, WriteUnit
from pipo.errors import InvalidPipeline
from pipo.journal import reads
from pipo.journal.sqlite_journal import SqliteJournal
from pipo_runner.pipeline.flow.units import Unit
from pipo_runner.pipeline.resuming import take_up
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import version
from tests.unit.runner.pipeline.drawn_graphs import (
    NUMBERS,
    Graph,
    TooLarge,
    graphs,
    is_refused,
    verdict,
)
from tests.unit.runner.pipeline.rig import NOTHING, Rig, edition_of, pipeline_of

pytestmark = pytest.mark.slow

# How long a run may take, in all.
DEADLINE_S = 20.0
UNITS = "SELECT id, root, parent, state, settled_at IS NULL FROM units"


class Run:
    """Runs of one pipeline over one journal; `written` and `told` are those of all runs."""

    def __init__(self, graph: Graph, folder: Path) -> None:
        self._graph = graph
        self._folder = folder
        self.written: dict[str, int] = {}
        self.told: list[tuple[str, str]] = []
        self.rig: Rig
        self.journal: SqliteJournal

    async def begin(self) -> None:
        """A run on what the one before left."""
        self.journal = open_quick(self._folder)
        recovery = await self.journal.recover()
        if recovery.version is None:
            await self.journal.commit(version(1))
            recovery = NOTHING
        self.rig = Rig(
            self._graph.text,
            journal=self.journal,
            recovery=recovery,
            outside=("file",),
            opened=False,
        )
        self.rig.around.plans.forget(1)
        self.rig.around.plans.put_in_force(edition_of(self.rig.pipeline, 1))
        self.rig.output.answer = self._write
        settled = self.rig.parts.pending.on_settled

        def hear(ended: list[Unit], settlement: Settlement) -> None:
            self.told += [(unit.id, settlement.state) for unit in ended]
            settled(ended, settlement)

        self.rig.parts.pending.on_settled = hear
        await take_up(recovery.units, self.rig.around, self.rig.parts)
        self.rig.parts.admission.open()
        self.rig.parts.executor.open()

    def _write(self, unit: WriteUnit) -> dict[str, int] | Refused:
        if is_refused(self._graph, unit.data):
            return Refused("no ink")
        # A key that is there already is left as it is.
        self.written.setdefault(unit.key, unit.data["n"])
        return {"rowid": 1}

    async def cut_short(self) -> None:
        """Ends where it stands: what was handed to the journal is there, and nothing else."""
        self.rig.parts.executor.close()
        await self.journal.close(clean=False)
        await self.rig.timers.close(0.0)

    async def accept(self, numbers: list[int]) -> list[str]:
        intake = self.rig.parts.intake
        taken = await intake.take([self.rig.arrival({"n": n}) for n in numbers])
        return [one.packet_id for one in taken if isinstance(one, Accepted)]

    async def commits(self, count: int) -> None:
        """Lets the journal write so often, or until all has settled."""
        over = asyncio.Event()
        left = count
        before = self.journal.commit_observer

        def landed(group: int, seconds: float) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                over.set()
            elif before is not None:
                before(group, seconds)

        self.journal.commit_observer = landed
        done = asyncio.ensure_future(self.rig.parts.pending.emptied(DEADLINE_S))
        cut = asyncio.ensure_future(over.wait())
        await asyncio.wait({done, cut}, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        self.rig.parts.pending.give_up_waiting()
        await done


async def walked(graph: Graph, numbers: list[int], cuts: list[int], folder: Path) -> None:
    run = Run(graph, folder)
    await run.begin()
    ids = await run.accept(numbers)
    assert len(ids) == len(numbers)
    for cut in cuts:
        await run.commits(cut)
        await run.cut_short()
        await run.begin()
        await nothing_is_partly_split(run.journal)
    assert await run.rig.parts.pending.emptied(DEADLINE_S), run.rig.parts.pending.on_their_way()
    assert run.rig.timers.crashes == []
    assert run.rig.parts.executor.in_hand == 0
    assert len(run.rig.parts.pending) == 0
    await as_walked(run, graph, dict(zip(ids, numbers, strict=True)))
    await run.journal.close(clean=True)


async def nothing_is_partly_split(journal: SqliteJournal) -> None:
    """Edge 125: a unit waits for copies if and only if it has some."""
    rows = await journal.rows.rows(UNITS)
    parents = {parent for _, _, parent, _, _ in rows if parent}
    for id_, _, _, state, open_ in rows:
        assert not open_ or (state == "branched") is (id_ in parents), rows


async def as_walked(run: Run, graph: Graph, packets: dict[str, int]) -> None:
    rows = await run.journal.rows.rows(UNITS)
    states = {id_: state for id_, _, _, state, _ in rows}
    split = {parent for _, _, parent, _, _ in rows if parent}
    wanted = {id_: graph.ends(id_, n) for id_, n in packets.items()}
    leaves = {unit: end for ends in wanted.values() for unit, end in ends.items()}
    assert {unit: state for unit, state in states.items() if unit not in split} == {
        unit: end.state for unit, end in leaves.items()
    }
    assert {id_: states[id_] for id_ in packets} == {
        id_: verdict(ends, id_) for id_, ends in wanted.items()
    }
    assert run.written == {unit: end.n for unit, end in leaves.items() if end.state == "delivered"}
    # Each end is told once, as the journal has it, unless it came beside a cut.
    assert len({id_ for id_, _ in run.told}) == len(run.told)
    assert all(states[id_] == state for id_, state in run.told)
    for unit, end in leaves.items():
        if end.state == "dead_lettered":
            assert (await reads.data_of(run.journal.rows, unit)) == b'{"n":%d}' % end.n
    counted = run.journal.counters
    for state in ("delivered", "filtered", "dead_lettered"):
        packets_so = sum(states[id_] == state for id_ in packets)
        assert counted.get(f"now.{state}", 0) == packets_so
    assert counted["all.accepted"] == len(packets)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    graph=graphs(),
    numbers=st.lists(st.integers(0, NUMBERS - 1), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 6), max_size=3),
)
def test_every_unit_ends_as_the_walk_says(
    graph: Graph, numbers: list[int], cuts: list[int]
) -> None:
    try:
        pipeline_of(graph.text)
        for n in numbers:
            graph.ends("p", n)
    except (InvalidPipeline, TooLarge):
        assume(False)
    with TemporaryDirectory() as folder:
        asyncio.run(walked(graph, numbers, cuts, Path(folder)))
