"""Random callers against a model of the machine: answers, rows and counters agree.

The model is LEGAL itself, walked in plain Python with callers taken whole or not at all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipo.journal.changes import LEGAL, Change, Stepped
from pipo.journal.sheet import IllegalChange
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.conftest import open_quick
from tests.unit.journal.packets import EXAMPLES, packet_id, stepped, version
from tests.unit.journal.recount import counted, recount

UNITS = 14
ROUNDS = 12
CALLERS = 12


class Model:
    """The state of every unit, as the table says it."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}

    def take(self, changes: Sequence[Change]) -> bool:
        """Whether a caller's changes are all legal; only then they count."""
        after = dict(self.states)
        for change in changes:
            unit = str(change.unit)  # type: ignore[union-attr]
            found = after.get(unit)
            targets = LEGAL[type(change).__name__].get(found)
            if targets is None:
                return False
            if isinstance(change, Stepped):
                after[unit] = "writing" if change.cursor == "$output" else "processing"
            else:
                after[unit] = targets[0]
        self.states = after
        return True


def random_changes(chance: random.Random) -> list[Change]:
    made: list[Change] = []
    n = chance.randrange(1, UNITS)
    for _ in range(chance.choice((1, 1, 2, 3))):
        name = chance.choice((*EXAMPLES, "Accepted", "Written", "Stepped"))
        if name == "Stepped":
            made.append(stepped(n, cursor=chance.choice(("$output", "next"))))
        else:
            made.append(EXAMPLES[name](n))
        if chance.random() < 0.2:
            n = chance.randrange(1, UNITS)
    return made


async def answer(journal: SqliteJournal, changes: Sequence[Change]) -> bool:
    try:
        await journal.commit(*changes)
    except IllegalChange:
        return False
    return True


@pytest.mark.slow
async def test_random_callers_end_as_the_model_says(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    model = Model()
    journal = open_quick(tmp_path)
    await journal.commit(version())
    legal = 0
    for round_ in range(ROUNDS):
        callers = [random_changes(chance) for _ in range(CALLERS)]
        expected = [model.take(changes) for changes in callers]
        assert await asyncio.gather(*(answer(journal, c) for c in callers)) == expected
        legal += sum(expected)
        assert counted(journal.counters) == await recount(journal.rows)
        if round_ % 4 == 3:
            await journal.close(clean=bool(round_ % 8 == 3))
            journal = open_quick(tmp_path)
            assert counted(journal.counters) == await recount(journal.rows)
    found: dict[str, str] = dict(await journal.rows.rows("SELECT id, state FROM units"))
    assert found == model.states
    assert set(found) <= {packet_id(n) for n in range(UNITS)}
    assert legal, "no caller got through: the run showed nothing"
    assert await journal.rows.rows("PRAGMA integrity_check") == [("ok",)]
    await journal.close(clean=True)
