"""R13: locks held by others, the command line's reads beside a load: nothing fails for good."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load.http_posts import post
from tests.packets import inspect, outcome, push, running, settled
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow


def lock(name: str) -> str:
    return f"""\
input: {{ via: http, with: {{ path: /lock }} }}
output:
  from: input
  to: sqlite
  with:
    path: ./out/{name}.db
    table: t
    create: true
    columns: {{ packet_id: "${{meta.packet_id}}", n: "${{data.n}}" }}
  on_error: {{ retry: 3, delay: 1s }}
delivered:
  check: record_exists
  with: {{ where: {{ packet_id: "${{meta.key}}" }} }}
  within: 30s
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    pipelines = {name: lock(name) for name in ("lock", "other")}
    with running(tmp_path_factory.mktemp("lock"), pipelines) as made:
        yield made


class Holder:
    """Another process that holds a lock of a database until told to end."""

    def __init__(self, database: Path, *statements: str) -> None:
        program = (
            "import sqlite3,sys;"
            "c=sqlite3.connect(sys.argv[1],isolation_level=None,timeout=60);"
            "[c.execute(s).fetchall() for s in sys.argv[2:]];print('held',flush=True);"
            "sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, str(database), *statements],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"

    def release(self) -> None:
        self._process.communicate(timeout=60)


def test_a_load_beside_the_command_line(stack: Stack) -> None:
    """2,000 requests while `status`, `packets` and the dead letters are asked without a pause."""
    answers: list[subprocess.CompletedProcess[str]] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            for words in (
                ("status",),
                ("packets", "lock"),
                ("packets", "lock", "--state", "dead_lettered"),
            ):
                answers.append(stack.pipo(*words))

    asking = threading.Thread(target=ask)
    before = stack.stats("lock")["delivered"]
    asking.start()
    try:
        outcome = asyncio.run(post(2_000, port=stack.port, path="/in/lock/lock", connections=4))
    finally:
        done.set()
        asking.join()
    assert outcome.statuses == {202: 2_000}
    stats = stack.settle("lock")
    assert (stats["delivered"] - before, stats["dead_lettered"]) == (2_000, 0)
    rows = query(stack.workspace / "out/lock.db", "SELECT count(*) FROM t")
    assert rows == [[stats["delivered"]]]
    assert len(answers) >= 3
    assert {answer.returncode for answer in answers} == {0}
    loud = [line for line in stack.output().splitlines() if " error " in line]
    assert not [line for line in loud if "locked" in line or "busy" in line]


def test_a_destination_locked_for_longer_than_an_attempt(stack: Stack) -> None:
    assert outcome(stack, "lock", {"n": 0})["state"] == "delivered"
    holder = Holder(stack.workspace / "out/lock.db", "BEGIN IMMEDIATE")
    try:
        id = push(stack, "lock", {"n": 1})
        for n in range(3):
            assert outcome(stack, "other", {"n": n})["state"] == "delivered"
        tried = wait_for(
            lambda: [e for e in inspect(stack, "lock", id)["events"] if e["type"] == "step.retry"],
            what="the first attempt fails",
        )
    finally:
        holder.release()
    assert "locked" in tried[0]["detail"]["error"]
    began = inspect(stack, "lock", id)["events"][0]["at"]
    assert 4_500 <= tried[0]["at"] - began <= 30_000
    assert settled(stack, "lock", id)["state"] == "delivered"
    found = query(stack.workspace / "out/lock.db", f"SELECT n FROM t WHERE packet_id = '{id}'")
    assert found == [[1]]


def test_a_reader_of_the_journal_holds_nobody_up(stack: Stack) -> None:
    holder = Holder(
        journal_of(stack.home, "other"),
        "BEGIN",
        "SELECT count(*) FROM units",
        "SELECT 1 FROM events",
    )
    try:
        before = stack.stats("other")["delivered"]
        sent = asyncio.run(post(500, port=stack.port, path="/in/other/lock", connections=4))
        assert sent.statuses == {202: 500}
        assert stack.settle("other")["delivered"] == before + 500
    finally:
        holder.release()
