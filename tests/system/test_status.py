"""`pipo status` against reality, through REST, gRPC and the command line (edges 371-377, 395-397)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo.access import answers
from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from pipo.rpc.to_json import dumps
from tests.packets import operate, packet, push, settled
from tests.stack import PIPO, Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

# doors.md, GET /api/pipelines; then what this product adds.
ENTRY = (
    *("name", "file", "state", "status", "pid", "host", "version", "listen", "detached", "ttl"),
    *("started_at", "restarts", "last_exit", "error", "lifetime", "stats", "resources", "chain"),
    *("checkers", "notes", "host_id"),
)
STATS = (
    *("accepted", "delivered", "pending", "escalated", "dead_lettered", "filtered", "rejected"),
    *("uptime", "in_per_min", "last_delivery_at"),
    *("oldest_pending_ms", "oldest_pending_received_at"),
)
OF_THE_RUNNER = (
    *("stats", "last_seq", "latency", "inputs", "checkers", "notes", "paused_reason", "held"),
    "awaiting_ack",
)
# They go on while one door is asked after the other.
MOVING = {
    *("uptime", "in_per_min", "oldest_pending_ms", "remaining_ms", "resources", "last_seq"),
    # What is left of a lifetime, on the wall clock of now.
    "ends_at",
}

INTO = "to: sqlite, with: {{ path: ./{0}.db, table: t, create: true }}"
PIPELINES = {
    "flow": "concurrency: 1\nlifetime: { ttl: 2h }\ninput: { via: push }\n"
    'nodes: { shape: { from: input, transform: map, with: { data: { n: "${data.n}" } } } }\n'
    f"output: {{ from: shape, {INTO.format('flow')} }}\n"
    'delivered: { check: record_exists, with: { where: { packet_id: "${meta.packet_id}" } } }\n',
    # A packet of two copies, of which one waits for a person.
    "parted": "agent: { control: true }\ninput: { via: push }\nnodes:\n"
    '  good: { from: input, filter: "true" }\n'
    "  bad:\n    from: input\n    transform: map\n"
    '    with: { data: { n: "${upper(data.n)}" } }\n    on_error: { retry: 0, then: agent }\n'
    f"output: {{ from: [good, bad], {INTO.format('parted')} }}\n",
    "parked": f"input: {{ via: push }}\noutput: {{ from: input, {INTO.format('parked')} }}\n"
    "delivered: { check: external, within: 1h }\n",
    "jams": "input: { via: push }\noutput:\n  from: input\n  to: sqlite\n"
    "  with: { path: ./none/jams.db, table: t }\n"
    "  on_error: { retry: 10000, backoff: fixed, delay: 100ms }\n"
    "delivered: { check: ack, stall: { after: 1s } }\n",
    "gate": "inputs:\n  form: { via: http, with: { path: /form } }\n  hand: { via: push }\n"
    "output: { from: [form, hand], to: pipeline, with: { pipeline: depot } }\n",
    "depot": "input: { via: pipeline, with: { from: [gate] } }\n"
    f"output: {{ from: input, {INTO.format('depot')} }}\n",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("status"))
    for name, text in PIPELINES.items():
        made.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
    try:
        yield made.start()
    finally:
        # What is parked and what is jammed here would hold up a drain.
        made.kill_all()


def sql(stack: Stack, name: str, text: str) -> list[list[Any]]:
    return query(journal_of(stack.home, name), text)


def pieces(value: Any, place: str = "") -> dict[str, Any]:
    """Every value by its place, but for what moves between two looks."""
    if not isinstance(value, dict | list):
        return {place: value}
    within = value.items() if isinstance(value, dict) else enumerate(value)
    found: dict[str, Any] = {}
    for key, one in within:
        if key not in MOVING:
            found |= pieces(one, f"{place}/{key}")
    return found


async def over_grpc(stack: Stack, name: str) -> tuple[Any, Any]:
    """The listing and the one pipeline, in the shapes of the other doors."""
    channel = dial(f"127.0.0.1:{stack.port + 1}", "")
    try:
        stub = pipo_pb2_grpc.PipoStub(channel)
        listed = await stub.ListPipelines(pipo_pb2.ListPipelinesRequest(), timeout=30)
        one = await stub.GetPipeline(pipo_pb2.GetPipelineRequest(pipeline=name), timeout=30)
    finally:
        await channel.close()
    shaped = (answers.pipelines(listed), answers.pipeline(one))
    return tuple(json.loads(dumps(each)) for each in shaped)


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def line_of(table: str, name: str) -> str:
    """The pipeline's line of the table."""
    (found,) = [line for line in table.splitlines() if line.split(" ")[0] == name]
    return found


