"""The background engine's four ends."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict
from pipo.home import Home, desired, engine, registry
from pipo.home.config import Config
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.registry import Entry
from pipo_cli import background, draining, engine_process
from pipo_cli.gateway import Gateway
from tests.stack import soon
from tests.unit.cli.fakes import http_gateway

CLOCK = SystemClock()
QUICK = Config(idle_s=0.02)


class AnyLife:
    """An engine's life that ends when the test says so."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.over_: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stopping(self) -> None:
        self.said.append("stopping")

    def going_on(self) -> None:
        self.said.append("going on")

    async def over(self) -> str:
        return await asyncio.shield(self.over_)


class Home_:
    """A home, and a gateway whose pipeline `x` ends when it is told to."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.home.ensure()
        self.quiet_ms: list[int] = [10**6]
        self.seen: list[tuple[str, str, bytes, str]] = []
        self.held: list[Lease] = []
        self.state = "running"
        self.drains = True
        self.url = ""

    def routes(self) -> dict[str, Any]:
        return {
            "GET /healthz": self._health,
            "POST /api/pipelines/x/stop": self._stop,
            "GET /api/pipelines/x": lambda: (200, {"state": self.state}),
        }

    def runs(self, **options: Any) -> None:
        files = self.home.pipeline("x")
        desired.write(files, Desired("running", "/x.pipo", options, state="running"))
        self.held = [Lease.acquire(path, clock=CLOCK) for path in (files.claim, files.lease)]

    def ends(self) -> None:
        desired.write(self.home.pipeline("x"), Desired("stopped", "/x.pipo", state="stopped"))
        for lease in self.held:
            lease.release()
        self.state = "stopped"

    def _stop(self) -> tuple[int, Any]:
        if self.drains:
            self.ends()
        return 200, {"state": "draining"}

    def _health(self) -> tuple[int, Any]:
        left = self.quiet_ms
        return 200, {
            "service": "gateway",
            "quiet_ms": left.pop(0) if len(left) > 1 else left[0],
        }

    def asked(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.seen]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home_]:
    monkeypatch.setattr(draining, "POLL_S", 0.005)
    made = Home_(tmp_path / "home")
    with http_gateway(made.routes(), made.seen) as url:
        made.url = url
        yield made
    for lease in made.held:
        lease.release()


async def until_over(there: Home_, life: AnyLife, signalled: asyncio.Event, config: Config) -> None:
    async with asyncio.timeout(60):
        await engine_process._until_over(
            there.home,
            config,
            life,  # type: ignore[arg-type]
            Gateway(there.url),
            signalled,
            CLOCK,
        )


@pytest.mark.parametrize("why", ["asked", "ttl"])
async def test_asked_and_ttl_drain(
    there: Home_, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """L025, edge 449."""
    life = AnyLife()
    there.runs()
    life.over_.set_result(why)
    await until_over(there, life, asyncio.Event(), Config(ttl_s=3))
    assert life.said == ["stopping"]
    assert there.asked()[0] == "POST /api/pipelines/x/stop"
    assert there.state == "stopped"
    assert "the pipelines drain" in capfd.readouterr().err


class FullDisk(io.StringIO):
    """A file that nothing can be written to."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_log_on_a_full_disk_ends_nothing(
    there: Home_, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a service or the engine has to say is lost; the pipelines drain all the same."""
    monkeypatch.setattr(sys, "stderr", FullDisk())
    life = AnyLife()
    there.runs()
    life.over_.set_result("asked")
    engine_process._service_said("runner", "level=error message=full")
    await until_over(there, life, asyncio.Event(), Config())
    assert there.state == "stopped"


async def test_what_is_just_starting_is_waited_for_and_drained(there: Home_) -> None:
    """Edge 445: its host holds the claim, and its process is not there yet."""
    life = AnyLife()
    there.home.pipeline("x").ensure()
    there.held = [Lease.acquire(there.home.pipeline("x").claim, clock=CLOCK)]
    there.state = "stopped"
    there.drains = False
    life.over_.set_result("asked")
    ending = asyncio.create_task(until_over(there, life, asyncio.Event(), Config()))
    while there.asked().count("POST /api/pipelines/x/stop") < 3:  # noqa: ASYNC110 - on a thread
        await asyncio.sleep(0.005)
    assert not ending.done()
    there.ends()
    await ending


async def test_detached_pipelines_stay(there: Home_) -> None:
    """L026."""
    life = AnyLife()
    there.runs(detached=True)
    life.over_.set_result("ttl")
    await until_over(there, life, asyncio.Event(), Config(ttl_s=3))
    assert there.asked() == []


async def test_a_signal_suspends_and_cuts_a_drain_short(there: Home_) -> None:
    life, signalled = AnyLife(), asyncio.Event()
    there.runs()
    there.drains = False
    life.over_.set_result("asked")
    ending = asyncio.create_task(until_over(there, life, signalled, Config()))
    await soon(there.asked)
    signalled.set()
    await ending
    assert there.state == "running"

    await until_over(there, AnyLife(), signalled, Config())
    assert there.asked().count("POST /api/pipelines/x/stop") == 1


async def test_it_sleeps_when_nothing_runs(there: Home_, capfd: pytest.CaptureFixture[str]) -> None:
    """Edge 448, with what crashed pipelines left."""
    life = AnyLife()
    desired.write(there.home.pipeline("x"), Desired("running", "/x", state="crashed"))
    left = Entry("x", 1, 1, "h", "a:1", None, None, "crashed", "", 1, "r", "/x", 0)
    registry.write(there.home, left)
    await until_over(there, life, asyncio.Event(), QUICK)
    assert life.said == ["stopping"]
    assert registry.entries(there.home) == []
    assert "nothing to do for 0.02s" in capfd.readouterr().err


@pytest.mark.parametrize("options", [{}, {"detached": True}])
async def test_a_running_pipeline_keeps_it_up(there: Home_, options: dict[str, Any]) -> None:
    """Edge 448: paused, idle or detached, it runs."""
    there.runs(**options)
    life = AnyLife()
    waiting = asyncio.create_task(until_over(there, life, asyncio.Event(), QUICK))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert there.asked() == []
    there.ends()
    await waiting


async def test_somebody_who_asks_keeps_it_awake(there: Home_) -> None:
    """Edge 436: three looks find a request, then none for long."""
    there.quiet_ms = [0, 5, 0, 10**6]
    await until_over(there, AnyLife(), asyncio.Event(), QUICK)
    assert there.asked() == ["GET /healthz"] * 4


async def test_a_start_that_is_quicker_than_its_sleep(
    there: Home_, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = AnyLife()
    monkeypatch.setattr(engine, "busy", lambda home: life.said == ["stopping"])
    await until_over(there, life, asyncio.Event(), QUICK)
    assert life.said == ["stopping", "going on", "stopping"]


async def test_the_starter_hears_why_it_does_not_come_up(there: Home_) -> None:
    lease = Lease.acquire(engine.lease(there.home), clock=CLOCK)
    ours, theirs = os.pipe()
    with pytest.raises(Conflict):
        await engine_process.serve(there.home, Config(), theirs, CLOCK)
    said = background._heard(ours, 1)
    os.close(ours)
    lease.release()
    assert said["code"] == "conflict"
    assert said["error"].startswith(f"an engine runs already for {there.home.root}")
