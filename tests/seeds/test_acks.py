"""`check: external` and its acks, against a real stack (delivery-checks, recovering-packets)."""

from __future__ import annotations

import getpass
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, packet, push, settled
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, query, wait_for

pytestmark = pytest.mark.slow


def parks(name: str, delivered: str, more: str = "") -> str:
    """Pushed packets become rows; `delivered` is the inside of the block."""
    return (
        f"{more}input: {{ via: push }}\noutput:\n  from: input\n  to: sqlite\n"
        f"  with: {{ path: ./{name}.db, table: t, create: true }}\n"
        f"delivered:\n  check: external\n{delivered}"
    )


# The page's own snippet, with a shorter `within`.
SNIPPET = """\
  within: 1s
  on_fail:
    then: dead_letter
    message: "Nobody confirmed ${meta.packet_id} within an hour"
"""
PIPELINES = {
    "parks": parks("parks", "  within: 1h\n", "concurrency: 1\n"),
    "snippet": parks("snippet", SNIPPET),
    "again": parks("again", "  within: 6s\n"),
    "late": parks("late", "  within: 500ms\n"),
    "pauses": parks("pauses", "  within: 5s\n"),
    "holds": parks("holds", "  within: 6s\n  on_fail: { then: pause }\n"),
    "slow": """\
input: { via: push }
output:
  from: input
  to: http
  with: { url: "http://127.0.0.1:PORT/slow" }
delivered: { check: external, within: 4s }
""",
    "sure": "input: { via: push }\noutput: { from: input, to: sqlite, "
    "with: { path: ./sure.db, table: t, create: true } }\n",
    "halted": parks("halted", "  within: 1h\n"),
    "split": """\
input: { via: push }
nodes:
  a: { from: input, filter: "data.n > 0" }
  b: { from: input, filter: "data.n > 0" }
output:
  from: [a, b]
  to: sqlite
  with: { path: ./split.db, table: t, create: true }
delivered: { check: external, within: 1h }
""",
    "batched": parks("batched", "  within: 1h\n").replace(
        "delivered:", "  batch: { size: 3, within: 30s }\ndelivered:"
    ),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    texts = {name: text.replace("PORT", str(receiver.port)) for name, text in PIPELINES.items()}
    folder = tmp_path_factory.mktemp("acks")
    stack = Stack(folder)
    for name, text in texts.items():
        stack.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
    try:
        yield stack.start()
    finally:
        stack.kill_all()


def waiting(stack: Stack, pipeline: str, data: Any = None) -> str:
    """A packet that is parked."""
    id = push(stack, pipeline, data or {"n": 7})
    parked(stack, pipeline, id)
    return id


def parked(stack: Stack, pipeline: str, id: str) -> None:
    wait_for(lambda: packet(stack, pipeline, id)["state"] == "verifying")


def ack(stack: Stack, pipeline: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    """Status and answer of an ack over REST."""
    path = f"/api/pipelines/{pipeline}/ack"
    status, _, answer = stack.request(path, json.dumps(fields).encode())
    return status, json.loads(answer)


def events(stack: Stack, pipeline: str, id: str) -> list[str]:
    return [event["type"] for event in inspect(stack, pipeline, id)["events"]]


@pytest.mark.seed("D001", "R049")
def test_a_written_packet_is_not_delivered_until_it_is_acked(stack: Stack) -> None:
    id = waiting(stack, "parks")
    rows = query(stack.workspace / "parks.db", f"SELECT n FROM t WHERE packet_id = '{id}'")
    assert rows == [[7]]
    listed = stack.pipo("packets", "parks", "--state", "verifying", "--json")
    assert id in [one["packet_id"] for one in json.loads(listed.stdout)["packets"]]
    assert ack(stack, "parks", packet_id=id)[0] == 200
    assert settled(stack, "parks", id)["state"] == "delivered"
    waiting_now = stack.get("/api/pipelines/parks/packets?state=verifying")["packets"]
    assert id not in [one["packet_id"] for one in waiting_now]


@pytest.mark.seed("D047")
def test_a_packet_that_waits_holds_no_worker(stack: Stack) -> None:
    """`concurrency: 1`: the second one is written while the first waits."""
    first, second = waiting(stack, "parks"), waiting(stack, "parks")
    info = stack.get("/api/pipelines/parks")
    assert info["runner"]["awaiting_ack"] >= 2
    shown = stack.pipo("status", "parks").stdout
    assert f"awaiting ack    {info['runner']['awaiting_ack']}" in shown
    for id in (second, first):
        assert ack(stack, "parks", packet_id=id)[0] == 200
        assert settled(stack, "parks", id)["state"] == "delivered"


@pytest.mark.seed("D048", "R052")
def test_pipo_ack_delivers_and_may_be_repeated(stack: Stack) -> None:
    id = waiting(stack, "parks")
    done = stack.pipo("ack", "parks", id)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"{id}  acked  (verifying)")
    assert settled(stack, "parks", id)["state"] == "delivered"
    again = stack.pipo("ack", "parks", id, "--json", "--by", "Bo")
    assert again.returncode == 0
    assert json.loads(again.stdout) == {
        "packet_id": id,
        "state": "delivered",
        "acked": True,
        "already": True,
        "engine": "up",
    }
    types = events(stack, "parks", id)
    assert types[-3:] == ["delivery.awaiting_ack", "packet.acked", "packet.delivered"]
    assert types.count("packet.acked") == types.count("packet.delivered") == 1
    acked, delivered = inspect(stack, "parks", id)["events"][-2:]
    assert acked["detail"] == {"by": getpass.getuser()}
    assert delivered["detail"] == {"evidence": {"acked_by": getpass.getuser()}}
    assert getpass.getuser() in stack.pipo("inspect", "parks", id).stdout


def test_rest_acks_and_tells_what_is_wrong(stack: Stack) -> None:
    """The REST half of D049; its MCP half is not built yet (decision 47)."""
    id = waiting(stack, "parks")
    assert ack(stack, "parks", packet_id=id, by="Ada") == (
        200,
        {"packet_id": id, "state": "verifying", "acked": True, "already": False},
    )
    assert settled(stack, "parks", id)["state"] == "delivered"
    status, told = ack(stack, "parks", packet_id="01NOBODY")
    assert (status, told["code"]) == (404, "not_found")
    assert "<packet_id>:<branch>" in told["hint"]
    status, told = ack(stack, "parks")
    assert (status, told["code"]) == (400, "bad_request")
    sure = push(stack, "sure", {"n": 1})
    assert settled(stack, "sure", sure)["state"] == "delivered"
    status, told = ack(stack, "sure", packet_id=sure)
    assert (status, told["code"]) == (409, "invalid_state")
    assert "its version v1 has check: ack" in told["error"]
    failed = stack.pipo("ack", "sure", sure, "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout) == {"ok": False, **told}


@pytest.mark.seed("D050", "R051")
def test_within_counts_from_the_write_and_an_early_ack_delivers_on_arrival(
    stack: Stack, receiver: Receiver
) -> None:
    gate = threading.Event()

    def held_up(got: Got) -> Reply:
        gate.wait(60)
        return Reply()

    receiver.script("/slow", held_up)
    early, held = (push(stack, "slow", {"n": n}) for n in (1, 2))
    wait_for(lambda: len(receiver.at("/slow")) == 2)
    status, told = ack(stack, "slow", packet_id=early)
    assert (status, told["already"]) == (200, False)
    assert told["state"] in ("accepted", "writing")
    # Both are held up before the output for longer than `within`.
    wait_for(lambda: stack.stats("slow")["oldest_pending_ms"] > 4500)
    gate.set()
    parked(stack, "slow", held)
    assert ack(stack, "slow", packet_id=held)[0] == 200
    for id in (early, held):
        assert settled(stack, "slow", id)["state"] == "delivered"
    assert "delivery.awaiting_ack" not in events(stack, "slow", early)
    assert "delivery.awaiting_ack" in events(stack, "slow", held)


@pytest.mark.seed("R050")
def test_a_copy_is_acked_by_its_output_key(stack: Stack) -> None:
    id = push(stack, "split", {"n": 1})
    wait_for(lambda: stack.get("/api/pipelines/split")["runner"]["awaiting_ack"] == 2)
    status, told = ack(stack, "split", packet_id=id)
    assert (status, told["code"]) == (409, "invalid_state")
    assert told["hint"] == f"ack its copies: {id}:a (verifying), {id}:b (verifying)"
    assert stack.pipo("ack", "split", f"{id}:b").returncode == 0

    def copies() -> dict[str, str]:
        return {one["branch"]: one["state"] for one in inspect(stack, "split", id)["copies"]}

    wait_for(lambda: copies() == {"a": "verifying", "b": "delivered"})
    assert packet(stack, "split", id)["state"] == "branched"
    assert ack(stack, "split", packet_id=f"{id}:a")[0] == 200
    assert settled(stack, "split", id)["state"] == "delivered"
    assert ack(stack, "split", packet_id=id)[0] == 409


def test_a_batch_parks_each_of_its_packets(stack: Stack) -> None:
    ids = [push(stack, "batched", {"n": n}) for n in range(3)]
    # The first one is acked while it waits for the others, or just after.
    assert ack(stack, "batched", packet_id=ids[0])[0] == 200
    wait_for(lambda: packet(stack, "batched", ids[0])["state"] == "delivered")
    for id in ids[1:]:
        parked(stack, "batched", id)
        assert ack(stack, "batched", packet_id=id)[0] == 200
        assert settled(stack, "batched", id)["state"] == "delivered"


@pytest.mark.seed("D052")
def test_an_ack_during_a_pause_counts(stack: Stack) -> None:
    id, lost = waiting(stack, "pauses"), waiting(stack, "pauses")
    # Both at once, and not by the command: the deadline is near.
    assert stack.request("/api/pipelines/pauses/pause", b"{}")[0] == 200
    assert ack(stack, "pauses", packet_id=id)[1]["state"] == "verifying"
    deadline = inspect(stack, "pauses", lost)["events"][-1]["detail"]["deadline"]
    # Its deadline passes in the pause.
    wait_for(
        lambda: (
            (info := stack.get("/api/pipelines/pauses"))["stats"]["oldest_pending_received_at"]
            + info["stats"]["oldest_pending_ms"]
            > deadline + 300
        )
    )
    assert packet(stack, "pauses", id)["state"] == "verifying"
    assert stack.pipo("resume", "pauses").returncode == 0
    assert settled(stack, "pauses", id)["state"] == "delivered"
    assert settled(stack, "pauses", lost)["state"] == "dead_lettered"


@pytest.mark.seed("D053")
def test_a_packet_that_is_not_acked_in_time_goes_to_on_fail(stack: Stack) -> None:
    id = push(stack, "late", {"n": 1})
    found = settled(stack, "late", id)
    assert (found["state"], found["error"]["code"]) == ("dead_lettered", "delivery.unverified")
    assert found["error"]["message"] == "not acknowledged within 500ms"
    status, told = ack(stack, "late", packet_id=id)
    assert (status, told["code"]) == (409, "invalid_state")
    assert f"pipo dlq replay late {id}" in told["hint"]
    _, _, page = stack.request("/metrics", method="GET")
    assert b'pipo_checks_total{check="external",pipeline="late",verdict="failed"} 1' in page


def test_an_ack_confirms_one_write(stack: Stack) -> None:
    """Edge 226: what is replayed is written again, and waits for an ack of its own."""
    id = waiting(stack, "again")
    assert settled(stack, "again", id)["state"] == "dead_lettered"
    assert stack.pipo("dlq", "replay", "again", id).returncode == 0
    parked(stack, "again", id)
    assert ack(stack, "again", packet_id=id)[1]["already"] is False
    assert settled(stack, "again", id)["state"] == "delivered"
    types = events(stack, "again", id)
    assert types.count("delivery.awaiting_ack") == types.count("output.written") == 2
    assert query(stack.workspace / "again.db", "SELECT packet_id FROM t") == [[id]]


@pytest.mark.seed("D054")
def test_the_snippet_names_the_packet_that_nobody_confirmed(stack: Stack) -> None:
    checked = stack.pipo("check", "snippet.pipo")
    assert checked.returncode == 0, checked.stdout
    id = push(stack, "snippet", {"n": 1})
    found = settled(stack, "snippet", id)
    assert found["error"]["message"] == f"Nobody confirmed {id} within an hour"


def test_then_pause_waits_for_the_resume_and_then_for_a_whole_window(stack: Stack) -> None:
    """Edge 215."""
    id = push(stack, "holds", {"n": 1})
    wait_for(lambda: stack.get("/api/pipelines/holds")["status"] == "paused")
    assert stack.get("/api/pipelines/holds")["runner"]["paused_reason"] == "error at $verify"
    # Not by the command: the window is short.
    assert stack.request("/api/pipelines/holds/resume", b"{}")[0] == 200
    wait_for(lambda: events(stack, "holds", id).count("delivery.awaiting_ack") == 2)
    assert ack(stack, "holds", packet_id=id)[0] == 200
    assert settled(stack, "holds", id)["state"] == "delivered"
    assert events(stack, "holds", id).count("output.written") == 1


def test_a_drain_waits_for_the_ack_and_a_stopped_pipeline_says_how_to_start_it(
    stack: Stack,
) -> None:
    """Edge 225; decision 1."""
    id = waiting(stack, "halted")
    assert stack.pipo("stop", "halted").returncode == 0
    wait_for(lambda: stack.get("/api/pipelines/halted")["status"] == "draining")
    assert ack(stack, "halted", packet_id=id)[0] == 200
    wait_for(lambda: stack.get("/api/pipelines/halted")["state"] == "stopped")
    assert packet(stack, "halted", id)["state"] == "delivered"
    refused = stack.pipo("ack", "halted", id, "--json")
    told = json.loads(refused.stdout)
    assert (refused.returncode, told["code"]) == (1, "invalid_state")
    assert told["hint"] == "start it with: pipo start halted"
