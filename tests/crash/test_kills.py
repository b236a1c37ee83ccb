"""`kill -9` of every part of a running stack under load (issue 2, show 2).

The ledger is the judge: what was answered 202 is a row, and no row is doubled.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.load.http_posts import Outcome, post
from tests.load.ledger import Ledger, read
from tests.stack import Stack, query, wait_for

KILLS = 10
# Ten kills in a row are what the restart policy gives up on; here it must not.
PATIENT = """engine:
  restart: { backoff: 200ms, max_backoff: 1s, max_restarts: 1000 }
"""
SIGNUPS = """pipo: 1
name: signups
concurrency: 16
input: { via: http, with: { path: /signups } }
output:
  from: input
  to: sqlite
  with: { path: ./signups.db, table: signups, create: true }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  within: 5m
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path, config=PATIENT)
    made.write("signups.pipo", SIGNUPS)
    try:
        yield made.start()
    finally:
        made.kill_all()


class Load:
    """Posts in a thread until it is stopped."""

    def __init__(self, stack: Stack, ledger: Path) -> None:
        self._stop = threading.Event()
        self._ledger = Ledger(ledger)
        self.outcome = Outcome()
        self._thread = threading.Thread(target=self._run, args=(stack.port,), name="load")
        self._thread.start()

    def _run(self, port: int) -> None:
        self.outcome = asyncio.run(
            post(
                1_000_000,
                port=port,
                path="/in/signups/signups",
                ledger=self._ledger,
                pause_s=0.02,
                stop=self._stop,
                deadline_s=400.0,
            )
        )

    def stop(self) -> Outcome:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._ledger.close()
        return self.outcome


def judge(stack: Stack, ledger: Path, outcome: Outcome) -> None:
    """Nothing answered is lost, nothing is doubled, and all of it is delivered."""
    stats = stack.settle("signups")
    rows = Counter(
        str(row[0]) for row in query(stack.workspace / "signups.db", "SELECT n FROM signups")
    )
    answered = read(ledger)
    assert len(answered) > 20 * KILLS, f"the load was too small to show anything: {outcome}"
    assert not [n for n in answered if n not in rows], "answered and lost"
    assert not {n: count for n, count in rows.items() if count > 1}, "doubled"
    assert stats["delivered"] == stats["accepted"] == len(rows)
    assert stats["dead_lettered"] == 0


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.seed("R001", "R058", "R059", "O005")
@pytest.mark.parametrize("part", ["pipeline", "runner", "checker", "gateway"])
def test_a_killed_part_comes_back_and_nothing_is_lost(
    stack: Stack, tmp_path: Path, part: str
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    find: Callable[[], int | None] = (
        (lambda: stack.pipeline_pid("signups"))
        if part == "pipeline"
        else (lambda: stack.service_pid(part))
    )
    pipeline = stack.pipeline_pid("signups")
    load = Load(stack, tmp_path / "ledger")
    try:
        killed: set[int] = set()
        for _ in range(KILLS):
            pid = wait_for(
                lambda: p if (p := find()) is not None and p not in killed and _lives(p) else None,
                deadline_s=150,
                what=lambda: f"a new {part}; {stack.output()}",
            )
            threading.Event().wait(chance.uniform(0.05, 0.4))
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        wait_for(
            lambda: (p := find()) is not None and p not in killed and _lives(p), deadline_s=150
        )
    finally:
        outcome = load.stop()
    judge(stack, tmp_path / "ledger", outcome)
    if part != "pipeline":
        assert stack.pipeline_pid("signups") == pipeline, "the pipeline was not adopted"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
