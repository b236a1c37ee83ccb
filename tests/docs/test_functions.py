"""docs/functions.md, tried as a reader would."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, Reader, blocks
from tests.stack import wait_for

PAGE = ROOT / "docs" / "functions.md"

pytestmark = pytest.mark.slow


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "empty"
    folder.mkdir()
    made = Reader(folder, tmp_path / "home", path=str(Path(sys.prefix) / "bin"))
    yield made
    made.kill()


def test_the_page(reader: Reader) -> None:
    made, runs, pushes, looks = blocks(PAGE)
    reader.try_block(made)
    reader.try_block(runs)
    reader.try_block(pushes)

    def settled() -> bool:
        told = json.loads(reader.try_block(Block("its counts", 0, "pipo status --json")))
        stats = told["pipelines"][0]["stats"]
        return (stats["delivered"], stats["dead_lettered"]) == (1, 1)

    wait_for(settled, deadline_s=60.0, what="one is delivered and one dead")
    said = reader.try_block(looks)
    assert "fn.clean raised ValueError: invalid literal for int()" in said
    assert "(people.fn.py:8 in clean)" in said
    assert "hello Ada Lovelace  action=fn.printed node=greeted packet=" in said
    (written,) = (reader.folder / "people.jsonl").read_text().splitlines()
    assert json.loads(written)["data"] == {"name": "Ada Lovelace", "age": 36}
    assert "\nstopped\n" in reader.stop()
