"""What the disk and SQLite alone can do here and now: the measure of everything else."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path

import apsw

from pipo.clock import SystemClock
from pipo.journal.changes import Accepted, VersionAdded
from pipo.journal.sqlite_journal import SqliteJournal


def commits_per_second(folder: Path, *, name: str = "yardstick", seconds: float = 3.0) -> float:
    """Plain SQLite, WAL, synchronous=FULL, one insert of 300 bytes per transaction."""
    connection = _database(folder / f"{name}.db")
    payload = "x" * 300
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        connection.execute("INSERT INTO t VALUES (?, ?)", (str(count), payload))
        count += 1
    connection.close()
    return count / (time.perf_counter() - began)


def group_commit_ms(folder: Path, *, samples: int = 200) -> float:
    """Median of one packet's acceptance through the journal's group commit, milliseconds."""

    async def measured() -> list[float]:
        home = folder / "lone-journal"
        home.mkdir()
        journal = SqliteJournal.open(home, pipeline="lone", clock=SystemClock())
        await journal.commit(
            VersionAdded(1, "", b"{}", {}, "", author="", author_kind="", reason="", at=0)
        )
        taken = []
        for number in range(samples):
            await asyncio.sleep(0.002)
            began = time.perf_counter()
            await journal.commit(_accepted(number))
            taken.append((time.perf_counter() - began) * 1000.0)
        await journal.close(clean=True)
        return taken

    return statistics.median(asyncio.run(measured()))


def _accepted(number: int) -> Accepted:
    return Accepted(
        unit=f"{number:026d}",
        version=1,
        input="input",
        trigger="push",
        source="bench",
        data=b'"%s"' % (b"x" * 300),
        cursor="$output",
        queue_seq=number,
        at=0,
        state={},
    )


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
