"""R34: slow but healthy work is not declared dead: a stall informs, and runs nothing again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import push, run_sql, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

SLOW_S = 14.0
AFTER_MS = 4000


def slow(name: str) -> str:
    return f"""\
pipo: 1
name: {name}
concurrency: 2
input: {{ via: push }}
output:
  from: input
  to: http
  with: {{ url: "${{env.STUB}}/{name}", body: "${{data}}" }}
delivered: {{ check: ack, stall: {{ after: {AFTER_MS}ms }} }}
"""


FROZEN = """\
pipo: 1
name: frozen
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: ./there/frozen.db, table: t }
  on_error: { retry: 10000, delay: 100ms }
delivered: { check: ack, stall: { after: 2s, then: pause } }
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        made.fallback = Reply(stores=True, delay_s=SLOW_S)
        yield made


@pytest.fixture
def stack(tmp_path: Path, receiver: Receiver) -> Iterator[Stack]:
    config = "engine: { env_allow: [STUB] }\n"
    made = Stack(tmp_path, env={"STUB": receiver.url}, config=config)
    for name in ("slow", "killed"):
        made.write(f"{name}.pipo", slow(name))
    made.write("frozen.pipo", FROZEN)
    try:
        yield made.start()
    finally:
        made.kill_all()


def story(stack: Stack, name: str) -> list[str]:
    """What happened, but for the starts."""
    rows = query(
        journal_of(stack.home, name),
        "select type from events where type not like 'pipeline.started' order by seq",
    )
    return [row[0] for row in rows]


def test_a_slow_step_is_told_once_and_runs_once(stack: Stack, receiver: Receiver) -> None:
    host = stack.service_pid("runner")
    assert host is not None
    sent = time.monotonic()
    id, lost = push(stack, "slow", {"n": 1}), push(stack, "killed", {"n": 1})
    wait_for(lambda: len(receiver.got) == 2)
    # The host is frozen, and another one comes: neither takes a pipeline that lives.
    os.kill(host, signal.SIGSTOP)
    second = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pipo_runner.host.main",
            "--id",
            "second",
            "--port",
            "0",
            "--http-port",
            "0",
        ],
        env=stack.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: "pipeline.stall" in story(stack, "slow"))
        pid = stack.pipeline_pid("killed")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert settled(stack, "slow", id)["state"] == "delivered"
        assert time.monotonic() - sent >= SLOW_S
        assert receiver.keys("/slow") == [id]
        told = ["packet.accepted", "pipeline.stall", "output.written", "packet.delivered"]
        wait_for(lambda: story(stack, "slow") == [*told, "pipeline.unjammed"])
        # Only what died with its process is done again, with its key.
        os.kill(host, signal.SIGCONT)
        assert settled(stack, "killed", lost, deadline_s=60.0)["state"] == "delivered"
        assert receiver.keys("/killed") == [lost, lost]
    finally:
        os.kill(host, signal.SIGCONT)
        second.kill()
        second.wait(60)


def test_a_process_that_was_frozen_takes_its_own_absence_for_no_stall(stack: Stack) -> None:
    id = push(stack, "frozen", {"n": 1})
    wait_for(lambda: "step.retry" in story(stack, "frozen"))
    pid = stack.pipeline_pid("frozen")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    # Twice `after` has to pass, and nothing tells when it has.
    time.sleep(4.0)
    run_sql(
        stack.workspace / "there/frozen.db", "create table t (packet_id text primary key, n int)"
    )
    os.kill(pid, signal.SIGCONT)
    assert settled(stack, "frozen", id)["state"] == "delivered"
    assert "pipeline.stall" not in story(stack, "frozen")
