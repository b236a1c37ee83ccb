"""SIGKILL of a pipeline while its functions run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import inspect, push
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]

PACKETS = 3
# The last of the calls kills the pipeline, its parent; then none of them ends by itself, and
# no thread of theirs gets a turn.
MODULE = f"""
import os, re, signal, subprocess

def act(data, meta):
    armed = os.path.exists("armed")
    child = subprocess.Popen(["sleep", "1000"]).pid if armed else 0
    with open("runs.txt", "a") as runs:
        runs.write(f"{{meta['packet_id']}} {{os.getpid()}} {{child}}\\n")
    if armed:
        if len(open("runs.txt").readlines()) == {PACKETS}:
            os.unlink("armed")
            os.kill(os.getppid(), signal.SIGKILL)
        while True:
            re.match("(a+)+$", "a" * 40 + "b")
    return {{"n": data["n"]}}
"""
TEXT = """pipo: 1
name: fns
input: { via: push }
fn: ./fns.fn.py
nodes:
  acted: { from: input, transform: fn.act }
output:
  from: acted
  to: sqlite
  with: { path: ./fns.db, table: t, create: true }
"""
DONE = "SELECT unit, count(*) FROM events WHERE type = 'node.done' GROUP BY unit"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path, config="engine:\n  restart: { backoff: 2s }\n")
    made.write("fns.pipo", TEXT)
    made.write("fns.fn.py", MODULE)
    made.write("armed", "")
    try:
        yield made.start()
    finally:
        made.kill_all()


def runs(stack: Stack) -> list[tuple[str, int, int]]:
    """The packet, the process and its program, of each run."""
    path = stack.workspace / "runs.txt"
    found = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(packet, int(pid), int(child)) for packet, pid, child in found]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_calls_end_with_their_pipeline_and_run_again_after_it(stack: Stack) -> None:
    first = stack.pipeline_pid("fns")
    ids = [push(stack, "fns", {"n": n}) for n in range(PACKETS)]
    wait_for(lambda: len(runs(stack)) >= PACKETS, deadline_s=60.0, what="all calls have begun")
    begun = runs(stack)[:PACKETS]
    assert sorted(packet for packet, _, _ in begun) == sorted(ids)
    for _, pid, child in begun:
        wait_for(lambda pid=pid: is_gone(pid), what="the function's process is gone")  # type: ignore[misc]
        wait_for(lambda pid=child: is_gone(pid), what="and what it started")  # type: ignore[misc]
    wait_for(lambda: stack.pipeline_pid("fns") not in (None, first), deadline_s=60.0)
    stats = stack.settle("fns")
    assert (stats["accepted"], stats["delivered"]) == (PACKETS, PACKETS)
    assert Counter(packet for packet, _, _ in runs(stack)) == Counter(ids * 2)
    # The call that the kill cut off leaves nothing in the trail, its repeat one event (edge 362).
    assert dict(query(journal_of(stack.home, "fns"), DONE)) == dict.fromkeys(ids, 1)
    written = query(stack.workspace / "fns.db", "SELECT packet_id, n FROM t ORDER BY n")
    assert written == [[id, n] for n, id in enumerate(ids)]
    assert [e["type"] for e in inspect(stack, "fns", ids[0])["events"]].count("node.done") == 1
