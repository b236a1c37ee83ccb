"""The command `pipo-checker` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stack import wait_for

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from pipo_checker.main import main; main()"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a checker in a fresh home; kills what is left of it at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, **settings: Any) -> subprocess.Popen[str]:
        command = [*COMMAND, "--home", str(tmp_path / "home"), "--id", "c1", *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **settings)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def entry(home: Path) -> dict[str, Any]:
    """The checker's registry entry once it serves."""
    path = home / "run/services/checker-c1.json"

    def serves() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return found if found.get("http_address") else None

    return wait_for(serves, what="no entry")


def test_serves_health_and_metrics_and_ends_once_at_sigterm(start: Any, tmp_path: Path) -> None:
    process = start("--http-port", "0")
    found = entry(tmp_path / "home")
    assert found["pid"] == process.pid
    with urllib.request.urlopen(f"http://{found['http_address']}/healthz", timeout=60) as answer:
        assert json.load(answer)["ok"] is True
    with urllib.request.urlopen(f"http://{found['http_address']}/metrics", timeout=60) as answer:
        assert b"pipo_checker_streams_attached 0.0" in answer.read()
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert log.count("action=stopping") == log.count("action=stopped") == 1
    assert list((tmp_path / "home/run/services").iterdir()) == []


def test_ends_with_its_supervisor_and_logs_into_the_home(start: Any, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    process = start(env={**os.environ, "PIPO_PARENT_FD": str(ours)}, pass_fds=[ours])
    os.close(ours)
    entry(tmp_path / "home")
    os.close(theirs)
    assert process.wait(timeout=60) == 0
    log = (tmp_path / "home/logs/services/checker-c1.log").read_text()
    assert 'reason="the supervisor is gone"' in log


def test_a_home_that_cannot_be_used_is_one_message(start: Any, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    process = start()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == (
        f"pipo-checker: {tmp_path / 'home'} is a file, and a folder is wanted there\n"
    )


def test_a_wrong_port_is_a_matter_of_usage(start: Any) -> None:
    process = start("--http-port", "99999")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--http-port" in errors
