"""Stall detection against a real stack: when it is told, what it does, and when it is over.

A packet for the database `up` is delivered at once; one for `down` is tried again and again,
since its table is not there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, packet, push, run_sql, settled
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

SEED_MESSAGE = """\
    message: >
      Pipeline jammed: ${stall.pending} packets pending and none delivered for ${stall.duration}.
      Oldest packet ${stall.oldest.packet_id} has been at '${stall.oldest.node}' for ${stall.oldest.age}
      (attempt ${stall.oldest.attempt}, last error: ${stall.oldest.last_error}).
"""
NUMBERS = [
    "accepted",
    "delivered",
    "pending",
    "escalated",
    "dead_lettered",
    "uptime",
    "in_per_min",
    "last_delivery_at",
]
ALL_NUMBERS = " ".join(f"{name}=${{stats.{name}}}" for name in NUMBERS)


def jamming(
    name: str, stall: str, *, policy: str = "retry: 10000, delay: 100ms", more: str = ""
) -> str:
    return f"""\
concurrency: 2
input: {{ via: push }}
nodes: {{ keep: {{ from: input, filter: "exists(data.db)" }} }}
output:
  from: keep
  to: sqlite
  with: {{ path: "./there/{name}/${{data.db}}.db", table: t }}
  on_error: {{ {policy} }}
delivered:
  check: ack
  stall:
{stall}
{more}
"""


AGENT = "agent: { control: true }"
PIPELINES = {
    "told": jamming("told", "    after: 1s"),
    "by-the-book": jamming("by-the-book", "    after: 4s\n    then: pause\n" + SEED_MESSAGE),
    "steady": jamming("steady", "    after: 6s"),
    "on-time": jamming("on-time", "    after: 3s"),
    "short": jamming("short", "    after: 200ms"),
    "restarted": jamming("restarted", "    after: 2s"),
    "waiting": jamming("waiting", "    after: 500ms", policy="then: agent", more=AGENT),
    "halted": jamming("halted", "    after: 500ms"),
    "numbers": jamming("numbers", f"    after: 1s\n    message: '{ALL_NUMBERS}'"),
    "escalating": jamming("escalating", "    after: 1s\n    then: agent", more=AGENT),
    "parked": """\
input: { via: push }
output: { from: input, to: file, with: { path: ./out/parked.jsonl } }
delivered: { check: external, within: 1h, stall: { after: 1s } }
agent: { control: true, on_stall: handle }
""",
    "handed": jamming(
        "handed",
        "    after: 1s",
        policy="retry: 10000, delay: 2s",
        more="agent: { control: true, on_stall: handle }",
    ),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("stalls"))
    for name, text in PIPELINES.items():
        made.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
        table(made, name, "up")
        (made.workspace / "there" / name / "down.db").touch()
    try:
        yield made.start()
    finally:
        # What is stuck would hold up an orderly stop.
        made.kill_all()


def table(stack: Stack, name: str, database: str) -> None:
    """The table is there from now on."""
    run_sql(
        stack.workspace / "there" / name / f"{database}.db",
        "create table t (packet_id text primary key, db text)",
    )


def events(stack: Stack, name: str, *types: str) -> list[dict[str, Any]]:
    """The pipeline's own events of these types, oldest first."""
    wanted = ", ".join(f"'{one}'" for one in types)
    rows = query(
        journal_of(stack.home, name),
        f"select type, at, detail from events where type in ({wanted}) order by seq",
    )
    return [{"type": t, "at": at, **json.loads(detail or "{}")} for t, at, detail in rows]


def happened(stack: Stack, name: str, count: int, *types: str) -> list[dict[str, Any]]:
    """The same, once there are so many."""
    return wait_for(
        lambda: found if len(found := events(stack, name, *types)) >= count else None,
        what=f"{name} has {count} of {types}: {events(stack, name, *types)}",
    )


def stalls(stack: Stack, name: str, count: int) -> list[dict[str, Any]]:
    return happened(stack, name, count, "pipeline.stall")


def status(stack: Stack, name: str) -> dict[str, Any]:
    found: dict[str, Any] = stack.get(f"/api/pipelines/{name}")
    return found


def received(stack: Stack, name: str, id: str) -> int:
    return int(packet(stack, name, id)["received_at"])


def in_ms(shown: str) -> float:
    """What `1m02s`, `2.3s` or `40ms` says."""
    units = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([\d.]+)(h|ms|m|s)", shown))


def stay(seconds: float) -> None:
    """Time that has to pass without a stall: nothing tells when it is over."""
    time.sleep(seconds)


