"""Start and stop through runner hosts: real servers, entries and leases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio

from pipo.access import Access
from pipo.access import hosts as access_hosts
from pipo.access.hosts import Load, load_of
from pipo.clock import SystemClock
from pipo.errors import Conflict, NotFound, PipoError, Unavailable
from pipo.home import Home, desired, registry, tokens
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.registry import Entry, ServiceEntry
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipo_pb2, runner_pb2_grpc
from tests.unit.gateway.fake_pipeline import FakePipeline


class FakeHost(runner_pb2_grpc.RunnerServicer):
    """Remembers what it was asked."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.pid = ord(id[0])
        self.states: list[str] = []
        self.silent = False
        self.slow = asyncio.Event()
        self.slow.set()
        self.asked: list[Any] = []
        self.raises: PipoError | None = None
        self.restarts_to = "running"
        self.server: RunningServer | None = None
        self.lease: Lease | None = None

    async def start(self, home: Home) -> FakeHost:
        self.lease = Lease.acquire(
            registry.service_lease(home, "runner", self.id), clock=SystemClock()
        )
        token = tokens.internal_token(home)
        self.server = await serve(self, bind="127.0.0.1", port=0, internal_token=token)
        address = f"127.0.0.1:{self.server.port}"
        registry.write_service(
            home, ServiceEntry("runner", self.id, self.pid, "here", address, "", 1)
        )
        return self

    async def stop(self) -> None:
        assert self.server is not None
        assert self.lease is not None
        await self.server.stop(0)
        self.lease.release()

    async def Start(self, request: Any, context: Any) -> pipo_pb2.PipelineInfo:
        self.asked.append(request)
        await self.slow.wait()
        if self.raises is not None:
            raise self.raises
        return pipo_pb2.PipelineInfo(name="signups", state="running", runner=self.id)

    async def Stop(self, request: Any, context: Any) -> pipo_pb2.StopReply:
        self.asked.append(request)
        return pipo_pb2.StopReply(pipeline=request.pipeline, state="draining")

    async def Restart(self, request: Any, context: Any) -> pipo_pb2.PipelineInfo:
        self.asked.append(request)
        return pipo_pb2.PipelineInfo(name=request.pipeline, state=self.restarts_to, runner=self.id)

    async def List(self, request: Any, context: Any) -> pipo_pb2.ListPipelinesReply:
        if self.silent:
            await asyncio.sleep(3600)
        listed = [pipo_pb2.PipelineInfo(state=state) for state in self.states]
        return pipo_pb2.ListPipelinesReply(pipelines=listed)

    async def Adopt(self, request: Any, context: Any) -> pipo_pb2.ListPipelinesReply:
        if self.silent:
            await asyncio.sleep(3600)
        self.asked.append(request)
        await self.slow.wait()
        if self.raises is not None:
            raise self.raises
        return pipo_pb2.ListPipelinesReply()


MakeHost = Callable[[str], Awaitable[FakeHost]]


@pytest_asyncio.fixture
async def host(home: Home) -> AsyncIterator[MakeHost]:
    made: list[FakeHost] = []

    async def start(id: str) -> FakeHost:
        made.append(await FakeHost(id).start(home))
        return made[-1]

    yield start
    for one in made:
        await one.stop()


def entry(name: str, runner: str) -> Entry:
    return Entry(
        pipeline=name,
        version=1,
        pid=1,
        host="here",
        address="127.0.0.1:9",
        listen=None,
        ttl=None,
        state="running",
        status="active",
        started_at=1,
        runner=runner,
        file="/w/x.pipo",
        restarts=0,
    )


@contextmanager
def claimed(home: Home, name: str, by: FakeHost) -> Iterator[None]:
    """The pipeline's claim is held in the name of a host."""
    files = home.pipeline(name)
    files.ensure()
    claim = Lease.acquire(files.claim, clock=SystemClock())
    files.claim.write_text(json.dumps({"host": "here", "pid": by.pid, "started_at": 1}))
    try:
        yield
    finally:
        claim.release()


def test_a_load_counts_what_is_supervised_then_what_starts() -> None:
    running, starting = ["running"] * 3, ["running", "running", "starting"]
    assert load_of("a", running, 0) == Load(3, 0, "a")
    assert load_of("a", starting, 0) == Load(3, 1, "a")
    assert load_of("b", ["running"], 0) < load_of("a", running, 0) < load_of("a", starting, 0)
    # Sent and not told of yet, or both: one start is one.
    assert load_of("a", running, 1) == Load(4, 1, "a")
    assert load_of("a", starting, 1) == Load(3, 1, "a")
    assert load_of("a", starting, 2) == Load(4, 2, "a")
    # Whatever its state is: one in backoff comes back.
    assert load_of("a", ["backoff", "unreachable"], 0).pipelines == 2
    assert min(load_of("b", [], 0), load_of("a", [], 0)).id == "a"


async def test_a_start_goes_to_the_least_loaded_host(access: Access, host: MakeHost) -> None:
    busy, free = await host("a"), await host("b")
    busy.states = ["running"]
    info = await access.start(pipo_pb2.StartRequest(target="/w/signups.pipo"))
    assert info.runner == "b"
    assert [r.target for r in free.asked] == ["/w/signups.pipo"]
    assert not busy.asked


async def test_starts_at_once_are_spread(access: Access, host: MakeHost) -> None:
    hosts = [await host(id) for id in "abc"]
    for one in hosts:
        one.slow.clear()
    async with asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(access.start(pipo_pb2.StartRequest(target=f"/w/{number}.pipo")))
        while sum(len(one.asked) for one in hosts) < 9:  # noqa: ASYNC110 - the servers count
            await asyncio.sleep(0.01)
        for one in hosts:
            one.slow.set()
    assert [len(one.asked) for one in hosts] == [3, 3, 3]


