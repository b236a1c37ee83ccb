"""A listing in which some pipelines are dead, frozen or on their way: quick, and it says which."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pipo.access import Access, listing
from pipo.clock import SystemClock
from pipo.home import Home, desired, registry
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2
from tests.unit.gateway.fake_pipeline import FakePipeline

# More than are asked at once would take several times as long, one after the other.
FROZEN = 12
# What a busy machine takes for the one that is well.
LIMIT_S = 3.0


class Pipeline(FakePipeline):
    """One that can be frozen, as far as its answers tell."""

    frozen = False

    async def Hello(self, request: Any, context: Any) -> pipeline_pb2.HelloReply:
        if self.frozen:
            await asyncio.sleep(3600)
        return await super().Hello(request, context)

    async def Status(self, request: Any, context: Any) -> pipo_pb2.PipelineInfo:
        if self.frozen:
            await asyncio.sleep(3600)
        return pipo_pb2.PipelineInfo(name=self.name, state="running", status="active")


@pytest_asyncio.fixture
async def pipelines(home: Home) -> AsyncIterator[dict[str, Pipeline]]:
    names = ["well", *(f"frozen-{number}" for number in range(FROZEN))]
    made = {name: await Pipeline(name).start(home) for name in names}
    for name in names:
        desired.write(home.pipeline(name), Desired("running", "f", state="running"))
    yield made  # type: ignore[misc]
    for one in made.values():
        await one.stop()


async def test_it_waits_for_the_frozen_together_and_says_who_they_are(
    home: Home, access: Access, pipelines: dict[str, Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One died with nobody there to see it; a host has begun to bring the other one up.
    for name in ("dead", "starting"):
        desired.write(home.pipeline(name), Desired("running", "f", state="running"))
    registry.write_service(home, registry.ServiceEntry("runner", "a", 7, "there", "x:1", "", 1))
    held = [
        Lease.acquire(registry.service_lease(home, "runner", "a"), clock=SystemClock()),
        Lease.acquire(home.pipeline("starting").claim, clock=SystemClock()),
    ]
    home.pipeline("starting").claim.write_text('{"host": "there", "pid": 7, "started_at": 1}')
    first = await access.list_pipelines()
    assert {one.state for one in first.pipelines} == {"running", "backoff", "starting"}
    monkeypatch.setattr(listing, "STATUS_TIMEOUT_S", LIMIT_S)
    for name, one in pipelines.items():
        one.frozen = name != "well"
    for _ in range(2):
        began = time.monotonic()
        found = {one.name: one.state for one in (await access.list_pipelines()).pipelines}
        took_s = time.monotonic() - began
        assert (found.pop("well"), found.pop("dead")) == ("running", "backoff")
        assert found.pop("starting") == "starting"
        assert [*found.values()] == ["unreachable"] * FROZEN
        # In turn they would take twelve times as long.
        assert took_s < FROZEN * LIMIT_S / 2
    monkeypatch.undo()
    for one in pipelines.values():
        one.frozen = False
    found = {one.name: one.state for one in (await access.list_pipelines()).pipelines}
    assert [*found.values()].count("running") == FROZEN + 1
    for lease in held:
        lease.release()