# ── the same through every door, and true ────────────────────────────────────


def test_each_door_says_the_same_with_every_field(stack: Stack) -> None:
    settled(stack, "flow", push(stack, "flow", {"n": 1}))
    wait_for(lambda: {p["checkers"] for p in stack.get("/api/pipelines")["pipelines"]} == {1})
    listed, one = stack.get("/api/pipelines"), stack.get("/api/pipelines/flow")
    for entry in listed["pipelines"]:
        assert set(ENTRY) <= set(entry), set(ENTRY) - set(entry)
        assert set(STATS) == set(entry["stats"])
    assert set(OF_THE_RUNNER) == set(one["runner"])
    assert set(one) == {*listed["pipelines"][0], "runner"}
    for found, words in ((listed, ()), (one, ("flow",))):
        shown = json.loads(stack.pipo("status", *words, "--json").stdout)
        assert shown.pop("engine") == "up"
        assert pieces(shown) == pieces(found)
    for shown, found in zip(asyncio.run(over_grpc(stack, "flow")), (listed, one), strict=True):
        assert pieces(shown) == pieces(found)


def test_what_it_says_is_so(stack: Stack) -> None:
    began = settled(stack, "flow", push(stack, "flow", {"n": 2}))["received_at"]
    found = stack.get("/api/pipelines/flow")
    pid = stack.pipeline_pid("flow")
    assert pid is not None
    assert (found["name"], found["state"], found["status"]) == ("flow", "running", "active")
    assert (found["pid"], found["host"], found["version"]) == (pid, socket.gethostname(), 1)
    assert found["file"] == str(stack.workspace / "flow.pipo")
    assert (found["restarts"], found["last_exit"], found["error"]) == (0, None, None)
    assert (found["listen"], found["detached"], found["ttl"]) == (None, False, None)
    assert found["checkers"] == 1
    assert found["notes"] == []
    ((started,),) = sql(stack, "flow", "SELECT at FROM events WHERE type = 'pipeline.started'")
    assert abs(found["started_at"] - started) < 10_000
    assert found["started_at"] <= began
    life = found["lifetime"]
    assert life["ttl"] == "2h"
    assert abs(life["ends_at"] - started - 7_200_000) < 10_000
    assert 0 < life["remaining_ms"] <= 7_200_000
    taken = found["resources"]
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    own = pages * os.sysconf("SC_PAGE_SIZE")
    assert own / 2 < taken["rss"] < own * 4
    assert taken["procs"] >= 1
    assert taken["cpu"] >= 0


