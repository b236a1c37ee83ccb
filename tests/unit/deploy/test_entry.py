"""The image's entry point: it becomes the command, and keeps a service's early signals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = Path(__file__).resolve().parents[3] / "deploy" / "image" / "entry.py"
# Sends itself SIGTERM with no handler, then listens: the signal is there if it was blocked.
FAKE = """\
#!{python}
import os, signal, sys
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGTERM}})
"""


def entry(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["env", "--block-signal=TERM,INT", sys.executable, "-IS", str(ENTRY), *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("name", "code"), [("pipo-gateway", 7), ("pipo", -15)])
def test_only_a_service_keeps_its_early_signals(tmp_path: Path, name: str, code: int) -> None:
    command = tmp_path / name
    command.write_text(FAKE.format(python=sys.executable))
    command.chmod(0o755)
    assert entry(str(command)).returncode == code


def test_it_becomes_the_command() -> None:
    done = entry("sh", "-c", "echo $0 $1", "a", "b")
    assert (done.returncode, done.stdout) == (0, "a b\n")


@pytest.mark.parametrize(("command", "code"), [((), 2), (("pipo-nothing",), 127)])
def test_what_cannot_run_is_named(command: tuple[str, ...], code: int) -> None:
    done = entry(*command)
    assert done.returncode == code
    assert done.stderr.startswith("entry: ")
