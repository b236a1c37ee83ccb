"""The command `pipo-gateway` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stack import free_ports, wait_for

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from pipo_gateway.main import main; main()"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a gateway in a home of the test; kills what is left of it at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, home: str = "home", **settings: Any) -> subprocess.Popen[str]:
        command = [*COMMAND, "--home", str(tmp_path / home), "--id", "g1", *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **settings)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def entry(home: Path) -> dict[str, Any]:
    """The gateway's registry entry once it serves."""
    path = home / "run/services/gateway-g1.json"

    def serves() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return found if found.get("http_address") else None

    return wait_for(serves, what="no entry")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_both_doors_and_ends_once_at_a_signal(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("--listen", "0")
    found = entry(tmp_path / "home")
    assert found["pid"] == process.pid
    with urllib.request.urlopen(f"http://{found['http_address']}/healthz", timeout=60) as answer:
        told = json.load(answer)
    assert told["services"]["gateway"] == ["g1"]
    assert found["address"].endswith(f":{told['grpc_port']}")
    assert (tmp_path / "home/admin.token").stat().st_mode & 0o777 == 0o600
    process.send_signal(number)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert log.count("action=stopping") == log.count("action=stopped") == 1
    assert list((tmp_path / "home/run/services").iterdir()) == []


def test_ends_with_its_supervisor(start: Start, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    process = start(
        "--listen", "0", env={**os.environ, "PIPO_PARENT_FD": str(ours)}, pass_fds=[ours]
    )
    os.close(ours)
    entry(tmp_path / "home")
    os.close(theirs)
    assert process.wait(timeout=60) == 0


def test_a_taken_port_is_one_error_that_names_the_holder_and_the_flag(
    start: Start, tmp_path: Path
) -> None:
    port = free_ports(3) + 1
    start("--listen", str(port))
    entry(tmp_path / "home")
    second = start("--listen", str(port), home="second")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert errors.splitlines() == [
        f"pipo-gateway: port {port} is taken by the Pipo gateway of {tmp_path / 'home'}",
        f"  end it, or choose another port with --listen, such as --listen {port + 10}",
    ]
    third = start("--listen", str(port - 1), home="second")
    _, errors = third.communicate(timeout=60)
    assert third.returncode == 1
    assert f"port {port} (gRPC, the one above {port - 1}) is taken by the Pipo gateway" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "second/run/services/gateway-g1.json").exists()


def test_a_port_of_another_program(start: Start) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        process = start("--listen", str(other.getsockname()[1]))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is taken by another program" in errors
