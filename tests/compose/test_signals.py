"""A service as PID 1 that is told to stop at an awkward moment (R35)."""

from __future__ import annotations

import time

import pytest

from . import engine

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(1200)]

GRACE_S = 20


def started(project: engine.Project, name: str, service: str) -> None:
    engine.run(
        *("docker", "run", "--detach", "--name", name, *engine.LOCKED_DOWN),
        *("--volume", "/var/lib/pipo", project.image, *engine.COMMANDS[service]),
    )


def exit_code(name: str) -> int:
    shown = engine.run("docker", "inspect", "--format", "{{.State.ExitCode}}", name)
    return int(shown.stdout)


# Earlier than the first, PID 1 may still be the engine's own program.
@pytest.mark.parametrize("after_s", [0.2, 0.4, 0.8])
@pytest.mark.parametrize("service", engine.SERVICES)
def test_a_stop_while_it_starts_is_heard(
    project: engine.Project, name: str, service: str, after_s: float
) -> None:
    started(project, name, service)
    time.sleep(after_s)
    began = time.monotonic()
    engine.run("docker", "stop", "--time", str(GRACE_S), name)
    assert time.monotonic() - began < GRACE_S / 2
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
