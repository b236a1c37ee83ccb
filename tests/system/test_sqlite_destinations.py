"""Databases that are locked, full, read-only, replaced or not ours, through a real stack.

Every fault is the packet's own: it is tried again as `on_error` says, with a message that
names the file and the way out, and the pipeline goes on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.mounts import remount, small_disk
from tests.packets import inspect, outcome, push, run_sql, running, settled
from tests.stack import Stack, query, wait_for
from tests.system.test_report_13 import Holder

pytestmark = pytest.mark.slow

PATIENT = "  on_error: { retry: 400, delay: 100ms }\n"
ONCE_MORE = "  on_error: { retry: 1, delay: 50ms }\n"
SEEN = 'delivered: { check: record_exists, with: { where: { packet_id: "${meta.key}" } } }\n'


def to(database: str, policy: str, *, more: str = ", create: true", check: str = SEEN) -> str:
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: sqlite\n"
        f'  with: {{ path: "{database}", table: t{more} }}\n{policy}{check}'
    )


# Tables that refuse a packet with n = 2, or every packet; what the message says, and the hint.
REFUSING = {
    "not-null": (
        "CREATE TABLE t (packet_id PRIMARY KEY, n, m NOT NULL)",
        ("NOT NULL constraint failed: t.m", "`columns`"),
    ),
    "checked": (
        "CREATE TABLE t (packet_id PRIMARY KEY, n CHECK (n <> 2))",
        ("CHECK constraint failed", "the table's rule"),
    ),
    "orphan": (
        "CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p VALUES (1), (3);"
        "CREATE TABLE t (packet_id PRIMARY KEY, n REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
        ("FOREIGN KEY constraint failed", "the row that it refers to"),
    ),
    "ignored": (
        "CREATE TABLE t (packet_id PRIMARY KEY, n);"
        "CREATE TRIGGER g BEFORE INSERT ON t WHEN new.n = 2 BEGIN SELECT RAISE(IGNORE); END",
        ("dropped the row without an error", "RAISE(IGNORE)"),
    ),
    "partial": (
        "CREATE TABLE t (packet_id, n); CREATE UNIQUE INDEX i ON t (packet_id) WHERE n > 0",
        ("no PRIMARY KEY or UNIQUE constraint", "CREATE UNIQUE INDEX"),
    ),
    "viewed": (
        "CREATE TABLE u (packet_id PRIMARY KEY, n); CREATE VIEW t AS SELECT * FROM u",
        ("is a view", "the table behind the view"),
    ),
}
EVERY_PACKET = ("not-null", "partial", "viewed")
MIXED = """\
inputs: { one: { via: push }, two: { via: push } }
nodes:
  both:
    from: [one, two]
    transform: map
    with: { data: { n: "${data.n}", key: "${meta.key}" } }
output:
  from: both
  to: sqlite
  with: { path: "./mixed-${data.n % 2}.db", table: t, create: true }
