"""The buffer: what counts against it, and how each kind of input pushes back (lifetime)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.bot_api import BotApi, text_message
from tests.packets import packet, push
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


# One pipeline for each kind of input, with room for two packets.
INPUTS = {
    "web": "via: http, with: { path: /in }",
    "hand": "via: push",
    "ticks": "via: schedule, with: { every: 100ms }",
    "samples": "via: system, with: { every: 100ms, metrics: [cpu] }",
    "files": "via: watch, with: { path: ./inbox/*.txt, events: [create] }",
    "bot": "via: telegram",
    "link": "via: pipeline, with: { from: [sender] }",
}
SMALL = "buffer: {{ max: 2 }}\ninput: {{ {input} }}\noutput:\n  from: input\n  {output}"
SENDER = """\
input: { via: push }
output:
  from: input
  to: pipeline
  with: { pipeline: link }
  on_error: { retry: 1000, backoff: fixed, delay: 100ms }
"""
TOKEN = "123456:s3cr3t-token"


@pytest.fixture(scope="module")
def api() -> Iterator[BotApi]:
    with BotApi(TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, api: BotApi) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("buffer"))
    for name, text in PIPELINES.items():
        made.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
    for name, given in INPUTS.items():
        text = SMALL.format(input=given, output=FILE.format(name=name))
        made.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
    made.write("sender.pipo", f"pipo: 1\nname: sender\n{SENDER}")
    (made.workspace / "inbox").mkdir()
    made.home.mkdir()
    bot = {"token": TOKEN, "api": api.url, "allow": [7]}
    bots = {"telegram": {"default": "main", "bots": {"main": bot}}}
    (made.home / "bots.json").write_text(json.dumps(bots))
    try:
        yield made.start()
        assert made.stop() == 0
    finally:
        made.kill_all()


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


def full(stack: Stack, *names: str) -> None:
    """Waits until each has two packets, and was asked to take a third."""

    def refused() -> bool:
        metrics = stack.request("/metrics", method="GET")[2].decode()
        pattern = r'pipo_intake_refused_total\{{(?=.*pipeline="{}")(?=.*buffer_full).*\}} [1-9]'
        return all(re.search(pattern.format(name), metrics) for name in names)

    wait_for(refused, what=lambda: f"{names} are full\n{stack.output()}")
    assert [stack.stats(name)["pending"] for name in names] == [2] * len(names)


@pytest.mark.seed("L035")
def test_each_input_pushes_back_in_its_own_way_until_there_is_room(
    stack: Stack, api: BotApi
) -> None:
    """Edge 6, 327-329."""
    for name in INPUTS:
        assert stack.request(f"/api/pipelines/{name}/pause", b"{}")[0] == 200
    # http and push say so: nothing is kept of what they refuse.
    answers = [stack.request("/in/web/in", b"1") for _ in range(3)]
    assert [status for status, _, _ in answers] == [202, 202, 503]
    assert answers[2][1]["Retry-After"] == "5"
    for _ in range(2):
        push(stack, "hand", 1)
    refusal = stack.request("/api/pipelines/hand/push", b'{"data": 1}')
    assert (refusal[0], json.loads(refusal[2])["code"]) == (503, "unavailable")
    for body in (answers[2][2], refusal[2]):
        assert b"buffer full (2 packets pending)" in body
    # A chain's sender hears so, too, and comes again.
    sent = [push(stack, "sender", n) for n in range(3)]
    # telegram and watch wait with what they have found.
    updates = api.say(*(text_message(f"m{n}") for n in range(3)))
    for n in range(3):
        (stack.workspace / f"inbox/{n}.txt").write_text("x")
    full(stack, *INPUTS)
    assert api.kept == updates
    assert {packet(stack, "sender", id)["state"] for id in sent} == {"delivered", "writing"}
    # schedule and system skip, and say so.
    for name, told in (("ticks", "tick skipped"), ("samples", "tick skipped")):
        log = stack.home / f"logs/{name}.log"
        wait_for(lambda log=log, told=told: told in log.read_text(), what=log.read_text)  # type: ignore[misc]
    before = {name: stack.stats(name)["accepted"] for name in INPUTS}
    for name in INPUTS:
        assert stack.request(f"/api/pipelines/{name}/resume", b"{}")[0] == 200
    # What waited comes in, each once; what was refused or skipped does not.
    for name in ("files", "bot", "link"):
        wait_for(
            lambda name=name: stack.stats(name).get("delivered") == before[name] + 1,  # type: ignore[misc]
            what=lambda name=name: f"{name}: {stack.stats(name)}",  # type: ignore[misc]
        )
    for name in ("ticks", "samples"):
        wait_for(lambda name=name: stack.stats(name).get("delivered", 0) > before[name])  # type: ignore[misc]
    assert [stack.stats(name)["accepted"] for name in ("web", "hand")] == [2, 2]
    assert stack.request("/in/web/in", b"1")[0] == 202
    push(stack, "hand", 1)
    wait_for(lambda: not api.kept)
    for name in INPUTS:
        assert stack.request(f"/api/pipelines/{name}/stop", b'{"now": true}')[0] == 200
