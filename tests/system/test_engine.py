"""The background engine from outside: its commands, its sleep, and doing without it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo_cli.main import main
from tests.background import Background, in_background
from tests.packets import push, running
from tests.stack import free_ports, journal_of, query, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KEPT = """\
pipo: 1
name: kept
input: { via: push }
nodes:
  shape: { from: input, transform: map, with: { data: { m: "${upper(data.m)}" } } }
output:
  from: shape
  to: sqlite
  with: { path: ./kept.db, table: t, create: true }
  on_error: { retry: 0 }
delivered: { check: external, within: 1h }
"""
SLOW = """\
pipo: 1
name: slow
input: { via: push }
nodes: { wait: { from: input, tap: exec, with: { command: sleep, args: ["3"] } } }
output: { from: wait, to: file, with: { path: ./slow.jsonl } }
"""
NOT_RUNNING = "is not running"


@pytest.fixture
def home(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Background]:
    """Nobody's engine yet, which falls asleep after that time."""
    idle = getattr(request, "param", "10m")
    config = f"engine: {{ idle: {idle}, restart: {{ max_restarts: 0 }} }}\n"
    with in_background(tmp_path, config=config) as made:
        yield made


ALL = ["checker-embedded", "engine-embedded", "gateway-embedded", "runner-embedded"]


def services(home: Background) -> list[str]:
    return sorted(path.stem for path in (home.home / "run/services").glob("*.json"))


Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(
    home: Background, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Told:
    """Runs a command line of the home in this process: what it answers with `--json`."""

    def ask(*words: str) -> dict[str, Any]:
        for name in ("PIPO_HOME", "PIPO_LISTEN"):
            monkeypatch.setenv(name, home.env[name])
        monkeypatch.delenv("PIPO_URL", raising=False)
        monkeypatch.chdir(home.workspace)
        capfd.readouterr()
        code = main([*words, "--json"])
        out, err = capfd.readouterr()
        assert err == ""
        found: dict[str, Any] = json.loads(out)
        assert (code == 0) == found.get("ok", True), found
        return found

    return ask


@pytest.mark.parametrize("home", ["2s"], indirect=True)
def test_every_command_does_without_an_engine_or_says_why_not(home: Background, told: Told) -> None:
    """Edge 380 to 383, 401, 402, 443, 447: a detached pipeline, and nobody beside it."""
    home.write("kept.pipo", KEPT)
    home.write("gone.pipo", SLOW.replace("slow", "gone"))
    told("start", "gone.pipo")
    kept = told("start", "kept.pipo", "--detached")["pid"]
    assert {r["pipeline"]: r["state"] for r in told("runners")["runners"]} == {
        "kept": "detached",
        "gone": "attached",
    }
    ended = told("engine", "stop")
    assert {key: ended[key] for key in ("stopped", "ended", "draining", "detached")} == {
        "stopped": True,
        "ended": True,
        "draining": ["gone"],
        "detached": ["kept"],
    }
    wait_for(lambda: services(home) == ["checker-staying"])
    _walk(told)

    text = home.pipo("status").stdout.splitlines()
    assert [line.split()[0:2] for line in text[1:]] == [
        ["gone", "stopped"],
        ["kept", "active"],
        ["engine:", "down"],
    ]
    assert told("status", "kept")["pid"] == kept

    # Nobody restarts it now; attaching it brings an engine up, which does.
    os.kill(kept, signal.SIGKILL)
    wait_for(lambda: told("runners")["runners"][0]["state"] == "stale")
    assert "pipo attach kept" in told("runners")["runners"][0]["hint"]
    told("attach", "kept")
    (one,) = wait_for(
        lambda: r if (r := told("attach")["runners"])[0]["state"] == "attached" else None
    )
    assert (one["pipeline"], one["host_id"]) == ("kept", "embedded")
    wait_for(lambda: services(home) == ALL)
    _falls_asleep(home)


def _falls_asleep(home: Background) -> None:
    """Edge 436, 448: not while a pipeline runs, paused, or while somebody asks."""
    home.request("/api/pipelines/kept/pause", b"{}")
    until = time.monotonic() + 4
    wait_for(lambda: time.monotonic() > until)
    assert home.get("/api/engine")["idle"] is False

    pid = home.pipeline_pid("kept")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: home.get("/api/pipelines/kept")["state"] == "crashed")
    assert (home.home / "run/kept.json").exists()
    until = time.monotonic() + 5
    while time.monotonic() < until:
        assert home.get("/api/engine")["idle"] is True
        time.sleep(0.3)
    assert services(home) == ALL

    wait_for(lambda: services(home) == [])
    assert not (home.home / "run/kept.json").exists()
    log = (home.home / "logs/services/engine.log").read_text()
    assert "nothing to do for 2s (engine.idle)" in log
    with pytest.raises(OSError, match="refused"):
        home.get("/healthz")


