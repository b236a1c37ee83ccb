"""Drawn callers against a model of the machine: answers, rows, data and counters agree."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipo.journal import reads
from pipo.journal.changes import LEGAL, SETTLED, Change, Expired, FannedOut, Looped, Rerun, Stepped
from pipo.journal.sheet import IllegalChange
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.model import Model
from tests.unit.journal.packets import (
    DATA,
    EXAMPLES,
    accepted,
    copies,
    escalated,
    fanned_out,
    of_copy,
    packet_id,
    replayed,
    rerun,
    resolved,
    stepped,
    version,
)
from tests.unit.journal.recount import counted, recount

PACKETS = 8
SPLITS = {"": ("a", "b"), "a": ("a/x", "a/y"), "b": ("b/output",)}
REMOVALS = ("Purged", "Expired")
BIRTHS = ("Accepted", "Rejected")
# Counts fall where rows go, and a cleared payload has no fold: these two are drawn apart.
STAYING = sorted(set(EXAMPLES) - {*REMOVALS, "Cleared"})


# What moves a packet on is drawn more often, or none gets far.
USUAL = 3 * ("Accepted", "FannedOut", "Written", "Delivered", "Stepped", "Filtered")


def make(name: str, n: int, branch: str, twist: int) -> Change:
    """A change of that name; `twist` picks among its variants."""
    to_output = ("$output", "next")[twist % 2]
    made: Any
    match name:
        case "Accepted":
            made = accepted(n, copies=copies(n, "a", "b") if twist == 3 else ())
        case "Stepped":
            made = stepped(n, cursor=to_output)
        case "FannedOut":
            if branch not in SPLITS:
                return stepped(n)
            made = fanned_out(n, *SPLITS[branch])
        case "Escalated":
            made = escalated(n, cursor=to_output)
        case "Resolved":
            made = resolved(n, ("retry", "drop", "dead_letter")[twist % 3])
        case "Replayed":
            made = replayed(n, to_output)
        case "Rerun":
            made = rerun(n, to_output, iteration=twist)
        case _:
            made = EXAMPLES[name](n)
    return of_copy(made, n, branch) if branch and name not in BIRTHS else made  # type: ignore[no-any-return]


def propose(model: Model, seed: int, place: int, names: Sequence[str]) -> list[Change]:
    """A caller's changes: mostly such as its units' states allow, some that none does.

    `place` counts the callers: equal seeds at two places are two proposals.
    """
    chance = random.Random(f"{seed} {place}")
    made: list[Change] = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        units = sorted(model.units)
        fresh = len(units) < 2 or chance.random() < 0.1
        unit = packet_id(chance.randint(1, PACKETS)) if fresh else chance.choice(units)
        packet, _, branch = unit.partition(":")
        found = model.states.get(unit)
        fitting = [name for name in names if found in LEGAL[name]]
        fitting += [name for name in USUAL if name in fitting]
        wild = chance.random() < 0.1 or not fitting
        name = chance.choice(list(names) if wild else fitting)
        made.append(make(name, int(packet[-4:]), branch, chance.randint(0, 3)))
    return made


seeds = st.integers(0, 2**32)
rounds_of_seeds = st.lists(st.lists(seeds, min_size=1, max_size=8), min_size=8, max_size=30)


async def answer(journal: SqliteJournal, changes: Sequence[Change]) -> bool:
    try:
        await journal.commit(*changes)
    except IllegalChange:
        return False
    return True


async def states_in(journal: SqliteJournal) -> dict[str, str]:
    return dict(await journal.rows.rows("SELECT id, state FROM units"))


drawn = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@pytest.mark.slow
@drawn
@given(rounds_of_seeds)
def test_drawn_callers_end_as_the_model_says(rounds: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_walk(Path(folder), rounds))


async def _walk(folder: Path, rounds: list[list[int]]) -> None:
    model = Model()
    journal = open_quick(folder)
    await journal.commit(version())
    for number, drawn_seeds in enumerate(rounds):
        callers, expected = [], []
        for place, seed in enumerate(drawn_seeds):
            callers.append(propose(model, seed, 100 * number + place, STAYING))
            expected.append(model.take(callers[-1]))
        assert await asyncio.gather(*(answer(journal, c) for c in callers)) == expected
        assert await states_in(journal) == model.states
        assert counted(journal.counters) == await recount(journal.rows)
        if number % 4 == 3:
            await journal.close(clean=bool(number % 8 == 3))
            journal = open_quick(folder)
            assert counted(journal.counters) == await recount(journal.rows)
    await _agree(journal, model)
    assert await journal.rows.rows("PRAGMA integrity_check") == [("ok",)]
    await journal.close(clean=True)


async def _agree(journal: SqliteJournal, model: Model) -> None:
    """What a run would find is what the model holds, and no set of copies is in part."""
    found = (await journal.recover()).units
    assert {unit.id for unit in found} == {
        unit for unit, thing in model.units.items() if thing.state not in SETTLED
    }
    # What moves carries no error, and none is stored as an empty text.
    wrong = "error = '' OR error IS NOT NULL AND settled_at IS NULL AND state <> 'escalated'"
    assert await journal.rows.rows(f"SELECT id, state, error FROM units WHERE {wrong}") == []
    for unit in found:
        thing = model.units[unit.id]
        assert (unit.held, unit.write_no, unit.acked_write_no, unit.iteration) == (
            thing.held,
            thing.written,
            thing.acked,
            thing.iteration,
        )
        assert (unit.deadline_at is not None) == thing.deadline
        if unit.state == "branched":
            assert {u for u in model.units if model.units[u].parent == unit.id} == set(thing.copies)


@pytest.mark.slow
@drawn
@given(st.lists(seeds, min_size=20, max_size=60))
def test_rows_that_go_leave_the_others_as_they_are(drawn_seeds: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_remove(Path(folder), drawn_seeds))


async def _remove(folder: Path, drawn_seeds: list[int]) -> None:
    model = Model()
    journal = open_quick(folder)
    await journal.commit(version())
    expired: set[str] = set()
    for place, seed in enumerate(drawn_seeds):
        # A change alone in its transaction: an id that went may come again then.
        change = propose(model, seed, place, [*STAYING, *REMOVALS, "Cleared"])[0]
        expected = model.take([change])
        assert await answer(journal, [change]) == expected
        if isinstance(change, Expired) and expected:
            expired.add(change.unit)
        assert await states_in(journal) == model.states
        again = await recount(journal.rows)
        now = {name: value for name, value in again.items() if name.startswith("now.")}
        counts = counted(journal.counters)
        assert {name: counts[name] for name in counts if name.startswith("now.")} == now
    orphans = "SELECT unit FROM events WHERE unit IS NOT NULL AND type <> 'dlq.purged' AND "
    left = await journal.rows.rows(
        f"{orphans} unit NOT IN (SELECT id FROM units) AND seq < (SELECT max(seq) FROM events)"
    )
    # The newest event of all stays, whatever goes; it is the only one that may be left over.
    assert {row[0].partition(":")[0] for row in left} <= expired
    await journal.close(clean=True)


# ── data, and a crash at any place ───────────────────────────────────────────


class Data:
    """Each unit's data, by its changes that went through."""

    def __init__(self) -> None:
        self.of: dict[str, Any] = {}
        self.steps = 0

    def fitted(self, change: Change) -> Change:
        """The change with data: a step adds to what its unit has, a copy is born with it."""
        self.steps += 1
        unit = str(change.unit)  # type: ignore[union-attr]
        now = self.of.get(unit)
        after = {**(now or {}), "n": self.steps, f"k{self.steps % 3}": "x" * (self.steps % 40)}
        if isinstance(change, (Stepped, Looped)):
            return replace(change, before=now, after=after)
        if isinstance(change, FannedOut):
            return replace(change, data=msgspec.json.encode(now))
        if isinstance(change, Rerun):
            return replace(change, data=msgspec.json.encode(after))
        return change

    def taken(self, change: Any) -> None:
        if isinstance(change, (Stepped, Looped)):
            self.of[change.unit] = change.after
        elif isinstance(change, Rerun):
            self.of[change.unit] = msgspec.json.decode(change.data)
        elif type(change).__name__ in BIRTHS:
            self.of[change.unit] = msgspec.json.decode(DATA)
        packet = change.unit.partition(":")[0]
        for copy in getattr(change, "copies", ()):
            self.of[f"{packet}:{copy.branch}"] = msgspec.json.decode(change.data)


