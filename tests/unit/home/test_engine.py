"""The engine's entry, and how it is asked to end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict, InvalidState
from pipo.home import Home, desired, engine, registry
from pipo.home.desired import Desired
from pipo.home.engine import Engine, Going
from pipo.home.leases import Lease
from pipo.home.registry import ServiceEntry
from tests.stack import BARE_PYTHON, wait_for

CLOCK = SystemClock()
HOLD = """
import fcntl, json, os, signal, struct, sys
signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b"asked"), os._exit(0)))
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.fcntl(fd, 37, struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))
os.write(fd, json.dumps({"host": "h", "pid": os.getpid(), "started_at": 1}).encode())
print("holds", flush=True)
signal.pause()
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def lease(home: Home) -> Iterator[Lease]:
    made = Lease.acquire(engine.lease(home), clock=CLOCK)
    yield made
    made.release()


def ours(**more: object) -> Engine:
    made = Engine(pid=os.getpid(), host=socket.gethostname(), started_at=5, listen=8787)
    return replace(made, **more)  # type: ignore[arg-type]


def test_it_is_there_while_its_lease_is(home: Home, lease: Lease) -> None:
    assert engine.read(home) is None
    engine.write(home, ours(ttl_expires_at=9))
    assert engine.read(home) == ours(ttl_expires_at=9)
    assert [s.kind for s in registry.services(home)] == ["engine"]
    lease.release()
    assert engine.read(home) is None
    assert registry.services(home) == []


def test_a_killed_engines_entry_is_not_the_next_ones(home: Home, lease: Lease) -> None:
    engine.write(home, ours(pid=1, stopping=True))
    assert engine.read(home) is None
    assert not engine.stopping(home)


def test_it_says_that_it_stops(home: Home, lease: Lease) -> None:
    engine.write(home, ours())
    assert not engine.stopping(home)
    engine.write(home, ours(stopping=True))
    assert engine.stopping(home)


def test_nobody_to_ask(home: Home) -> None:
    engine.write(home, ours())
    assert engine.ask_to_stop(home) is None


def test_one_that_has_not_said_who_it_is(home: Home, lease: Lease) -> None:
    with pytest.raises(Conflict, match="is just starting or ending"):
        engine.ask_to_stop(home)


def test_one_on_another_machine(home: Home, lease: Lease) -> None:
    engine.write(home, ours(host="elsewhere"))
    with pytest.raises(InvalidState, match="runs on elsewhere") as refused:
        engine.ask_to_stop(home)
    assert "--url http://elsewhere:8787" in refused.value.hint


def test_it_is_asked_by_a_signal_of_its_own(home: Home) -> None:
    path = str(engine.lease(home))
    with subprocess.Popen(
        [*BARE_PYTHON, "-c", HOLD, path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        engine.write(home, ours(pid=process.pid))
        asked = engine.ask_to_stop(home)
        assert asked is not None
        assert asked.pid == process.pid
        assert process.stdout.read() == "asked"
    wait_for(lambda: engine.ask_to_stop(home) is None)


def test_another_process_with_its_pid_is_left_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the signal the engine ends, and the kernel gives its pid away."""
    sent: list[int] = []
    lease = Lease.acquire(engine.lease(home), clock=CLOCK)
    engine.write(home, ours())

    def opened(pid: int) -> int:
        lease.release()
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(os, "pidfd_open", opened)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda fd, number: sent.append(number))
    assert engine.ask_to_stop(home) is None
    assert sent == []


def test_what_goes_attached_and_detached(home: Home) -> None:
    host = registry.ServiceEntry("runner", "other", 77, "there", "x:1", "", 1)
    registry.write_service(home, host)
    other = Lease.acquire(registry.service_lease(home, "runner", "other"), clock=CLOCK)
    held = []
    for name, options, runner in (
        ("mine", {}, "embedded"),
        ("alone", {"detached": True}, "embedded"),
        ("theirs", {}, "other"),
        ("idle", {}, "embedded"),
    ):
        desired.write(home.pipeline(name), Desired("running", "/x", options, runner=runner))
        if name != "idle":
            held.append(Lease.acquire(home.pipeline(name).lease, clock=CLOCK))
    # A first start: its host holds the claim, and nothing else is there yet.
    home.pipeline("new").ensure()
    held.append(Lease.acquire(home.pipeline("new").claim, clock=CLOCK))
    assert engine.going(home) == Going(("mine", "new"), ("alone",))
    assert engine.living_detached(home) == ("alone",)
    for lease in (*held, other):
        lease.release()
    assert engine.going(home) == Going()
    assert engine.living_detached(home) == ()


def test_busy_while_a_pipeline_runs_or_will(home: Home) -> None:
    assert not engine.busy(home)
    pipeline = home.pipeline("x")
    desired.write(pipeline, Desired("running", "/x.pipo", state="backoff"))
    assert engine.busy(home)
    desired.write(pipeline, Desired("running", "/x.pipo", state="crashed"))
    assert not engine.busy(home)
    for path in (pipeline.lease, pipeline.claim):
        lease = Lease.acquire(path, clock=CLOCK)
        assert engine.busy(home)
        lease.release()
    desired.write(pipeline, Desired("stopped", "/x.pipo", state="stopped"))
    assert not engine.busy(home)


def test_its_entry_is_a_service_entry(home: Home, lease: Lease) -> None:
    engine.write(home, ours())
    assert registry.services(home, "engine") == [
        ServiceEntry("engine", "embedded", os.getpid(), socket.gethostname(), "", "", 5)
    ]
    assert signal.SIGUSR1 == engine.ASKED
