"""The wall clock jumps by an hour, either way, under pipelines that wait (services/pipo/clock.py).

What was set is the clock of every process of the stack, and of nobody else: the test measures
on its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import packet, push, settled
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

HOUR_MS = 3_600_000
EVERY_S, RETRY_S, TTL_S, UPTIME_S, WITHIN_S = 0.5, 6.0, 12.0, 10.0, 6.0
TO_STDOUT = "output: { from: input, to: stdout }\n"
PUSHED = f"input: {{ via: push }}\n{TO_STDOUT}"
# A number has no lower case: the step fails, and waits for its next attempt.
RETRIED = """\
input: { via: push }
nodes:
  work:
    from: input
    transform: map
    with: { data: "${lower(data)}" }
    on_error: { retry: 1, delay: 6s }
output: { from: work, to: stdout }
"""
PIPELINES = {
    "ticks": f"input: {{ via: schedule, with: {{ every: 500ms }} }}\n{TO_STDOUT}",
    "retried": RETRIED,
    "parked": f"{PUSHED}delivered: {{ check: external, within: 50m }}\n",
    "missed": f"{PUSHED}delivered: {{ check: external, within: 6s }}\n",
    "long": f"lifetime: {{ ttl: 50m }}\n{PUSHED}",
    "short": f"lifetime: {{ ttl: 12s }}\n{PUSHED}",
    "up": f"lifetime: {{ until: stats.uptime >= 10 }}\n{PUSHED}",
}


class Clocked:
    """A stack whose wall clock can be set; `began` is when each pipeline was asked to start."""

    def __init__(self, folder: Path) -> None:
        self._shift = folder / "shift"
        self.set(0)
        self.stack = Stack(folder, env={"PIPO_CLOCK_SHIFT": str(self._shift)})
        for name, text in PIPELINES.items():
            self.stack.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
        self.began = time.monotonic()

    def set(self, by_ms: int) -> None:
        """At once for whoever reads it: never half written."""
        new = self._shift.with_suffix(".new")
        new.write_text(str(by_ms))
        new.rename(self._shift)

    def ago_s(self) -> float:
        return time.monotonic() - self.began

    def state(self, name: str) -> str:
        return str(self.stack.get(f"/api/pipelines/{name}")["state"])


@pytest.fixture(params=[HOUR_MS, -HOUR_MS], ids=["ahead", "back"])
def clocked(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Clocked, int]]:
    made = Clocked(tmp_path)
    try:
        made.stack.start()
        yield made, request.param
    finally:
        made.stack.kill_all()


def test_a_jump_of_the_wall_clock_ends_repeats_and_delays_nothing(
    clocked: tuple[Clocked, int],
) -> None:
    made, by_ms = clocked
    stack = made.stack
    parked = push(stack, "parked", 1)
    pushed = time.monotonic()
    retried, missed = push(stack, "retried", 1), push(stack, "missed", 1)
    wait_for(lambda: packet(stack, "retried", retried)["attempt"] == 1)
    wait_for(lambda: packet(stack, "missed", missed)["state"] == "verifying")
    wait_for(lambda: packet(stack, "parked", parked)["state"] == "verifying")
    left_ms = stack.get("/api/pipelines/long")["lifetime"]["remaining_ms"]
    made.set(by_ms)
    # The moment of its end moves with the clock that a person reads; what is left does not.
    shown = stack.get("/api/pipelines/long")["lifetime"]
    assert left_ms - 60_000 < shown["remaining_ms"] <= left_ms
    assert abs(shown["ends_at"] - shown["remaining_ms"] - time.time() * 1000 - by_ms) < 60_000
    # Neither stuck for an hour, nor ended by it.
    assert settled(stack, "retried", retried)["state"] == "dead_lettered"
    assert time.monotonic() - pushed >= RETRY_S
    assert settled(stack, "missed", missed)["state"] == "dead_lettered"
    assert time.monotonic() - pushed >= WITHIN_S
    for name, after_s in (("up", UPTIME_S), ("short", TTL_S)):
        wait_for(lambda name=name: made.state(name) == "completed", deadline_s=120)  # type: ignore[misc]
        assert made.ago_s() >= after_s, name
    assert made.state("long") == "running"
    assert packet(stack, "parked", parked)["state"] == "verifying"
    # The clock is set right, and a process stands still for a while, as in a machine that sleeps.
    pid = stack.pipeline_pid("ticks")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    made.set(0)
    stopped = time.monotonic()
    wait_for(lambda: time.monotonic() > stopped + 4 * EVERY_S)
    os.kill(pid, signal.SIGCONT)
    log = stack.home / "logs/ticks.log"
    wait_for(lambda: "ticks missed" in log.read_text(), what=stack.output)
    sources = query(journal_of(stack.home, "ticks"), "SELECT source FROM units ORDER BY rowid")
    # Each tick once, on the grid of the first, and none made up for.
    assert sorted({row[0] for row in sources}) == [row[0] for row in sources]
    assert len(sources) <= made.ago_s() / EVERY_S + 1
    assert stack.request("/api/pipelines/parked/stop", b'{"now": true}')[0] == 200
    assert stack.stop() == 0


def test_a_minute_that_the_clock_comes_by_again_ticks_once(tmp_path: Path) -> None:
    made = Clocked(tmp_path)
    for path in made.stack.workspace.glob("*.pipo"):
        path.unlink()
    cron = 'input: { via: schedule, with: { cron: "* * * * *" } }'
    made.stack.write("cron.pipo", f"pipo: 1\nname: cron\n{cron}\n{TO_STDOUT}")
    # Its first minute begins in twenty seconds.
    early_ms = 40_000 - round(time.time() * 1000) % 60_000
    made.set(early_ms)

    def sources() -> list[str]:
        found = query(
            journal_of(made.stack.home, "cron"), "SELECT source FROM units ORDER BY rowid"
        )
        return [row[0] for row in found]

    try:
        made.stack.start()
        wait_for(lambda: len(sources()) == 1, deadline_s=120)
        # The same minute comes again in some forty seconds, the next one a minute later.
        made.set(early_ms - 40_000)
        set_back = time.monotonic()
        wait_for(lambda: len(sources()) == 2, deadline_s=180)
        assert time.monotonic() - set_back > 60
        # An hour is left out, noticed within half a minute, and not made up for.
        made.set(early_ms - 40_000 + HOUR_MS)
        wait_for(lambda: len(sources()) == 3, deadline_s=120)
        wait_for(lambda: len(sources()) == 4, deadline_s=120)
        assert len(set(sources())) == 4
        assert "ticks missed" in (made.stack.home / "logs/cron.log").read_text()
        assert made.stack.stop() == 0
    finally:
        made.stack.kill_all()