def _walk(told: Told) -> None:
    """Every command of doors.md that asks something of a pipeline."""
    first = told("push", "kept", "--data", '{"m": "a"}')["packet_id"]
    bad = told("push", "kept", "--data", '{"m": 1}')["packet_id"]
    wait_for(lambda: told("status", "kept")["stats"]["dead_lettered"] == 1)
    wait_for(lambda: told("status", "kept")["runner"]["awaiting_ack"] == 1)
    assert told("ack", "kept", first)["acked"] is True
    wait_for(lambda: told("status", "kept")["stats"]["delivered"] == 1)

    runner = {"engine": "down", "source": "runner"}
    words: tuple[str, ...]
    for words in (
        ("packets", "kept"),
        ("inspect", "kept", first),
        ("events", "kept"),
        ("dlq", "kept"),
        ("history", "kept"),
        ("diff", "kept", "1", "1"),
    ):
        found = told(*words)
        assert {key: found[key] for key in runner} == runner, words
    assert told("logs", "kept")["lines"]
    assert told("dlq", "replay", "kept", bad)["engine"] == "down"
    wait_for(lambda: told("status", "kept")["stats"]["dead_lettered"] == 1)
    assert told("dlq", "purge", "kept", "--all")["purged"] == 1
    assert told("rerun", "kept", "--from", "output", first)["dry"] is True
    assert told("rerun", "kept", "--from", "output", first, "--yes")["rerun"] == 1
    assert told("resolve", "kept", first, "--action", "drop")["code"] == "invalid_state"
    assert told("pause", "kept")["state"] == "paused"
    assert told("resume", "kept")["state"] == "active"
    Path("kept.pipo").write_text(KEPT.replace("retry: 0", "retry: 1"))
    assert told("apply", "kept", "kept.pipo")["version"] == 2
    assert told("rollback", "kept", "1")["rolled_back_to"] == 1

    # A stopped one is read from its journal; what needs the process says how to start it.
    journal = {"engine": "down", "source": "journal"}
    for words in (
        ("packets", "gone"),
        ("events", "gone"),
        ("dlq", "gone"),
        ("history", "gone"),
        ("diff", "gone", "1", "1"),
    ):
        found = told(*words)
        assert {key: found[key] for key in journal} == journal, words
    for words in (
        ("push", "gone", "--data", "1"),
        ("ack", "gone", first),
        ("pause", "gone"),
        ("resume", "gone"),
        ("dlq", "replay", "gone", "--all"),
        ("dlq", "purge", "gone", "--all"),
        ("rerun", "gone", "--from", "output", "--all"),
        ("resolve", "gone", first, "--action", "drop"),
        ("rollback", "gone", "1"),
        ("apply", "gone", "gone.pipo"),
    ):
        found = told(*words)
        assert found["code"] == "invalid_state", words
        assert NOT_RUNNING in found["error"], words
        assert "pipo start gone" in found["hint"], words
    assert told("stop", "gone")["already"] is True
    for words in (("status", "nobody"), ("push", "nobody", "--data", "1"), ("logs", "nobody")):
        assert "no pipeline named 'nobody'" in told(*words)["error"]
    for words in (
        ("start", "gone", "--no-engine"),
        ("restart", "gone", "--no-engine"),
        ("attach", "--no-engine"),
        ("engine", "start", "--no-engine"),
    ):
        assert "needs the engine" in told(*words)["error"]
    down = told("engine", "status")
    assert (down["engine"], down["engine_id"], down["pipelines"]) == ("down", None, 2)
    assert told("engine", "stop")["stopped"] is False


def test_one_engine_a_home_and_one_home_a_port(home: Background, told: Told) -> None:
    """Edge 402, 450: a second home on the machine needs `--listen`."""
    first = told("engine", "start")
    assert (first["already"], first["listen"], first["ready"]) == (False, home.port, True)
    assert told("engine", "start")["already"] is True
    refused = told("engine", "start", "--listen", str(free_ports()))
    assert (refused["code"], refused["hint"]) == (
        "invalid_state",
        "options need a stop first: pipo engine stop",
    )

    other = home.home.parent / "other"
    taken = home.pipo("--home", str(other), "engine", "start")
    assert taken.returncode == 1
    assert f"port {home.port} is taken by the Pipo gateway of {home.home}" in taken.stderr
    assert "--listen" in taken.stderr
    assert list((other / "run").glob("*.json")) == []

    # Starts are refused once it ends; the drain is finished, and only then it is gone.
    home.write("slow.pipo", SLOW)
    told("start", "slow.pipo")
    push(home, "slow", {"n": 1})
    status, _, body = home.request("/api/engine/stop", b"{}")
    assert (status, json.loads(body)["draining"]) == (202, ["slow"])
    wait_for(lambda: home.get("/api/engine")["stopping"])
    status, _, body = home.request("/api/pipelines/slow/start", b"{}")
    assert (status, json.loads(body)["error"]) == (
        503,
        "the engine is stopping, and starts nothing more",
    )
    # A command waits for its end, and brings up the next one.
    assert told("engine", "start")["already"] is False
    assert query(journal_of(home.home, "slow"), "SELECT state FROM units") == [["delivered"]]
    assert told("engine", "stop")["ended"] is True


@pytest.mark.soak
def test_a_run_in_the_foreground_is_an_engine_too(tmp_path: Path) -> None:
    """L025: it is asked as any other, drains, and ends well."""
    with running(tmp_path, {"slow": SLOW.split("\n", 2)[2]}) as stack:
        push(stack, "slow", {"n": 1})
        done = stack.pipo("engine", "stop", "--json")
        assert (json.loads(done.stdout)["draining"], done.returncode) == (["slow"], 0)
        assert stack.process is not None
        assert stack.process.wait(60) == 0
        assert query(journal_of(stack.home, "slow"), "SELECT state FROM units") == [["delivered"]]
        assert "asked to stop" in stack.output()
