"""SIGKILL of a real process at each of its calls: one record for each packet, in each format."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.connectors import contract
from tests.contract.connectors.contract import Settings, write
from tests.contract.connectors.files import FORMATS, content, file_case, ids, put, settings

ROOT = Path(__file__).resolve().parents[3]


def killed_at(folder: Path, file_format: str, number: int) -> bool:
    """Whether the writer came to that call, where it was killed."""
    command = [sys.executable, "-m", "tests.contract.connectors.dying_writer"]
    arguments = [str(folder), file_format, str(number)]
    ended = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=dict(os.environ), check=False, timeout=60
    )
    assert ended.returncode in (0, -signal.SIGKILL)
    return ended.returncode != 0


def records(where: Settings) -> list[str]:
    """A line of jsonl that a kill tore is no record and stands alone (R18)."""
    if where["format"] == "jsonl":
        whole = [line for line in content(where).splitlines(keepends=True) if line[-2:] == b"}\n"]
        put(where, b"".join(whole))
    return ids(where)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.seed("O029")
@pytest.mark.parametrize("file_format", FORMATS)
async def test_a_killed_write_is_repeated_without_a_duplicate(
    file_format: str, tmp_path: Path
) -> None:
    calls = 0
    for number in range(1, 20):
        folder = tmp_path / str(number)
        folder.mkdir()
        where = settings(folder, file_format)
        before = file_case(file_format).build(folder)
        marks = contract.kept(await write(before, where, ("a", {"n": 1})))
        await before.close()
        was_killed = killed_at(folder, file_format, number)
        after = file_case(file_format).build(folder)
        await after.open(marks)
        units = [(key, {"n": 1}) for key in "bcd"]
        await write(after, where, *units, repeat="recovered")
        await after.close()
        assert sorted(records(where)) == list("abcd"), number
        if not was_killed:
            # It wrote all, and the journal does not know: the window that the seed speaks of.
            break
        calls += 1
    assert calls >= 2
