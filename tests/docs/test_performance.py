"""docs/performance.md: its command measures every pipeline that the page tells of."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench.stations import PIPELINES
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.slow


def test_the_command_of_the_page() -> None:
    (block,) = blocks(ROOT / "docs" / "performance.md")
    python, *words = block.text.split()
    assert python == ".venv/bin/python"
    words[-1] = "20"
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for name in PIPELINES:
        assert f"{name}, 1 at once" in done.stdout
        assert f"{name}, 64 at once" in done.stdout
