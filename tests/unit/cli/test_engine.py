"""`pipo engine start|stop|status`, `pipo runners` and `pipo attach`."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipo import __version__
from pipo.clock import SystemClock
from pipo.errors import InvalidState
from pipo.home import Home, desired, engine
from pipo.home.desired import Desired
from pipo.home.engine import Engine
from pipo.home.leases import Lease
from pipo.rpc.stubs import pipo_pb2
from pipo_cli import answers, background, on_demand
from pipo_cli import engine as commands
from pipo_cli.client import GatewayOperations
from pipo_cli.main import main
from tests.unit.cli.fakes import Operations, connected, http_gateway

CLOCK = SystemClock()
UP = pipo_pb2.Engine(
    engine_id="embedded",
    home="/h",
    started_at=5,
    ready=True,
    pipelines=2,
    version="1",
    grpc_port=8788,
    runners=1,
    checkers=1,
    listen=8787,
    idle_s=300,
)
# doors.md, `GET /api/engine`.
FIELDS = [
    "engine_id",
    "home",
    "started_at",
    "listen",
    "ready",
    "stopping",
    "pipelines",
    "idle",
    "ttl_expires_at",
    "version",
]


class Through(GatewayOperations):
    """A gateway that answers from memory, and does something first."""

    def __init__(self, *, stops: Any = None, **given: Any) -> None:
        self._given = given
        self._stops = stops

    async def get_engine(self) -> pipo_pb2.Engine:
        found: pipo_pb2.Engine = self._given["engine"]
        return found

    async def stop_engine(self) -> pipo_pb2.StopEngineReply:
        found = self._given["stop"]
        if isinstance(found, BaseException):
            raise found
        if self._stops is not None:
            self._stops()
        reply: pipo_pb2.StopEngineReply = found
        return reply


class Shell:
    """Runs command lines in a home where an engine may seem to run."""

    def __init__(
        self, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.home = home
        self.brought_up: list[Any] = []
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *words: str, operations: Any, up: bool = True) -> tuple[int, str, str]:
        engine_up = up or isinstance(operations, Through) or words[0] != "engine"
        state = "up" if engine_up else "down"
        for module in (answers, commands):
            self._monkeypatch.setattr(module, "connect", connected(operations, state))
        running = [up]

        def ensure(home: Home, config: Any, **_: Any) -> str:
            self.brought_up.append((config.listen, config.ttl_s))
            running[0] = True
            return f"http://127.0.0.1:{config.listen}"

        self._monkeypatch.setattr(on_demand, "is_up", lambda settings: running[0])
        self._monkeypatch.setattr(background, "ensure", ensure)
        code = main(words)
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    monkeypatch.setenv("PIPO_HOME", str(made.root))
    return made


@pytest.fixture
def shell(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(home, monkeypatch, capsys)


@pytest.fixture
def running(home: Home) -> Iterator[Lease]:
    lease = Lease.acquire(engine.lease(home), clock=CLOCK)
    engine.write(home, Engine(os.getpid(), socket.gethostname(), 5, 8787, ttl_expires_at=9))
    yield lease
    lease.release()


# ── start ────────────────────────────────────────────────────────────────────


def test_it_starts_with_its_options(shell: Shell) -> None:
    words = ("engine", "start", "--ttl", "8h", "--listen", "9000")
    code, out, _ = shell.run(*words, operations=Through(engine=UP), up=False)
    assert (code, out) == (0, "started the engine: port 8787, gRPC 8788\n")
    assert shell.brought_up == [(9000, 8 * 3600.0)]


def test_its_ttl_is_told(shell: Shell) -> None:
    ends = pipo_pb2.Engine()
    ends.CopyFrom(UP)
    ends.ttl_expires_at = 0
    _, out, _ = shell.run("engine", "start", operations=Through(engine=ends), up=False)
    assert out.splitlines()[1] == "it ends 1970-01-01T00:00:00.000Z (ttl)"


def test_it_starts_with_the_settings(shell: Shell) -> None:
    (shell.home.config_file).write_text("engine: { ttl: 2s, listen: 9100 }\n")
    code, out, _ = shell.run("engine", "start", "--json", operations=Through(engine=UP), up=False)
    assert shell.brought_up == [(9100, 2.0)]
    told = json.loads(out)
    assert code == 0
    assert (told["already"], told["engine"], told["listen"]) == (False, "up", 8787)


def test_a_second_start_says_that_it_runs(shell: Shell) -> None:
    """Edge 402."""
    code, out, _ = shell.run("engine", "start", operations=Through(engine=UP))
    assert (code, shell.brought_up) == (0, [])
    assert out == ("the engine already runs: port 8787, gRPC 8788\n")
    _, out, _ = shell.run("engine", "start", "--json", operations=Through(engine=UP))
    assert json.loads(out)["already"] is True


def test_an_engine_that_ends_between_two_questions_is_not_said_to_run(shell: Shell) -> None:
    gone = pipo_pb2.Engine(home="/h")
    code, out, err = shell.run("engine", "start", operations=Through(engine=gone))
    assert (code, out) == (1, "")
    assert err == (
        "error: the engine ended just after it answered\n"
        "  hint: start it again: pipo engine start\n"
    )


@pytest.mark.parametrize("words", [("--ttl", "8h"), ("--listen", "9000")])
def test_options_of_a_second_start_need_a_stop_first(
    shell: Shell, running: Lease, words: tuple[str, ...]
) -> None:
    """Edge 402."""
    code, _, err = shell.run("engine", "start", *words, operations=Through(engine=UP))
    assert code == 1
    assert err == (
        f"error: the engine of {shell.home.root} already runs: pid {os.getpid()}\n"
        "  hint: options need a stop first: pipo engine stop\n"
    )
    engine.write(shell.home, Engine(os.getpid(), "h", 5, 8787, foreground=True))
    _, _, err = shell.run("engine", "start", *words, operations=Through(engine=UP))
    assert f"already runs: pipo run, pid {os.getpid()}" in err


@pytest.mark.parametrize(
    ("words", "error", "exit_code"),
    [
        (("--listen", "0"), "0 is no port to listen on: use 1-65534", 2),
        (("--listen", "http"), "'http' is not a port: use 1-65534", 2),
        (("--listen", "65535"), "65535 leaves no port above for gRPC: use 1-65534", 2),
        (("--ttl", "soon"), "--ttl: 'soon' is not a duration", 1),
        (("--ttl", "0s"), "--ttl is '0s': a lifetime has a length", 1),
        (("--no-engine",), "pipo engine start needs the engine, and --no-engine does without", 1),
    ],
)
def test_what_a_start_refuses(
    shell: Shell, words: tuple[str, ...], error: str, exit_code: int
) -> None:
    """Edge 403."""
    code, out, err = shell.run("engine", "start", *words, operations=Through(engine=UP), up=False)
    assert (code, out, shell.brought_up) == (exit_code, "", [])
    assert error in err.splitlines()[0]


# ── stop ─────────────────────────────────────────────────────────────────────


def test_a_stop_without_an_engine_is_fine(shell: Shell) -> None:
    """Edge 402."""
    code, out, _ = shell.run("engine", "stop", operations=Operations(), up=False)
    assert (code, out) == (0, f"no engine runs for {shell.home.root}\n")
    code, out, _ = shell.run("engine", "stop", "--json", operations=Operations(), up=False)
    assert code == 0
    assert json.loads(out) == {
        "stopped": False,
        "already": False,
        "draining": [],
        "detached": [],
        "ended": True,
        "engine": "down",
    }


def test_a_stop_waits_until_the_engine_is_gone(shell: Shell, running: Lease) -> None:
    reply = pipo_pb2.StopEngineReply(stopped=True, draining=["a", "b"], detached=["c"])
    later = threading.Timer(0.3, running.release)
    through = Through(stop=reply, stops=later.start)
    code, out, _ = shell.run("engine", "stop", operations=through)
    assert not later.is_alive()
    assert (code, out.splitlines()) == (
        0,
        [
            "stopped the engine",
            "stopped with it: a, b; `pipo start NAME` starts one again",
            "detached, and left running: c",
        ],
    )


def test_a_stop_does_not_wait_for_ever(
    shell: Shell, running: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "STOP_WAIT_S", 0.05)
    reply = pipo_pb2.StopEngineReply(stopped=True, draining=["a"])
    code, out, _ = shell.run("engine", "stop", operations=Through(stop=reply))
    assert (code, out) == (0, "the engine still waits for a; it ends after that\n")
    _, out, _ = shell.run("engine", "stop", "--json", operations=Through(stop=reply))
    assert json.loads(out)["ended"] is False


def test_a_frozen_engine_is_told_of_and_not_waited_for(
    shell: Shell, running: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked, and has not said that it stops; one that has said so is waited for."""
    monkeypatch.setattr(commands, "HEARD_WITHIN_S", 0.0)
    reply = pipo_pb2.StopEngineReply(stopped=True)
    code, out, err = shell.run("engine", "stop", operations=Through(stop=reply))
    assert (code, out) == (1, "")
    assert f"(pid {os.getpid()}) was asked to stop, and has not said that it does" in err
    assert f"kill -CONT {os.getpid()}" in err

    found = engine.read(shell.home)
    assert found is not None
    engine.write(shell.home, replace(found, stopping=True))
    monkeypatch.setattr(commands, "STOP_WAIT_S", 0.05)
    code, out, _ = shell.run("engine", "stop", operations=Through(stop=reply))
    assert (code, out) == (0, "the engine still waits for its services; it ends after that\n")


