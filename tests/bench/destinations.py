"""What the sqlite output alone does with a batch, beside the driver's own `executemany`."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from pipo.clock import SystemClock
from pipo.connectors import registry
from pipo.connectors.contract import Context, WriteUnit

ROWS = 100
PAYLOAD = {"v": "x" * 300}


def report(folder: Path, yard: float) -> None:
    """Two lines: rates of rows, as ratios to the yardstick, and the cost of a row without a disk."""
    rate = asyncio.run(_batches(folder, until_s=3.0))
    print(
        f"sqlite output, {ROWS} rows in one transaction".ljust(56)
        + f" {rate:9,.0f} /s  {rate / yard:5.2f} × yardstick"
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        ours = 1e6 / asyncio.run(_batches(Path(memory), until_s=1.0))
        least = 1e6 / _executemany(Path(memory), until_s=1.0)
    print(
        "the same in memory, for one row".ljust(56)
        + f" {ours:9.1f} µs  {ours / least:5.2f} × executemany ({least:.1f} µs)"
    )


async def _batches(folder: Path, *, until_s: float) -> float:
    """Rows a second through `Output.write(atomic=True)`."""
    log: Callable[..., None] = lambda *words, **keys: None  # noqa: E731
    output = registry.build_output(
        "sqlite", Context(pipeline="bench", folder=folder, clock=SystemClock(), log=log)
    )
    settings = {"path": str(folder / "batches.db"), "table": "t", "create": True}
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < until_s:
        keys = [f"{count + n:026d}" for n in range(ROWS)]
        await output.write(
            [WriteUnit(key, key, PAYLOAD, settings, "first") for key in keys], atomic=True
        )
        count += ROWS
    rate = count / (time.perf_counter() - began)
    await output.close()
    return rate


def _executemany(folder: Path, *, until_s: float) -> float:
    """The same rows and transactions by the driver alone."""
    connection = apsw.Connection(str(folder / "many.db"))
    for statement in (
        "PRAGMA journal_mode = PERSIST",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE t (packet_id PRIMARY KEY, v)",
    ):
        connection.execute(statement).fetchall()
    insert = "INSERT INTO t VALUES (?, ?) ON CONFLICT (packet_id) DO NOTHING"
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < until_s:
        rows = [(f"{count + n:026d}", PAYLOAD["v"]) for n in range(ROWS)]
        with connection:
            connection.executemany(insert, rows).fetchall()
        count += ROWS
    rate = count / (time.perf_counter() - began)
    connection.close()
    return rate