def test_the_counts_are_those_of_the_journal(stack: Stack) -> None:
    for n in range(5):
        settled(stack, "flow", push(stack, "flow", {"n": n}))
    found = stack.get("/api/pipelines/flow")
    stats, roots = found["stats"], "FROM units WHERE root IS NULL"
    rows = dict(sql(stack, "flow", f"SELECT state, count(*) {roots} GROUP BY state"))
    assert stats["accepted"] == sum(rows.values())
    assert (stats["delivered"], stats["pending"]) == (rows["delivered"], 0)
    assert 0 < stats["in_per_min"] <= stats["accepted"]
    # The journal has the moment of the verdict, the process that at which it was on disk.
    ((settled_at,),) = sql(stack, "flow", f"SELECT max(settled_at) {roots}")
    assert 0 <= stats["last_delivery_at"] - settled_at < 5_000
    assert found["runner"]["last_seq"] == sql(stack, "flow", "SELECT max(seq) FROM events")[0][0]
    for entry in found["runner"]["latency"]:
        times = sorted(
            ms
            for (ms,) in sql(
                stack,
                "flow",
                f"SELECT ms FROM events WHERE node = '{entry['node']}' AND ms IS NOT NULL"
                " ORDER BY seq DESC LIMIT 100",
            )
        )
        ranks = {f"p{p}_ms": round(times[-(-len(times) * p // 100) - 1]) for p in (50, 95)}
        wanted = {"node": entry["node"], "count": len(times), **ranks, "max_ms": round(times[-1])}
        assert entry == wanted
    assert [entry["node"] for entry in found["runner"]["latency"]] == ["shape", "output"]


def test_numbers_survive_a_crash(stack: Stack) -> None:
    for n in range(3):
        settled(stack, "gate", push(stack, "gate", {"n": n}, input="hand"))
    before = stack.get("/api/pipelines/gate")
    pid = stack.pipeline_pid("gate")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    after = wait_for(
        lambda: g if (g := stack.get("/api/pipelines/gate"))["pid"] not in (None, pid) else None,
        deadline_s=150,
    )
    same = ("accepted", "delivered", "pending", "dead_lettered")
    assert {k: after["stats"][k] for k in same} == {k: before["stats"][k] for k in same}
    last = [found["stats"]["last_delivery_at"] for found in (before, after)]
    assert 0 <= last[0] - last[1] < 5_000
    assert after["runner"]["latency"] == before["runner"]["latency"]
    assert after["stats"]["uptime"] <= before["stats"]["uptime"] + 60
    assert (after["restarts"], after["chain"]) == (1, before["chain"])
    assert after["last_exit"] == "signal 9"
    # Whatever a minute has forgotten by now, what came within it is still counted.
    if after["stats"]["uptime"] + before["stats"]["uptime"] < 50:
        assert after["stats"]["in_per_min"] == before["stats"]["in_per_min"]


# ── the oldest packet ────────────────────────────────────────────────────────


def test_the_oldest_packet_may_be_branched_or_escalated(stack: Stack) -> None:
    assert stack.stats("flow")["oldest_pending_ms"] is None
    first = push(stack, "parted", {"n": 1})
    wait_for(lambda: packet(stack, "parted", first)["state"] == "branched")
    wait_for(
        lambda: sql(stack, "parted", "SELECT 1 FROM units WHERE state = 'escalated'"),
        what="a copy waits for somebody",
    )
    second = push(stack, "parted", {"n": 2})
    stats = stack.stats("parted")
    assert stats["pending"] == 2
    received = packet(stack, "parted", first)["received_at"]
    assert stats["oldest_pending_received_at"] == received
    shown = stack.pipo("status", "parted").stdout
    when = re.search(r"^oldest pending  +(\d+)s ago \(received (\S+)\)$", shown, re.MULTILINE)
    assert when is not None, shown
    operate(stack, "parted", "resolve", ids=[f"{first}:bad"], action="drop")
    wait_for(lambda: packet(stack, "parted", first)["state"] == "delivered")
    received = packet(stack, "parted", second)["received_at"]
    assert stack.stats("parted")["oldest_pending_received_at"] == received


def test_what_waits_for_an_ack_is_counted(stack: Stack) -> None:
    ids = [push(stack, "parked", {"n": n}) for n in range(2)]
    wait_for(lambda: stack.get("/api/pipelines/parked")["runner"]["awaiting_ack"] == 2)
    operate(stack, "parked", "ack", packet_id=ids[0])
    assert stack.get("/api/pipelines/parked")["runner"]["awaiting_ack"] == 1
    waits = stack.stats("parked")
    assert (waits["pending"], waits["delivered"]) == (1, 1)


# ── as people read it ────────────────────────────────────────────────────────


def test_the_table(stack: Stack) -> None:
    settled(stack, "flow", push(stack, "flow", {"n": 3}))
    head, *rows = stack.pipo("status").stdout.splitlines()
    assert cells(head) == [
        *("PIPELINE", "STATE", "VER", "UPTIME", "IN/MIN"),
        *("PENDING", "DELIVERED", "DLQ", "LAST DELIVERY"),
    ]
    names = [line.split(" ")[0] for line in rows if line and line.split(" ")[0] in PIPELINES]
    assert names == sorted(PIPELINES)
    stats = stack.stats("flow")
    shown = next(cells(line) for line in rows if line.startswith("flow "))
    assert shown[:3] == ["flow", "active", "v1"]
    assert re.fullmatch(r"\d+s|\d+m\d\ds", shown[3])
    assert shown[5:8] == ["0", f"{stats['delivered']:,}", "0"]
    assert re.fullmatch(r"\d+[sm] ago", shown[8])


def test_details_name_the_ways_in_and_both_ends_of_the_chain(stack: Stack) -> None:
    gate, depot = (stack.pipo("status", name).stdout for name in ("gate", "depot"))
    for pattern in (
        r"^input  +form: POST /in/gate/form$",
        r"^input  +hand: push$",
        r"^feeds  +depot$",
        r"^NODE  +COUNT  +P50  +P95  +MAX$",
        r"^output  +\d+  .*",
        r"^process  +pid \d+ on \S+; \d+\.\d% of a core, [\d.,]+ MiB, \d+ process",
    ):
        assert re.search(pattern, gate, re.MULTILINE), (pattern, gate)
    assert re.search(r"^fed by  +gate$", depot, re.MULTILINE)
    assert not re.search(r"^feeds", depot, re.MULTILINE)
    flow = stack.pipo("status", "flow").stdout
    assert re.search(r"^lifetime  +2h: 1h5\dm left \(until \S+Z\)$", flow, re.MULTILINE), flow


def test_a_jam_and_a_pause_are_marked(stack: Stack) -> None:
    push(stack, "jams", {"n": 1})
    wait_for(lambda: stack.get("/api/pipelines/jams")["status"] == "jammed")
    assert stack.get("/api/pipelines/jams")["state"] == "running"
    operate(stack, "depot", "pause")
    try:
        found = stack.get("/api/pipelines/depot")
        assert (found["state"], found["status"]) == ("running", "paused")
        assert (found["runner"]["paused_reason"], found["runner"]["held"]) == ("manual", 0)
        said = "paused: manual; it goes on with: pipo resume depot"
        table = stack.pipo("status").stdout
        assert f"⚠ {said}" in line_of(table, "depot")
        assert f"⚠ {said}" in stack.pipo("status", "depot").stdout
    finally:
        operate(stack, "depot", "resume")
    assert stack.get("/api/pipelines/depot")["runner"]["paused_reason"] is None
    assert cells(line_of(table, "jams"))[1] == "jammed"
    assert line_of(table, "jams").endswith("⚠ stalled at '$output'")


def test_watching_shows_it_again_until_ctrl_c(stack: Stack) -> None:
    command = [*PIPO, "status", "flow", "--watch", "--json"]
    env = {**stack.env, "PIPO_URL": stack.url("")}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        uptimes = [json.loads(watching.stdout.readline())["stats"]["uptime"] for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
    assert uptimes[0] < uptimes[1]


def test_a_stopped_pipeline_keeps_its_counts(stack: Stack) -> None:
    """Last: the others need the ends of the chain."""
    settled(stack, "gate", push(stack, "gate", {"n": 9}, input="hand"))
    wait_for(lambda: stack.settle("depot"))
    delivered = stack.stats("depot")["delivered"]
    operate(stack, "depot", "stop")
    wait_for(lambda: stack.get("/api/pipelines/depot")["state"] == "stopped")
    found = stack.get("/api/pipelines/depot")
    for key in ("pid", "status", "host", "started_at", "lifetime", "resources", "runner"):
        assert found[key] is None, (key, found[key])
    assert (found["version"], found["stats"]["delivered"]) == (1, delivered)
    assert found["chain"] == {"feeds": [], "fed_by": ["gate"]}
    shown = cells(line_of(stack.pipo("status").stdout, "depot"))
    assert shown[:8] == ["depot", "stopped", "v1", "-", "-", "0", f"{delivered:,}", "0"]
    assert shown[8].endswith(" ago")


def test_an_empty_home_has_no_pipelines(tmp_path: Path) -> None:
    words = ["--home", str(tmp_path / "home"), "--no-engine"]
    done = subprocess.run(
        [*PIPO, "status", *words], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"no pipelines in {tmp_path / 'home'}"
