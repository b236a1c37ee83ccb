"""Whose the home is: folders of this machine in place of the named volume (R46).

Each case runs one service of the built image by itself, as docker-compose.yml would.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from . import engine

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder that belongs to somebody else")
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def owner_and_mode(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, found.st_mode & 0o7777


@pytest.mark.parametrize("service", engine.SERVICES)
def test_a_home_of_root_is_refused_with_the_command_that_mends_it(
    project: engine.Project, home: Path, name: str, service: str
) -> None:
    before = owner_and_mode(home)
    engine.run(
        *("docker", "create", "--name", name, *engine.LOCKED_DOWN),
        *("--volume", f"{home}:/var/lib/pipo", project.image, *engine.COMMANDS[service]),
    )
    began = time.monotonic()
    done = engine.run("docker", "start", "--attach", name, check=False)
    took_s = time.monotonic() - began
    said = done.stdout + done.stderr

    assert done.returncode == 1, said
    assert took_s < 60, f"{took_s:.1f} s"
    for part in ("/var/lib/pipo", "1000:1000", "0:0", "0755", "sudo chown -R 1000:1000"):
        assert part in said
    assert "Traceback" not in said
    assert said.count("cannot write") == 1
    assert list(home.iterdir()) == []
    assert owner_and_mode(home) == before


def test_an_internal_token_of_root_is_named(project: engine.Project, home: Path, name: str) -> None:
    for folder in (home, home / "run"):
        folder.mkdir(exist_ok=True)
        os.chown(folder, 1000, 1000)
    token = home / "run" / "internal.token"
    token.write_text("x" * 40)
    token.chmod(0o600)
    done = engine.run(
        *("docker", "run", "--name", name, *engine.LOCKED_DOWN),
        *("--volume", f"{home}:/var/lib/pipo", project.image, "pipo-gateway"),
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "/var/lib/pipo/run/internal.token" in said
    assert "1000:1000" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("service", engine.SERVICES)
def test_a_foreign_uid_works_on_its_own_folder(
    project: engine.Project, home: Path, name: str, service: str
) -> None:
    os.chown(home, 1234, 5678)
    engine.run(
        *("docker", "run", "--detach", "--name", name, "--user", "1234:5678", *engine.LOCKED_DOWN),
        *("--volume", f"{home}:/var/lib/pipo", project.image, *engine.COMMANDS[service]),
    )

    def healthy() -> bool:
        shown = engine.run("docker", "inspect", "--format", "{{.State.Health.Status}}", name)
        return shown.stdout.strip() == "healthy"

    engine.wait_until(f"{service} is healthy as 1234:5678", healthy, limit_s=300)
    engine.run("docker", "stop", "--time", "60", name)
    shown = engine.run("docker", "inspect", "--format", "{{.State.ExitCode}}", name)
    assert shown.stdout.strip() == "0", engine.run("docker", "logs", name).stderr
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in home.rglob("*")}
    assert owners == {(1234, 5678)}
