"""R28: one bad record of a batch fails alone, with its own words, and its neighbours arrive."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.load.grpc_pushes import push as push_many
from tests.packets import inspect, packet, push, running
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

TABLE = "create table t(packet_id TEXT PRIMARY KEY, i INTEGER UNIQUE, v TEXT CHECK (v <> 'bad'))"
TEXT = """\
concurrency: {concurrency}
input: {{ via: push }}
output:
  from: input
  to: sqlite
  {batch}
  with: {{ path: ./out/{name}.db, table: t }}
  on_error: {{ retry: 1, delay: {delay} }}
"""
BATCH = "batch: { size: 5, within: 1h }"
NAMES = ("one", "all", "same", "locked", "behind")
PIPELINES = {
    **{name: TEXT.format(name=name, concurrency=1, batch=BATCH, delay="20ms") for name in NAMES},
    # A retry of the bad one lasts; its neighbours do not wait for it.
    "none": TEXT.format(name="none", concurrency=5, batch="", delay="6s"),
}
BEFORE = {f"out/{name}.db": TABLE for name in PIPELINES}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("report"), PIPELINES, before=BEFORE) as made:
        yield made


def push_all(stack: Stack, name: str, *values: tuple[int, str]) -> list[str]:
    return [push(stack, name, {"i": i, "v": v}) for i, v in values]


def rows(stack: Stack, name: str) -> list[int]:
    """The numbers in the order of their rows."""
    found = query(stack.workspace / f"out/{name}.db", "SELECT i FROM t ORDER BY rowid")
    return [i for (i,) in found]


def details(stack: Stack, name: str, type_: str) -> list[dict[str, Any]]:
    sql = f"SELECT detail FROM events WHERE type = '{type_}' ORDER BY seq"
    return [json.loads(detail) for (detail,) in query(journal_of(stack.home, name), sql)]


def dead(stack: Stack, name: str) -> dict[str, dict[str, Any]]:
    sql = "SELECT id, error FROM units WHERE state = 'dead_lettered'"
    return {id: json.loads(error) for id, error in query(journal_of(stack.home, name), sql)}


def numbered(bad: frozenset[int]) -> list[tuple[int, str]]:
    return [(i, "bad" if i in bad else "ok") for i in range(1, 6)]


def test_the_bad_one_is_dead_and_the_others_are_delivered(stack: Stack) -> None:
    ids = push_all(stack, "one", *numbered(frozenset({3})))
    stack.settle("one")
    # In their order, too: one after another is what concurrency 1 means.
    assert rows(stack, "one") == [1, 2, 4, 5]
    (error,) = dead(stack, "one").values()
    assert (error["code"], error["attempts"]) == ("output.failed", 2)
    assert "CHECK constraint failed" in error["message"]
    assert list(dead(stack, "one")) == [ids[2]]
    splits = [(one["size"], one["into"]) for one in details(stack, "one", "output.batch_split")]
    assert splits == [(5, [3, 2]), (3, [2, 1])]
    for one in (*ids[:2], *ids[3:]):
        trail = inspect(stack, "one", one)["events"]
        types = [event["type"] for event in trail if event["type"] != "step.retry"]
        assert types == [
            "packet.accepted",
            "output.batched",
            "output.written",
            "packet.delivered",
        ]
        # What was tried again is what they were part of.
        retried = [event["detail"]["batch"] for event in trail if event["type"] == "step.retry"]
        assert retried == ([5, 3] if one in ids[:2] else [5])


def test_five_bad_ones_are_five_dead_letters(stack: Stack) -> None:
    ids = push_all(stack, "all", *numbered(frozenset(range(1, 6))))
    stats = stack.settle("all")
    assert (stats["dead_lettered"], rows(stack, "all")) == (5, [])
    assert sorted(dead(stack, "all")) == sorted(ids)


def test_one_that_collides_with_its_neighbour_is_dead(stack: Stack) -> None:
    ids = push_all(stack, "same", *((i, "ok") for i in (1, 2, 2, 4, 5)))
    stack.settle("same")
    assert rows(stack, "same") == [1, 2, 4, 5]
    ((id, error),) = dead(stack, "same").items()
    assert id == ids[2]
    assert "UNIQUE constraint failed: t.i" in error["message"]


def test_without_a_batch_the_neighbours_wait_for_no_retry(stack: Stack) -> None:
    def body(n: int) -> bytes:
        return json.dumps({"i": n + 1, "v": "bad" if n == 2 else "ok"}).encode()

    asyncio.run(push_many(5, port=stack.port + 1, pipeline="none", body=body))
    stack.settle("none")
    assert sorted(rows(stack, "none")) == [1, 2, 4, 5]
    ended = query(
        journal_of(stack.home, "none"),
        "SELECT type FROM events WHERE type IN ('packet.delivered', 'packet.dead_lettered')"
        " ORDER BY seq",
    )
    assert ended == [["packet.delivered"]] * 4 + [["packet.dead_lettered"]]
    (error,) = dead(stack, "none").values()
    assert (error["code"], error["attempts"]) == ("output.failed", 2)
    assert details(stack, "none", "output.batch_split") == []


def test_a_lock_that_goes_away_costs_one_retry_and_no_split(stack: Stack) -> None:
    program = (
        "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('BEGIN EXCLUSIVE');"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(stack.workspace / "out/locked.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        ids = push_all(stack, "locked", *numbered(frozenset()))
        wait_for(lambda: details(stack, "locked", "step.retry"), what="the first attempt fails")
    finally:
        holder.communicate("", timeout=60)
    stats = stack.settle("locked")
    assert (stats["delivered"], rows(stack, "locked")) == (5, [1, 2, 3, 4, 5])
    assert details(stack, "locked", "output.batch_split") == []
    retries = details(stack, "locked", "step.retry")
    assert [(one["attempt"], one["batch"]) for one in retries] == [(1, 5)] * len(ids)


def test_the_next_batch_is_not_held_up_beyond_that(stack: Stack) -> None:
    bad, *_ = push_all(
        stack,
        "behind",
        (1, "bad"),
        *((i, "ok") for i in range(2, 6)),
        *((i, "ok") for i in range(6, 11)),
    )
    stack.settle("behind")
    assert rows(stack, "behind") == list(range(2, 11))
    assert packet(stack, "behind", bad)["state"] == "dead_lettered"
