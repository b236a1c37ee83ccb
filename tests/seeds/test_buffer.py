"""What counts against the buffer, in each way that a packet can be pending (lifetime)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.packets import push, running
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

FILE = "to: file\n  with: {{ path: ./out/{name}.jsonl }}\n"
NO_TABLE = "to: sqlite\n  with: { path: ./none/none.db, table: t }\n"


def two(output: str, *, nodes: str = "", sources: str = "input", more: str = "") -> str:
    return (
        "buffer: { max: 2 }\ninput: { via: push }\nagent: { control: true }\n"
        f"{nodes}output:\n  from: {sources}\n  {output}{more}"
    )


# `lower` of a number fails, and waits for its next attempt.
WAITS = (
    '{ from: input, transform: map, with: { data: "${lower(data.n)}" },'
    " on_error: { retry: 1, delay: 1m } }"
)
PIPELINES = {
    "in-flight": two(
        FILE.format(name="in-flight"),
        more="delivered: { check: line_contains, with: { value: never }, within: 1m }\n",
    ),
    "held": two(NO_TABLE, more="  on_error: { then: pause }\n"),
    "batched": two(FILE.format(name="batched"), more="  batch: { size: 10, within: 1m }\n"),
    "split": two(
        FILE.format(name="split"),
        nodes=f"nodes:\n  slow: {WAITS}\n  quick: {{ from: input, tap: log, with: {{ message: hi }} }}\n",
        sources="[slow, quick]",
    ),
    "escalated": two(NO_TABLE, more="  on_error: { then: agent }\n"),
}
# Where the packets of each are while they are pending.
STATES = {
    "in-flight": {"verifying"},
    "held": {"accepted", "writing"},
    "batched": {"writing"},
    "split": {"branched"},
    "escalated": {"escalated"},
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("buffer"), PIPELINES) as made:
        yield made


def states(stack: Stack, name: str) -> list[str]:
    return [one["state"] for one in stack.get(f"/api/pipelines/{name}/packets")["packets"]]


@pytest.mark.seed("L034")
@pytest.mark.parametrize("name", PIPELINES)
def test_the_buffer_counts_what_is_pending_however_it_is(stack: Stack, name: str) -> None:
    push(stack, name, {"n": 1})
    push(stack, name, {"n": 2})
    wait_for(
        lambda: set(states(stack, name)) <= STATES[name], what=f"{name}: {states(stack, name)}"
    )
    if name == "held":
        wait_for(lambda: stack.get(f"/api/pipelines/{name}")["status"] == "paused")
    refused = stack.pipo("push", name, "--data", '{"n": 3}')
    assert refused.returncode == 1
    assert "buffer full (2 packets pending)" in refused.stderr
    assert len(states(stack, name)) == 2
    # What waits for minutes is not waited for here.
    assert stack.pipo("stop", name, "--now").returncode == 0
