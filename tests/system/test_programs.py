"""exec, emit and telegram steps through a whole stack: trail, errors, secrets, ends and trust."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import inspect, outcome, push, running, settled
from tests.programs import lives, noted
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, query, wait_for
from tests.system.test_report_41 import forms, texts_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

KEY = 's3cr3t-q"uo%te/d é\\z'
BOT = "777:s3cr3t-bot"


def through(name: str, nodes: str, *, last: str = "ran", head: str = "") -> str:
    return (
        f"{head}input: {{ via: push }}\nnodes:\n{nodes}"
        f"output: {{ from: {last}, to: sqlite, with: {{ path: ./{name}.db, table: t, create: true }} }}\n"
    )


SECRETS = "secrets: { key: env:KEY }\n"
# It notes its pid and one of its group, both deaf to SIGTERM, and ends on its second run.
STUBBORN = "trap '' TERM; echo $$ >> $1; test -s $1.2 && exit; sh -c 'echo $$ >> '$1'.2; exec sleep 600' & wait"
PIPELINES = {
    "flaky": through(
        "flaky",
        """\
  ran:
    from: input
    transform: exec
    with: { command: ./tools/flaky.sh, args: ["${data.n}"], result: json, outputs: ["made/${data.n}.txt"] }
    on_error: { retry: 2, delay: 10ms }
""",
    ),
    "failing": through(
        "failing",
        """\
  ran: { from: input, tap: exec, with: { command: sh, args: ["-c", "echo why >&2; exit 3"] },
         on_error: { retry: 1, delay: 0s } }
""",
    ),
    "templated": through(
        "templated",
        '  ran: { from: input, tap: exec, with: { command: "${data.tool}" } }\n',
    ),
    "leaky": through(
        "leaky",
        """\
  ran:
    from: input
    transform: exec
    with: { command: sh, args: ["-c", "env; echo $K >&2; exit ${data.code}"], env: { K: "${secrets.key}" } }
""",
        head=SECRETS,
    ),
    "killed": through(
        "killed",
        f"""\
  ran: {{ from: input, tap: exec, with: {{ command: sh, args: ["-c", "{STUBBORN}", sh, killed] }} }}
""",
    ),
    "suspended": through(
        "suspended",
        f"""\
  ran: {{ from: input, tap: exec, with: {{ command: sh, args: ["-c", "{STUBBORN}", sh, suspended] }} }}
""",
    ),
    "tells": through(
        "tells",
        """\
  ran:
    from: input
    tap: emit
    with: { event: "order.${data.kind}", detail: { n: "${data.n}", key: "x ${secrets.key}" } }
  asked: { from: ran, transform: exec, with: { command: cat, stdin: "${data}", result: json } }
  sent: { from: asked, tap: telegram, with: { chat_id: 5, text: "n is ${data.n}" } }
