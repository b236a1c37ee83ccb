"""The page on the architecture names only what is there."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
# Where a name may start: most are said in full, in the pictures from the pipeline process on.
STARTS = (ROOT, ROOT / "runner/pipo_runner/pipeline", ROOT / "services/pipo/journal", ROOT / "docs")
NAMED = sorted(
    set(
        re.findall(
            r"(?<![\w/.-])[a-z_]+(?:/[\w.-]+)*(?:/|\.py\b|\.sql\b|\.proto\b|\.yml\b|\.md\b)", PAGE
        )
    )
)
HOME = {"run/", "logs/", "pipelines/"}
# One of each connector that has it.
OF_A_CONNECTOR = {"manifest.py", "checks.py"}


def test_the_page_names_files() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize("name", [name for name in NAMED if name not in HOME | OF_A_CONNECTOR])
def test_what_the_page_names_is_there(name: str) -> None:
    assert any((start / name).exists() for start in STARTS), name