delivered: { check: record_exists, with: { where: { packet_id: "${meta.key}" } } }
"""

LIMITS: dict[str, Any] = {
    "long": "x" * 10_000_000,
    "nul": "a\0b",
    "digits": 2**64,
    "large": 1e308,
    "yes": True,
    "deep": [[[{"a": [None, {}]}]]],
}
AS_WRITTEN = (
    "delivered:\n  check: record_exists\n  with:\n    where:\n      packet_id: '${meta.key}'\n"
    + "".join(f"      {name}: '${{data.{name}}}'\n" for name in LIMITS)
)

PIPELINES = {
    "limits": to("./limits.db", "", check=AS_WRITTEN),
    "held": to("./held.db", "  on_error: { retry: 0 }\n"),
    "full": to("./small/full.db", PATIENT),
    "fixed": to("./fixed/fixed.db", PATIENT),
    "swapped": to("./swapped.db", ONCE_MORE),
    "garbled": to("./garbled.db", PATIENT),
    "cut-short": to("./cut-short.db", ONCE_MORE),
    "mixed": MIXED,
    **{name: to(f"./{name}.db", ONCE_MORE, more="") for name in REFUSING},
}
BEFORE = {
    **{f"{name}.db": made for name, (made, _) in REFUSING.items()},
    "cut-short.db": "PRAGMA journal_mode = wal; CREATE TABLE t (packet_id PRIMARY KEY, n)",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("destinations"), PIPELINES, before=BEFORE) as made:
        yield made


def retries(stack: Stack, name: str, id: str) -> list[dict[str, Any]]:
    return [e["detail"] for e in inspect(stack, name, id)["events"] if e["type"] == "step.retry"]


def first_failure(stack: Stack, name: str, id: str) -> str:
    """What the first failed attempt said."""
    failed = wait_for(partial(retries, stack, name, id), what=f"{name} fails once")
    return str(failed[0]["error"])


def keys(stack: Stack, database: str) -> list[str]:
    found = query(stack.workspace / database, "SELECT packet_id FROM t ORDER BY rowid")
    return [row[0] for row in found]


@contextmanager
def disk(stack: Stack, folder: str) -> Iterator[Path]:
    with small_disk(stack.workspace / folder) as place:
        yield place


def test_a_lock_of_three_seconds_is_waited_for(stack: Stack) -> None:
    """Edge 168."""
    assert outcome(stack, "held", {"n": 0})["state"] == "delivered"
    holder = Holder(stack.workspace / "held.db", "BEGIN IMMEDIATE")
    release = threading.Timer(3.0, holder.release)
    id = push(stack, "held", {"n": 1})
    release.start()
    try:
        end = settled(stack, "held", id)
    finally:
        release.join()
    assert end["state"] == "delivered", end
    assert retries(stack, "held", end["packet_id"]) == []
    at = {e["type"]: e["at"] for e in inspect(stack, "held", end["packet_id"])["events"]}
    assert at["output.written"] - at["packet.accepted"] >= 2_500


def test_a_full_disk_is_waited_out(stack: Stack) -> None:
    with disk(stack, "small") as place:
        first = outcome(stack, "full", {"s": ""})
        filler = place / "filler"
        left = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        filler.write_bytes(b"x" * (left - 8_192))
        id = push(stack, "full", {"s": "x" * 60_000})
        said = first_failure(stack, "full", id)
        assert "no room left to write" in said
        assert "full.db" in said
        assert "free some disk space" in said
        filler.unlink()
        assert settled(stack, "full", id)["state"] == "delivered"
        assert keys(stack, "small/full.db") == [first["packet_id"], id]


def test_a_read_only_disk_is_waited_out(stack: Stack) -> None:
    with disk(stack, "fixed") as place:
        remount(place, "ro")
        id = push(stack, "fixed", {"n": 1})
        said = first_failure(stack, "fixed", id)
        assert "fixed.db: Read-only file system" in said
        assert "mounted read-only" in said
        remount(place, "rw")
        assert settled(stack, "fixed", id)["state"] == "delivered"
        assert keys(stack, "fixed/fixed.db") == [id]


def test_a_database_replaced_between_two_writes_is_the_one_that_is_written(stack: Stack) -> None:
    first = outcome(stack, "swapped", {"n": 1})["packet_id"]
    old, new = stack.workspace / "swapped.db", stack.workspace / "new.db"
    run_sql(new, "CREATE TABLE t (packet_id PRIMARY KEY, n)")
    os.rename(old, stack.workspace / "old.db")
    os.rename(new, old)
    end = outcome(stack, "swapped", {"n": 2})
    assert end["state"] == "delivered"
    assert keys(stack, "swapped.db") == [end["packet_id"]]
    assert keys(stack, "old.db") == [first]


def test_a_file_that_is_no_database_any_more_is_named_until_it_is_put_back(stack: Stack) -> None:
    first = outcome(stack, "garbled", {"n": 1})["packet_id"]
    database = stack.workspace / "garbled.db"
    sound = database.read_bytes()
    database.write_bytes(b"this is no database, and it was never one\n" * 300)
    id = push(stack, "garbled", {"n": 2})
    said = first_failure(stack, "garbled", id)
    assert "garbled.db is not a SQLite database" in said
    assert "put back" in said
    database.write_bytes(sound)
    assert settled(stack, "garbled", id)["state"] == "delivered"
    assert keys(stack, "garbled.db") == [first, id]


def test_a_wal_database_cut_short_in_place_delivers_nothing(stack: Stack) -> None:
    assert outcome(stack, "cut-short", {"n": 1})["state"] == "delivered"
    os.truncate(stack.workspace / "cut-short.db", 0)
    end = outcome(stack, "cut-short", {"n": 2})
    assert end["state"] == "dead_lettered"
    assert "cut-short.db is " in end["error"]["message"]


@pytest.mark.parametrize("name", REFUSING)
def test_what_a_table_refuses_is_said_and_its_neighbours_are_written(
    stack: Stack, name: str
) -> None:
    ids = [push(stack, name, {"n": n}) for n in (1, 2, 3)]
    ends = [settled(stack, name, id) for id in ids]
    refused = ends if name in EVERY_PACKET else [ends[1]]
    for end in refused:
        assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.failed")
        assert end["error"]["attempts"] == 2
        for word in REFUSING[name][1]:
            assert word in end["error"]["message"]
    delivered = [end["packet_id"] for end in ends if end["state"] == "delivered"]
    assert len(delivered) == 3 - len(refused)
    if name != "viewed":
        assert keys(stack, f"{name}.db") == delivered


def test_a_database_per_packet_by_template(stack: Stack) -> None:
    ids = {n: push(stack, "mixed", {"n": n}, input=("one", "two")[n % 2]) for n in range(6)}
    assert {settled(stack, "mixed", id)["state"] for id in ids.values()} == {"delivered"}
    for half in (0, 1):
        found = query(stack.workspace / f"mixed-{half}.db", "SELECT packet_id, n, key FROM t")
        assert sorted(found) == sorted([id, n, id] for n, id in ids.items() if n % 2 == half)


def test_values_at_their_limits_are_found_as_they_were_written(stack: Stack) -> None:
    id = push(stack, "limits", LIMITS)
    end = settled(stack, "limits", id, deadline_s=60)
    assert end["state"] == "delivered", end["error"]
    types = ", ".join(f"typeof({name})" for name in LIMITS)
    [found] = query(
        stack.workspace / "limits.db", f"SELECT length(long), hex(nul), digits, {types} FROM t"
    )
    assert found[:3] == [10_000_000, "610062", "18446744073709551616"]
    assert found[3:] == ["text", "text", "text", "real", "integer", "text"]
