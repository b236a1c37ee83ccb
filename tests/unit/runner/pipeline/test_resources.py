"""What a pipeline's process takes, read from a folder that looks like /proc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pipo_runner.pipeline.resources import Resources, taken
from tests.stack import BARE_PYTHON
from tests.unit.runner.pipeline.rig import FakeClock

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def stat(pid: int, *, ticks: int, pages: int, name: str = "pipo") -> str:
    fields = ["0"] * 50
    fields[11:15] = [str(ticks), "0", "0", "0"]
    fields[21] = str(pages)
    return f"{pid} ({name}) " + " ".join(fields)


def process(
    proc: Path, pid: int, *, ticks: int, pages: int = 1, below: tuple[int, ...] = ()
) -> None:
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    (task / "children").write_text(" ".join(map(str, below)))
    (proc / str(pid) / "stat").write_text(stat(pid, ticks=ticks, pages=pages))


def test_the_name_of_a_process_may_hold_anything() -> None:
    found = taken(stat(7, ticks=3 * TICKS, pages=2, name="a) 1 (b"))
    assert (found.cpu_s, found.rss, found.procs) == (3.0, 2 * PAGE, 1)


def test_helpers_and_their_programs_count(tmp_path: Path) -> None:
    clock = FakeClock()
    process(tmp_path, 7, ticks=0, pages=10, below=(8, 9))
    process(tmp_path, 8, ticks=0, pages=1, below=(10,))
    process(tmp_path, 10, ticks=0, pages=2)
    # 9 ended between the list and the look.
    made = Resources(7, clock=clock, proc=tmp_path)
    found = made.message()
    assert (found.procs, found.rss, found.cpu) == (3, 13 * PAGE, 0.0)


def test_a_share_is_of_the_time_since_the_last_look(tmp_path: Path) -> None:
    clock = FakeClock()
    made = Resources(7, clock=clock, proc=tmp_path)
    process(tmp_path, 7, ticks=2 * TICKS)
    clock.passed_s = 4.0
    assert made.message().cpu == pytest.approx(50.0)
    process(tmp_path, 7, ticks=3 * TICKS)
    # Too soon to tell: what was told last.
    clock.passed_s = 4.5
    assert made.message().cpu == pytest.approx(50.0)
    clock.passed_s = 14.0
    assert made.message().cpu == pytest.approx(10.0)
    process(tmp_path, 7, ticks=TICKS)
    clock.passed_s = 20.0
    assert made.message().cpu == 0.0


def test_a_real_process_with_a_child() -> None:
    program = (
        "import subprocess, sys; child = subprocess.Popen(['cat'], stdin=subprocess.PIPE);"
        "print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [*BARE_PYTHON, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        found = Resources(parent.pid).message()
        assert parent.stdin is not None
        parent.stdin.close()
    assert found.procs == 2
    assert found.rss > 1_000_000