def test_an_engine_whose_gateway_is_down_is_asked_directly(
    shell: Shell, running: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(home: Home) -> Engine | None:
        found = engine.read(home)
        running.release()
        return found

    monkeypatch.setattr(engine, "ask_to_stop", ask)
    code, out, _ = shell.run("engine", "stop", operations=Operations(), up=False)
    assert (code, out) == (0, "stopped the engine\n")


def test_services_without_an_engine_say_what_to_do(shell: Shell) -> None:
    refused = InvalidState("no engine is there to stop", hint="docker compose stop")
    code, _, err = shell.run("engine", "stop", operations=Through(stop=refused))
    assert (code, err) == (
        1,
        "error: no engine is there to stop\n  hint: docker compose stop\n",
    )


def test_an_engine_at_a_url_is_gone_when_nothing_answers_there(shell: Shell) -> None:
    looks = iter([True, True, False])

    def health() -> tuple[int, object]:
        return 200, {"service": "gateway" if next(looks, False) else "something else"}

    reply = pipo_pb2.StopEngineReply(stopped=True)
    with http_gateway({"GET /healthz": health}) as url:
        words = ("engine", "stop", "--url", url)
        code, out, _ = shell.run(*words, operations=Through(stop=reply))
    assert (code, out, next(looks, None)) == (0, "stopped the engine\n", None)


# ── status ───────────────────────────────────────────────────────────────────


def test_its_status(shell: Shell) -> None:
    code, out, _ = shell.run("engine", "status", operations=Through(engine=UP))
    assert code == 0
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        "engine",
        "home",
        "started",
        "listens",
        "pipelines",
        "services",
    ]
    _, out, _ = shell.run("engine", "status", "--json", operations=Through(engine=UP))
    told = json.loads(out)
    assert set(FIELDS) <= set(told)
    assert (told["engine"], told["ttl_expires_at"]) == ("up", None)


