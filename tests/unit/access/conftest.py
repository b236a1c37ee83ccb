from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pipo.access import Access
from pipo.home import Home
from pipo.home.config import Config

# The journal is written by another process: one process never opens a file with two libraries.
WRITER = """
import asyncio, sys
from pathlib import Path
from pipo.clock import SystemClock
from pipo.journal.changes import Accepted, Delivered, Started, VersionAdded, Written
from pipo.journal.sqlite_journal import SqliteJournal

async def main():
    clock = SystemClock()
    journal = SqliteJournal.open(Path(sys.argv[1]), pipeline="old", clock=clock)
    await journal.commit(VersionAdded(1, sys.argv[2], b"{}", {}, "h", "me", "person", "first", 1))
    await journal.commit(Started(1, 0, 2))
    await journal.recover()
    for number in range(3):
        unit = f"01PACKET{number}"
        await journal.commit(
            Accepted(unit, 1, "input", "push", "api", b'{"n":12345678901234567890}', "$output",
                     number, 10 + number, {}),
        )
    await journal.close(clean=True)

asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def journaled(home: Home) -> Home:
    """A home with the stopped pipeline `old`: three accepted packets."""
    return journal_of(home, "pipo: 1")


def journal_of(home: Home, source: str) -> Home:
    """The home with the journal of `old`, whose version has that text."""
    home.pipeline("old").ensure()
    command = [sys.executable, "-c", WRITER, str(home.pipeline("old").folder), source]
    subprocess.run(command, check=True, timeout=60)
    return home


@pytest_asyncio.fixture
async def access(home: Home) -> AsyncIterator[Access]:
    made = Access(home, Config())
    yield made
    await made.close()
