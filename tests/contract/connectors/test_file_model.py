"""Random writes, restarts, repeats and crashes of one file: each key once, every record whole."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pipo.connectors.contract import Flush, Output, Repeat
from tests.contract.connectors import contract
from tests.contract.connectors.contract import Settings, write
from tests.contract.connectors.disk import Disk, restore
from tests.contract.connectors.files import FORMATS, content, file_case, ids
from tests.contract.connectors.files import settings as settings_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
COUNTS = st.integers(1, 3)


class OneFile(RuleBasedStateMachine):
    """The journal's side is played by `journaled` and `marks`; the folder is real."""

    where: Settings
    output: Output

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name).resolve()
        self.journaled: list[str] = []
        self.marks: dict[str, int] = {}
        self.number = 0

    @initialize(file_format=st.sampled_from(FORMATS))
    def begin(self, file_format: str) -> None:
        self.where = settings_of(self.folder, file_format)
        self.start()

    def start(self) -> None:
        self.output = file_case(self.where["format"]).build(self.folder)
        self.runner.run(self.output.open(self.marks))

    def stop(self) -> None:
        self.runner.run(self.output.close())

    def new_keys(self, count: int) -> list[str]:
        self.number += count
        return [f"k{self.number - n}" for n in range(count)]

    def write(self, keys: list[str], text: str, repeat: Repeat, *, atomic: bool) -> Flush:
        units = [(key, {"id": key, "text": text}) for key in keys]
        return self.runner.run(write(self.output, self.where, *units, repeat=repeat, atomic=atomic))

    def commit(self, keys: list[str], flush: Flush) -> None:
        assert all(isinstance(result, dict) for result in flush.results)
        self.journaled += [key for key in keys if key not in self.journaled]
        self.marks |= contract.kept(flush)

    @rule(count=COUNTS, text=TEXTS, atomic=st.booleans())
    def write_anew(self, count: int, text: str, atomic: bool) -> None:
        keys = self.new_keys(count)
        self.commit(keys, self.write(keys, text, "first", atomic=atomic))

    @precondition(lambda self: self.journaled)
    @rule(data=st.data(), text=TEXTS)
    def replay(self, data: st.DataObject, text: str) -> None:
        old = data.draw(st.lists(st.sampled_from(self.journaled), min_size=1, max_size=3))
        flush = self.write(old, text, "repeated", atomic=False)
        assert all(isinstance(made, dict) and "skipped" in made for made in flush.results)
        self.commit(old, flush)

    @rule()
    def restart(self) -> None:
        self.stop()
        self.start()

    @rule(count=COUNTS, more=st.integers(0, 2), text=TEXTS, at=st.floats(0, 1), cuts=st.booleans())
    def crash(self, count: int, more: int, text: str, at: float, cuts: bool) -> None:
        """Up to two crashes: in a write, and in the repetition that mends it."""
        keys = self.new_keys(count)
        self.crash_in(keys, text, "first", at)
        if cuts:
            self.crash_in(keys, text, "recovered", 1 - at)
        keys += self.new_keys(more)
        self.commit(keys, self.write(keys, text, "recovered", atomic=False))

    def crash_in(self, keys: list[str], text: str, repeat: Repeat, at: float) -> None:
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, self.folder)
            self.write(keys, text, repeat, atomic=False)
        self.stop()
        states = disk.files()
        restore(self.folder, states[int(at * (len(states) - 1))])
        self.start()

    @invariant()
    def each_key_stands_once(self) -> None:
        assert sorted(self.found()) == sorted(self.journaled)

    def found(self) -> list[str]:
        if not self.journaled and not Path(self.where["path"]).exists():
            return []
        if self.where["format"] != "jsonl":
            return ids(self.where)
        found = []
        for line in content(self.where).split(b"\n"):
            try:
                found.append(json.loads(line)["packet_id"])
            except ValueError:
                # The front of a record that a crash cut, on a line of its own (R18).
                continue
        return found

    def teardown(self) -> None:
        if hasattr(self, "output"):
            self.stop()
        self.runner.close()
        self.scratch.cleanup()


def run(examples: int, steps: int, **more: Any) -> None:
    run_state_machine_as_test(
        OneFile,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )


@pytest.mark.slow
def test_each_key_once_whatever_happens() -> None:
    run(examples=60, steps=15)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_key_once_whatever_happens_for_long() -> None:
    run(examples=1500, steps=40)
