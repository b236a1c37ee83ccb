"""A Docker engine and one Compose project on it, driven by their command lines.

Every command has a deadline. A project removes its own containers, network, volumes and images,
found by names that no other run has.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests import stack

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("runner", "gateway", "checker")
# What docker-compose.yml says of a service, for one that runs by itself.
COMMANDS = {
    "gateway": ("pipo-gateway",),
    "runner": ("python3", "/opt/pipo/image/start_workspace.py", "pipo-runner"),
    "checker": ("pipo-checker",),
}
LOCKED_DOWN = (
    *("--read-only", "--tmpfs", "/tmp:mode=1777"),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"),
)
BASE_IMAGE = "pipo-base:local"
_COMMAND_LIMIT_S = 300.0
_BUILD_LIMIT_S = 1500.0


def run(
    *command: str,
    environ: Mapping[str, str] | None = None,
    limit_s: float = _COMMAND_LIMIT_S,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """The finished command, its output as text.

    Raises: AssertionError with all of its output, if `check` and it failed.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done


def missing() -> str:
    """Why there is no engine to test on; empty when there is one."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    answer = run("docker", "version", "--format", "{{.Server.Version}}", check=False)
    if answer.returncode != 0:
        return f"no Docker engine answers: {answer.stderr.strip().splitlines()[-1:]}"
    if compose_command() is None:
        return "neither docker-compose nor docker compose is installed"
    return ""


@cache
def compose_command() -> tuple[str, ...] | None:
    for command in (("docker-compose",), ("docker", "compose")):
        if shutil.which(command[0]) is None:
            continue
        if run(*command, "version", check=False).returncode == 0:
            return command
    return None


def make_base_image() -> None:
    """Fetches packages, so it is tried again, later and later; each time it goes on where it was."""
    script = str(ROOT / "deploy" / "make-base-image.sh")
    for pause_s in (5, 20, 60, None):
        done = run(
            script,
            environ={"PYTHON": sys.executable},
            limit_s=_BUILD_LIMIT_S,
            check=pause_s is None,
        )
        if done.returncode == 0 or pause_s is None:
            return
        time.sleep(pause_s)


def nameless_images() -> set[str]:
    """The ids of Pipo's images without a name: build stages, and what a later build replaced."""
    listed = run(
        "docker",
        *("images", "--quiet", "--no-trunc"),
        *("--filter", "dangling=true", "--filter", "label=pipo.stage"),
    )
    return set(listed.stdout.split())


def free_ports() -> tuple[int, int]:
    """A neighbouring pair that is no other test's; not the usual one, which others find free."""
    first = stack.free_ports(2)
    return first, first + 1


def wait_until(what: str, holds: Callable[[], bool], *, limit_s: float) -> None:
    """Returns once `holds()` is true; what raises OSError does not hold yet."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with suppress(OSError):
            if holds():
                return
        time.sleep(0.25)
    raise AssertionError(f"not within {limit_s:.0f} s: {what}")


def state_of(container: str) -> dict[str, Any]:
    """What the engine says of a container's state."""
    shown = run("docker", "inspect", "--format", "{{json .State}}", container)
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


@dataclass
class Project:
    """One Compose project with a name, an image and ports of its own."""

    name: str = field(default_factory=lambda: f"pipo-test-{secrets.token_hex(4)}")
    ports: tuple[int, int] = field(default_factory=free_ports)

    @property
    def image(self) -> str:
        return f"{self.name}:1"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PIPO_IMAGE": self.image,
            "PIPO_BASE_IMAGE": BASE_IMAGE,
            # The build must work where nothing can be fetched.
            "PIPO_BUILD_NETWORK": "none",
            "PIPO_PORT": str(self.ports[0]),
            "PIPO_GRPC_PORT": str(self.ports[1]),
        }

    def compose(
        self, *arguments: str, limit_s: float = _COMMAND_LIMIT_S, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        command = compose_command()
        assert command is not None
        file = str(ROOT / "docker-compose.yml")
        return run(
            *(*command, "--project-name", self.name, "--file", file, *arguments),
            environ=self.environ,
            limit_s=limit_s,
            check=check,
        )

    def build(self) -> None:
        self.compose("build", limit_s=_BUILD_LIMIT_S)

    def up(self, *, runners: int = 1) -> None:
        """The stack with that many runners, healthy."""
        self.compose("up", "--detach", "--scale", f"runner={runners}")
        wait_until("every container is healthy", self.healthy, limit_s=300)

    def healthy(self) -> bool:
        states = [state_of(one) for service in SERVICES for one in self.containers(service)]
        return all(state.get("Health", {}).get("Status") == "healthy" for state in states)

    def container(self, service: str) -> str:
        """The id of the service's only container, running or not."""
        (found,) = self.containers(service)
        return found

    def containers(self, service: str) -> list[str]:
        """The ids of the service's containers, running or not."""
        label = "com.docker.compose"
        listed = run(
            "docker",
            *("ps", "--all", "--quiet"),
            *("--filter", f"label={label}.project={self.name}"),
            *("--filter", f"label={label}.service={service}"),
        )
        return listed.stdout.split()

    def state(self, service: str) -> dict[str, Any]:
        return state_of(self.container(service))

    def logs(self, service: str) -> list[str]:
        """What the service has said since its last start."""
        since = self.state(service)["StartedAt"]
        said = run("docker", "logs", "--since", since, self.container(service))
        return (said.stdout + said.stderr).splitlines()

    def inside(self, service: str, *command: str) -> str:
        """What the command prints inside the service's first container."""
        return run("docker", "exec", self.containers(service)[0], *command).stdout

    def get(self, path: str, token: str) -> Any:
        """The gateway's JSON answer. Raises: OSError, unless it is a 200."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[0]}{path}", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def down(self, nameless_before: Set[str]) -> None:
        """Nothing of the project is left, nor what its build made beside the image."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "30", check=False)
        run("docker", "rmi", "--force", self.image, check=False)
        for image in nameless_images() - nameless_before:
            run("docker", "rmi", image, check=False)