@pytest.mark.seed("D056", "D059", "D066", "D067", "D074")
def test_a_stall_is_told_once_and_leaves_the_pipeline_active(stack: Stack) -> None:
    id = push(stack, "told", {"db": "down"})
    (told,) = stalls(stack, "told", 1)
    assert told["then"] == "notify"
    assert told["message"].startswith("stalled: 1 packet(s) pending and none delivered for 1")
    assert (told["stall"]["oldest"]["packet_id"], told["stats"]["accepted"]) == (id, 1)
    now = status(stack, "told")
    assert (now["state"], now["status"]) == ("running", "jammed")
    assert "stalled at '$output'" in now["notes"]
    registered = stack.home / "run" / "told.json"
    assert json.loads(registered.read_text())["status"] == "jammed"
    shown = stack.pipo("status").stdout.splitlines()
    (row,) = (line for line in shown if line.startswith("told "))
    assert "jammed" in row
    assert row.endswith("⚠ stalled at '$output'")
    assert told["message"] in stack.pipo("logs", "told").stdout
    _, _, body = stack.request("/metrics", method="GET")
    assert 'pipo_pipeline_jammed{pipeline="told"} 1' in body.decode()
    assert 'pipo_pipeline_state{pipeline="told",state="jammed"} 1' in body.decode()
    stay(3.0)
    assert len(stalls(stack, "told", 1)) == 1


@pytest.mark.seed("D057", "D068", "D071")
def test_the_example_of_the_documents_pauses_and_a_resume_begins_anew(stack: Stack) -> None:
    name = "by-the-book"
    id = push(stack, name, {"db": "down"})
    (told,) = stalls(stack, name, 1)
    oldest = told["stall"]["oldest"]
    assert told["message"] == (
        f"Pipeline jammed: 1 packets pending and none delivered for {told['stall']['duration']}. "
        f"Oldest packet {id} has been at '$output' for {oldest['age']} "
        f"(attempt {oldest['attempt']}, last error: {oldest['last_error']})."
    )
    assert "table 't'" in oldest["last_error"]
    wait_for(lambda: status(stack, name)["status"] == "paused")
    told = json.loads(stack.pipo("status", name, "--json").stdout)
    assert told["runner"]["paused_reason"] == "stall"
    assert "paused" in stack.pipo("status", name).stdout
    stay(2.0)
    # Not by the command: it would take of the new time.
    assert stack.request(f"/api/pipelines/{name}/resume", b"{}")[0] == 200
    resumed = events(stack, name, "pipeline.resumed")[-1]["at"]
    assert "stalled" not in " ".join(status(stack, name)["notes"])
    again = stalls(stack, name, 2)[1]
    assert 4000 <= again["at"] - resumed < 30_000


@pytest.mark.seed("D060", "D070")
def test_one_that_gets_through_in_time_prevents_it_and_one_later_ends_it(stack: Stack) -> None:
    name = "steady"
    push(stack, name, {"db": "down"})
    # Each alone comes too late, and the two together in time.
    for _ in range(2):
        stay(3.0)
        settled(stack, name, push(stack, name, {"db": "up"}))
        stay(3.0)
        settled(stack, name, push(stack, name, {}))
    assert events(stack, name, "pipeline.stall") == []
    stalls(stack, name, 1)
    settled(stack, name, push(stack, name, {}))
    wait_for(lambda: status(stack, name)["status"] == "active")
    stalls(stack, name, 2)
    settled(stack, name, push(stack, name, {"db": "up"}))
    seen = happened(stack, name, 4, "pipeline.stall", "pipeline.unjammed")
    kinds = [event["type"] for event in seen]
    assert kinds == ["pipeline.stall", "pipeline.unjammed"] * 2


@pytest.mark.seed("D061", "D062", "D064")
@pytest.mark.parametrize(
    ("name", "idle_s", "least_ms", "most_ms"),
    [("on-time", 3.5, 3000, 30_000), ("short", 0.5, 200, 30_000)],
)
def test_it_is_told_soon_after_that_long_and_not_at_once_after_a_quiet_time(
    stack: Stack, name: str, idle_s: float, least_ms: int, most_ms: int
) -> None:
    stay(idle_s)
    id = push(stack, name, {"db": "down"})
    (told,) = stalls(stack, name, 1)
    assert least_ms <= told["at"] - received(stack, name, id) < most_ms