@pytest.mark.slow
@settings(drawn, max_examples=12)
@given(st.lists(seeds, min_size=10, max_size=40))
def test_every_prefix_is_whole_after_a_crash(drawn_seeds: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_crash_everywhere(Path(folder), drawn_seeds))


async def _crash_everywhere(folder: Path, drawn_seeds: list[int]) -> None:
    model, data = Model(), Data()
    journal = open_quick(folder / "run")
    await journal.commit(version())
    for number, seed in enumerate(drawn_seeds):
        fitted = data.fitted(propose(model, seed, number, STAYING)[0])
        expected = model.take([fitted])
        assert await answer(journal, [fitted]) == expected
        if not expected:
            continue
        data.taken(fitted)
        # What the disk holds now is what a killed process leaves.
        crashed = folder / f"crash{number}"
        shutil.copytree(folder / "run", crashed, ignore=shutil.ignore_patterns("*-shm"))
        again = open_quick(crashed)
        assert await states_in(again) == model.states
        assert counted(again.counters) == await recount(again.rows)
        await _agree(again, model)
        for unit, value in data.of.items():
            raw = await reads.data_of(again.rows, unit)
            assert raw is not None
            assert msgspec.json.decode(raw) == value, unit
        await again.close(clean=False)
        shutil.rmtree(crashed)
    await journal.close(clean=True)
