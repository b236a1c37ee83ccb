"""The pipeline that dies, for those who recover its packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.dying import Dies


@pytest.fixture
def dies(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Dies]:
    made = Dies(tmp_path, *request.param)
    try:
        made.stack.start()
        yield made
    finally:
        made.stack.kill_all()
