"""SIGKILL while a folder is worked through: each change is one packet, exactly once."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]

PIPELINE = """pipo: 1
name: drop
buffer: { max: 500 }
input:
  via: watch
  with: { path: "./in/**/*.txt", events: [create, change, delete], read: content }
output: { from: input, to: file, with: { path: ./out.jsonl, format: jsonl } }
"""
RESTARTS = "engine:\n  restart: { backoff: 10ms, max_backoff: 10ms, max_restarts: 100 }\n"
EVENTS = ("create", "change", "delete")
TOLD = """
SELECT json_extract(data, '$.event'), json_extract(data, '$.name'), json_extract(data, '$.content')
FROM units
"""


class Tree:
    """A watched tree of `count` files, and what was done to it."""

    def __init__(self, stack: Stack, count: int) -> None:
        self._stack = stack
        self._folder = stack.workspace / "in"
        self.names = [f"{n % 7}/{n % 3}/file {n}.txt" for n in range(count)]
        for name in self.names:
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)

    def work(self, event: str, names: Sequence[str], *, rest_s: float = 0.0) -> None:
        """Does one thing to each of the files, in the order given."""
        for name in names:
            path = self._folder / name
            if event == "delete":
                path.unlink()
            else:
                path.write_text(content(event, name) or "")
            time.sleep(rest_s)

    def told(self) -> int:
        """How many packets there are; 0 while nobody answers."""
        return int(self._stack.stats("drop").get("accepted", 0))

    def wait(self, count: int, *, deadline_s: float = 60.0) -> None:
        wait_for(
            lambda: self.told() >= count,
            deadline_s=deadline_s,
            what=lambda: f"{count} packets\n{self._stack.output()}",
        )

    def faults(self) -> list[str]:
        """Every change that is not exactly one packet, in the journal and at its destination."""
        wanted = Counter(
            (event, name, content(event, name)) for event in EVENTS for name in self.names
        )
        found = Counter(
            (event, name, text)
            for event, name, text in query(journal_of(self._stack.home, "drop"), TOLD)
        )
        out = [line["data"] for line in lines(self._stack.workspace / "out.jsonl")]
        written = Counter((one["event"], one["name"], one.get("content")) for one in out)
        return [
            f"{place}: {n} × {change}"
            for place, counts in (("journal", found), ("file", written))
            for change in sorted(wanted.keys() | counts.keys(), key=str)
            if (n := counts[change]) != wanted[change]
        ]


def content(event: str, name: str) -> str | None:
    """What the packet of a change holds."""
    return None if event == "delete" else f"{event} {name}"


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    sprung = tmp_path / "sprung"
    sprung.touch()
    point = getattr(request, "param", "")
    env = {"PIPO_CRASH_AT": point, "PIPO_CRASH_ONCE": str(sprung)} if point else {}
    made = Stack(tmp_path, env=env, config=RESTARTS)
    made.write("drop.pipo", PIPELINE)
    try:
        yield made
    finally:
        made.kill_all()


@pytest.mark.parametrize(
    "stack",
    [
        "accepted.after_commit:2",
        # A packet that was never there is the lesser question.
        pytest.param("accepted.before_commit:2", marks=pytest.mark.soak),
    ],
    indirect=True,
)
def test_each_change_is_one_packet(stack: Stack, tmp_path: Path) -> None:
    """Killed once for each kind of change, with packets of it on both sides of the kill."""
    tree, sprung = Tree(stack, 210), tmp_path / "sprung"
    stack.start()
    for n, event in enumerate(EVENTS, 1):
        sprung.unlink()
        tree.work(event, tree.names)
        wait_for(sprung.exists, deadline_s=150, what=f"killed at a {event}")
        tree.wait(n * len(tree.names))
    stack.settle("drop")
    assert tree.faults() == []
    assert stack.stop() == 0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_five_thousand_files_and_ten_kills(stack: Stack) -> None:
    """Files are dropped, changed and deleted while the pipeline is down as well."""
    tree, chance = Tree(stack, 5_000), random.Random(5)
    stack.start()
    killed, began = 0, time.monotonic()
    for n, (event, kills) in enumerate(zip(EVENTS, (4, 3, 3), strict=True)):
        names = chance.sample(tree.names, len(tree.names))
        worker = threading.Thread(target=tree.work, args=(event, names), kwargs={"rest_s": 0.001})
        worker.start()
        for part in range(1, kills + 1):
            tree.wait(n * len(names) + len(names) * part // (kills + 1))
            pid = stack.pipeline_pid("drop")
            assert pid is not None
            at = tree.told()
            os.kill(pid, signal.SIGKILL)
            killed += 1
            print(f"kill {killed} at {at} packets, {time.monotonic() - began:.1f} s")
            wait_for(partial(is_another, stack, pid), deadline_s=150)
        worker.join()
        tree.wait((n + 1) * len(names), deadline_s=120)
        print(f"all told of {event}, {time.monotonic() - began:.1f} s")
    stack.settle("drop", deadline_s=120)
    assert killed == 10
    assert tree.faults() == []
    # A clean restart tells nothing again (edge 68).
    assert stack.stop() == 0
    stack.start()
    last = ["0/0/last.txt"]
    for n, event in enumerate(EVENTS, 1):
        tree.work(event, last)
        tree.wait(3 * len(tree.names) + n)
    stack.settle("drop")
    tree.names += last
    assert tree.faults() == []
    assert stack.stop() == 0


def is_another(stack: Stack, pid: int) -> bool:
    return stack.pipeline_pid("drop") not in (None, pid)
