"""What the disk and SQLite alone can do here and now: the measure of everything else."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import apsw


def commits_per_second(folder: Path, *, seconds: float = 3.0) -> float:
    """Plain SQLite, WAL, synchronous=FULL, one insert of 300 bytes per transaction."""
    connection = _database(folder / "yardstick.db")
    payload = "x" * 300
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        connection.execute("INSERT INTO t VALUES (?, ?)", (str(count), payload))
        count += 1
    connection.close()
    return count / (time.perf_counter() - began)


def lone_commit_ms(folder: Path, *, samples: int = 200) -> float:
    """Median of one insert and its commit, with a pause between, milliseconds."""
    connection = _database(folder / "lone.db")
    taken = []
    for number in range(samples):
        time.sleep(0.002)
        began = time.perf_counter()
        connection.execute("INSERT INTO t VALUES (?, ?)", (str(number), "x" * 300))
        taken.append((time.perf_counter() - began) * 1000.0)
    connection.close()
    return statistics.median(taken)


def lone_append_ms(folder: Path, *, samples: int = 200) -> float:
    """Median of one appended and synced line of 300 bytes, milliseconds."""
    taken = []
    with (folder / "lone.jsonl").open("ab", buffering=0) as file:
        for _ in range(samples):
            time.sleep(0.002)
            began = time.perf_counter()
            file.write(b"x" * 299 + b"\n")
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - began) * 1000.0)
    return statistics.median(taken)


def _database(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT)",
    ):
        for _ in connection.execute(statement):
            pass
    return connection
