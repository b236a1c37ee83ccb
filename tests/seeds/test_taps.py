"""Taps that reach outside, through a real stack (outputs: why only one output)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.packets import inspect, outcome, running
from tests.stack import Stack, lines, query

pytestmark = pytest.mark.slow


def tapped(name: str, settings: str, more: str = "") -> str:
    return (
        "input: { via: push }\nnodes:\n"
        f"  kept: {{ from: input, tap: file, with: {{ {settings} }}{more} }}\n"
        "output:\n  from: kept\n  to: sqlite\n"
        f"  with: {{ path: ./{name}.db, table: t, create: true }}\n"
    )


PIPELINES = {
    "kept": tapped("kept", "path: ./kept.jsonl"),
    "text": tapped("text", "path: './${data.day}/kept.txt', format: text"),
    "whole": tapped("whole", "path: ./whole.json, format: json, mode: write"),
    "refused": tapped("refused", "path: ./there, format: text", ", on_error: { then: continue }"),
    "forked": (
        "input: { via: push }\nnodes:\n"
        "  kept: { from: input, tap: file, with: { path: ./forked.jsonl } }\n"
        '  a: { from: [input, kept], filter: "true" }\n'
        "output:\n  from: [input, a]\n  to: sqlite\n"
        "  with: { path: ./forked.db, table: t, create: true }\n"
    ),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("taps")
    (folder / "workspace" / "there").mkdir(parents=True)
    with running(folder, PIPELINES) as made:
        yield made


@pytest.mark.seed("O080")
def test_a_tap_writes_its_file_and_leaves_the_data(stack: Stack) -> None:
    made = outcome(stack, "kept", {"n": 7, "name": "Ann"})
    id = made["packet_id"]
    assert made["state"] == "delivered"
    kept = lines(stack.workspace / "kept.jsonl")
    assert kept == [{"packet_id": id, "data": {"n": 7, "name": "Ann"}}]
    assert query(stack.workspace / "kept.db", "SELECT n, name, packet_id FROM t") == [
        [7, "Ann", id]
    ]
    steps = [step["step"] for step in inspect(stack, "kept", id)["steps"]]
    assert steps == ["input", "kept", "$output", "$verify"]


@pytest.mark.seed("O080")
def test_a_tap_has_the_formats_and_modes_of_the_output(stack: Stack) -> None:
    for n in (1, 2):
        outcome(stack, "text", {"n": n, "day": "mon"})
        outcome(stack, "whole", {"n": n})
    text = (stack.workspace / "mon/kept.txt").read_text()
    assert [json.loads(line)["n"] for line in text.splitlines()] == [1, 2]
    assert json.loads((stack.workspace / "whole.json").read_text()) == {"n": 2}


@pytest.mark.seed("O080")
def test_a_tap_that_cannot_write_may_be_passed_by(stack: Stack) -> None:
    made = outcome(stack, "refused", {"n": 7})
    assert made["state"] == "delivered"
    types = [event["type"] for event in inspect(stack, "refused", made["packet_id"])["events"]]
    assert "node.failed_continued" in types


@pytest.mark.seed("O080")
def test_a_copys_record_has_its_own_id(stack: Stack) -> None:
    made = outcome(stack, "forked", {"n": 7})
    id = made["packet_id"]
    assert [one["packet_id"] for one in lines(stack.workspace / "forked.jsonl")] == [f"{id}:kept"]
    rows = query(stack.workspace / "forked.db", "SELECT packet_id FROM t ORDER BY 1")
    assert rows == [[f"{id}:a"], [f"{id}:kept"], [f"{id}:output"]]
