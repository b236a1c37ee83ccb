"""What may change of a chain while it runs, how circles end, and what retention takes along."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import operate, outcome, packet, push, running, settled
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow

OUT = "to: file, with: { path: ./%s.jsonl }"


def ring(name: str, before: str, behind: str) -> str:
    return (
        "inputs:\n  start: { via: push }\n"
        f"  back: {{ via: pipeline, with: {{ from: [{before}] }} }}\n"
        f"output:\n  from: [start, back]\n  to: pipeline\n  with: {{ pipeline: {behind} }}\n"
        "  on_error: { retry: 1, delay: 50ms }\n"
    )


def sender(to: str) -> str:
    return f"input: {{ via: push }}\noutput: {{ from: input, {to}, on_error: {{ retry: 0 }} }}\n"


def receiver(name: str, *senders: str, more: str = "") -> str:
    return (
        f"input: {{ via: pipeline, with: {{ from: [{', '.join(senders)}] }} }}\n"
        f"output: {{ from: input, {OUT % name} }}\n{more}"
    )


TO_LEFT = "to: pipeline, with: { pipeline: left }"
PIPELINES = {
    "ring-a": ring("ring-a", "ring-c", "ring-b"),
    "ring-b": ring("ring-b", "ring-a", "ring-c"),
    "ring-c": ring("ring-c", "ring-b", "ring-a"),
    "one": sender(TO_LEFT),
    "two": sender(TO_LEFT),
    "left": receiver("left", "one"),
    "brief": sender("to: pipeline, with: { pipeline: short }"),
    "short": receiver("short", "brief", more="retention: { data: 1s, trail: 2s }\n"),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("changes"), PIPELINES) as made:
        yield made


def apply(stack: Stack, name: str, text: str) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"source": text}).encode()
    status, _, answer = stack.request(f"/api/pipelines/{name}/apply", body)
    return status, json.loads(answer)


def restarted(stack: Stack, name: str, text: str) -> None:
    """Saves the file and restarts the pipeline, as the hint of the refusal says."""
    stack.write(f"{name}.pipo", text)
    pid = stack.pipeline_pid(name)
    operate(stack, name, "restart")
    wait_for(lambda: stack.pipeline_pid(name) not in (None, pid))
    wait_for(lambda: stack.get(f"/api/pipelines/{name}")["status"] == "active")


def whole(name: str, text: str) -> str:
    return f"pipo: 1\nname: {name}\n{text}"


@pytest.mark.seed("C037")
def test_the_list_of_senders_is_bound_at_start(stack: Stack) -> None:
    refused = outcome(stack, "two", {"n": 1})
    assert "two may not hand packets over to left" in refused["error"]["message"]
    both = whole("left", receiver("left", "one", "two"))
    status, told = apply(stack, "left", both)
    assert (status, told["code"]) == (409, "invalid_state")
    assert told["error"] == "input.with may not change while left runs"
    assert told["hint"] == f"save it as {stack.workspace}/left.pipo, then: pipo restart left"
    # Nothing has changed: the sender is refused still.
    assert stack.get("/api/pipelines/left")["version"] == 1
    assert outcome(stack, "two", {"n": 2})["state"] == "dead_lettered"
    done = stack.pipo("apply", "left", str(stack.write("wanted.txt", both)))
    assert done.returncode == 1
    assert "input.with may not change while left runs" in done.stderr
    restarted(stack, "left", both)
    assert stack.get("/api/pipelines/left")["version"] == 2
    for name in ("one", "two"):
        found = outcome(stack, name, {"n": 3})
        assert found["state"] == "delivered", found
    stack.settle("left")
    assert [one["data"] for one in lines(stack.workspace / "left.jsonl")] == [{"n": 3}] * 2


@pytest.mark.seed("C037")
def test_where_packets_go_is_bound_at_start(stack: Stack) -> None:
    other = whole("one", sender(OUT % "aside"))
    status, told = apply(stack, "one", other)
    assert (status, told["error"]) == (409, "output.to may not change while one runs")
    before = stack.stats("left")["accepted"]
    assert outcome(stack, "one", {"n": 4})["state"] in ("delivered", "dead_lettered")
    assert not (stack.workspace / "aside.jsonl").exists()
    restarted(stack, "one", other)
    held = stack.stats("left")["accepted"]
    assert held in (before, before + 1)
    assert outcome(stack, "one", {"n": 5})["state"] == "delivered"
    assert [one["data"] for one in lines(stack.workspace / "aside.jsonl")] == [{"n": 5}]
    assert stack.stats("left")["accepted"] == held
    assert stack.get("/api/pipelines/one")["chain"] == {"feeds": [], "fed_by": []}


@pytest.mark.seed("C027")
def test_a_circle_of_three_ends_at_sixteen_hops(stack: Stack) -> None:
    id = push(stack, "ring-a", {"n": 1}, input="start")
    wait_for(lambda: stack.stats("ring-b")["dead_lettered"])
    assert settled(stack, "ring-a", id)["state"] == "delivered"
    names = ("ring-a", "ring-b", "ring-c")
    assert [stack.stats(name)["accepted"] for name in names] == [6, 6, 5]
    (dead,) = stack.get("/api/pipelines/ring-b/dlq")["packets"]
    found = packet(stack, "ring-b", dead["packet_id"])
    assert (found["upstream"]["depth"], found["error"]["attempts"]) == (16, 2)
    assert "downstream_rejected: pipeline 'ring-c'" in found["error"]["message"]
    assert "17 times, more than 16" in found["error"]["message"]
    # Nothing was journaled of the hop that was refused: no packet, no rejection, no key.
    journal = journal_of(stack.home, "ring-c")
    assert query(journal, "SELECT count(*) FROM units") == [[5]]
    assert query(journal, "SELECT count(*) FROM inbox") == [[5]]
    assert stack.stats("ring-c")["rejected"] == 0


def test_a_pipeline_that_feeds_itself_is_no_pipeline(stack: Stack) -> None:
    text = whole("selfish", ring("selfish", "selfish", "selfish"))
    file = stack.write("selfish.txt", text)
    shown = stack.pipo("check", str(file))
    assert (shown.returncode, shown.stdout.count("P063")) == (1, 2), shown.stdout
    status, _, answer = stack.request("/api/pipelines", json.dumps({"file": str(file)}).encode())
    assert status == 422
    assert {one["code"] for one in json.loads(answer)["diagnostics"]} == {"P063"}


@pytest.mark.seed("C024")
def test_a_key_goes_with_its_packet(stack: Stack) -> None:
    """The clean-up of a start takes what is past its age, and the inbox rows along."""
    end = outcome(stack, "brief", {"n": 1})
    stack.settle("short")
    id, journal = end["result"]["packet_id"], journal_of(stack.home, "short")
    assert query(journal, "SELECT sender, key, packet FROM inbox") == [
        ["brief", end["packet_id"], id]
    ]

    def old() -> bool:
        ((updated_at,),) = query(journal, "SELECT max(updated_at) FROM units")
        return bool(time.time() * 1000 - updated_at > 2_500)

    wait_for(old)
    operate(stack, "short", "restart")
    wait_for(lambda: query(journal, "SELECT count(*) FROM units") == [[0]], deadline_s=120)
    assert query(journal, "SELECT count(*) FROM inbox") == [[0]]
    # Its key is free again: that is what `trail` says of how long repeats are known.
    wait_for(lambda: stack.get("/api/pipelines/short")["status"] == "active")
    assert outcome(stack, "brief", {"n": 2})["state"] == "delivered"
