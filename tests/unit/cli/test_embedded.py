"""The supervisor: it keeps children alive, hears them, and ends them in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.home.settings import Restart
from pipo_cli.embedded import Service, Supervisor, how
from tests.stack import wait_for

QUICK = Restart(backoff_s=0.01, max_backoff_s=0.02, stable_s=60.0)
WAITS = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); print('up', flush=True);"
FOREVER = WAITS + "signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
    "signal.pause(); signal.pause(); signal.pause()"
)


class Watch:
    """A supervisor over Python one-liners, and what it said and heard."""

    def __init__(self, *programs: str, stop_timeout_s: float = 10.0) -> None:
        self.said: list[str] = []
        self.heard: list[str] = []
        self.changed = asyncio.Event()
        self.supervisor = Supervisor(
            [Service(f"s{n}", (sys.executable, "-c", p)) for n, p in enumerate(programs)],
            environment=dict(os.environ),
            policy=QUICK,
            stop_timeout_s=stop_timeout_s,
            clock=SystemClock(),
            say=lambda line: self._note(self.said, line),
            heard=lambda kind, line: self._note(self.heard, f"{kind} {line}"),
        )
        self.task = asyncio.create_task(self.supervisor.run(), name="supervisor")

    def _note(self, where: list[str], line: str) -> None:
        where.append(line)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.changed.wait()
                self.changed.clear()


async def test_children_are_heard_and_stopped() -> None:
    watch = Watch(FOREVER, FOREVER)
    await watch.until(lambda: len(watch.heard) == 2)
    assert sorted(watch.heard) == ["s0 up", "s1 up"]
    assert sorted(watch.supervisor.pids()) == ["s0", "s1"]
    watch.supervisor.stop()
    await watch.task
    assert watch.said == []
    assert watch.supervisor.pids() == {}
    assert not watch.supervisor.first_exit.done()


async def test_a_child_that_ends_is_started_again() -> None:
    watch = Watch("exit(3)")
    await watch.until(lambda: len(watch.said) == 3)
    watch.supervisor.stop()
    await watch.task
    assert watch.said[0].startswith("the s0 ended with exit code 3; it starts again in 0.0s")
    assert watch.supervisor.first_exit.result() == ("s0", 3)


async def test_a_killed_child_is_started_again() -> None:
    watch = Watch(FOREVER)
    await watch.until(lambda: len(watch.heard) == 1)
    os.kill(watch.supervisor.pids()["s0"], signal.SIGKILL)
    await watch.until(lambda: len(watch.heard) == 2)
    assert "was killed by SIGKILL" in watch.said[0]
    watch.supervisor.stop()
    await watch.task


async def test_a_stop_during_the_wait_ends_it() -> None:
    watch = Watch("exit(1)")
    watch.supervisor._policy = Restart(backoff_s=30.0, max_backoff_s=30.0, stable_s=60.0)
    await watch.until(lambda: len(watch.said) == 1)
    watch.supervisor.stop()
    async with asyncio.timeout(60):
        await watch.task


async def test_a_child_that_will_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipo_cli.embedded.KILL_GRACE_S", 0.01)
    watch = Watch(STUBBORN, stop_timeout_s=0.01)
    await watch.until(lambda: len(watch.heard) == 1)
    watch.supervisor.stop()
    async with asyncio.timeout(60):
        await watch.task


async def test_hurry_cuts_the_wait_short(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(STUBBORN, stop_timeout_s=600)
    await watch.until(lambda: len(watch.heard) == 1)
    watch.supervisor.stop()
    monkeypatch.setattr("pipo_cli.embedded.KILL_GRACE_S", 0.01)
    watch.supervisor.hurry()
    async with asyncio.timeout(60):
        await watch.task


async def test_last_words_are_heard() -> None:
    watch = Watch("import sys; print('why', file=sys.stderr); exit(1)")
    await watch.until(lambda: bool(watch.said))
    assert watch.heard[0] == "s0 why"
    assert watch.supervisor.last_words("s0").startswith("why")
    watch.supervisor.stop()
    await watch.task


def test_children_see_the_end_of_a_killed_supervisor(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, sys
from pipo.clock import SystemClock
from pipo.home.settings import Restart
from pipo_cli.embedded import Service, Supervisor
async def main():
    child = f"import os; open({str(tmp_path / "up")!r}, 'w'); {{PARENT}}; open({str(tmp_path / "gone")!r}, 'w')"
    s = Supervisor([Service("x", (sys.executable, "-c", child))], environment=dict(os.environ),
        policy=Restart(), stop_timeout_s=1, clock=SystemClock(), say=print, heard=print)
    await s.run()
PARENT = "os.read(int(os.environ['PIPO_PARENT_FD']), 1)"
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_for((tmp_path / "up").exists)
        process.kill()
        process.wait(60)
        wait_for((tmp_path / "gone").exists)
    finally:
        process.kill()
        process.wait(60)


def test_the_supervisor_imports_neither_grpc_nor_aiohttp() -> None:
    program = (
        "import sys, pipo_cli.running, pipo_cli.foreground, pipo_cli.engine_process;"
        "print([m for m in ('grpc', 'aiohttp', 'google.protobuf', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with exit code 0"),
        (-9, "was killed by SIGKILL"),
        (-250, "was killed by signal 250"),
    ],
)
def test_how_it_ended(code: int, words: str) -> None:
    assert how(code) == words
