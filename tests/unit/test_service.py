"""The shell of the services, in this process; `tests/unit/checker/test_process.py` has the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pipo import service
from pipo.clock import SystemClock
from pipo.errors import BadRequest, Conflict, Internal
from pipo.home import Home, registry, standing
from pipo.home.config import Config
from pipo.home.leases import Lease
from pipo.service import ServiceShell, run_service
from tests.stack import soon

Serve = Callable[..., Coroutine[Any, Any, int]]


class FakeService:
    """Stops when `gate` opens."""

    address = "127.0.0.1:1"
    http_address = "127.0.0.1:2"

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.ready = asyncio.Event()
        self.stops = 0
        self.shell: ServiceShell | None = None

    async def start(self, shell: ServiceShell) -> FakeService:
        self.shell = shell
        self.ready.set()
        return self

    async def stop(self) -> None:
        self.stops += 1
        await self.gate.wait()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.services.mkdir(parents=True)
    return made


@pytest.fixture
def serve(home: Home) -> Serve:
    async def run(start: Any, **settings: Any) -> int:
        return await run_service("checker", "c1", home, Config(), start, **settings)

    return run


async def listed(home: Home) -> registry.ServiceEntry:
    """The service's entry once it has its addresses."""
    await soon(lambda: [e for e in registry.services(home) if e.http_address])
    return registry.services(home)[0]


async def test_an_entry_that_somebody_damaged_stands_again(
    serve: Serve, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "LOOK_S", 0.001)
    made = FakeService()
    running = asyncio.create_task(serve(made.start))
    found = await listed(home)
    (home.services / "checker-c1.json").write_text("null")
    assert await listed(home) == found
    assert made.shell is not None
    made.shell.end("test")
    assert await running == 0


@pytest.mark.parametrize("number", service.SIGNALS)
async def test_the_first_signal_ends_it_and_takes_its_entry(
    serve: Serve, home: Home, number: signal.Signals
) -> None:
    running = asyncio.create_task(serve(FakeService().start))
    found = await listed(home)
    assert (found.kind, found.id, found.address) == ("checker", "c1", "127.0.0.1:1")
    assert registry.service_lives(home, found)
    os.kill(os.getpid(), number)
    assert await running == 0
    assert registry.service_entries(home) == []
    assert list(home.services.iterdir()) == []


async def test_a_signal_that_came_before_the_handlers_counts(serve: Serve, home: Home) -> None:
    """As PID 1's import time: the container's entry blocks the signals until somebody listens."""
    signal.pthread_sigmask(signal.SIG_BLOCK, service.SIGNALS)
    # To this thread: those that gRPC left from other tests do not block it.
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    made = FakeService()
    assert await serve(made.start) == 0
    assert made.shell is None or made.stops == 1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(service.SIGNALS) == set()


async def test_nobody_finds_a_service_that_is_stopping(serve: Serve, home: Home) -> None:
    made = FakeService()
    made.gate.clear()
    running = asyncio.create_task(serve(made.start))
    await listed(home)
    assert made.shell is not None
    made.shell.end("test")
    await soon(lambda: made.stops)
    (entry,) = registry.service_entries(home)
    assert (entry.address, entry.http_address) == ("", "")
    assert registry.service_lives(home, entry)
    made.gate.set()
    assert await running == 0


async def test_a_second_signal_cuts_the_stop_short(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "HURRY_S", 0.01)
    made = FakeService()
    made.gate.clear()
    running = asyncio.create_task(serve(made.start, stop_timeout_s=30))
    await made.ready.wait()
    assert made.shell is not None
    made.shell.end("SIGTERM")
    made.shell.end("SIGTERM")
    async with asyncio.timeout(60):
        assert await running == 0


async def test_a_stop_that_takes_too_long_is_cut_and_exits_with_1(serve: Serve) -> None:
    made = FakeService()
    made.gate.clear()
    running = asyncio.create_task(serve(made.start, stop_timeout_s=0.01))
    await made.ready.wait()
    assert made.shell is not None
    made.shell.end("SIGTERM")
    assert await running == 1


async def test_a_service_that_cannot_go_on_exits_with_1(serve: Serve, home: Home) -> None:
    made = FakeService()
    running = asyncio.create_task(serve(made.start))
    await listed(home)
    assert made.shell is not None
    made.shell.fail(Internal("the roster failed"))
    assert await running == 1
    assert made.stops == 1


async def test_an_end_during_the_start_cancels_the_start(serve: Serve, home: Home) -> None:
    cancelled = asyncio.Event()

    async def start(shell: ServiceShell) -> Any:
        shell.end("SIGTERM")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    assert await serve(start) == 0
    assert cancelled.is_set()
    assert list(home.services.iterdir()) == []


async def test_nobody_finds_the_address_of_a_killed_one_while_the_next_starts(
    serve: Serve, home: Home
) -> None:
    left = registry.ServiceEntry("checker", "c1", 1, "gone", "127.0.0.1:9", "127.0.0.1:10", 0)
    registry.write_service(home, left)
    found: list[registry.ServiceEntry] = []

    async def start(shell: ServiceShell) -> FakeService:
        found.extend(registry.services(home))
        shell.end("seen")
        return FakeService()

    assert await serve(start) == 0
    assert found == []


async def test_an_error_of_the_start_is_the_callers(serve: Serve, home: Home) -> None:
    async def start(shell: ServiceShell) -> Any:
        raise Conflict("the port is taken")

    with pytest.raises(Conflict):
        await serve(start)
    assert list(home.services.iterdir()) == []


class HastyClock(SystemClock):
    """Every look at it is a minute later."""

    def __init__(self) -> None:
        self._minutes = 0

    def monotonic(self) -> float:
        self._minutes += 1
        return self._minutes * 60.0


async def test_two_of_one_name_never_run(serve: Serve, home: Home) -> None:
    lease = Lease.acquire(registry.service_lease(home, "checker", "c1"), clock=SystemClock())
    with pytest.raises(Conflict, match=str(os.getpid())):
        await serve(FakeService().start, clock=HastyClock())
    lease.release()


async def test_the_end_of_the_supervisor_ends_the_service(
    serve: Serve, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.pipe()
    monkeypatch.setenv(service.PARENT_FD, str(ours))
    running = asyncio.create_task(serve(FakeService().start))
    await listed(home)
    assert service.PARENT_FD not in os.environ
    os.close(theirs)
    assert await running == 0
    os.close(ours)


async def test_a_descriptor_that_is_not_open_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(service.PARENT_FD, "999")
    with pytest.raises(BadRequest, match="PIPO_PARENT_FD=999 is not an open descriptor"):
        await serve(FakeService().start)


@pytest.mark.parametrize(
    ("bind", "address"), [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("h", "h:80")]
)
def test_an_address_is_what_others_dial(home: Home, bind: str, address: str) -> None:
    shell = ServiceShell("checker", "c1", home, Config(bind=bind), SystemClock())
    assert shell.dialable(80) == address
