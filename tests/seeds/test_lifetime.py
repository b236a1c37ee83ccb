"""Lifetimes against a real stack: what ends a pipeline, what it says then, and what begins anew."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.crash.traps import IDLE
from tests.packets import packet, push, settled
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow

# A packet without a `word` fails at its first step, and waits for the next attempt: a slow step.
WORK = """\
input: { via: http, with: { path: /in } }
nodes:
  work:
    from: input
    transform: map
    with: { data: { n: "${data.n}", word: "${lower(data.word)}" } }
    on_error: { retry: 1, delay: WAIT }
output: { from: work, to: file, with: { path: ./out/NAME.jsonl } }
"""
SLOW, FAST = {"n": 1}, {"n": 2, "word": "A"}
BACKFILL = """\
pipo: 1
name: backfill
lifetime:
  ttl: 2h                       # end two hours after the start
  max_packets: 50000            # or after 50,000 accepted packets
  until: stats.pending == 0 && stats.delivered >= 50000
  on_end: drain
  drain_timeout: 5m
concurrency: 8
buffer: { max: 20000 }
retention:
  data: 1d
  trail: 7d
input:
  via: push
output:
  from: input
  to: file
  with: { path: ./out/backfill.jsonl }
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(
        tmp_path_factory.mktemp("lifetime"), config="engine:\n  restart: { backoff: 50ms }\n"
    )
    try:
        yield made.start(made.write("idle.pipo", IDLE))
        assert made.stop() == 0
    finally:
        made.kill_all()


def started(
    stack: Stack, name: str, lifetime: str, *, wait: str = "1500ms", more: str = ""
) -> Path:
    """A pipeline of that lifetime, from now on."""
    text = WORK.replace("WAIT", wait).replace("NAME", name)
    path = stack.write(
        f"{name}.pipo", f"pipo: 1\nname: {name}\nlifetime: {{ {lifetime} }}\n{text}{more}"
    )
    start(stack, name)
    return path


def start(stack: Stack, name: str) -> None:
    path = str(stack.workspace / f"{name}.pipo")
    status, _, body = stack.request("/api/pipelines", json.dumps({"file": path}).encode())
    assert status == 201, body


def state(stack: Stack, name: str) -> str:
    return str(stack.get(f"/api/pipelines/{name}")["state"])


def completed(stack: Stack, name: str) -> None:
    wait_for(
        lambda: state(stack, name) == "completed",
        deadline_s=120,
        what=lambda: f"{name} completes; it is {state(stack, name)}\n{stack.output()}",
    )


def events(stack: Stack, name: str) -> list[tuple[str, int, Any]]:
    """Those of the pipeline itself: type, time, facts."""
    rows = query(
        journal_of(stack.home, name),
        "SELECT type, at, detail FROM events WHERE type LIKE 'pipeline.%' ORDER BY seq",
    )
    return [(type_, at, json.loads(detail or "{}")) for type_, at, detail in rows]


def reasons(stack: Stack, name: str) -> list[str]:
    return [
        facts["reason"] for type_, _, facts in events(stack, name) if type_ == "pipeline.lifetime"
    ]


def log(stack: Stack, name: str) -> str:
    return (stack.home / f"logs/{name}.log").read_text()


