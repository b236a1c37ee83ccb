"""The stdout output: the terminal of `pipo run`, the pipeline's log under the engine (outputs)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.packets import inspect, packet, push, settled
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

PRINT_TICKS = """\
pipo: 1
name: print-ticks
input:
  via: schedule
  with: { every: 10s, payload: { hello: world } }
output:
  from: input
  to: stdout
  with: { format: text }
"""
PRINTS = (
    "pipo: 1\nname: {name}\ninput: {{ via: push }}\noutput: {{ from: input, to: stdout{more} }}\n"
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("stdout"))
    made.write("print-ticks.pipo", PRINT_TICKS.replace("10s", "2s"))
    for form in ("jsonl", "json", "text"):
        more = f", with: {{ format: {form} }}"
        made.write(f"{form}.pipo", PRINTS.format(name=form, more=more))
    try:
        yield made.start()
        assert made.stop() == 0
    finally:
        made.kill_all()


def printed(stack: Stack, name: str) -> list[str]:
    """What a pipeline printed on the terminal of `pipo run`; `<name> | ` stands before each line."""
    text = (stack.workspace.parent / "run.log").read_text()
    lines = [line.partition(" | ") for line in text.splitlines()]
    return [line for head, _, line in lines if head.strip() == name and "action=" not in line]


def ticks(stack: Stack) -> list[str]:
    return [line for line in printed(stack, "print-ticks") if "hello" in line]


DATA = {"hello": "wörld", "n": [1]}


@pytest.mark.parametrize("form", ["jsonl", "json", "text"])
def test_each_packet_is_printed(stack: Stack, form: str) -> None:
    id = push(stack, form, DATA)
    assert settled(stack, form, id)["state"] == "delivered"
    wanted = {
        "jsonl": [
            json.dumps({"packet_id": id, "data": DATA}, ensure_ascii=False, separators=(",", ":"))
        ],
        "json": json.dumps(DATA, ensure_ascii=False, indent=2).splitlines(),
        "text": ['{"hello":"wörld","n":[1]}'],
    }[form]
    wait_for(lambda: printed(stack, form) == wanted, what=f"{printed(stack, form)} is {wanted}")


@pytest.mark.seed("O041")
def test_under_the_engine_it_is_the_pipelines_log(stack: Stack) -> None:
    """`pipo start` into a running engine, then `pipo logs`; under `pipo run`, the terminal."""
    settled(stack, "text", push(stack, "text", "on the terminal"))
    wait_for(lambda: "on the terminal" in printed(stack, "text"))
    path = stack.write("later.pipo", PRINTS.format(name="later", more=", with: { format: text }"))
    assert stack.pipo("start", str(path)).returncode == 0
    id = push(stack, "later", "into the log")
    assert settled(stack, "later", id)["state"] == "delivered"
    logged = stack.pipo("logs", "later")
    assert logged.returncode == 0
    assert "into the log" in logged.stdout.splitlines()


@pytest.mark.seed("O042")
def test_print_ticks(stack: Stack, tmp_path: Path) -> None:
    """As it stands it passes the check; it runs with two seconds in place of ten."""
    (tmp_path / "print-ticks.pipo").write_text(PRINT_TICKS)
    assert stack.pipo("check", str(tmp_path / "print-ticks.pipo")).returncode == 0
    wait_for(lambda: len(ticks(stack)) >= 3)
    assert set(ticks(stack)) == {'{"hello":"world"}'}
    # A tick that this machine was too busy for is missed, and the next one is in time.
    wait_for(lambda: 2_000 in pauses_ms(stack))
    assert {pause % 2_000 for pause in pauses_ms(stack)} == {0}


def pauses_ms(stack: Stack) -> list[int]:
    """How far apart the ticks so far were due."""
    listed = stack.get("/api/pipelines/print-ticks/packets")["packets"]
    made = [packet(stack, "print-ticks", one["packet_id"]) for one in reversed(listed)]
    due = [datetime.fromisoformat(tick["source"]) for tick in made]
    return [round((later - earlier).total_seconds() * 1000) for earlier, later in pairwise(due)]


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Stack]:
    once = str(tmp_path / "sprung")
    made = Stack(tmp_path, env={"PIPO_CRASH_AT": "output.after_write", "PIPO_CRASH_ONCE": once})
    made.write("again.pipo", PRINTS.format(name="again", more=", with: { format: text }"))
    try:
        yield made.start()
    finally:
        made.kill_all()


@pytest.mark.crash
@pytest.mark.seed("O043")
def test_a_repeated_write_prints_again(crashing: Stack) -> None:
    """Killed between the print and its commit, the packet is printed a second time."""
    id = push(crashing, "again", "twice")
    wait_for(lambda: crashing.stats("again").get("delivered") == 1)
    assert packet(crashing, "again", id)["state"] == "delivered"
    wait_for(lambda: crashing.pipo("logs", "again").stdout.splitlines().count("twice") == 2)
    written = [e for e in inspect(crashing, "again", id)["events"] if e["type"] == "output.written"]
    assert len(written) == 1