""",
        last="sent",
        head=SECRETS,
    ),
}
FLAKY = """#!/bin/sh
test -e tried || { touch tried; echo not yet >&2; exit 7; }
echo '{"n": 12345678901234567890}' | tee "made/$1.txt"
"""


@pytest.fixture(scope="module")
def api() -> Iterator[Receiver]:
    with Receiver() as made:
        made.fallback = lambda got: Reply(
            200, json.dumps({"ok": True, "result": {"message_id": 7, "chat": {"id": 5}}})
        )
        yield made


@pytest.fixture(scope="module")
def stack(api: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "home").mkdir()
    bots = {"default": "a", "bots": {"a": {"token": BOT, "api": api.url}}}
    (folder / "home/bots.json").write_text(json.dumps({"telegram": bots}))
    (folder / "workspace/tools").mkdir(parents=True)
    (folder / "workspace/tools/flaky.sh").write_text(FLAKY)
    (folder / "workspace/tools/flaky.sh").chmod(0o755)
    config = "engine: { stop_timeout: 1s, restart: { backoff: 200ms } }\n"
    with running(folder, PIPELINES, env={"KEY": KEY}, config=config) as made:
        yield made


def events(stack: Stack, name: str, id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = inspect(stack, name, id)["events"]
    return found


def test_a_retry_and_a_result_stand_in_the_trail(stack: Stack) -> None:
    made = outcome(stack, "flaky", {"n": 7})
    id = made["packet_id"]
    assert (made["state"], made["data"]) == ("delivered", {"n": 12345678901234567890})
    assert (stack.workspace / "made/7.txt").exists()
    step = next(one for one in inspect(stack, "flaky", id)["steps"] if one["step"] == "ran")
    assert step["attempts"] == 2
    assert [one["error"] for one in step["retries"]] == [
        f"{stack.workspace}/tools/flaky.sh exited with code 7: not yet"
    ]
    shown = stack.pipo("inspect", "flaky", id).stdout
    assert "12345678901234567890" in shown
    assert "exited with code 7: not yet" in shown


def test_an_error_is_the_end_of_what_it_said(stack: Stack) -> None:
    made = outcome(stack, "failing", {"n": 1})
    assert made["state"] == "dead_lettered"
    error = made["error"]
    assert (error["code"], error["node"], error["attempts"]) == ("node.failed", "ran", 2)
    assert error["message"] == "sh exited with code 3: why"


def test_a_templated_command_that_is_missing_fails_its_packet(stack: Stack) -> None:
    made = outcome(stack, "templated", {"tool": "no-such-program"})
    assert "'no-such-program' is not installed or not on PATH" in made["error"]["message"]
    assert outcome(stack, "templated", {"tool": "../escape"})["state"] == "dead_lettered"
    assert outcome(stack, "templated", {"tool": "true"})["state"] == "delivered"


@pytest.mark.parametrize("code", [0, 1])
def test_no_secret_leaves_by_a_program(stack: Stack, code: int) -> None:
    """R41: one that prints its environment."""
    made = outcome(stack, "leaky", {"code": code})
    id = made["packet_id"]
    assert made["state"] == ("dead_lettered" if code else "delivered")
    said = [json.dumps(inspect(stack, "leaky", id), ensure_ascii=False)]
    said.append(stack.pipo("inspect", "leaky", id).stdout)
    said.append(texts_of(journal_of(stack.home, "leaky")))
    if made["state"] == "delivered":
        said.append(json.dumps(query(stack.workspace / "leaky.db", "SELECT * FROM t")))
    said += [path.read_text(errors="replace") for path in stack.home.glob("logs/**/*.log")]
    everything = "\n".join(said)
    assert id in everything
    assert "***" in everything
    assert "s3cr3t-" not in everything
    assert not [form for form in forms(KEY) if form in everything]


def test_an_event_of_the_authors_and_a_message(stack: Stack, api: Receiver) -> None:
    made = outcome(stack, "tells", {"n": 7, "kind": "late"})
    id = made["packet_id"]
    assert made["state"] == "delivered"
    trail = events(stack, "tells", id)
    types = [event["type"] for event in trail]
    at = types.index("order.late")
    # It stands just before its step (edge 102).
    assert (types[at + 1], trail[at + 1]["node"]) == ("node.done", "ran")
    assert (trail[at]["node"], trail[at]["detail"]) == ("ran", {"n": 7, "key": "x ***"})
    streamed = stack.get("/api/pipelines/tells/events")["events"]
    assert [one["detail"] for one in streamed if one["type"] == "order.late"] == [
        trail[at]["detail"]
    ]
    assert "order.late" in stack.pipo("inspect", "tells", id).stdout
    (got,) = api.at(f"/bot{BOT}/sendMessage")
    assert got.json == {"chat_id": 5, "text": "n is 7"}


@pytest.mark.crash
@pytest.mark.seed("R060")
@pytest.mark.parametrize(
    ("name", "number"), [("killed", signal.SIGKILL), ("suspended", signal.SIGTERM)]
)
def test_a_program_is_ended_with_its_pipeline_and_runs_again(
    stack: Stack, name: str, number: signal.Signals
) -> None:
    id = push(stack, name, {"n": 7})
    group = wait_for(lambda: noted(stack.workspace / f"{name}.2", 1), deadline_s=60)
    group += noted(stack.workspace / name, 1) or []
    pid = stack.pipeline_pid(name)
    assert pid is not None
    os.kill(pid, number)
    wait_for(
        lambda: stack.pipeline_pid(name) not in (None, pid) and stack.stats(name),
        deadline_s=90,
        what=f"{name} is back",
    )
    assert settled(stack, name, id, deadline_s=90)["state"] == "delivered"
    assert not any(map(lives, group))
    assert len(noted(stack.workspace / name, 2) or []) == 2
    assert query(stack.workspace / f"{name}.db", "SELECT n FROM t") == [[7]]
    done = [e["node"] for e in events(stack, name, id) if e["type"] == "node.done"]
    assert done == ["ran"]
    assert not [e for e in events(stack, name, id) if e["type"] == "step.retry"]


BORROWED = """\
pipo: 1
name: borrowed
input: { via: push }
nodes: { ran: { from: input, transform: exec, with: { command: %s, result: text } } }
output: { from: ran, to: stdout }
"""


def test_a_start_needs_trust_and_its_program(stack: Stack, tmp_path: Path) -> None:
    """P052, and a command that is not there."""
    folder = stack.workspace / "borrowed"
    folder.mkdir()
    file = folder / "borrowed.pipo"
    file.write_text(BORROWED % "date")
    origin = {
        "template": "clock",
        "template_hash": "abc",
        "modules": {file.name: hashlib.sha256(file.read_bytes()).hexdigest()},
    }
    (folder / ".pipo-origin.json").write_text(json.dumps(origin))

    def start() -> str:
        done = stack.pipo("start", str(file))
        return done.stdout + done.stderr if done.returncode else ""

    assert "P052" in start()
    assert "comes from the template `clock`, which nobody has trusted" in start()
    (stack.home / "trust.json").write_text('{"trusted": ["abc"]}')
    assert start() == ""
    assert outcome(stack, "borrowed", {"n": 1})["state"] == "delivered"
    assert stack.pipo("stop", "borrowed").returncode == 0
    file.write_text(BORROWED % "no-such-program")
    assert "was edited since the template `clock` was trusted" in start()
    (folder / ".pipo-origin.json").unlink()
    assert "the program 'no-such-program' is not installed or not on PATH" in start()
