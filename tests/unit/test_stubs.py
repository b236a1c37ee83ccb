"""The generated stubs are those of the .proto files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_stubs_are_current() -> None:
    bin_folder = Path(sys.executable).parent
    done = subprocess.run(
        [sys.executable, str(ROOT / "proto" / "generate.py"), "--check"],
        env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
