"""R18: what a crash left of a line costs that line only."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import outcome, push, running, settled
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow


def torn(name: str) -> str:
    return f"""\
input: {{ via: http, with: {{ path: /t }} }}
output: {{ from: input, to: file, with: {{ path: ./out/{name}.jsonl, format: jsonl }} }}
delivered: {{ check: line_contains, with: {{ value: "${{meta.packet_id}}" }}, within: 20s }}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("torn")
    out = folder / "workspace/out"
    out.mkdir(parents=True)
    (out / "t.jsonl").write_bytes(b'{"i":1}\n{"i":2')
    with running(folder, {name: torn(name) for name in ("t", "big", "cut")}) as made:
        yield made


def parsed(path: Path) -> list[dict[str, Any]]:
    """Every line that is JSON; the fragments are left out."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def test_a_fragment_stays_alone(stack: Stack) -> None:
    end = outcome(stack, "t", {"i": 3})
    assert end["state"] == "delivered"
    first, *middle, last = (stack.workspace / "out/t.jsonl").read_bytes().splitlines()
    assert first == b'{"i":1}'
    assert middle in ([], [b'{"i":2'])
    assert json.loads(last) == {"packet_id": end["packet_id"], "data": {"i": 3}}


def test_a_kill_amid_large_records(stack: Stack) -> None:
    door, out = "/in/big/t", stack.workspace / "out/big.jsonl"
    pid = stack.pipeline_pid("big")
    assert pid is not None
    accepted = []
    for n in range(20):
        body = json.dumps({"n": n, "x": "y" * 3_000_000}).encode()
        if n == 12:
            # A record is being written, or its request is on its way.
            os.kill(pid, signal.SIGKILL)
        try:
            status, _, answer = stack.request(door, body)
        except OSError:
            continue
        if status == 202:
            accepted.append(json.loads(answer)["packet_id"])
    wait_for(lambda: stack.pipeline_pid("big") not in (None, pid), what="the restart")
    last = wait_for(lambda: pushed(stack, "big"))
    accepted.append(last)
    assert settled(stack, "big", last, deadline_s=60)["state"] == "delivered"
    assert stack.settle("big")["dead_lettered"] == 0
    ids = [record["packet_id"] for record in parsed(out)]
    assert sorted(set(ids)) == sorted(ids)
    assert set(accepted) <= set(ids)
    assert len(out.read_bytes().splitlines()) - len(ids) <= 1


def pushed(stack: Stack, name: str) -> str | None:
    try:
        return push(stack, name, {"small": True})
    except (OSError, AssertionError):
        return None


def test_the_own_last_record_cut_anywhere(stack: Stack) -> None:
    """The next packet is whole and nothing before the cut one changes."""
    out = stack.workspace / "out/cut.jsonl"
    outcome(stack, "cut", {"n": "kept"})
    kept = out.read_bytes()
    outcome(stack, "cut", {"n": "cut"})
    length = len(out.read_bytes()) - len(kept)
    for at in range(0, length, 9):
        whole = out.read_bytes()
        start = len(whole) - length
        with out.open("r+b") as file:
            file.truncate(start + at)
        end = outcome(stack, "cut", {"n": "new"})
        assert end["state"] == "delivered"
        assert out.read_bytes().startswith(kept)
        assert [r["packet_id"] for r in parsed(out)].count(end["packet_id"]) == 1
        assert parsed(out)[-1] == {"packet_id": end["packet_id"], "data": {"n": "new"}}
