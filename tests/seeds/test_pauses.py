"""Pause, halt and agent by policy, and pauses that are asked for, against a real stack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, packet, push, run_sql, running, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow


def to_table(name: str, policy: str, *, more: str = "") -> str:
    """Its table is not there until `mend`."""
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: sqlite\n"
        f"  with: {{ path: ./there/{name}.db, table: t }}\n  on_error: {{ {policy} }}\n"
        f"agent: {{ control: true }}\n{more}"
    )


def to_file(name: str, delivered: str = "", *, more: str = "") -> str:
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: file\n"
        f"  with: {{ path: ./out/{name}.jsonl }}\n{delivered}{more}"
    )


# Not before the 300 ms of `unseen` are over; how long after is the machine's affair.
LOST = r"lost after ([3-9]\d\dms|\d+(\.\d)?s)"


def unseen(name: str, policy: str = "") -> str:
    """A check that fails until there is a file of this name."""
    return (
        "delivered:\n  check: file_exists\n"
        f"  with: {{ path: ./seen/{name} }}\n  within: 300ms\n{policy}"
    )


WORD = """\
input: { via: push }
nodes:
  lower:
    from: input
    transform: map
    with: { data: "${lower(data.word)}" }
    on_error: { retry: 1, delay: 20ms, then: pause }
output: { from: lower, to: file, with: { path: ./out/at-node.jsonl } }
"""
TOLD = """\
input:
  via: push
  validate: ["data.n > 0"]
  on_invalid: { then: agent, message: "n is ${data.n}" }
output: { from: input, to: file, with: { path: ./out/told.jsonl } }
agent: { control: true }
"""
OVERLAP = """\
concurrency: 3
input: { via: push }
output: { from: input, to: http, with: { url: "${env.STUB}/slow" } }
"""
PIPELINES = {
    "at-output": to_table("at-output", "retry: 3, delay: 50ms, then: pause"),
    "falls-back": "errors: { retry: 3, delay: 50ms }\n" + to_table("falls-back", "then: pause"),
    "several": to_table("several", "then: pause"),
    "halted": to_table("halted", "then: halt"),
    "handed-over": to_table("handed-over", "then: agent"),
    "full-of-them": to_table("full-of-them", "then: agent", more="buffer: { max: 1 }\n"),
    "held-full": to_table("held-full", "then: pause", more="buffer: { max: 1 }\n"),
    "at-node": WORD,
    "at-check": to_file(
        "at-check",
        unseen("at-check", '  on_fail: { then: pause, message: "lost after ${error.elapsed}" }\n'),
    ),
    "own-policy": "errors: { then: pause, message: leaked }\n"
    + to_file("own-policy", unseen("own-policy")),
    "told": TOLD,
    "by-hand": to_file("by-hand", more="buffer: { max: 2 }\n"),
    "backlog": OVERLAP,
    "stalled": to_file(
        "stalled",
        unseen("stalled").replace("300ms", "1m") + "  stall: { after: 500ms, then: pause }\n",
    ),
    "to-stop": to_file("to-stop"),
    "to-drain": to_file("to-drain"),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("pauses")
    config = "engine: { env_allow: [STUB] }\n"
    with running(folder, PIPELINES, env={"STUB": receiver.url}, config=config) as made:
        yield made


def info(stack: Stack, name: str) -> dict[str, Any]:
    """What `pipo status --json` tells of a pipeline."""
    found: dict[str, Any] = json.loads(stack.pipo("status", name, "--json").stdout)
    return found


def paused(stack: Stack, name: str) -> str:
    """Why it is paused, once it is."""
    wait_for(lambda: stack.get(f"/api/pipelines/{name}")["status"] == "paused")
    return str(info(stack, name)["runner"]["paused_reason"])


def events(stack: Stack, name: str, type_: str) -> list[dict[str, Any]]:
    """The details of every event of a type."""
    found = stack.get(f"/api/pipelines/{name}/events?limit=1000")["events"]
    return [one["detail"] or {} for one in found if one["type"] == type_]


def trail(stack: Stack, name: str, id: str) -> list[str]:
    return [event["type"] for event in inspect(stack, name, id)["events"]]


def mend(stack: Stack, name: str) -> None:
    run_sql(
        stack.workspace / f"there/{name}.db",
        "CREATE TABLE IF NOT EXISTS t (packet_id TEXT PRIMARY KEY, n INTEGER)",
    )


def show(stack: Stack, name: str) -> None:
    """From now on the pipeline's check passes."""
    seen = stack.workspace / f"seen/{name}"
    seen.parent.mkdir(exist_ok=True)
    seen.touch()


