"""R39: what retention deletes gives its space back, beside the work and without a stop."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable

import pytest

from tests.load.http_posts import post
from tests.packets import run_sql
from tests.stack import Stack, journal_of, query, wait_for

PIPELINE = """\
pipo: 1
name: keep
buffer: { max: 30000 }
input: { via: http, with: { path: /keep } }
output: { from: input, to: stdout }
retention: { data: 1s, trail: 1s }
"""
NOTE = "x" * 4_000
COMPACTED = "the journal was compacted"
# A day has passed since the last compaction.
DAY_AGO = (
    "UPDATE meta SET value = CAST(value AS INTEGER) - 100000000 WHERE key = 'last_compaction';"
)


def body(number: int) -> bytes:
    return json.dumps({"n": number, "note": NOTE}).encode()


@pytest.mark.parametrize(
    ("count", "rounds", "slowest_s"),
    [
        pytest.param(2_000, 1, 60.0, marks=pytest.mark.timeout(300)),
        pytest.param(20_000, 3, 1.0, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)]),
    ],
)
def test_space_is_given_back(stack: Stack, count: int, rounds: int, slowest_s: float) -> None:
    file = stack.write("keep.pipo", PIPELINE)
    stack.start(file)
    journal = journal_of(stack.home, "keep")
    # The first start only starts the clock of the compaction.
    wait_for(lambda: query(journal, "SELECT 1 FROM meta WHERE key = 'last_compaction'"))
    peaks, rests, trickled, delivered = [], [], [], 0
    for done in range(1, rounds + 1):
        posting = post(count, port=stack.port, path="/in/keep/keep", connections=16, body=body)
        assert set(asyncio.run(posting).statuses) == {202}
        stack.settle("keep", deadline_s=300)
        peaks.append(size(stack))
        assert stack.stop() == 0
        run_sql(journal, DAY_AGO)
        stack.start(file)
        times = trickle_until(stack, lambda done=done: compactions(stack) == done)  # type: ignore[misc]
        assert max(times) < slowest_s
        stack.settle("keep")
        rests.append(size(stack))
        trickled.append(len(times) / count)
        total = delivered_total(stack)
        assert total >= delivered + count
        delivered = total
    # What came meanwhile is there until the next clean-up.
    shares = [rest / peak for rest, peak in zip(rests, peaks, strict=True)]
    assert all(
        share <= 0.2 + meanwhile for share, meanwhile in zip(shares, trickled, strict=True)
    ), (peaks, rests, trickled)
    # Pages that are free are used again.
    assert max(peaks) <= peaks[0] * 1.1, peaks
    assert len(query(journal, "SELECT 1 FROM units")) < count * (0.1 + trickled[-1])


def trickle_until(stack: Stack, over: Callable[[], bool]) -> list[float]:
    """Ten posts a second meanwhile: how long each took."""
    times: list[float] = []
    pause = threading.Event()
    deadline = time.monotonic() + 600
    while not over():
        assert time.monotonic() < deadline, stack.output()
        began = time.monotonic()
        status, _, answer = stack.request("/in/keep/keep", body(0))
        assert status == 202, answer
        times.append(time.monotonic() - began)
        pause.wait(0.1)
    return times


def delivered_total(stack: Stack) -> int:
    _, _, page = stack.request("/metrics", method="GET")
    found = re.search(rb'pipo_packets_delivered_total\{pipeline="keep"\} (\d+)', page)
    assert found is not None, page
    return int(found[1])


def size(stack: Stack) -> int:
    """Bytes of the journal with its WAL."""
    folder = stack.home / "pipelines/keep"
    return sum(path.stat().st_size for path in folder.glob("journal.db*"))


def compactions(stack: Stack) -> int:
    return sum(log.read_text().count(COMPACTED) for log in (stack.home / "logs").glob("keep.log*"))
