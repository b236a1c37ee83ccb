"""Several checkers on one home: they share the load, and lose and double nothing when they go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import push
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

# A check that passes once somebody makes the file; the test does, when it has seen who holds what.
WAITING = """\
pipo: 1
name: waiting
input: { via: push }
output: { from: input, to: file, with: { path: ./out/waiting.jsonl } }
delivered:
  check: file_exists
  with: { path: "./seen/${data.n}" }
  within: 2m
"""
LOADED = """\
pipo: 1
name: loaded
input: { via: push }
output: { from: input, to: sqlite, with: { path: ./loaded.db, table: t, create: true } }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  within: 1m
"""
STUCK = """\
pipo: 1
name: stuck
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: ./stuck.db, table: t }
  on_error: { retry: 10000, delay: 100ms }
delivered: { stall: { after: 1s } }
"""
PACKETS = 90


class Checkers:
    """Extra checkers of a stack's home, each a process of its own."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, id: str) -> int:
        """The pid of one more checker, once it is attached to a pipeline."""
        command = [sys.executable, "-m", "pipo_checker.main", "--id", id, "--http-port", "0"]
        with (self._folder / f"{id}.log").open("wb") as out:
            process = subprocess.Popen(
                command, env=self._stack.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self._processes.append(process)
        wait_for(lambda: self.facts(id).get("attached"), what=f"{id} attaches")
        return process.pid

    def ids(self) -> list[str]:
        """Every checker that the home's registry names."""
        found = self._stack.home.glob("run/services/checker-*.json")
        return sorted(path.stem.partition("-")[2] for path in found)

    def facts(self, id: str) -> dict[str, Any]:
        """What a checker says of itself; empty while it cannot be asked."""
        try:
            entry = json.loads(
                (self._stack.home / "run" / "services" / f"checker-{id}.json").read_text()
            )
            with urllib.request.urlopen(
                f"http://{entry['http_address']}/healthz", timeout=2
            ) as answer:
                made: dict[str, Any] = json.loads(answer.read())
                return made
        except (OSError, ValueError):
            return {}

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(60)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path)
    try:
        yield made
    finally:
        made.kill_all()


@pytest.fixture
def checkers(stack: Stack, tmp_path: Path) -> Iterator[Checkers]:
    made = Checkers(stack, tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_one_that_dies_and_one_that_freezes_lose_and_double_nothing(
    stack: Stack, checkers: Checkers
) -> None:
    stack.start(stack.write("waiting.pipo", WAITING))
    killed, frozen = checkers.start("killed"), checkers.start("frozen")
    wait_for(lambda: stack.get("/api/pipelines/waiting")["runner"]["checkers"] == 3)
    ids = [push(stack, "waiting", {"n": n}) for n in range(PACKETS)]

    def held() -> dict[str, int]:
        return {id: checkers.facts(id).get("held", 0) for id in checkers.ids()}

    wait_for(lambda: sum(held().values()) == PACKETS, what=f"all are held: {held()}")
    assert min(held().values()) >= PACKETS // 4, held()
    os.kill(frozen, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    (stack.workspace / "seen").mkdir()
    for n in range(PACKETS):
        (stack.workspace / "seen" / str(n)).touch()
    stack.settle("waiting", deadline_s=40.0)
    os.kill(frozen, signal.SIGCONT)
    wait_for(lambda: checkers.facts("frozen").get("attached"), what="the frozen one comes back")
    late = push(stack, "waiting", {"n": 0})
    stack.settle("waiting")
    assert ends(stack, "waiting") == {id: ["packet.delivered"] for id in (*ids, late)}
    counted = query(
        journal_of(stack.home, "waiting"),
        "select name, value from counters where name like 'total.check.%'",
    )
    assert counted == [["total.check.file_exists.passed", PACKETS + 1]]


def test_checkers_that_come_and_go_under_load_lose_and_double_nothing(
    stack: Stack, checkers: Checkers
) -> None:
    stack.start(stack.write("loaded.pipo", LOADED))
    sent: list[str] = []
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            sent.append(push(stack, "loaded", {"n": len(sent)}))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for turn in range(4):
            pid = checkers.start(f"guest-{turn}")
            before = len(sent)
            wait_for(lambda before=before: len(sent) > before + 20)  # type: ignore[misc]
            os.kill(pid, signal.SIGKILL)
    finally:
        over.set()
        sender.join()
    stack.settle("loaded")
    assert len(sent) > 80
    assert ends(stack, "loaded") == {id: ["packet.delivered"] for id in sent}


def test_a_frozen_checker_hides_no_jam(stack: Stack) -> None:
    stack.start(stack.write("stuck.pipo", STUCK))
    wait_for(lambda: stack.get("/api/pipelines/stuck")["runner"]["checkers"] == 1)
    pid = stack.service_pid("checker")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    push(stack, "stuck", {"n": 1})
    told = wait_for(
        lambda: query(
            journal_of(stack.home, "stuck"),
            "select (select at from events where type = 'pipeline.stall') - min(at) "
            "from events where type = 'packet.accepted'",
        )[0][0]
    )
    # `after`, and what was left of the frozen checker's lease.
    assert 1000 <= told < 40_000
    os.kill(pid, signal.SIGCONT)


def ends(stack: Stack, name: str) -> dict[str, list[str]]:
    """How each packet ended, as often as it did."""
    rows = query(
        journal_of(stack.home, name),
        "select unit, type from events where type in ('packet.delivered', 'packet.dead_lettered', "
        "'delivery.unverified') order by seq",
    )
    found: dict[str, list[str]] = {}
    for unit, type_ in rows:
        found.setdefault(unit, []).append(type_)
    return found
