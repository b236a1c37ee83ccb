"""Bringing the background stack up, and its end for want of work."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict, Unavailable
from pipo.home import Home, desired
from pipo.home.config import Config
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo_cli import background, stack

CLOCK = SystemClock()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def speaks(monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    """The stack is a shell that says `words` on the starter's pipe."""
    left = iter(programs)
    monkeypatch.setattr(
        background,
        "_command",
        lambda home, fd: ["sh", "-c", next(left).replace("PIPE", f"/dev/fd/{fd}")],
    )


def line(**words: str) -> str:
    return f"echo '{json.dumps(words)}' > PIPE"


def test_it_answers_with_the_address(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, line(url="http://127.0.0.1:1"))
    assert background.bring_up(home, Config()) == "http://127.0.0.1:1"


def test_its_refusal_comes_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, line(error="port 1 is taken", hint="move", code="conflict"))
    with pytest.raises(Conflict, match="port 1 is taken") as refused:
        background.bring_up(home, Config())
    assert refused.value.hint == "move"


def test_a_stack_that_says_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, "echo broken; exit 1")
    with pytest.raises(Unavailable, match="did not come up") as refused:
        background.bring_up(home, Config())
    log = home.service_logs / "stack.log"
    assert str(log) in refused.value.hint
    assert log.read_text() == "broken\n"


def test_a_stack_that_somebody_else_starts_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LOOK_EVERY_S", 0.001)
    lease = Lease.acquire(home.services / stack.LEASE, clock=CLOCK)
    answers = iter([False, False, True])
    assert background.ensure(home, Config(), answers=lambda: next(answers), clock=CLOCK) is None
    lease.release()


def test_a_stack_that_never_answers(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(background, "SPARE_S", 0.01)
    lease = Lease.acquire(home.services / stack.LEASE, clock=CLOCK)
    with pytest.raises(Unavailable, match="its gateway does not answer"):
        background.ensure(home, Config(start_timeout_s=0), answers=lambda: False, clock=CLOCK)
    lease.release()


def test_a_taken_port_is_not_waited_for(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    speaks(monkeypatch, line(error="port 1 is taken", hint="", code="conflict"))
    with pytest.raises(Conflict, match="port 1 is taken"):
        background.ensure(home, Config(), answers=lambda: False, clock=CLOCK)


async def test_it_ends_when_nothing_runs(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    desired.write(home.pipeline("x"), Desired("stopped", "/x.pipo", state="stopped"))
    async with asyncio.timeout(60):
        await background._until_idle(home, Config(idle_s=0.02), asyncio.Event(), CLOCK)
    assert "nothing to do for 0.02s" in capfd.readouterr().err


async def test_a_running_pipeline_keeps_it_up(home: Home) -> None:
    desired.write(home.pipeline("x"), Desired("running", "/x.pipo", state="running"))
    ended = asyncio.Event()
    waiting = asyncio.create_task(
        background._until_idle(home, Config(idle_s=0.01), ended, CLOCK), name="idle"
    )
    await asyncio.sleep(0.05)
    assert not waiting.done()
    ended.set()
    async with asyncio.timeout(60):
        await waiting


async def test_the_starter_hears_why_it_does_not_come_up(home: Home) -> None:
    lease = Lease.acquire(home.services / stack.LEASE, clock=CLOCK)
    ours, theirs = os.pipe()
    with pytest.raises(Conflict):
        await background.serve(home, Config(), theirs, CLOCK)
    said = background._heard(ours, 1)
    os.close(ours)
    lease.release()
    assert said["code"] == "conflict"
    assert said["error"].startswith(f"a stack runs already for {home.root}")
