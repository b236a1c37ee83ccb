"""SIGKILL while packets wait in a batch, and at each moment of its flush: each key once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.load.grpc_pushes import push as push_many
from tests.packets import push, run_sql
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

POINTS = ("batch.before_joining", "batch.after_joining", "batch.before_flush")
# Reached only by what fails together, and by what one commit cannot hold.
SPLIT = "batch.after_split"
PIECE = "batch.after_piece"
COVERED = frozenset({*POINTS, SPLIT, PIECE})
FLUSH = (*POINTS, "output.before_write", "output.after_write", "written.after_commit")
TEXT = """pipo: 1
name: batches
buffer: {{ max: 5000 }}
input: {{ via: push }}
output:
  from: input
  to: {to}
  batch: {{ size: {size}, within: {within} }}
  on_error: {{ retry: 0 }}
delivered: {{ check: {check} }}
"""
KINDS = {
    "sqlite": "sqlite\n  with: { path: ./out.db, table: t, create: true }",
    "keyed": "sqlite\n  with: { path: ./out.db, table: t, create: true, key: n,"
    ' columns: { n: "${data.n}", packet_id: "${meta.packet_id}" } }',
    "file": "file\n  with: { path: ./out.jsonl }",
    "csv": "file\n  with: { path: ./out.csv, format: csv }",
}
CHECKS = {
    "sqlite": 'record_exists, with: { where: { packet_id: "${meta.packet_id}" } }, within: 5m',
    "file": 'line_contains, with: { value: "${meta.packet_id}" }, within: 5m',
}
ODD = (
    "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER CHECK (n <> 3)); CREATE TABLE other (a)"
)


class Batches:
    """The pipeline `batches`, killed once at a point."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        size: int,
        point: str,
        *,
        check: str = "ack",
        within: str = "300ms",
    ) -> None:
        self.kind = kind
        self._sprung = folder / "sprung"
        self.stack = Stack(
            folder,
            env={"PIPO_CRASH_AT": point, "PIPO_CRASH_ONCE": str(self._sprung)} if point else {},
            config="engine:\n  restart: { backoff: 200ms }\n",
        )
        text = TEXT.format(to=KINDS[kind], size=size, within=within, check=check)
        self.stack.write("batches.pipo", text)

    def restarted(self) -> None:
        """Waits for the kill at the point, and for the next run."""
        wait_for(self._sprung.exists, what=lambda: f"the point is reached; {self.stack.output()}")
        wait_for(
            lambda: self.stack.stats("batches") or None, deadline_s=150, what=self.stack.output
        )

    def push(self, n: int) -> bool:
        """Whether a packet was answered for; one that was not may be there all the same."""
        try:
            push(self.stack, "batches", {"n": n})
        except (OSError, AssertionError):
            return False
        return True

    def keys(self) -> Counter[str]:
        """How often each packet's id stands at the destination."""
        if self.kind == "file":
            lines = (self.stack.workspace / "out.jsonl").read_text().splitlines()
            return Counter(json.loads(line)["packet_id"] for line in lines)
        if self.kind == "csv":
            _, *lines = (self.stack.workspace / "out.csv").read_text().splitlines()
            return Counter(lines)
        rows = query(self.stack.workspace / "out.db", "SELECT packet_id FROM t")
        return Counter(row[0] for row in rows)

    def accepted(self) -> list[str]:
        rows = query(journal_of(self.stack.home, "batches"), "SELECT id, data FROM units")
        return [row[1 if self.kind == "csv" else 0] for row in rows]

    def each_stands_once(self) -> None:
        """Every accepted packet is delivered and stands there once, and nothing else does."""
        stats = self.stack.settle("batches")
        assert (stats["dead_lettered"], stats["delivered"]) == (0, stats["accepted"])
        keys = self.keys()
        if self.kind == "csv":
            # A row has the packet's fields and no id; each number was pushed until it was taken.
            assert sum(keys.values()) == stats["accepted"]
            return
        if self.kind == "keyed":
            # A number that was pushed again is the same row.
            assert set(keys) <= set(self.accepted())
            assert max(keys.values()) == 1
            return
        assert keys == Counter(self.accepted())


SIZES = (1, 7, 100)


def product() -> Iterator[Any]:
    """Every kind, size and point; each point once in the tests that always run.

    `test_destinations` has every pair of them.
    """
    for n, point in enumerate(FLUSH):
        for m, size in enumerate(SIZES):
            for k, kind in enumerate(("sqlite", "file")):
                always = (m, k) == (n % 3, n % 2)
                marks = [] if always else [pytest.mark.soak]
                yield pytest.param(kind, size, point, marks=marks)


