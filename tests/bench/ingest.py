"""What taking a request costs, beside the least that keeps the same bytes and answers (bare_handler).

They take turns in one run, since the machine is shared; the medians of the turns are told. For the
bare handler one process does it all; here a gateway is on the way. Once the pipeline is paused and
only takes requests, as the bare handler does; once it delivers each packet while it takes the next.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processor import used_s
from tests.load import http_posts
from tests.stack import Stack, free_ports, wait_for

CONNECTIONS = 64
COUNT = 10_000
TURNS = 5
AIM = 0.8


@dataclass(frozen=True, slots=True)
class Taken:
    """One run: answers a second, and the servers' processor time for each, microseconds."""

    rate: float
    each_us: float


def report(stack: Stack, name: str, folder: Path) -> None:
    """Four lines. `name` is a pipeline of a running stack with an http input at `/in`."""
    port = free_ports(1)
    command = [sys.executable, "-m", "tests.bench.bare_handler", str(folder / "bare.db"), str(port)]
    bare = subprocess.Popen(command)
    try:
        wait_for(lambda: _answers(port), what="the bare handler listens")
        turns = [
            (_bare(bare.pid, port), _paused(stack, name), _ours(stack, name))
            for _ in range(1 + TURNS)
        ][1:]
    finally:
        bare.kill()
        bare.wait()
    least = [turn[0] for turn in turns]
    for which, title in (
        (1, f"HTTP ingest, {CONNECTIONS} connections"),
        (2, "the same, while it delivers"),
    ):
        ours = [turn[which] for turn in turns]
        ratio = statistics.median(turn[which].rate / turn[0].rate for turn in turns)
        print(
            title.ljust(56)
            + f" {_median(ours, 'rate'):9,.0f} /s  {ratio:5.2f} × a bare handler with group commit"
            f" ({_median(least, 'rate'):,.0f} /s; aim ≥ {AIM})"
        )
        print(
            "  processor time of gateway and pipeline for each".ljust(56)
            + f" {_median(ours, 'each_us'):9,.0f} µs  (the bare handler"
            f" {_median(least, 'each_us'):,.0f} µs)"
        )


def _bare(pid: int, port: int) -> Taken:
    return _posted([pid], port, "/in")


def _paused(stack: Stack, name: str) -> Taken:
    """Of a pipeline that does nothing else; what it took is delivered before the next turn."""
    assert stack.pipo("pause", name).returncode == 0
    taken = _through_the_gateway(stack, name)
    assert stack.pipo("resume", name).returncode == 0
    stack.settle(name, deadline_s=300)
    return taken


def _ours(stack: Stack, name: str) -> Taken:
    taken = _through_the_gateway(stack, name)
    # What is left of it must not run into the next turn.
    stack.settle(name, deadline_s=300)
    return taken


def _through_the_gateway(stack: Stack, name: str) -> Taken:
    gateway, pipeline = stack.service_pid("gateway"), stack.pipeline_pid(name)
    assert gateway is not None
    assert pipeline is not None
    return _posted([gateway, pipeline], stack.port, f"/in/{name}/in")


def _posted(servers: list[int], port: int, path: str) -> Taken:
    before = sum(map(used_s, servers))
    outcome = asyncio.run(http_posts.post(COUNT, port=port, path=path, connections=CONNECTIONS))
    assert outcome.statuses == {202: COUNT}, outcome
    used = sum(map(used_s, servers)) - before
    return Taken(COUNT / outcome.seconds, used / COUNT * 1_000_000.0)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _median(runs: list[Taken], of: str) -> float:
    return float(statistics.median(getattr(run, of) for run in runs))