def test_its_status_when_it_ends_or_idles(shell: Shell) -> None:
    told = pipo_pb2.Engine()
    told.CopyFrom(UP)
    told.ttl_expires_at = CLOCK.now_ms() + 3_600_500
    told.idle = True
    _, out, _ = shell.run("engine", "status", operations=Through(engine=told))
    assert "ends       in 1h00m" in out
    assert "idle       it ends itself once nothing ran for 5m00s" in out


def test_no_engine_is_an_answer_too(shell: Shell) -> None:
    """Edge 380: every field, and what only a running one has is null."""
    desired.write(shell.home.pipeline("x"), Desired("stopped", "/x", state="stopped"))
    code, out, _ = shell.run("engine", "status", "--json", operations=Operations(), up=False)
    told = json.loads(out)
    assert code == 0
    assert set(FIELDS) <= set(told)
    assert {name: told[name] for name in FIELDS} == {
        "engine_id": None,
        "home": str(shell.home.root),
        "started_at": None,
        "listen": None,
        "ready": False,
        "stopping": False,
        "pipelines": 1,
        "idle": True,
        "ttl_expires_at": None,
        "version": __version__,
    }
    assert told["engine"] == "down"
    _, out, _ = shell.run("engine", "status", operations=Operations(), up=False)
    assert out.splitlines()[0] == "engine     not running"
    assert out.splitlines()[-1] == "engine: down"