@pytest.mark.seed("D063", "D073")
def test_a_backlog_is_no_stall_before_the_run_is_that_old(stack: Stack) -> None:
    name = "restarted"
    id = push(stack, name, {"db": "down"})
    stalls(stack, name, 1)
    pid = stack.pipeline_pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(events(stack, name, "pipeline.started")) == 2)
    started = events(stack, name, "pipeline.started")[1]["at"]
    wait_for(lambda: status(stack, name).get("status") == "active")
    again = stalls(stack, name, 2)[1]
    assert 2000 <= again["at"] - started < 30_000
    assert again["stall"]["oldest"]["last_error"]
    # The packet is older than the run, and the time without progress is the run's.
    quiet, age = in_ms(again["stall"]["duration"]), in_ms(again["stall"]["oldest"]["age"])
    assert abs(again["at"] - started - quiet) < 1500
    assert abs(again["at"] - received(stack, name, id) - age) < 1500


@pytest.mark.seed("D065")
def test_what_waits_for_someone_is_no_stall(stack: Stack) -> None:
    ids = [push(stack, "waiting", {"db": "down"}) for _ in range(2)]
    for id in ids:
        wait_for(lambda id=id: packet(stack, "waiting", id)["state"] == "escalated")  # type: ignore[misc]
    stay(2.0)
    assert events(stack, "waiting", "pipeline.stall") == []
    assert status(stack, "waiting")["status"] == "active"


@pytest.mark.seed("D072")
def test_nothing_is_looked_for_during_a_pause(stack: Stack) -> None:
    assert stack.pipo("pause", "halted").returncode == 0
    for _ in range(3):
        push(stack, "halted", {"db": "down"})
    stay(2.5)
    assert events(stack, "halted", "pipeline.stall") == []


@pytest.mark.seed("D073")
def test_the_message_shows_the_numbers_of_status_and_inspect(stack: Stack) -> None:
    settled(stack, "numbers", push(stack, "numbers", {"db": "up"}))
    id = push(stack, "numbers", {"db": "down"})
    (told,) = stalls(stack, "numbers", 1)
    shown = dict(part.split("=") for part in told["message"].split())
    assert shown == {
        name: "" if told["stats"][name] is None else str(told["stats"][name]) for name in NUMBERS
    }
    now = json.loads(stack.pipo("status", "numbers", "--json").stdout)["stats"]
    same = ("accepted", "delivered", "pending", "escalated", "dead_lettered", "last_delivery_at")
    assert {name: told["stats"][name] for name in same} == {name: now[name] for name in same}
    oldest, found = told["stall"]["oldest"], inspect(stack, "numbers", id)
    assert (oldest["packet_id"], oldest["node"]) == (id, found["packet"]["node"])
    assert 1 <= oldest["attempt"] <= found["packet"]["attempt"]
    retries = [e["detail"] for e in found["events"] if e["type"] == "step.retry"]
    assert oldest["last_error"] == retries[oldest["attempt"] - 1]["error"]


def test_with_agent_the_news_goes_and_no_packet_does(stack: Stack) -> None:
    id = push(stack, "escalating", {"db": "down"})
    stalls(stack, "escalating", 1)
    (told,) = events(stack, "escalating", "pipeline.escalated")
    assert (told["reason"], told["then"], told["handle"]) == ("stall", "agent", False)
    assert packet(stack, "escalating", id)["state"] == "writing"


@pytest.mark.seed("D069")
def test_with_handle_the_packets_in_flight_are_handed_over(stack: Stack) -> None:
    ids = [push(stack, "handed", {"db": "down"}) for _ in range(5)]
    stalls(stack, "handed", 1)
    (told,) = events(stack, "handed", "pipeline.escalated")
    assert (told["then"], told["handle"], told["escalated"], told["marked"]) == (
        "notify",
        True,
        3,
        2,
    )
    wait_for(
        lambda: all(packet(stack, "handed", id)["state"] == "escalated" for id in ids),
        what="the marked ones fail once more",
    )
    listed = stack.pipo("packets", "handed", "--state", "escalated").stdout
    assert all(id in listed for id in ids)
    codes = sorted(packet(stack, "handed", id)["error"]["code"] for id in ids)
    assert codes == ["output.failed"] * 2 + ["stall"] * 3


@pytest.mark.seed("D069")
def test_with_handle_a_packet_that_waits_for_its_ack_is_handed_over(stack: Stack) -> None:
    id = push(stack, "parked", {"n": 1})
    (told,) = stalls(stack, "parked", 1)
    assert told["stall"]["oldest"]["node"] == "$verify"
    wait_for(lambda: packet(stack, "parked", id)["state"] == "escalated")
    found = packet(stack, "parked", id)
    assert (found["node"], found["error"]["code"], found["error"]["node"]) == (
        "$output",
        "stall",
        "delivered",
    )
    assert found["error"]["message"] == told["message"]
