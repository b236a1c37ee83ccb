"""A stack of its own for each test that asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Not started yet; whatever runs at the end is ended."""
    made = Stack(tmp_path)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.stop()
        made.kill_all()
