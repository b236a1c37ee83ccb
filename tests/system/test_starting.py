"""Starts that differ from their file, through a real stack: ports, texts, detached pipelines.

Edges 75, 414, 427, 446, 447; decisions 37, 38.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.background import Background, in_background
from tests.packets import push, running
from tests.stack import Stack, free_ports, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow

TAKING = "input: { via: http, with: { path: /take } }\noutput: { from: input, to: stdout }\n"
PUSHED = "input: { via: push }\noutput: { from: input, to: stdout }\n"
PIPELINES = {"taking": TAKING, "other": TAKING, "pushed": PUSHED}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("starting"), PIPELINES) as made:
        yield made


def post(stack: Stack, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    status, _, answer = stack.request(path, json.dumps(body).encode())
    return status, json.loads(answer)


def listed(stack: Stack) -> list[str]:
    return [one["name"] for one in stack.get("/api/pipelines")["pipelines"]]


def take(port: int, path: str) -> int:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", b"{}", {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return int(answer.status)


# ── ports ────────────────────────────────────────────────────────────────────


def test_a_port_survives_crashes_and_later_starts(stack: Stack) -> None:
    """Edge 446."""
    port = free_ports(1)
    one = "/api/pipelines/taking"
    status, entry = post(stack, f"{one}/restart", {"listen": port})
    assert (status, entry["listen"]) == (200, port)
    assert [take(port, "/take"), take(port, "/in/taking/take")] == [202, 202]
    os.kill(entry["pid"], signal.SIGKILL)
    wait_for(lambda: stack.get(one)["pid"] not in (None, entry["pid"]), what=stack.output)
    wait_for(lambda: stack.get(one)["listen"] == port, what=stack.output)
    assert take(port, "/take") == 202
    assert post(stack, f"{one}/stop", {"now": True})[0] == 200
    status, entry = post(stack, f"{one}/start", {})
    assert (status, entry["listen"]) == (200, port)
    assert take(port, "/take") == 202


def test_a_port_that_is_taken_names_who_and_leaves_nothing(stack: Stack) -> None:
    """Edge 40, 427: neither an entry nor a pipeline that never ran, nor a lifetime that began."""
    port = free_ports(1)
    assert post(stack, "/api/pipelines/other/restart", {"listen": port})[0] == 200
    new = stack.write("new.pipo", f"pipo: 1\nname: new\n{TAKING}")
    status, told = post(stack, "/api/pipelines", {"file": str(new), "listen": port})
    assert (status, told["code"]) == (409, "conflict")
    assert told["error"].startswith(f"port {port} on 127.0.0.1 is taken by the pipeline 'other'")
    assert "pipo stop other" in told["hint"]
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        theirs = held.getsockname()[1]
        status, told = post(stack, "/api/pipelines", {"file": str(new), "listen": theirs})
        assert (status, told["code"]) == (409, "conflict")
        assert f"is taken by pid {os.getpid()} (" in told["error"]
        # On a restart, before anything stops.
        pid = stack.get("/api/pipelines/other")["pid"]
        assert post(stack, "/api/pipelines/other/restart", {"listen": theirs})[0] == 409
    assert stack.get("/api/pipelines/other")["pid"] == pid
    assert "new" not in listed(stack)
    assert not (stack.home / "pipelines/new").exists()
    assert not (stack.home / "run/new.json").exists()


def test_a_port_wants_an_input_that_serves_it(stack: Stack) -> None:
    status, told = post(stack, "/api/pipelines/pushed/restart", {"listen": free_ports(1)})
    assert (status, told["code"]) == (400, "bad_request")
    assert told["error"].startswith("pushed has no http input")
    done = stack.pipo("restart", "pushed", "--listen", "9")
    assert (done.returncode, "via: http" in done.stderr) == (1, True)


def test_a_second_start_says_where_the_first_one_runs(stack: Stack) -> None:
    """Edge 75, 414."""
    pid = stack.get("/api/pipelines/pushed")["pid"]
    file = str(stack.workspace / "pushed.pipo")
    status, told = post(stack, "/api/pipelines", {"file": file})
    assert (status, told["code"]) == (409, "invalid_state")
    assert told["error"].startswith(f"pushed is already running: pid {pid} on ")
    broken = stack.write("broken.pipo", f"pipo: 1\nname: broken\n{PUSHED}outptu: 1\n")
    status, told = post(stack, "/api/pipelines", {"file": str(broken)})
    assert (status, told["code"], len(told["diagnostics"])) == (422, "invalid_pipeline", 1)
    assert post(stack, "/api/pipelines", {"file": "pushed.pipo"})[0] == 400


# ── texts ────────────────────────────────────────────────────────────────────

SENT = """\
pipo: 1
name: sent
input: { via: push, schema: ./n.json }
output: { from: input, to: file, with: { path: ./out/sent.jsonl } }
"""
SCHEMA = {"./n.json": '{"type": "object", "required": ["n"]}'}
CODE = "pipo: 1\nname: code\nfn: ./c.py\n" + PUSHED.replace(
    "output: { from: input", "nodes: { c: { from: input, transform: fn.c } }\noutput: { from: c"
)


def test_a_text_runs_like_a_file_in_a_folder_of_its_own(stack: Stack) -> None:
    status, entry = post(stack, "/api/pipelines", {"name": "sent", "source": SENT, "files": SCHEMA})
    assert (status, entry["name"], entry["state"]) == (201, "sent", "running"), entry
    assert Path(entry["file"]).is_relative_to(stack.home / "pipelines/sent")
    push(stack, "sent", {"n": 1})
    stack.settle("sent")
    rejected = json.dumps({"data": {}}).encode()
    assert stack.request("/api/pipelines/sent/push", rejected)[0] == 422
    written = stack.workspace / "sent/out/sent.jsonl"
    assert [record["data"]["n"] for record in lines(written)] == [1]
    # It runs: another text is refused, and the first one stays.
    again = {"name": "sent", "source": SENT.replace("required", "maxProperties"), "files": SCHEMA}
    assert post(stack, "/api/pipelines", again)[0] == 409
    assert post(stack, "/api/pipelines/sent/stop", {"now": True})[0] == 200
    # A name is enough from then on, and another text is another version.
    assert post(stack, "/api/pipelines/sent/start", {})[0] == 200
    push(stack, "sent", {"n": 2})
    stack.settle("sent")
    assert post(stack, "/api/pipelines/sent/stop", {"now": True})[0] == 200
    other = SENT.replace("sent.jsonl", "other.jsonl")
    status, entry = post(
        stack, "/api/pipelines", {"name": "sent", "source": other, "files": SCHEMA}
    )
    assert (status, entry["version"]) == (201, 2)
    push(stack, "sent", {"n": 3})
    stack.settle("sent")
    assert [record["data"]["n"] for record in lines(written)] == [1, 2]
    assert [record["data"]["n"] for record in lines(written.with_name("other.jsonl"))] == [3]
    assert len(list((stack.home / "pipelines/sent/sent").iterdir())) == 1


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (
            {"name": "code", "source": CODE, "files": {"./c.py": "def c(data): return data"}},
            403,
            "engine.allow_uploaded_code",
        ),
        ({"name": "sent2", "source": SENT, "files": SCHEMA}, 400, "'sent', not 'sent2'"),
        ({"name": "lacks", "source": SENT.replace("sent", "lacks")}, 422, "./n.json"),
    ],
)
def test_a_text_that_is_refused_leaves_nothing(
    stack: Stack, body: dict[str, Any], status: int, words: str
) -> None:
    found, told = post(stack, "/api/pipelines", body)
    assert (found, words in told["error"] + json.dumps(told.get("diagnostics"))) == (status, True)
    assert str(stack.home) not in json.dumps(told)
    assert body["name"] not in listed(stack)
    assert not (stack.home / "pipelines" / body["name"]).exists()


# ── detached ─────────────────────────────────────────────────────────────────


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Background]:
    with in_background(tmp_path) as made:
        yield made


@pytest.mark.timeout(600)
def test_a_detached_pipeline_outlives_its_engine_and_is_adopted(home: Background) -> None:
    """Edge 447: SIGKILL of the whole stack, a pause without any, the next stack, a stop without any."""
    port = free_ports(1)
    for name, text in (("taking", TAKING), ("pushed", PUSHED)):
        home.write(f"{name}.pipo", f"pipo: 1\nname: {name}\n{text}")
    words = ("--detached", "--listen", str(port), "--ttl", "2h")
    started = home.told("start", "taking.pipo", *words)
    assert (started["detached"], started["listen"], started["ttl"]) == (True, port, "2h")
    assert home.told("start", "pushed.pipo")["detached"] is False
    pid = started["pid"]
    assert os.getsid(pid) == pid
    attached = home.entry("pushed")["pid"]

    # The supervisor dies: its services go, what is attached is suspended, what is detached runs on.
    (stack_pid,) = home.supervisors()
    os.kill(stack_pid, signal.SIGKILL)
    wait_for(lambda: not (home.service_pid("runner") or home.service_pid("gateway")))
    wait_for(lambda: not Path(f"/proc/{attached}").exists(), what=home.output)
    assert take(port, "/take") == 202
    alone = home.told("status", "taking")
    assert (alone["engine"], alone["state"], alone["pid"], alone["detached"]) == (
        "down",
        "running",
        pid,
        True,
    )

    # The next stack takes it over as it runs, and brings back the other one.
    home.pipo("start", "pushed")
    wait_for(lambda: home.get("/api/pipelines/pushed")["state"] == "running", what=home.output)
    wait_for(lambda: home.get("/api/pipelines/taking")["host_id"], what=home.output)
    adopted = home.get("/api/pipelines/taking")
    assert (adopted["pid"], adopted["listen"], adopted["ttl"]) == (pid, port, "2h")
    # Its file has no lifetime at all (edge 325).
    assert adopted["lifetime"]["ttl"] == "2h"
    assert take(port, "/take") == 202

    # The engine ends as it is told to, and the same one runs on; a stop needs none.
    assert home.pipo("engine", "stop").returncode == 0
    wait_for(lambda: not home.supervisors(), what=home.output)
    assert take(port, "/take") == 202
    assert home.entry("taking")["pid"] == pid
    stopped = home.told("stop", "taking")
    assert (stopped["engine"], stopped["already"]) == ("down", False)
    wait_for(lambda: not (home.home / "run/taking.json").exists(), what=home.output)
    assert home.told("status", "taking")["state"] == "stopped"
    wanted = json.loads((home.home / "pipelines/taking/desired.json").read_text())
    assert (wanted["desired"], wanted["options"]["listen"]) == ("stopped", port)
    sql = "SELECT type FROM events WHERE type LIKE 'pipeline.st%' ORDER BY seq"
    assert query(journal_of(home.home, "taking"), sql) == [
        ["pipeline.started"],
        ["pipeline.stopped"],
    ]
