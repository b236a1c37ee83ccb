"""Waits of ten minutes, and what a stop and a kill in their midst leave of them.

SIGTERM does not wait for a wait, and the next start waits for the rest of it; so it does after
SIGKILL. It is shown of a step that reaches outside, one that does not, a write, and a batch.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.packets import inspect, packet, push, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LONG = "on_error: { retry: 1, delay: 10m, max_delay: 10m }"
LONG_MS = 600_000
SHORT_S = 12.0
STOP_TIMEOUT_S = 60.0
PIPELINES = {
    "asked": f"""\
input: {{ via: push }}
nodes:
  ask: {{ from: input, transform: http, with: {{ url: "${{env.STUB}}/asked" }}, {LONG} }}
output: {{ from: ask, to: stdout }}
""",
    "shaped": f"""\
input: {{ via: push }}
nodes:
  low: {{ from: input, transform: map, with: {{ data: "${{lower(data.n)}}" }}, {LONG} }}
output: {{ from: low, to: stdout }}
""",
    "sent": f"""\
input: {{ via: push }}
output: {{ from: input, to: http, with: {{ url: "${{env.STUB}}/sent" }}, {LONG} }}
""",
    "kept": f"""\
input: {{ via: push }}
output:
  from: input
  to: sqlite
  with: {{ path: ./kept.db, table: missing }}
  batch: {{ size: 9, within: 10ms }}
  {LONG}
""",
    "soon": f"""\
input: {{ via: push }}
output:
  from: input
  to: http
  with: {{ url: "${{env.STUB}}/soon" }}
  on_error: {{ retry: 1, delay: {SHORT_S:g}s }}
""",
}
STEPS = {"asked": "ask", "shaped": "low", "sent": "output", "kept": "output"}
# A batch is formed anew with all its retries (edge 161): its wait ends with its run.
GOES_ON = ("asked", "shaped", "sent")
NOW = "SELECT attempt, retry_at FROM units"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        made.script("/asked", *[Reply(500)] * 9)
        made.script("/sent", *[Reply(500)] * 9)
        made.script("/soon", Reply(500), Reply(stores=True))
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    restart = "restart: { backoff: 10ms, max_backoff: 10ms }"
    config = f"engine: {{ env_allow: [STUB], stop_timeout: {STOP_TIMEOUT_S:g}s, {restart} }}\n"
    folder = tmp_path_factory.mktemp("waits")
    made = Stack(folder, env={"STUB": receiver.url}, config=config)
    for name, text in PIPELINES.items():
        made.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
    try:
        yield made.start()
    finally:
        # A drain would wait for the waits.
        made.kill_all()


def signalled(stack: Stack, sent: signal.Signals) -> None:
    """Every pipeline is sent the signal, and runs again."""
    before = {name: stack.pipeline_pid(name) for name in PIPELINES}
    for pid in before.values():
        assert pid is not None
        os.kill(pid, sent)

    def again() -> bool:
        now = {name: stack.pipeline_pid(name) for name in PIPELINES}
        return all(now[name] not in (None, before[name]) for name in PIPELINES)

    wait_for(again, deadline_s=150.0, what=lambda: f"they run again\n{stack.output()}")
    wait_for(lambda: all(stack.stats(name) for name in PIPELINES), deadline_s=150.0)


def due(stack: Stack, name: str) -> list[Any]:
    """The attempts of its one packet, and when it is tried again."""
    (row,) = query(journal_of(stack.home, name), NOW)
    return row


def ends(stack: Stack, name: str) -> list[int]:
    """When its runs ended."""
    found = stack.get(f"/api/pipelines/{name}/events?limit=1000")["events"]
    return [event["at"] for event in found if event["type"] == "pipeline.stopped"]


def told(stack: Stack, name: str, id: str) -> str:
    """The line of its wait in `pipo inspect`."""
    shown = stack.pipo("inspect", name, id).stdout
    lines = [line.strip() for line in shown.splitlines() if "retry 1: " in line]
    assert lines, shown
    return lines[-1]


def test_what_is_left_of_a_wait_is_waited_for(stack: Stack, receiver: Receiver) -> None:
    ids = {name: push(stack, name, {"n": 1}) for name in PIPELINES}
    wait_for(lambda: all(packet(stack, name, id)["attempt"] == 1 for name, id in ids.items()))
    waits = {name: due(stack, name) for name in GOES_ON}
    shown = {name: told(stack, name, ids[name]) for name in STEPS}
    for name, step in STEPS.items():
        (retried,) = [e for e in inspect(stack, name, ids[name])["events"] if "retry" in e["type"]]
        assert (retried["node"], retried["detail"]["wait"]) == (step, LONG_MS)
        assert re.search(r"\(waits 10m00s, until \d\d:\d\d:\d\d\.\d{3}\)$", shown[name])

    sent_at = round(time.time() * 1000)
    signalled(stack, signal.SIGTERM)
    for name in PIPELINES:
        # At once: neither the wait nor the time that steps in hand are given was waited for.
        (ended,) = ends(stack, name)
        assert ended - sent_at < STOP_TIMEOUT_S * 1000 / 2
    the_same(stack, waits, shown, ids)

    signalled(stack, signal.SIGKILL)
    the_same(stack, waits, shown, ids)
    assert [len(receiver.at(f"/{name}")) for name in ("asked", "sent")] == [1, 1]

    assert settled(stack, "soon", ids["soon"], deadline_s=150.0)["state"] == "delivered"
    first, second = receiver.at("/soon")
    assert second.at - first.at >= SHORT_S


def the_same(
    stack: Stack, waits: Mapping[str, list[Any]], shown: Mapping[str, str], ids: Mapping[str, str]
) -> None:
    """Each wait ends when it would have ended, and people see so."""
    for name in GOES_ON:
        assert due(stack, name) == waits[name]
        assert packet(stack, name, ids[name])["attempt"] == 1
    assert told(stack, "sent", ids["sent"]) == shown["sent"]