def resume(stack: Stack, name: str) -> None:
    done = stack.pipo("resume", name)
    assert (done.returncode, done.stdout) == (0, f"resumed {name}\n"), done.stderr


def written(stack: Stack, name: str) -> list[str]:
    database = stack.workspace / f"there/{name}.db"
    return [row[0] for row in query(database, "SELECT packet_id FROM t")]


# ── by policy ────────────────────────────────────────────────────────────────


@pytest.mark.seed("O062")
def test_the_output_pauses_and_writes_after_the_resume(stack: Stack) -> None:
    id = push(stack, "at-output", {"n": 1})
    assert paused(stack, "at-output") == "error at $output"
    shown = stack.pipo("status", "at-output").stdout
    assert "paused: error at $output; 1 packet(s) held" in shown
    assert "pipo resume at-output" in shown
    held = packet(stack, "at-output", id)
    assert (held["state"], held["node"], held["error"]) == ("writing", "$output", None)
    (told,) = events(stack, "at-output", "packet.held")
    assert (told["how"], told["error"]["attempts"]) == ("pause", 4)
    # It fails again with all its attempts, and is held again.
    resume(stack, "at-output")
    wait_for(lambda: len(events(stack, "at-output", "packet.held")) == 2)
    assert len(events(stack, "at-output", "step.retry")) == 6
    assert paused(stack, "at-output") == "error at $output"
    mend(stack, "at-output")
    resume(stack, "at-output")
    assert settled(stack, "at-output", id)["state"] == "delivered"
    assert written(stack, "at-output") == [id]


@pytest.mark.seed("O059")
def test_a_pause_takes_what_it_does_not_say_from_errors(stack: Stack) -> None:
    id = push(stack, "falls-back", {"n": 1})
    assert paused(stack, "falls-back") == "error at $output"
    assert [one["wait"] for one in events(stack, "falls-back", "step.retry")] == [50, 50, 50]
    mend(stack, "falls-back")
    resume(stack, "falls-back")
    assert settled(stack, "falls-back", id)["state"] == "delivered"


def test_several_that_fail_are_each_held_in_one_pause(stack: Stack) -> None:
    assert stack.pipo("pause", "several").returncode == 0
    ids = [push(stack, "several", {"n": n}) for n in range(4)]
    resume(stack, "several")
    # One write of four packets, and each fails.
    wait_for(lambda: info(stack, "several")["runner"]["held"] == 4)
    held = {e["packet_id"] for e in _events(stack, "several") if e["type"] == "packet.held"}
    assert held == set(ids)
    reasons = [one["reason"] for one in events(stack, "several", "pipeline.paused")]
    assert reasons == ["manual", "error at $output"]
    mend(stack, "several")
    resume(stack, "several")
    for id in ids:
        assert settled(stack, "several", id)["state"] == "delivered"
    assert sorted(written(stack, "several")) == sorted(ids)