async def test_a_host_that_does_not_answer_is_passed_over(
    home: Home, access: Access, host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_hosts, "LOOK_TIMEOUT_S", 0.3)
    monkeypatch.setattr(access_hosts, "LONE_LOOK_TIMEOUT_S", 0.4)
    frozen = await host("a")
    frozen.silent = True
    with pytest.raises(Unavailable, match=r"no runner host answers \(a\)"):
        await access.start(pipo_pb2.StartRequest(target="x"))
    well = await host("b")
    well.states = ["running"] * 5
    assert (await access.start(pipo_pb2.StartRequest(target="x"))).runner == "b"
    with claimed(home, "x", frozen):
        with pytest.raises(Unavailable, match="runner host 'a' supervises 'x'"):
            await access.restart(pipo_pb2.RestartRequest(pipeline="x"))
        # The pipeline itself may answer, and any host can ask it.
        desired.write(home.pipeline("x"), Desired("running", "/w/x.pipo", state="running"))
        assert (await access.stop(pipo_pb2.StopRequest(pipeline="x"))).state == "draining"
    assert not frozen.asked
    assert len(well.asked) == 2


async def test_a_frozen_host_keeps_no_other_from_taking_over(
    access: Access, host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_hosts, "LOOK_TIMEOUT_S", 0.3)
    monkeypatch.setattr(access_hosts, "LONE_LOOK_TIMEOUT_S", 0.4)
    frozen = await host("a")
    frozen.silent = True
    with pytest.raises(Unavailable, match=r"no runner host answers \(a\)"):
        await access.attach(pipo_pb2.AttachRequest())
    well, gone = await host("b"), await host("c")
    gone.raises = Unavailable("it ends just now", hint="")
    await access.attach(pipo_pb2.AttachRequest())
    assert [len(one.asked) for one in (frozen, well, gone)] == [0, 1, 1]
    # What one refuses is told, and so is that nobody was left to do it.
    well.raises = Conflict("not that one", hint="")
    with pytest.raises(Conflict, match="not that one"):
        await access.attach(pipo_pb2.AttachRequest())
    well.raises = gone.raises
    with pytest.raises(Unavailable, match="it ends just now"):
        await access.attach(pipo_pb2.AttachRequest())


async def test_a_refusal_of_the_host_is_the_answer(access: Access, host: MakeHost) -> None:
    one = await host("a")
    one.raises = Conflict("signups is already running", hint="stop it first")
    with pytest.raises(Conflict, match="already running") as refused:
        await access.start(pipo_pb2.StartRequest(target="signups"))
    assert refused.value.hint == "stop it first"


async def test_without_a_host_nothing_starts(access: Access) -> None:
    with pytest.raises(Unavailable, match="no runner host is running"):
        await access.start(pipo_pb2.StartRequest(target="signups"))
    with pytest.raises(NotFound):
        await access.start_known(pipo_pb2.StartRequest(target="signups"))


async def test_a_stop_goes_to_the_host_that_supervises(
    home: Home, access: Access, host: MakeHost
) -> None:
    other, own = await host("a"), await host("b")
    desired.write(home.pipeline("x"), Desired("running", "/w/x.pipo", state="running"))
    # Its process was born on another host, which has died since and came back.
    registry.write(home, entry("x", "a"))
    with claimed(home, "x", own):
        reply = await access.stop(pipo_pb2.StopRequest(pipeline="x", now=True))
    assert (reply.state, own.asked[0].now) == ("draining", True)
    assert not other.asked


async def test_a_restart_goes_to_the_host_that_supervises(
    home: Home, access: Access, host: MakeHost
) -> None:
    with pytest.raises(NotFound):
        await access.restart(pipo_pb2.RestartRequest(pipeline="x"))
    home.pipeline("x").ensure()
    with pytest.raises(Unavailable, match="no runner host is running"):
        await access.restart(pipo_pb2.RestartRequest(pipeline="x"))
    other, own = await host("a"), await host("b")
    registry.write(home, entry("x", "a"))
    with claimed(home, "x", own):
        info = await access.restart(pipo_pb2.RestartRequest(pipeline="x"))
        assert (await access.get_pipeline("x")).runner == "b"
        (listed,) = (await access.list_pipelines()).pipelines
        assert listed.runner == "b"
    assert (info.runner, own.asked[0].pipeline) == ("b", "x")
    assert not other.asked


class Draining(FakePipeline):
    """One that drains for longer than anyone waits for a restart."""

    async def Status(self, request: Any, context: Any) -> pipo_pb2.PipelineInfo:
        return pipo_pb2.PipelineInfo(name=self.name, state="running", status="draining")


async def test_a_restart_whose_drain_goes_on_is_no_restart_yet(
    home: Home, access: Access, host: MakeHost
) -> None:
    pipeline = await Draining("x").start(home)
    (await host("one")).restarts_to = "stopping"
    try:
        info = await access.restart(pipo_pb2.RestartRequest(pipeline="x"))
    finally:
        await pipeline.stop()
    assert (info.state, info.status) == ("stopping", "draining")


async def test_a_pipeline_in_backoff_without_any_host_is_noted_as_stopped(
    home: Home, access: Access
) -> None:
    desired.write(home.pipeline("x"), Desired("running", "/w/x.pipo", state="backoff"))
    reply = await access.stop(pipo_pb2.StopRequest(pipeline="x"))
    assert (reply.state, reply.already) == ("stopped", False)
    found = desired.read(home.pipeline("x"))
    assert found is not None
    assert (found.desired, found.state) == ("stopped", "stopped")
    again = await access.stop(pipo_pb2.StopRequest(pipeline="x"))
    assert (again.state, again.already) == ("stopped", True)
