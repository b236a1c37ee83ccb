"""A service as PID 1 that is told to stop at an awkward moment (R35)."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from . import engine

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(3600)]

GRACE_S = 60


def started(project: engine.Project, name: str, service: str) -> None:
    engine.run(
        *("docker", "run", "--detach", "--name", name, *engine.LOCKED_DOWN),
        *("--volume", "/var/lib/pipo", project.image, *engine.COMMANDS[service]),
    )


def exit_code(name: str) -> int:
    shown = engine.run("docker", "inspect", "--format", "{{.State.ExitCode}}", name)
    return int(shown.stdout)


def hears(name: str) -> bool:
    """Whether PID 1 is the image's by now, not the engine's own program, and keeps a SIGTERM."""
    shown = engine.run("docker", "inspect", "--format", "{{.State.Pid}}", name)
    process = Path("/proc") / shown.stdout.strip()
    status = (process / "status").read_text().splitlines()
    masks = dict(line.split(":\t", 1) for line in status if line.startswith("Sig"))
    kept = int(masks["SigBlk"], 16) | int(masks["SigCgt"], 16)
    program = (process / "cmdline").read_bytes().split(b"\0")[0]
    return b"python" in program and bool(kept >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("service", engine.SERVICES)
def test_a_stop_while_it_starts_is_heard(
    project: engine.Project, name: str, service: str, after_s: float
) -> None:
    started(project, name, service)
    engine.wait_until(f"{service} listens to signals", lambda: hears(name), limit_s=60)
    time.sleep(after_s)
    engine.run("docker", "stop", "--time", str(GRACE_S), name)
    # Whoever does not listen is killed after the grace, and ends with 137.
    logs = engine.run("docker", "logs", name)
    assert exit_code(name) == 0, logs.stdout + logs.stderr


def test_nothing_but_the_service_is_between_the_engine_and_it(
    project: engine.Project, name: str
) -> None:
    done = engine.run(
        *("docker", "run", "--name", name, project.image, "python3", "-c"),
        "import os; print(os.getpid(), os.getppid())",
    )
    assert done.stdout.split() == ["1", "0"]