def _events(stack: Stack, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.get(f"/api/pipelines/{name}/events?limit=1000")["events"]
    return found


@pytest.mark.seed("O063")
def test_a_halt_ends_the_pipeline_and_its_packet_stays(stack: Stack) -> None:
    pid = stack.pipeline_pid("halted")
    id = push(stack, "halted", {"n": 1})
    wait_for(lambda: info(stack, "halted")["state"] == "failed")
    told = info(stack, "halted")
    assert told["runner"] is None
    assert told["error"].startswith("error at $output: ")
    assert stack.pipeline_pid("halted") is None
    assert packet(stack, "halted", id)["state"] == "writing"
    assert [held["how"] for held in events(stack, "halted", "packet.held")] == ["halt"]
    assert [e["type"] for e in _events(stack, "halted")][-1] == "pipeline.failed"
    # Nobody brings it back: no host wants it to run.
    wish = json.loads((stack.home / "pipelines/halted/desired.json").read_text())
    assert (wish["desired"], wish["state"]) == ("stopped", "failed")
    assert len(events(stack, "halted", "pipeline.started")) == 1
    refused = stack.pipo("push", "halted", "--data", "{}")
    assert refused.returncode == 1
    assert "start it with: pipo start halted" in refused.stderr
    mend(stack, "halted")
    assert stack.pipo("start", "halted").returncode == 0
    assert settled(stack, "halted", id)["state"] == "delivered"
    assert written(stack, "halted") == [id]
    assert stack.pipeline_pid("halted") != pid


@pytest.mark.seed("O064")
def test_a_packet_is_handed_to_who_resolves_it(stack: Stack) -> None:
    id = push(stack, "handed-over", {"n": 1})
    wait_for(lambda: packet(stack, "handed-over", id)["state"] == "escalated")
    listed = stack.pipo("packets", "handed-over", "--state", "escalated").stdout
    assert id in listed
    found = packet(stack, "handed-over", id)
    assert (found["node"], found["error"]["code"]) == ("$output", "output.failed")
    (told,) = events(stack, "handed-over", "packet.escalated")
    assert (told["reason"], told["error"]["node"]) == ("error", "output")
    stats = stack.stats("handed-over")
    assert (stats["escalated"], stats["pending"]) == (1, 1)
    # The others go on.
    mend(stack, "handed-over")
    other = push(stack, "handed-over", {"n": 2})
    assert settled(stack, "handed-over", other)["state"] == "delivered"


@pytest.mark.seed("L044")
def test_an_escalated_packet_holds_up_no_stop(stack: Stack) -> None:
    id = push(stack, "full-of-them", {"n": 1})
    wait_for(lambda: packet(stack, "full-of-them", id)["state"] == "escalated")
    # It fills the buffer on its own (edge 328).
    refused = stack.pipo("push", "full-of-them", "--data", "{}")
    assert "buffer full (1 packets pending)" in refused.stderr
    assert stack.pipo("stop", "full-of-them").returncode == 0
    wait_for(lambda: info(stack, "full-of-them")["state"] == "stopped")
    assert stack.pipo("start", "full-of-them").returncode == 0
    assert packet(stack, "full-of-them", id)["state"] == "escalated"
    assert trail(stack, "full-of-them", id).count("packet.escalated") == 1


def test_a_held_packet_keeps_its_place_in_the_buffer(stack: Stack) -> None:
    push(stack, "held-full", {"n": 1})
    paused(stack, "held-full")
    refused = stack.pipo("push", "held-full", "--data", "{}")
    assert "buffer full (1 packets pending)" in refused.stderr


def test_a_node_pauses_by_its_name(stack: Stack) -> None:
    id = push(stack, "at-node", {"word": 7})
    assert paused(stack, "at-node") == "error at lower"
    (told,) = events(stack, "at-node", "packet.held")
    assert told["error"]["node"] == "lower"
    assert stack.pipo("stop", "at-node").returncode == 0
    # The drain lets it try once more; still held, it holds up nothing (edge 156, 307).
    wait_for(lambda: info(stack, "at-node")["state"] == "stopped")
    types = [e["type"] for e in _events(stack, "at-node")]
    assert [one for one in types if one.startswith("pipeline.")] == [
        "pipeline.started",
        "pipeline.paused",
        "pipeline.resumed",
        "pipeline.draining",
        "pipeline.stopped",
    ]
    assert types.count("packet.held") == 2
    assert packet(stack, "at-node", id)["state"] == "accepted"


@pytest.mark.seed("D015")
def test_a_check_that_fails_pauses_with_its_message(stack: Stack) -> None:
    id = push(stack, "at-check", {"n": 1})
    assert paused(stack, "at-check") == "error at $verify"
    assert packet(stack, "at-check", id)["state"] == "verifying"
    shown = stack.pipo("inspect", "at-check", id).stdout
    assert re.search(LOST, shown), shown
    (told,) = events(stack, "at-check", "packet.held")
    assert re.fullmatch(LOST, told["error"]["message"])
    show(stack, "at-check")
    resume(stack, "at-check")
    assert settled(stack, "at-check", id)["state"] == "delivered"
    assert [one["packet_id"] for one in lines(stack.workspace / "out/at-check.jsonl")] == [id]
    assert trail(stack, "at-check", id).count("output.written") == 1


@pytest.mark.seed("D016")
def test_a_check_takes_nothing_from_errors(stack: Stack) -> None:
    end = settled(stack, "own-policy", push(stack, "own-policy", {"n": 1}))
    assert end["state"] == "dead_lettered"
    assert end["error"]["message"] != "leaked"
    assert info(stack, "own-policy")["status"] == "active"


def test_who_resolves_hears_of_what_an_input_rejects(stack: Stack) -> None:
    refused = stack.pipo("push", "told", "--data", '{"n": 0}')
    assert refused.returncode == 1
    (listed,) = stack.get("/api/pipelines/told/packets")["packets"]
    assert listed["state"] == "rejected"
    (told,) = events(stack, "told", "packet.escalated")
    assert (told["reason"], told["waiting"]) == ("rejected", False)
    assert told["error"]["message"] == "n is 0"
    stats = stack.stats("told")
    assert (stats["escalated"], stats["pending"]) == (0, 0)


# ── asked for ────────────────────────────────────────────────────────────────


@pytest.mark.seed("L037")
def test_a_paused_pipeline_accepts_up_to_its_buffer(stack: Stack) -> None:
    done = stack.pipo("pause", "by-hand")
    assert (done.returncode, done.stdout) == (0, "paused by-hand\n")
    again = stack.pipo("pause", "by-hand")
    assert (again.returncode, again.stdout) == (0, "by-hand is already paused\n")
    assert paused(stack, "by-hand") == "manual"
    ids = [push(stack, "by-hand", {"n": n}) for n in (1, 2)]
    refused = stack.pipo("push", "by-hand", "--data", '{"n": 3}')
    assert refused.returncode == 1
    assert "buffer full (2 packets pending)" in refused.stderr
    for id in ids:
        assert packet(stack, "by-hand", id)["state"] == "accepted"
        assert trail(stack, "by-hand", id) == ["packet.accepted"]
    assert stack.stats("by-hand")["accepted"] == 2
    assert not (stack.workspace / "out/by-hand.jsonl").exists()
    resume(stack, "by-hand")
    for id in ids:
        assert settled(stack, "by-hand", id)["state"] == "delivered"
    idle = stack.pipo("resume", "by-hand")
    assert (idle.returncode, idle.stdout) == (0, "by-hand is not paused\n")


@pytest.mark.seed("L038")
def test_a_resume_works_through_the_backlog_at_full_concurrency(
    stack: Stack, receiver: Receiver
) -> None:
    receiver.script("/slow", Reply(delay_s=0.4))
    assert stack.pipo("pause", "backlog").stdout == "paused backlog\n"
    ids = [push(stack, "backlog", {"n": n}) for n in range(6)]
    shown = stack.pipo("status", "backlog").stdout
    assert "paused" in shown
    resume(stack, "backlog")
    for id in ids:
        assert settled(stack, "backlog", id)["state"] == "delivered"
    assert receiver.open_most == 3
    assert info(stack, "backlog")["status"] == "active"


def test_a_pause_over_rest_says_its_reason(stack: Stack) -> None:
    def asked(what: str, body: bytes = b"{}") -> tuple[int, dict[str, Any]]:
        status, _, answer = stack.request(f"/api/pipelines/to-drain/{what}", body)
        return status, json.loads(answer)

    status, told = asked("pause", b'{"reason": "stall"}')
    assert (status, told["code"]) == (400, "bad_request")
    assert asked("pause", b'{"reason": "agent"}') == (
        200,
        {"pipeline": "to-drain", "state": "paused", "already": False},
    )
    assert asked("pause")[1]["already"] is True
    assert paused(stack, "to-drain") == "agent"
    assert events(stack, "to-drain", "pipeline.paused") == [{"reason": "agent"}]
    assert 'state="paused"} 1' in stack.request("/metrics", method="GET")[2].decode()
    assert asked("resume")[1] == {"pipeline": "to-drain", "state": "active", "already": False}
    assert info(stack, "to-drain")["runner"]["paused_reason"] is None


@pytest.mark.seed("L041")
def test_a_clean_stop_ends_a_pause(stack: Stack) -> None:
    stack.pipo("pause", "to-stop")
    id = push(stack, "to-stop", {"n": 1})
    assert stack.pipo("stop", "to-stop", "--now").returncode == 0
    wait_for(lambda: info(stack, "to-stop")["state"] == "stopped")
    left = query(journal_of(stack.home, "to-stop"), "SELECT state FROM units")
    assert left == [["accepted"]]
    refused = stack.pipo("pause", "to-stop")
    assert refused.returncode == 1
    assert "start it with: pipo start to-stop" in refused.stderr
    assert stack.pipo("start", "to-stop").returncode == 0
    assert info(stack, "to-stop")["status"] == "active"
    assert settled(stack, "to-stop", id)["state"] == "delivered"


@pytest.mark.seed("L039")
def test_every_pause_is_recorded_with_its_reason(stack: Stack) -> None:
    id = push(stack, "stalled", {"n": 1})
    assert paused(stack, "stalled") == "stall"
    show(stack, "stalled")
    resume(stack, "stalled")
    assert settled(stack, "stalled", id)["state"] == "delivered"
    kept = {
        "at-output": "error at $output",
        "at-check": "error at $verify",
        "at-node": "error at lower",
        "by-hand": "manual",
        "to-drain": "agent",
        "stalled": "stall",
    }
    for name, reason in kept.items():
        assert events(stack, name, "pipeline.paused")[0] == {"reason": reason}