@pytest.mark.seed("L001")
def test_the_example_passes_its_check_and_runs(stack: Stack) -> None:
    path = stack.write("backfill.pipo", BACKFILL)
    checked = stack.pipo("check", str(path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    start(stack, "backfill")
    id = push(stack, "backfill", {"n": 1})
    assert settled(stack, "backfill", id)["state"] == "delivered"
    assert [one["packet_id"] for one in lines(stack.workspace / "out/backfill.jsonl")] == [id]
    shown = stack.get("/api/pipelines/backfill")["lifetime"]
    assert shown["ttl"] == "2h"
    assert 0 < shown["remaining_ms"] <= 7_200_000
    assert (shown["max_packets"], shown["reached"]) == (50_000, None)
    told = stack.pipo("status", "backfill").stdout
    assert "1 of 50,000 packets; until stats.pending == 0 && stats.delivered >= 50000" in told
    assert "lifetime        2h: 1h59m left (until " in told
    assert stack.pipo("stop", "backfill", "--now").returncode == 0


@pytest.mark.seed("L003", "L008")
def test_a_ttl_ends_it(stack: Stack) -> None:
    started(stack, "short", "ttl: 2s")
    id = push(stack, "short", FAST)
    completed(stack, "short")
    found = events(stack, "short")
    assert [type_ for type_, _, _ in found] == [
        "pipeline.started",
        "pipeline.lifetime",
        "pipeline.draining",
        "pipeline.completed",
    ]
    assert found[1][1] - found[0][1] >= 2000
    assert found[1][2]["reason"] == "ttl"
    assert "lifetime ttl 2s reached; draining" in stack.pipo("logs", "short").stdout
    assert [one["packet_id"] for one in lines(stack.workspace / "out/short.jsonl")] == [id]
    assert not (stack.home / "run/short.json").exists()


@pytest.mark.seed("L004", "L006", "L008", "L009")
def test_a_number_of_packets_ends_it_and_every_door_says_so(stack: Stack) -> None:
    started(stack, "few", "max_packets: 3", wait="4s")
    ids = [push(stack, "few", FAST), push(stack, "few", FAST)]
    status, _, body = stack.request("/in/few/in", json.dumps(SLOW).encode())
    # The request that reaches the limit gets its answer (edge 35).
    assert status == 202
    ids.append(json.loads(body)["packet_id"])
    status, headers, body = stack.request("/in/few/in", json.dumps(FAST).encode())
    assert (status, headers["Retry-After"]) == (503, "5"), body
    assert "lifetime.max_packets (3)" in json.loads(body)["error"]
    status, _, body = stack.request("/api/pipelines/few/push", json.dumps({"data": FAST}).encode())
    assert status == 503
    assert "lifetime.max_packets (3)" in json.loads(body)["error"]
    pushed = stack.pipo("push", "few", "--data", "{}")
    assert (pushed.returncode, pushed.stdout) == (1, "")
    assert "lifetime.max_packets (3)" in pushed.stderr
    assert stack.get("/api/pipelines/few")["status"] == "draining"
    completed(stack, "few")
    stats = stack.stats("few")
    # What was on its way is settled: the slow one died after its retry.
    assert (stats["accepted"], stats["delivered"], stats["dead_lettered"]) == (3, 2, 1)
    assert reasons(stack, "few") == ["max_packets"]
    assert "lifetime max_packets 3 reached; draining" in log(stack, "few")
    over = stack.get("/api/pipelines/few")["lifetime"]
    assert (over["reached"], over["max_packets"], over["ttl"]) == ("max_packets", 3, None)
    told = stack.pipo("status", "few").stdout
    assert "lifetime        completed by max_packets; 3 of 3 packets" in told
    # A start at the limit accepts nothing and completes again (edge 313).
    start(stack, "few")
    completed(stack, "few")
    wait_for(lambda: reasons(stack, "few") == ["max_packets"] * 2)
    assert stack.stats("few")["accepted"] == 3
    # Its log tells that in order: it started, and then its lifetime was over.
    began, over, done = log(stack, "few").splitlines()[-3:]
    assert "pipeline started" in began
    assert "lifetime max_packets 3 reached" in over
    assert "pipeline completed" in done


@pytest.mark.seed("L004")
def test_no_crowd_gets_one_more_in(stack: Stack) -> None:
    """Edge 5, 35, 36: through two doors at once; every accepted one is answered and delivered."""
    started(stack, "crowd", "max_packets: 40", wait="5s")
    # It drains until this one is done: whoever comes too late meets a pipeline that still runs.
    push(stack, "crowd", SLOW)

    def post(n: int) -> int:
        body = json.dumps({"n": n, "word": "A"})
        if n % 2:
            return stack.request("/in/crowd/in", body.encode())[0]
        path = "/api/pipelines/crowd/push"
        status = stack.request(path, f'{{"data": {body}}}'.encode())[0]
        return 202 if status == 200 else status

    with ThreadPoolExecutor(16) as pool:
        answers = Counter(pool.map(post, range(120)))
    assert answers == {202: 39, 503: 81}
    completed(stack, "crowd")
    stats = stack.stats("crowd")
    assert (stats["accepted"], stats["delivered"]) == (40, 39)
    assert len(lines(stack.workspace / "out/crowd.jsonl")) == 39
    assert reasons(stack, "crowd") == ["max_packets"]


@pytest.mark.seed("L006", "L009")
def test_a_lifetime_that_stops_leaves_what_is_on_its_way(stack: Stack) -> None:
    path = started(stack, "cut", "until: stats.accepted >= 2, on_end: stop", wait="1h")
    ids = [push(stack, "cut", SLOW), push(stack, "cut", SLOW)]
    completed(stack, "cut")
    assert reasons(stack, "cut") == ["until"]
    left = query(journal_of(stack.home, "cut"), "SELECT id FROM units WHERE settled_at IS NULL")
    assert sorted(row[0] for row in left) == sorted(ids)
    assert "lifetime until stats.accepted >= 2 reached; stopping" in log(stack, "cut")
    # They go on once a lifetime allows it.
    path.write_text(path.read_text().replace(">= 2", ">= 3").replace("delay: 1h", "delay: 1ms"))
    start(stack, "cut")
    wait_for(lambda: stack.stats("cut").get("pending") == 2)
    assert stack.pipo("stop", "cut", "--now").returncode == 0


@pytest.mark.seed("L007")
def test_a_drain_ends_at_its_time_limit(stack: Stack) -> None:
    started(stack, "stuck", "max_packets: 1, drain_timeout: 500ms", wait="1h")
    id = push(stack, "stuck", SLOW)
    completed(stack, "stuck")
    left = query(journal_of(stack.home, "stuck"), "SELECT id FROM units WHERE settled_at IS NULL")
    assert left == [[id]]
    assert "the drain timed out" in log(stack, "stuck")


@pytest.mark.seed("L005", "L011", "L016")
def test_a_condition_ends_it_after_the_packet_that_makes_it_true(stack: Stack) -> None:
    started(stack, "delivers", "until: stats.delivered >= 3")
    started(stack, "dies", "until: stats.dead_lettered > 1", wait="1ms")
    for n in range(2):
        settled(stack, "delivers", push(stack, "delivers", FAST))
        if n == 0:
            settled(stack, "dies", push(stack, "dies", SLOW))
    assert (state(stack, "delivers"), state(stack, "dies")) == ("running", "running")
    push(stack, "delivers", FAST)
    push(stack, "dies", SLOW)
    for name, key in (("delivers", "delivered"), ("dies", "dead_lettered")):
        completed(stack, name)
        told = next(
            facts for type_, _, facts in events(stack, name) if type_ == "pipeline.lifetime"
        )
        assert (told["reason"], told["stats"][key]) == ("until", 3 if key == "delivered" else 2)


@pytest.mark.seed("L012", "L013", "L016")
def test_conditions_on_every_number(stack: Stack) -> None:
    """`uptime` without a packet; the others with one, all at once, each in its own way."""
    conditions = {
        "up": "stats.uptime > 1 && stats.pending == 0",
        "s-accepted": "stats.accepted == 1",
        "s-delivered": "stats.delivered == 1",
        "s-pending": "stats.accepted > 0 && stats.pending == 0",
        "s-rate": "stats.in_per_min >= 1",
        "s-last": "stats.last_delivery_at != null && stats.escalated + stats.dead_lettered == 0",
    }
    for name, until in conditions.items():
        path = started(stack, name, f"until: '{until}'")
        assert stack.pipo("check", str(path)).returncode == 0 if name == "s-last" else True
    # One packet fails, and is handed over to someone, or dies; others are there before.
    for name, until in (
        ("s-escalated", "stats.escalated == 1"),
        ("s-dead", "stats.dead_lettered == 1"),
    ):
        then = "agent" if name == "s-escalated" else "dead_letter"
        more = "agent: { control: true }\n"
        started(stack, name, f"until: '{until}'", wait=f"1ms, then: {then}", more=more)
        settled(stack, name, push(stack, name, FAST))
        assert state(stack, name) == "running"
        push(stack, name, SLOW)
        conditions[name] = until
    waiting = [name for name in conditions if name not in ("up", "s-escalated", "s-dead")]
    assert all(state(stack, name) == "running" for name in waiting)
    for name in waiting:
        push(stack, name, FAST)
    for name in conditions:
        completed(stack, name)
    found = events(stack, "up")
    assert found[1][1] - found[0][1] >= 2000
    assert 2 <= found[1][2]["stats"]["uptime"] <= 4


@pytest.mark.seed("L010", "L014")
def test_counts_survive_a_restart_and_are_looked_at_first(stack: Stack) -> None:
    started(stack, "twice", "until: stats.delivered >= 2 && stats.uptime < 1000")
    settled(stack, "twice", push(stack, "twice", FAST))
    wait_for(lambda: stack.stats("twice").get("uptime", 0) >= 1)
    assert stack.pipo("restart", "twice").returncode == 0
    uptime, now_ms = stack.stats("twice")["uptime"], time.time() * 1000
    # This run's alone: the first one was a second old.
    assert uptime * 1000 <= now_ms - events(stack, "twice")[-1][1] + 100
    push(stack, "twice", FAST)
    completed(stack, "twice")
    start(stack, "twice")
    completed(stack, "twice")
    wait_for(lambda: reasons(stack, "twice") == ["until", "until"])


@pytest.mark.seed("L015")
def test_a_condition_that_cannot_be_told_is_ignored(stack: Stack) -> None:
    started(stack, "broken", "until: 'upper(stats.delivered) == \"X\"'")
    settled(stack, "broken", push(stack, "broken", FAST))
    wait_for(lambda: stack.stats("broken").get("uptime", 0) >= 3)
    assert log(stack, "broken").count("lifetime.until cannot be told") == 1
    types = [type_ for type_, _, _ in events(stack, "broken")]
    assert types.count("pipeline.lifetime_error") == 1
    assert state(stack, "broken") == "running"
    assert stack.pipo("stop", "broken", "--now").returncode == 0


def ends_at(stack: Stack, name: str) -> int:
    """When its ttl is over, once it serves."""
    found = wait_for(
        lambda: f if (f := stack.get(f"/api/pipelines/{name}")).get("lifetime") else None,
        deadline_s=120,
    )
    return int(found["lifetime"]["ends_at"])


@pytest.mark.seed("L017", "L018", "L019")
def test_the_anchor_of_a_ttl(stack: Stack) -> None:
    """A crash, an adoption and a new version keep it; a restart and a stop do not."""
    path = started(stack, "long", "ttl: 1h")
    began = events(stack, "long")[0][1]
    first = ends_at(stack, "long")
    assert abs(first - began - 3_600_000) < 100

    def same() -> bool:
        return abs(ends_at(stack, "long") - first) < 100

    pid = stack.pipeline_pid("long")
    assert pid is not None
    # A new version, with the crash restart that makes it one.
    path.write_text(path.read_text() + "description: another\n")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stack.pipeline_pid("long") not in (None, pid), deadline_s=120)
    assert same()
    assert stack.get("/api/pipelines/long")["version"] == 2
    pid, host = stack.pipeline_pid("long"), stack.service_pid("runner")
    assert host is not None
    os.kill(host, signal.SIGKILL)
    wait_for(lambda: stack.service_pid("runner") not in (None, host), deadline_s=120)
    wait_for(lambda: state(stack, "long") == "running", deadline_s=120)
    assert stack.pipeline_pid("long") == pid
    assert same()
    for command in (["restart", "long"], ["stop", "long"]):
        before = ends_at(stack, "long")
        assert stack.pipo(*command).returncode == 0
        if command[0] == "stop":
            wait_for(lambda: state(stack, "long") == "stopped")
            start(stack, "long")
        assert ends_at(stack, "long") > before
    assert stack.pipo("stop", "long", "--now").returncode == 0


def draining(stack: Stack, name: str) -> None:
    wait_for(lambda: stack.get(f"/api/pipelines/{name}")["status"] == "draining", deadline_s=120)


@pytest.mark.seed("L006", "L018")
def test_what_people_ask_for_beside_the_end_of_a_lifetime(stack: Stack) -> None:
    """A restart follows it, a stop changes nothing, and a stop at once has the last word."""
    for name, wait in (("at-once", "1h"), ("again", "20s"), ("anyway", "8s")):
        # The last two are asked at once, while they drain.
        path = started(stack, name, "until: stats.accepted >= 1 && stats.uptime < 600", wait=wait)
        push(stack, name, SLOW)
        draining(stack, name)
        if name == "at-once":
            assert stack.pipo("stop", name, "--now").returncode == 0
            continue
        if name == "again":
            path.write_text(path.read_text().replace(">= 1", ">= 100"))
        asked = "restart" if name == "again" else "stop"
        status, _, body = stack.request(f"/api/pipelines/{name}/{asked}", b"{}")
        assert status == 200, body
    completed(stack, "anyway")
    wait_for(lambda: len(events(stack, "again")) >= 5, what="a second start", deadline_s=120)
    wait_for(lambda: state(stack, "at-once") == "stopped")
    assert state(stack, "again") == "running"
    words = {
        name: [(type_.removeprefix("pipeline."), facts.get("reason")) for type_, _, facts in found]
        for name in ("again", "anyway", "at-once")
        if (found := events(stack, name))
    }
    over = [("started", None), ("lifetime", "until"), ("draining", None)]
    assert words == {
        "again": [*over, ("stopped", "restart"), ("started", None)],
        "anyway": [*over, ("completed", "until")],
        "at-once": [*over, ("stopped", "stop")],
    }
    assert stack.pipo("stop", "again", "--now").returncode == 0


@pytest.mark.seed("L017", "L020")
def test_a_ttl_that_is_over_after_a_crash_ends_at_once(stack: Stack) -> None:
    started(stack, "late", "ttl: 4s", wait="1h")
    id = push(stack, "late", SLOW)
    pid = stack.pipeline_pid("late")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    # Frozen beyond its end, and killed before it can know.
    began = events(stack, "late")[0][1]
    wait_for(lambda: time.time() * 1000 > began + 4500, what="its time is over")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(events(stack, "late")) >= 4, deadline_s=120, what=stack.output)
    found = events(stack, "late")
    assert [type_ for type_, _, _ in found][:4] == [
        "pipeline.started",
        "pipeline.started",
        "pipeline.lifetime",
        "pipeline.draining",
    ]
    assert packet(stack, "late", id)["state"] == "accepted"
    assert stack.pipo("stop", "late", "--now").returncode == 0
    wait_for(lambda: state(stack, "late") in ("stopped", "completed"))
