"""Every command of docs/lifetime.md, run as a reader would run it; its conditions pass the check."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipo.connectors.registry import manifests
from pipo.lang.check import Source, check
from tests.docs.pages import ROOT, Reader, blocks
from tests.stack import wait_for

PAGE = ROOT / "docs" / "lifetime.md"

pytestmark = pytest.mark.slow


def test_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    reader = Reader(folder, tmp_path / "home", path=str(Path(sys.prefix) / "bin"))
    log = tmp_path / "home" / "logs" / "backfill.log"
    try:
        printed = []
        for block in blocks(PAGE):
            printed.append(reader.try_block(block))
            if "pipo push" in block.text:
                # A person reads on before the next command.
                wait_for(lambda: "pipeline completed" in log.read_text(), what=log.read_text)
        assert "started backfill (pid " in printed[-1]
        wait_for(lambda: log.read_text().count("pipeline completed") == 2, what=log.read_text)
        assert "\nstopped\n" in reader.stop()
    finally:
        reader.kill()


@pytest.mark.seed("L016")
def test_its_conditions_pass_the_check() -> None:
    (shown,) = blocks(PAGE, "yaml")
    rest = "pipo: 1\nname: x\ninput: { via: push }\noutput: { from: input, to: stdout }\n"
    lines = shown.text.splitlines()
    assert len(lines) == 3
    for line in lines:
        (report,) = check([Source(f"{rest}{line}\n", "/x/x.pipo")], manifests())
        assert report.findings == []
