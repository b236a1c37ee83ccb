"""A forkserver that knows only the fake pipeline, and surroundings around it."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.errors import NotFound, Unavailable
from pipo.home import Home, PipelineHome, desired, registry
from pipo.home.config import Config, Restart
from pipo.home.sent import Sent, file_of, was_sent
from pipo_runner.host.policy import Ending
from pipo_runner.host.spawning import ForkServer
from pipo_runner.host.surroundings import Surroundings, Target
from tests.stack import soon

FAKE = "tests.unit.runner.host.fake_pipeline"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    before = os.umask(0o022)
    home = Home(tmp_path)
    home.ensure()
    os.umask(before)
    return home


@pytest.fixture
async def forkserver() -> AsyncIterator[ForkServer]:
    server = ForkServer(preload=[FAKE])
    await server.start()
    yield server
    await server.stop()


@dataclass
class FakeCalls:
    """Stops a fake pipeline by a signal, as gRPC would by a call."""

    home: Home
    silent: bool = False
    already: bool = False
    idle: bool = False
    """It answers, and drains on and on."""
    restarted: list[str] = field(default_factory=list)
    asked: list[tuple[str, bool]] = field(default_factory=list)

    async def stop(self, address: str, pipeline: str, *, now: bool) -> bool:
        self.asked.append((pipeline, now))
        if self.silent:
            raise Unavailable(f"{pipeline} does not answer")
        entry = registry.read(self.home, pipeline)
        assert entry is not None
        os.kill(entry.pid, 10)
        return self.already

    async def restart(self, address: str, pipeline: str) -> None:
        self.restarted.append(pipeline)
        if self.silent:
            raise Unavailable(f"{pipeline} does not answer")
        entry = registry.read(self.home, pipeline)
        assert entry is not None
        if not self.idle:
            os.kill(entry.pid, signal.SIGUSR2)

    async def answers(self, address: str, pipeline: str) -> bool:
        return not self.silent


class QuickClock(SystemClock):
    def jitter(self, span_s: float) -> float:
        return 0.0


async def last_word(files: PipelineHome, since_ms: int) -> Ending | None:
    """The note that the fake pipeline left; taken away, since it is of one run."""
    note = files.folder / "ending"
    if not note.exists():
        return None
    kind, _, reason = note.read_text().partition(" ")
    note.unlink()
    return Ending(kind, reason)


@pytest.fixture
def calls(home: Home) -> FakeCalls:
    return FakeCalls(home)


Make = Callable[..., Surroundings]


@pytest.fixture
def make(home: Home, forkserver: ForkServer, calls: FakeCalls) -> Make:
    def surroundings(**changes: Any) -> Surroundings:
        def resolve(target: str | Sent) -> Target:
            """Every pipeline but `deaf` takes requests; a text of its own is words, too."""
            if isinstance(target, Sent):
                kept = file_of(home.pipeline(target.name), target)
                return Target(target.name, str(kept), True, 8000, target)
            wish = desired.read(home.pipeline(target))
            file = home.root / f"{target}.pipo"
            if wish is not None and was_sent(home, Path(wish.file)):
                file = Path(wish.file)
            if not file.exists():
                raise NotFound(f"there is no file {file}")
            return Target(target, str(file), target != "deaf", 8000)

        settings = {
            "home": home,
            "runner_id": "here",
            "config": Config(
                start_timeout_s=60.0,
                stop_timeout_s=30.0,
                restart=Restart(backoff_s=0.01, max_backoff_s=0.02, max_restarts=3),
            ),
            "clock": QuickClock(),
            "environ": {"PATH": os.environ["PATH"]},
            "spawn": forkserver.spawn,
            "calls": calls,
            "last_word": last_word,
            "resolve": resolve,
            "drain_s": lambda file: 5.0,
            "entry": f"{FAKE}:run",
            "epitaph_entry": f"{FAKE}:bury",
        }
        return Surroundings(**(settings | changes))  # type: ignore[arg-type]

    return surroundings


Waiting = Callable[..., Awaitable[None]]


@pytest.fixture
def eventually() -> Waiting:
    return soon
