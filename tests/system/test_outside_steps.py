"""Steps that reach outside, through a whole stack: keys, retries, a loop, and a stop in between."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import inspect, outcome, push, running, settled
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, query, wait_for

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}


def asks(name: str, more: str = "", *, output: str = "asked") -> str:
    return (
        "input: { via: push }\nnodes:\n"
        f'  asked: {{ from: input, transform: http, with: {{ url: "${{env.STUB}}/{name}" }}{more} }}\n'
        f"output:\n  from: {output}\n  to: sqlite\n"
        f"  with: {{ path: ./{name}.db, table: t, create: true }}\n"
    )


PIPELINES = {
    "asked": asks("asked", ", on_error: { retry: 2, delay: 100ms }"),
    "counted": asks("counted", ", loop: { back_to: asked, until: data.n >= 3, max: 5 }"),
    "endless": asks("endless", ", loop: { back_to: asked, until: data.n < 0, max: 2 }"),
    "stopped": asks("stopped"),
    "hanging": asks("hanging"),
    "forked": (
        "input: { via: push }\nnodes:\n"
        '  a: { from: input, tap: http, with: { url: "${env.STUB}/forked" } }\n'
        '  b: { from: input, tap: http, with: { url: "${env.STUB}/forked" } }\n'
        '  last: { from: [a, b], tap: http, with: { url: "${env.STUB}/forked" } }\n'
        "output:\n  from: last\n  to: sqlite\n"
        "  with: { path: ./forked.db, table: t, create: true }\n"
    ),
}


def counts(got: Got) -> Reply:
    """One more than what was sent."""
    return Reply(body=json.dumps({"n": got.json["n"] + 1}), headers=JSON)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("outside")
    config = "engine: { env_allow: [STUB], stop_timeout: 2s }\n"
    with running(folder, PIPELINES, env={"STUB": receiver.url}, config=config) as made:
        yield made


def rows(stack: Stack, name: str) -> Any:
    return query(stack.workspace / f"{name}.db", "SELECT packet_id, n FROM t ORDER BY 1")


def nodes(stack: Stack, name: str, id: str, type_: str) -> list[str]:
    events = inspect(stack, name, id)["events"]
    return [event["node"] for event in events if event["type"] == type_]


def test_the_answer_is_the_data_and_a_repeat_has_the_same_key(
    stack: Stack, receiver: Receiver
) -> None:
    receiver.script("/asked", Reply(503, "busy"), counts)
    made = outcome(stack, "asked", {"n": 1})
    id = made["packet_id"]
    assert made["state"] == "delivered"
    assert rows(stack, "asked") == [[id, 2]]
    assert receiver.keys("/asked") == [f"{id}:asked"] * 2
    assert nodes(stack, "asked", id, "step.retry") == ["asked"]


def test_the_step_key_of_a_copy_names_its_branch(stack: Stack, receiver: Receiver) -> None:
    """Edge 105, also after fan-in."""
    id = outcome(stack, "forked", {"n": 1})["packet_id"]
    assert sorted(receiver.keys("/forked")) == [
        f"{id}:a:a", f"{id}:a:last", f"{id}:b:b", f"{id}:b:last",
    ]  # fmt: skip
    assert rows(stack, "forked") == [[f"{id}:a", 1], [f"{id}:b", 1]]


def test_a_loop_sends_until_the_answer_will_do(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/counted", counts)
    id = outcome(stack, "counted", {"n": 0})["packet_id"]
    assert rows(stack, "counted") == [[id, 3]]
    assert nodes(stack, "counted", id, "node.looped") == ["asked", "asked"]
    assert [got.json["n"] for got in receiver.at("/counted")] == [0, 1, 2]


def test_a_loop_at_its_limit_is_dead(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/endless", counts)
    made = outcome(stack, "endless", {"n": 0})
    assert made["state"] == "dead_lettered"
    assert made["error"]["code"] == "loop.max"
    assert made["error"]["node"] == "asked"
    assert len(receiver.at("/endless")) == 3
    assert made["data"] == {"n": 2}


def test_a_stop_lets_a_step_finish(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/stopped", Reply(body='{"n": 9}', headers=JSON, delay_s=1.0))
    id = push(stack, "stopped", {"n": 1})
    wait_for(lambda: receiver.at("/stopped"), what="it is asked")
    end(stack, "stopped")
    assert settled(stack, "stopped", id)["state"] == "delivered"
    assert rows(stack, "stopped") == [[id, 9]]
    assert len(receiver.at("/stopped")) == 1


def test_a_step_that_takes_too_long_is_given_up_and_asked_anew(
    stack: Stack, receiver: Receiver
) -> None:
    receiver.script("/hanging", Reply(delay_s=25.0), counts)
    id = push(stack, "hanging", {"n": 1})
    wait_for(lambda: receiver.at("/hanging"), what="it is asked")
    end(stack, "hanging")
    assert settled(stack, "hanging", id)["state"] == "delivered"
    assert rows(stack, "hanging") == [[id, 2]]
    assert receiver.keys("/hanging") == [f"{id}:asked"] * 2
    assert nodes(stack, "hanging", id, "step.retry") == []


def end(stack: Stack, name: str) -> None:
    """SIGTERM to a pipeline's process; the next run serves on return."""
    pid = stack.pipeline_pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: stack.pipeline_pid(name) not in (None, pid), what="the next run")


def test_a_file_tap_and_the_output_may_share_a_file(tmp_path: Path) -> None:
    text = (
        "input: { via: push }\nnodes: { kept: { from: input, tap: file, with: { path: ./f.jsonl } } }\n"
        "output: { from: kept, to: file, with: { path: ./f.jsonl } }\n"
    )
    with running(tmp_path, {"shared": text}) as stack:
        ids = [outcome(stack, "shared", {"n": n})["packet_id"] for n in range(3)]
        kept = [
            json.loads(line)["packet_id"]
            for line in (stack.workspace / "f.jsonl").read_text().splitlines()
        ]
    assert kept == [id for id in ids for _ in range(2)]
