"""The checker that detached pipelines keep (design §2)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.home import Home, desired, registry
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.registry import ServiceEntry
from pipo_checker import staying
from tests.stack import wait_for
from tests.unit.cli.fakes import HandClock

CLOCK = SystemClock()
COMMAND = [sys.executable, "-m", "pipo_checker.main", "--id", "embedded"]


class Rising(HandClock):
    """A second passes from look to look."""

    def monotonic(self) -> float:
        self.at_s += 1
        return self.at_s


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def detached(home: Home) -> Iterator[Lease]:
    """A pipeline that is alive and detached."""
    files = home.pipeline("p")
    desired.write(files, Desired("running", "/p.pipo", {"detached": True}, state="running"))
    lease = Lease.acquire(files.lease, clock=CLOCK)
    yield lease
    lease.release()


def serving(home: Home, id: str) -> ServiceEntry | None:
    found = [s for s in registry.services(home, "checker") if s.id == id and s.http_address]
    return found[0] if found else None


def test_it_is_needed_until_nothing_is_detached(home: Home, detached: Lease) -> None:
    assert staying.why_done(home) == ""
    detached.release()
    assert staying.why_done(home) == "no detached pipeline is left"


def test_it_makes_room_for_a_new_engines_checker(home: Home, detached: Lease) -> None:
    lease = Lease.acquire(registry.service_lease(home, "checker", "embedded"), clock=CLOCK)
    registry.write_service(home, ServiceEntry("checker", "embedded", 1, "h", "", "", 1))
    assert staying.why_done(home) == ""
    registry.write_service(home, ServiceEntry("checker", "embedded", 1, "h", "", "h:1", 1))
    assert staying.why_done(home) == "the engine has a checker again"
    lease.release()
    assert staying.why_done(home) == ""


def test_it_waits_for_a_predecessor_for_longer_than_a_look(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    staying.await_turn(home, CLOCK)
    lease = Lease.acquire(registry.service_lease(home, "checker", staying.ID), clock=CLOCK)
    clock = Rising()
    monkeypatch.setattr(staying, "_POLL_S", 0.0)
    staying.await_turn(home, clock)
    assert clock.at_s >= staying.PREDECESSOR_S > 2 * staying.LOOK_EVERY_S
    lease.release()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["the supervisor dies", "a stop"])
def test_a_successor_serves_what_is_detached(home: Home, detached: Lease, end: str) -> None:
    ours, theirs = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "--home", str(home.root)],
        env={**os.environ, "PIPO_PARENT_FD": str(ours)},
        pass_fds=[ours],
    )
    os.close(ours)
    try:
        wait_for(lambda: serving(home, "embedded"))
        if end == "a stop":
            process.terminate()
        else:
            os.close(theirs)
        assert process.wait(timeout=60) == 0
        stays = wait_for(lambda: serving(home, staying.ID))
        assert stays.pid != process.pid
        assert os.getsid(stays.pid) == stays.pid
        detached.release()
        wait_for(lambda: registry.service_entries(home, "checker") == [])
        log = (home.service_logs / "checker-staying.log").read_text()
        assert 'reason="no detached pipeline is left"' in log
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_nobody_stays_where_nothing_is_detached(home: Home, detached: Lease) -> None:
    """Nor after a checker of its own, as in a container."""
    detached.release()
    for env, pipe in ((True, os.pipe()), (False, os.pipe())):
        if not env:
            again = Lease.acquire(home.pipeline("p").lease, clock=CLOCK)
        more = {"PIPO_PARENT_FD": str(pipe[0])} if env else {}
        process = subprocess.Popen(
            [*COMMAND, "--home", str(home.root), "--http-port", "0"],
            env={**os.environ, **more},
            pass_fds=[pipe[0]],
            stderr=subprocess.DEVNULL,
        )
        os.close(pipe[0])
        wait_for(lambda: serving(home, "embedded"))
        process.terminate()
        assert process.wait(timeout=60) == 0
        os.close(pipe[1])
        assert registry.service_entries(home, "checker") == []
        assert not (home.service_logs / "checker-staying.log").exists()
    again.release()
