"""Pushing a packet by hand, against a real stack (recovering-packets, "Pushing a packet")."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow

HEAD = "pipo: 1\nname: {name}\n"
TAIL = """\
output:
  from: {sources}
  to: file
  with: {{ path: ./out/{name}.jsonl }}
"""
RULE = '    validate: ["data.age >= 18"]\n'

# Name → inputs, and the names that the output takes from.
PIPELINES = {
    "by-push": ("inputs:\n  hand:\n    via: push\n" + RULE, "hand"),
    "by-http": ("inputs:\n  web:\n    via: http\n    with: { path: /p }\n" + RULE, "web"),
    "by-clock": ("inputs:\n  clock:\n    via: schedule\n    with: { every: 1d }\n" + RULE, "clock"),
    "one-push": (
        "inputs:\n  web:\n    via: http\n    with: { path: /p }\n  hand:\n    via: push\n",
        "[web, hand]",
    ),
    "no-push": (
        "inputs:\n  one:\n    via: http\n    with: { path: /a }\n"
        "  two:\n    via: http\n    with: { path: /b }\n" + RULE,
        "[one, two]",
    ),
    "two-push": ("inputs:\n  left:\n    via: push\n  right:\n    via: push\n", "[left, right]"),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("push"))
    for name, (inputs, sources) in PIPELINES.items():
        text = HEAD.format(name=name) + inputs + TAIL.format(name=name, sources=sources)
        made.write(f"{name}.pipo", text)
    try:
        yield made.start()
        assert made.stop() == 0
    finally:
        made.kill_all()


def out(stack: Stack, name: str) -> Path:
    return stack.workspace / "out" / f"{name}.jsonl"


def push(stack: Stack, name: str, *words: str) -> str:
    """The id of a pushed packet."""
    done = stack.pipo("push", name, *words)
    assert done.returncode == 0, done.stderr
    id, pipeline, state = done.stdout.strip().split("  ")
    assert (len(id), pipeline, state) == (26, name, "(accepted)")
    return id


@pytest.mark.seed("R053")
def test_a_push_arrives_and_prints_its_id(stack: Stack) -> None:
    first = push(stack, "by-push", "--data", '{"name": "Ada", "age": 36}')
    (stack.workspace / "packet.json").write_text('{"name": "Bo", "age": 40}')
    second = push(stack, "by-push", "--file", "packet.json", "--source", "me", "--input", "hand")
    wait_for(lambda: out(stack, "by-push").exists() and len(lines(out(stack, "by-push"))) == 2)
    written = {
        record["packet_id"]: record["data"]["name"] for record in lines(out(stack, "by-push"))
    }
    assert written == {first: "Ada", second: "Bo"}


@pytest.mark.seed("R053")
def test_a_packet_whose_id_was_printed_survives_a_kill(stack: Stack) -> None:
    pid = stack.pipeline_pid("by-http")
    assert pid is not None
    id = push(stack, "by-http", "--data", '{"age": 50}')
    os.kill(pid, signal.SIGKILL)
    found = query(
        journal_of(stack.home, "by-http"), f"SELECT count(*) FROM units WHERE id = '{id}'"
    )
    assert found == [[1]]
    wait_for(lambda: stack.pipeline_pid("by-http") not in (None, pid), what="the restart")
    wait_for(lambda: stack.stats("by-http").get("delivered") == 1, what="delivered")
    assert [record["packet_id"] for record in lines(out(stack, "by-http"))] == [id]


# Through `via: pipeline`: tests/seeds/test_chains.py.
@pytest.mark.seed("R054")
@pytest.mark.parametrize("name", ["by-push", "by-http", "by-clock"])
def test_a_push_goes_through_the_rules_of_any_input(stack: Stack, name: str) -> None:
    push(stack, name, "--data", '{"age": 18}')
    refused = stack.pipo("push", name, "--data", '{"age": 17}')
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "data.age >= 18" in refused.stderr
    answer = json.loads(stack.pipo("push", name, "--data", '{"age": 17}', "--json").stdout)
    assert (answer["ok"], answer["code"], len(answer["packet_id"])) == (False, "rejected", 26)


@pytest.mark.seed("R055")
def test_trigger_and_source(stack: Stack) -> None:
    for words, source in (((), "cli"), (("--source", "me"), "me")):
        id = push(stack, "by-push", "--data", '{"age": 20}', *words)
        packet = json.loads(stack.pipo("inspect", "by-push", id, "--json").stdout)["packet"]
        assert (packet["trigger"], packet["source"]) == ("push", source)
        assert f"via push ({source})" in stack.pipo("inspect", "by-push", id).stdout


@pytest.mark.seed("R056")
def test_which_input_a_push_takes(stack: Stack) -> None:
    def input_of(name: str, *words: str) -> str:
        id = push(stack, name, "--data", '{"age": 20}', *words)
        found = json.loads(stack.pipo("inspect", name, id, "--json").stdout)
        return str(found["packet"]["input"])

    assert input_of("by-http") == "web"
    assert input_of("one-push") == "hand"
    assert input_of("one-push", "--input", "web") == "web"
    assert input_of("no-push", "--input", "two") == "two"
    unclear = stack.pipo("push", "no-push", "--data", '{"age": 20}')
    assert unclear.returncode == 1
    assert "one" in unclear.stderr + unclear.stdout
    assert input_of("two-push", "--input", "right") == "right"
    either = stack.pipo("push", "two-push", "--data", "{}")
    assert (either.returncode, either.stdout) == (1, "")
    assert "left, right" in either.stderr
    unknown = stack.pipo("push", "one-push", "--data", "{}", "--input", "three")
    assert unknown.returncode == 1
    assert "three" in unknown.stderr


def test_a_push_into_a_stopped_pipeline_says_how_to_start_it(stack: Stack) -> None:
    path = stack.write(
        "idle.pipo",
        HEAD.format(name="idle")
        + "input:\n  via: push\n"
        + TAIL.format(name="idle", sources="input"),
    )
    assert stack.pipo("start", str(path)).returncode == 0
    id = push(stack, "idle", "--data", "1")
    assert stack.pipo("stop", "idle").returncode == 0
    wait_for(lambda: stack.get("/api/pipelines/idle")["state"] == "stopped")
    refused = stack.pipo("push", "idle", "--data", "1")
    assert refused.returncode == 1
    assert "is not running" in refused.stderr
    assert "pipo start idle" in refused.stderr
    listed = json.loads(stack.pipo("packets", "idle", "--json").stdout)
    assert (listed["source"], listed["packets"][0]["packet_id"]) == ("journal", id)
