"""`docker-compose up --scale runner=2`: pipelines are shared out, and move when a container dies.

The tests share one stack and build on each other, in the order they stand here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.load.careful_posts import Ledger, Tally, faults, send

from . import engine
from .test_compose import COUNT_ROWS, DATABASE, PATH, PIPELINE

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.timeout(3600)]

SIGNUPS = 4_000
CONNECTIONS = 16
# Beyond every time after which a host takes over; the paused one holds what it has.
PAUSED_S = 12.0
# A request that nobody answers for so long is a hang, however busy the machine is.
ANSWER_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def pair(stack: engine.Project) -> Iterator[engine.Project]:
    """The project with two runners, made anew; one again at the end."""
    stack.compose("down", "--timeout", "60")
    stack.up(runners=2)
    try:
        yield stack
    finally:
        stack.compose("down", "--timeout", "60")
        stack.up()


def inside(stack: engine.Project, *command: str) -> str:
    """What a command prints beside the pipelines: the gateway outlives every runner."""
    return stack.inside("gateway", *command)


def pipelines(stack: engine.Project) -> dict[str, dict[str, Any]]:
    """Every pipeline by name, as the API tells of it."""
    token = inside(stack, "cat", "/var/lib/pipo/admin.token").strip()
    found = stack.get("/api/pipelines", token)["pipelines"]
    return {one["name"]: one for one in found}


def running(stack: engine.Project) -> dict[str, str]:
    """The runner host of each pipeline that runs."""
    found = pipelines(stack)
    return {name: one["host_id"] for name, one in found.items() if one["state"] == "running"}


def hostname(container: str) -> str:
    """What a runner host in a container calls itself."""
    return engine.run(
        "docker", "inspect", "--format", "{{.Config.Hostname}}", container
    ).stdout.strip()


def host_of(stack: engine.Project, name: str) -> str:
    """The container whose runner host supervises a pipeline."""
    id = running(stack)[name]
    (found,) = (one for one in stack.containers("runner") if hostname(one) == id)
    return found


def rows(stack: engine.Project, prefix: str) -> dict[str, int]:
    shown = inside(stack, "python3", "-c", COUNT_ROWS, DATABASE, f"{prefix}%")
    found: dict[str, int] = json.loads(shown)
    return found


async def signups(stack: engine.Project, prefix: str, ledger: Ledger) -> Tally:
    return await send(
        (f"{prefix}-{number:05}@example.org" for number in range(SIGNUPS)),
        port=stack.ports[0],
        path=PATH,
        connections=CONNECTIONS,
        ledger=ledger,
        limit_s=900,
    )


def judge(stack: engine.Project, prefix: str, ledger: Ledger, tally: Tally) -> None:
    """Nothing acknowledged is lost and nothing doubled, once all is settled."""
    ledger.close()
    engine.wait_until(
        "nothing is pending",
        lambda: pipelines(stack)[PIPELINE]["stats"]["pending"] == 0,
        limit_s=300,
    )
    acknowledged = set(ledger.read())
    assert faults(acknowledged, tally.unknown, rows(stack, prefix)) == []
    assert len(acknowledged | tally.unknown) == SIGNUPS
    assert tally.without_retry_after == 0
    assert tally.slowest_s < ANSWER_WITHIN_S


def test_a_fresh_pair_shares_the_pipelines(pair: engine.Project) -> None:
    ids = {hostname(one) for one in pair.containers("runner")}

    def all_run() -> bool:
        found = {name: one["state"] for name, one in pipelines(pair).items()}
        # One that an earlier test stopped stays so; those of a container that is gone move yet.
        settled = PIPELINE in found and {*found.values()} - {"stopped"} == {"running"}
        return settled and {*running(pair).values()} <= ids

    engine.wait_until("all of them run here", all_run, limit_s=300)
    shares = [[*running(pair).values()].count(id) for id in ids]
    assert len(ids) == 2
    assert max(shares) - min(shares) <= 1, running(pair)


async def test_a_paused_runner_keeps_its_pipelines(pair: engine.Project, tmp_path: Path) -> None:
    container = await asyncio.to_thread(host_of, pair, PIPELINE)
    before = running(pair)
    ledger = Ledger(tmp_path / "ledger")

    async def pause() -> None:
        await ledger.reached(SIGNUPS // 5)
        await asyncio.to_thread(engine.run, "docker", "pause", container)
        try:
            until = time.monotonic() + PAUSED_S
            while time.monotonic() < until:
                seen = await asyncio.to_thread(pipelines, pair)
                assert {name: seen[name]["host_id"] for name in before} == before
                assert seen[PIPELINE]["state"] in ("running", "unreachable")
            assert seen[PIPELINE]["state"] == "unreachable"
        finally:
            await asyncio.to_thread(engine.run, "docker", "unpause", container)

    async with asyncio.TaskGroup() as group:
        load = group.create_task(signups(pair, "paused", ledger), name="load")
        group.create_task(pause(), name="pause")
    await asyncio.to_thread(judge, pair, "paused", ledger, load.result())
    assert running(pair) == before


async def test_the_pipelines_of_a_killed_runner_move_and_lose_nothing(
    pair: engine.Project, tmp_path: Path
) -> None:
    container = await asyncio.to_thread(host_of, pair, PIPELINE)
    (left,) = (one for one in pair.containers("runner") if one != container)
    names = running(pair).keys()
    ledger = Ledger(tmp_path / "ledger")

    async def kill() -> int:
        await ledger.reached(SIGNUPS // 5)
        await asyncio.to_thread(engine.run, "docker", "kill", container)
        return ledger.count

    async with asyncio.TaskGroup() as group:
        load = group.create_task(signups(pair, "killed", ledger), name="load")
        killed = group.create_task(kill(), name="kill")
    assert killed.result() < SIGNUPS, "the load was over before the container was"
    assert load.result().refused > 0, "the death was not noticed"
    await asyncio.to_thread(judge, pair, "killed", ledger, load.result())
    engine.wait_until("all of them run", lambda: running(pair).keys() == names, limit_s=300)
    assert set(running(pair).values()) == {hostname(left)}
