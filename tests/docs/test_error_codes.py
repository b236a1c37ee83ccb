"""The page on recovering names every code that a packet's error may have."""

from __future__ import annotations

import re
from pathlib import Path

from pipo.journal.states import CODES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recovering.md"
# It comes with agent nodes.
UNBUILT = {"budget.packet"}


def test_the_table_of_codes_is_complete() -> None:
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| code | ")
    table, _, _ = table.partition("\n\n")
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert sorted(re.findall(r"`([a-z._]+)`", "".join(cells))) == sorted(set(CODES) - UNBUILT)