def test_an_engine_without_its_gateway_is_told_from_the_home(shell: Shell, running: Lease) -> None:
    _, out, _ = shell.run("engine", "status", "--json", operations=Operations(), up=False)
    told = json.loads(out)
    assert (told["engine_id"], told["listen"], told["ttl_expires_at"]) == ("embedded", 8787, 9)
    assert (told["ready"], told["engine"]) == (False, "down")


# ── runners, attach ──────────────────────────────────────────────────────────

RUNNERS = [
    pipo_pb2.RunnerInfo(pipeline="a", state="attached", pid=7, host="ada", host_id="embedded"),
    pipo_pb2.RunnerInfo(pipeline="b", state="stale", hint="`pipo attach b` brings it up again"),
]


def test_runners_are_a_table_with_hints(shell: Shell) -> None:
    """Edge 401."""
    listed = Operations(list_runners=pipo_pb2.ListRunnersReply(runners=RUNNERS))
    code, out, _ = shell.run("runners", operations=listed)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["PIPELINE", "STATE", "PID", "HOST", "RUNNER", "STARTED"],
        ["a", "attached", "7", "ada", "embedded", "-"],
        ["b", "stale", "-", "-", "-", "-"],
        ["hint:", "b:", "`pipo", "attach", "b`", "brings", "it", "up", "again"],
    ]
    _, out, _ = shell.run("runners", "--json", operations=listed)
    told = json.loads(out)
    assert [one["state"] for one in told["runners"]] == ["attached", "stale"]
    assert told["engine"] == "up"
    none = Operations(list_runners=pipo_pb2.ListRunnersReply())
    assert shell.run("runners", operations=none)[1] == "no runners\n"


def test_attach_says_what_it_took_over(shell: Shell) -> None:
    waits = pipo_pb2.RunnerInfo(pipeline="c", state="unreachable", pid=8, hint="look again")
    reply = pipo_pb2.AttachReply(attached=["a"], runners=[RUNNERS[0], waits])
    operations = Operations(attach=reply)
    code, out, _ = shell.run("attach", operations=operations)
    assert (code, out.splitlines()) == (
        0,
        ["attached a (pid 7)", "c is unreachable (pid 8)", "  hint: c: look again"],
    )
    assert operations.asked == [("attach", pipo_pb2.AttachRequest())]
    again = Operations(attach=pipo_pb2.AttachReply(runners=[RUNNERS[0]]))
    _, out, _ = shell.run("attach", "a", operations=again)
    assert out == "a is attached (pid 7)\n"
    assert again.asked == [("attach", pipo_pb2.AttachRequest(pipeline="a"))]
    nothing = Operations(attach=pipo_pb2.AttachReply())
    assert shell.run("attach", operations=nothing)[1] == "nothing to attach: no pipeline runs\n"
    _, out, _ = shell.run("attach", "--json", operations=operations)
    assert json.loads(out)["attached"] == ["a"]


def test_attach_brings_the_engine_up_for_what_the_home_knows(shell: Shell) -> None:
    code, _, err = shell.run("attach", "nobody", operations=Operations(), up=False)
    assert (code, shell.brought_up) == (1, [])
    assert "no pipeline named 'nobody'" in err
    shell.home.pipeline("a").ensure()
    reply = pipo_pb2.AttachReply(attached=["a"], runners=[RUNNERS[0]])
    code, out, err = shell.run("attach", "a", operations=Operations(attach=reply), up=False)
    assert (code, out, len(shell.brought_up)) == (0, "attached a (pid 7)\n", 1)
    assert err == "started the engine: port 8787, gRPC 8788\n"


def test_attach_brings_no_engine_up_for_nothing(shell: Shell) -> None:
    asked = Operations()
    code, out, _ = shell.run("attach", operations=asked, up=False)
    assert (code, out) == (0, "nothing to attach: no pipeline runs\n")
    assert (asked.asked, shell.brought_up) == ([], [])
    desired.write(shell.home.pipeline("x"), Desired("running", "/x", state="running"))
    found = Operations(attach=pipo_pb2.AttachReply(runners=[RUNNERS[0]]))
    shell.run("attach", operations=found, up=False)
    assert len(shell.brought_up) == 1


def test_attach_needs_the_engine(shell: Shell) -> None:
    code, _, err = shell.run("attach", "--no-engine", operations=Operations(), up=False)
    assert code == 1
    assert "pipo attach needs the engine" in err
