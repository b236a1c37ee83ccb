"""Claiming a home, waiting for the services, and what an end leaves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict, Unavailable
from pipo.home import Home, desired, engine, registry
from pipo.home.config import Config
from pipo.home.desired import Desired
from pipo.home.engine import Engine
from pipo.home.leases import Lease
from pipo.home.registry import Entry
from pipo_cli import stack
from pipo_cli.gateway import Gateway
from tests.stack import free_ports
from tests.unit.cli.fakes import http_gateway

CLOCK = SystemClock()


class Waiting:
    """A supervisor of which only the first exit is known."""

    def __init__(self) -> None:
        self.first_exit: asyncio.Future[tuple[str, int]] = (
            asyncio.get_running_loop().create_future()
        )

    def last_words(self, kind: str) -> str:
        return f"pipo-{kind}: no"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def health(**services: list[str]) -> dict[str, Any]:
    return {"GET /healthz": (200, {"service": "gateway", "services": services})}


async def test_one_stack_in_a_home(home: Home) -> None:
    config = Config(listen=free_ports())
    lease = await stack.claim(home, config, CLOCK)
    with pytest.raises(Conflict) as refused:
        await stack.claim(home, config, CLOCK)
    assert f"an engine runs already for {home.root} (pid {os.getpid()}" in refused.value.message
    assert "pipo start FILE" in refused.value.hint
    lease.release()
    (await stack.claim(home, config, CLOCK)).release()


async def test_a_taken_port_gives_the_home_back(home: Home) -> None:
    with http_gateway(health()) as url:
        config = Config(listen=int(url.rpartition(":")[2]))
        with pytest.raises(Conflict, match="is taken by the Pipo gateway"):
            await stack.claim(home, config, CLOCK)
    (await stack.claim(home, config, CLOCK)).release()


async def test_ready_means_all_three(home: Home) -> None:
    with http_gateway(health(runner=["embedded"], checker=["embedded"])) as url:
        config = Config(listen=int(url.rpartition(":")[2]))
        gateway = await stack.ready(home, config, Waiting(), CLOCK)  # type: ignore[arg-type]
        assert gateway == Gateway(url)


async def test_what_is_missing_is_named_with_its_log(home: Home) -> None:
    with http_gateway(health(runner=["embedded"], checker=["another"])) as url:
        config = Config(listen=int(url.rpartition(":")[2]), start_timeout_s=0.05)
        with pytest.raises(Unavailable, match=r"the checker did not come up within 0\.05s") as late:
            await stack.ready(home, config, Waiting(), CLOCK)  # type: ignore[arg-type]
        assert late.value.hint.endswith("logs/services/checker-embedded.log")


async def test_a_service_that_ends_is_told_at_once(home: Home) -> None:
    waiting = Waiting()
    waiting.first_exit.set_result(("runner", 1))
    with pytest.raises(Unavailable, match="exit code 1 while the stack started: pipo-runner: no"):
        await stack.ready(home, Config(), waiting, CLOCK)  # type: ignore[arg-type]


def test_the_services_inherit_the_decided_settings() -> None:
    config = Config(listen=9000, env_allow=("A",))
    made = stack.environment({"X": "1", "PIPO_LISTEN": "7"}, config, ("B", "A"))
    assert made == {"X": "1", "PIPO_LISTEN": "9000", "PIPO_ENV_ALLOW": "A,B"}
    assert stack.environment({}, Config()) == {"PIPO_LISTEN": "8787"}


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8787"),
        ("0.0.0.0", "http://127.0.0.1:8787"),
        ("::", "http://[::1]:8787"),
        ("::1", "http://[::1]:8787"),
    ],
)
def test_where_the_gateway_answers(home: Home, bind: str, url: str) -> None:
    assert stack.gateway_of(home, Config(bind=bind)).url == url


async def test_what_is_left_of_a_killed_engine_is_no_service_to_wait_for(home: Home) -> None:
    lease = Lease.acquire(engine.lease(home), clock=CLOCK)
    engine.write(home, Engine(1, "h", 1, 8787))
    lease.release()
    async with asyncio.timeout(5):
        (await stack.claim(home, Config(listen=free_ports()), CLOCK)).release()


def test_how_long_nobody_asked() -> None:
    routes = {"GET /healthz": (200, {"service": "gateway", "quiet_ms": 1500})}
    with http_gateway(routes) as url:
        assert stack.quiet_s(Gateway(url)) == 1.5
    assert stack.quiet_s(Gateway(f"http://127.0.0.1:{free_ports()}")) is None


def test_entries_of_crashed_pipelines_go(home: Home) -> None:
    """Edge 448."""
    held = []
    for name, state in (("a", "crashed"), ("b", "crashed"), ("c", "running")):
        files = home.pipeline(name)
        desired.write(files, Desired("running", "/x", state=state))
        registry.write(home, Entry(name, 1, 1, "h", "a:1", None, None, state, "", 1, "r", "/x", 0))
        if name == "b":
            held.append(Lease.acquire(files.lease, clock=CLOCK))
    stack.forget_crashed(home)
    assert [entry.pipeline for entry in registry.entries(home)] == ["b", "c"]
    assert [w.state for n in "abc" if (w := desired.read(home.pipeline(n)))] == [
        "crashed",
        "crashed",
        "running",
    ]
    held[0].release()
