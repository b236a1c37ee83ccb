"""The checker over a real home and a pipeline that is written for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from pipo.clock import SystemClock
from pipo.errors import Conflict
from pipo.home import Home, registry, tokens
from pipo.home.config import Config
from pipo.rpc.server import serve
from pipo.rpc.stubs.checker_pb2 import Verdict, VerificationsReply
from pipo.service import ServiceShell
from pipo_checker.checker import Checker

if TYPE_CHECKING:
    from tests.unit.checker.conftest import FakeChecks, FakeConnectors, FakePipeline


@pytest.fixture
def shell(tmp_path: Path) -> ServiceShell:
    home = Home(tmp_path / "home")
    home.ensure()
    return ServiceShell("checker", "c1", home, Config(), SystemClock())


@pytest.fixture
async def checker(shell: ServiceShell, connectors: FakeConnectors) -> AsyncIterator[Checker]:
    made = Checker(shell, 0, connectors)
    await made.start()
    yield made
    await made.stop()
    await made.stop()


async def test_a_registered_pipeline_gets_its_verdicts(
    checker: Checker,
    shell: ServiceShell,
    pipeline: FakePipeline,
    checks: FakeChecks,
    entry: Callable[[int], registry.Entry],
    offer: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipo_checker.roster.READ_EVERY_S", 0.02)
    monkeypatch.setattr("pipo_checker.roster.READ_PAUSE_S", 0.01)
    checks.present.add("a")
    server = await serve(
        pipeline,
        bind="127.0.0.1",
        port=0,
        internal_token=tokens.internal_token(shell.home),
    )
    registry.write(shell.home, entry(server.port))
    await pipeline.hello()
    await pipeline.offers.put(VerificationsReply(verifications=[offer("a"), offer("b")]))
    (passed,) = await pipeline.verdicts(1)
    assert passed.outcome == Verdict.OUTCOME_PASSED
    async with aiohttp.ClientSession(f"http://{checker.http_address}") as session:
        health = await (await session.get("/healthz")).json()
        metrics = await (await session.get("/metrics")).text()
    assert (health["pipelines"], health["attached"], health["held"]) == (1, 1, 1)
    assert 'pipo_checker_verifications_held{pipeline="people"} 1.0' in metrics
    registry.remove(shell.home, "people")
    async with asyncio.timeout(60):
        await pipeline.ended.wait()
    await server.stop(0)


async def test_a_taken_port_refuses_the_start(checker: Checker, shell: ServiceShell) -> None:
    port = int(checker.http_address.rpartition(":")[2])
    second = Checker(shell, port)
    with pytest.raises(Conflict, match=f"127.0.0.1:{port} is taken"):
        await second.start()
    await second.stop()


async def test_stops_before_it_has_started(shell: ServiceShell) -> None:
    await Checker(shell, 0).stop()


async def test_a_roster_that_fails_ends_the_service(
    shell: ServiceShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(home: Home) -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr("pipo.home.registry.names", fail)
    made = Checker(shell, 0)
    await made.start()
    async with asyncio.timeout(60):
        await shell.stopping.wait()
    assert "this is a bug" in str(shell.error)
    await made.stop()
