"""The journal's word on an ended run, read from real journals."""

import os
import subprocess
import sys

import pytest

from pipo.clock import SystemClock
from pipo.home import Home, PipelineHome
from pipo.journal.changes import Completed, Failed, Started, Stopped
from pipo_runner.host.last_word import last_word
from pipo_runner.host.policy import Ending

# A child each: this process reads with another SQLite library (design §5).
CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from pipo.clock import SystemClock
from pipo.journal.changes import Completed, Failed, Started, Stopped
from pipo.journal.sqlite_journal import SqliteJournal

async def main():
    journal = SqliteJournal.open(Path(sys.argv[1]), pipeline="p", clock=SystemClock())
    await journal.recover()
    for text in sys.argv[2:]:
        await journal.commit(eval(text))
    if "Started" in sys.argv[-1]:
        os.kill(os.getpid(), signal.SIGKILL)
    await journal.close(clean=True)

asyncio.run(main())
"""


@pytest.fixture
def files(home: Home) -> PipelineHome:
    files = home.pipeline("p")
    files.ensure()
    return files


def journal(files: PipelineHome, *changes: object) -> None:
    subprocess.run(
        [sys.executable, "-c", CHILD, str(files.folder), *map(repr, changes)],
        check="Started" not in repr(changes[-1]),
        timeout=60,
    )


async def test_no_journal_no_word(files: PipelineHome) -> None:
    assert await last_word(files, 0) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "ending"),
    [
        (Stopped("stop", 20), Ending("stopped", "stop")),
        (Stopped("shutdown", 20), Ending("stopped", "shutdown")),
        (Completed("ttl", 20), Ending("completed", "ttl")),
        (Failed("halted at out", 20), Ending("failed", "halted at out")),
    ],
)
async def test_an_orderly_end_has_its_word(
    files: PipelineHome, change: object, ending: Ending
) -> None:
    journal(files, Started(1, 0, 10), change)
    assert await last_word(files, 15) == ending
    assert await last_word(files, 21) is None


@pytest.mark.slow
async def test_a_crash_leaves_none_and_its_lost_log_stays_lost(files: PipelineHome) -> None:
    journal(files, Started(1, 0, 10), Stopped("stop", 20), Started(1, 0, 30))
    assert await last_word(files, 0) is None
    os.unlink(f"{files.journal}-wal")
    assert await last_word(files, 0) is None
    assert "journal.db-wal" not in os.listdir(files.folder)


async def test_a_file_that_is_no_journal_has_none(files: PipelineHome) -> None:
    files.journal.write_bytes(b"nonsense" * 1000)
    (files.folder / "journal.db-wal").touch()
    assert await last_word(files, SystemClock().now_ms()) is None