@pytest.mark.seed("O005", "O075", "O076", "R058")
@pytest.mark.parametrize(("kind", "size", "point"), list(product()))
def test_a_crash_of_a_batch_writes_each_key_once(
    tmp_path: Path, kind: str, size: int, point: str
) -> None:
    crash(tmp_path, kind, size, point)


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("keyed", "output.after_write"),
        ("csv", "batch.after_joining"),
        pytest.param("keyed", "batch.after_joining", marks=pytest.mark.soak),
        pytest.param("csv", "output.after_write", marks=pytest.mark.soak),
    ],
)
def test_a_crash_of_a_batch_under_other_keys(tmp_path: Path, kind: str, point: str) -> None:
    crash(tmp_path, kind, 7, point)


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_crash_of_a_batch_that_is_looked_for(tmp_path: Path, kind: str) -> None:
    crash(tmp_path, kind, 7, "written.after_commit", CHECKS[kind])


def crash(folder: Path, kind: str, size: int, point: str, check: str = "ack") -> None:
    # The second time it is reached: something was written before, and something waits behind.
    batches = Batches(folder, kind, size, f"{point}:2", check=check)
    taken = 0
    try:
        batches.stack.start()
        wanted = 2 * size + size // 2 + 2
        for n in range(wanted):
            wait_for(lambda n=n: batches.push(n), what=batches.stack.output)  # type: ignore[misc]
            taken += 1
        batches.restarted()
        batches.each_stands_once()
        if kind == "keyed":
            assert len(batches.keys()) == wanted
        assert batches.stack.stats("batches")["accepted"] >= taken
    finally:
        batches.stack.kill_all()


@pytest.mark.seed("O076")
def test_a_crash_between_two_halves_costs_the_bad_one_alone(tmp_path: Path) -> None:
    batches = Batches(tmp_path, "sqlite", 7, SPLIT)
    run_sql(batches.stack.workspace / "out.db", ODD)
    try:
        batches.stack.start()
        for n in range(7):
            batches.push(n)
        batches.restarted()
        stats = batches.stack.settle("batches")
        assert (stats["dead_lettered"], stats["delivered"]) == (1, 6)
        rows = query(batches.stack.workspace / "out.db", "SELECT n FROM t ORDER BY n")
        assert rows == [[0], [1], [2], [4], [5], [6]]
    finally:
        batches.stack.kill_all()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_crash_between_two_pieces_repeats_the_rest_as_nothing(tmp_path: Path, kind: str) -> None:
    batches = Batches(tmp_path, kind, 2500, PIECE, within="20s")
    try:
        batches.stack.start()
        asyncio.run(push_many(2500, port=batches.stack.port + 1, pipeline="batches"))
        batches.restarted()
        batches.each_stands_once()
        assert batches.stack.stats("batches")["delivered"] == 2500
    finally:
        batches.stack.kill_all()


def _stood_at_batch(stack: Stack, count: int) -> Callable[[], bool]:
    sql = "SELECT count(*) FROM units WHERE cursor = '$batch' AND state = 'writing'"
    return lambda: query(journal_of(stack.home, "batches"), sql) == [[count]]


@pytest.mark.seed("O075", "O076")
def test_what_waited_is_written_one_whole_within_after_the_start(tmp_path: Path) -> None:
    """Killed while a batch collects: the next run's batch takes it up with what comes new."""
    batches = Batches(tmp_path, "sqlite", 100, "", within="10s")
    try:
        stack = batches.stack.start()
        for n in range(3):
            assert batches.push(n)
        wait_for(_stood_at_batch(stack, 3), what="three wait")
        pid = stack.pipeline_pid("batches")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: stack.pipeline_pid("batches") not in (None, pid))
        wait_for(lambda: batches.push(3))
        batches.each_stands_once()
        journal = journal_of(stack.home, "batches")
        ((started,),) = query(journal, "SELECT max(at) FROM events WHERE type = 'pipeline.started'")
        written = query(journal, "SELECT at, detail FROM events WHERE type = 'output.written'")
        assert {detail for _, detail in written} == {'{"size":4}'}
        assert all(10_000 <= at - started < 40_000 for at, _ in written)
        waits = query(journal, "SELECT count(*) FROM events WHERE type = 'output.batched'")
        # One for each: those that waited are not journaled as waiting again.
        assert waits == [[4]]
    finally:
        batches.stack.kill_all()
