"""Journals for the tests beside this file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.journal.changes import Started
from pipo.journal.sqlite_journal import SqliteJournal
from tests.unit.journal.packets import AT, version


def open_quick(folder: Path, **given: object) -> SqliteJournal:
    """A journal that does not wait for the disk."""
    folder.mkdir(exist_ok=True)
    settings = {"pipeline": "people", "clock": SystemClock(), "synchronous": "OFF"} | given
    return SqliteJournal.open(folder, **settings)  # type: ignore[arg-type]


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """A fresh journal without a version."""
    journal = open_quick(tmp_path)
    yield journal
    await journal.close(clean=True)


@pytest.fixture
async def journal(empty: SqliteJournal) -> SqliteJournal:
    """A fresh journal of one started version."""
    await empty.commit(version(), Started(1, 0, AT))
    return empty
