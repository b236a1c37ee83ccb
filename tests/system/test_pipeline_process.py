"""What a pipeline process holds and does while it is idle."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.stack import Stack, wait_for

PIPELINE = """pipo: 1
name: idle
input: { via: http, with: { path: /in } }
output: { from: input, to: sqlite, with: { path: ./idle.db, table: t, create: true } }
delivered: { check: record_exists, with: { where: { packet_id: "${meta.packet_id}" } } }
"""
# Pages of its own, which is what one more pipeline costs: some 17 MB. What it shares counts for
# less the more others share it, also outside of the test.
PRIVATE_MB_MAX = 24


@pytest.mark.slow
@pytest.mark.alone
def test_one_sqlite_library_little_memory_and_no_busy_timer(stack: Stack) -> None:
    """Two SQLite libraries in one process lose commits (design §5)."""
    # Pages are shared among pipelines: three of them, as in examples/.
    for name in ("idle", "beside", "besides"):
        stack.write(f"{name}.pipo", PIPELINE.replace("idle", name))
    stack.start()
    pid = stack.pipeline_pid("idle")
    assert stack.request("/in/idle/in", b'{"n": 1}')[0] == 202
    assert stack.settle("idle")["delivered"] == 1
    assert stack.pipo("packets", "idle").returncode == 0
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "apsw" in maps
    assert "_sqlite3" not in maps
    assert "pysqlite3" not in maps
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = [line.split()[1] for line in rollup.splitlines() if line.startswith("Private_")]
    assert sum(map(int, private)) / 1024 < PRIVATE_MB_MAX
    wait_for(lambda: cpu_s(pid, 2.0) <= 0.03, what="it comes to rest")


def cpu_s(pid: int | None, seconds: float) -> float:
    """CPU seconds that a process uses within some seconds."""
    before = _cpu_s(pid)
    time.sleep(seconds)
    return _cpu_s(pid) - before


def _cpu_s(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
