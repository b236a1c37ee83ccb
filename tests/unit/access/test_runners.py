"""How runners are told, and taken over."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pipo.access import Access, runners
from pipo.access.runners import Seen, state_of
from pipo.clock import SystemClock
from pipo.errors import InvalidState, NotFound, Unavailable
from pipo.home import Home, desired, registry, tokens
from pipo.home.config import Config
from pipo.home.desired import Desired
from pipo.home.leases import Lease
from pipo.home.registry import Entry, ServiceEntry
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipeline_pb2, pipo_pb2, runner_pb2_grpc
from tests.unit.gateway.fake_pipeline import FakePipeline

CLOCK = SystemClock()
ENTRY = Entry("x", 1, 42, "h", "a:1", None, None, "running", "active", 7, "r", "/x.pipo", 0)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def seen(words: str) -> Seen:
    names = ("alive", "supervised", "detached", "known", "over")
    return Seen(**{name: name in words.split() for name in names})


@pytest.mark.parametrize(
    ("words", "answers", "state"),
    [
        ("alive supervised known", True, "attached"),
        ("alive supervised known", False, "unreachable"),
        ("alive known", True, "detached"),
        ("alive detached known", True, "detached"),
        ("alive supervised detached known", True, "detached"),
        ("alive detached", False, "unreachable"),
        ("supervised known", False, "attached"),
        ("supervised detached known", False, "detached"),
        ("known", False, "stale"),
        ("detached known", False, "stale"),
        ("known over", False, None),
        ("", False, None),
    ],
)
def test_the_state_of_a_runner(words: str, answers: bool, state: str | None) -> None:
    """Edge 401."""
    assert state_of(seen(words), answers=answers) == state


def test_every_combination_has_a_state_or_is_none() -> None:
    for flags in product((False, True), repeat=6):
        *facts, answers = flags
        found = state_of(Seen(*facts), answers=answers)
        assert found is not None or not facts[0]


def test_the_last_two_carry_a_hint_to_attach(home: Home) -> None:
    """Edge 401."""
    hints = {
        state: runners.info(home, "x", state, None).hint
        for state in ("attached", "detached", "stale", "unreachable")
    }
    assert hints["attached"] == hints["detached"] == ""
    assert "`pipo attach x`" in hints["stale"]
    assert "`pipo attach x`" in hints["unreachable"]


def test_what_a_dead_process_left(home: Home) -> None:
    files = home.pipeline("x")
    desired.write(files, Desired("running", "/x.pipo", {"detached": True}, state="running"))
    registry.write(home, ENTRY)
    found = runners.look(home, "x", supervised=False)
    assert found == seen("detached known")
    told = runners.info(home, "x", "stale", None)
    assert (told.pid, told.host, told.started_at, told.host_id) == (42, "h", 7, "")
    lease = Lease.acquire(files.lease, clock=CLOCK)
    assert runners.look(home, "x", supervised=True) == seen("alive supervised detached known")
    assert runners.info(home, "x", "detached", None).pid != 42
    lease.release()


# ── over a home ──────────────────────────────────────────────────────────────


class Host(runner_pb2_grpc.RunnerServicer):
    """A runner host in this process: it claims what it is asked to attach."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.asked: list[list[str]] = []
        self.takes = True
        self.held: list[Lease] = []
        self.server: RunningServer | None = None

    async def start(self) -> Host:
        path = registry.service_lease(self.home, "runner", "r")
        self.held.append(Lease.acquire(path, clock=CLOCK))
        token = tokens.internal_token(self.home)
        self.server = await serve(self, bind="127.0.0.1", port=0, internal_token=token)
        address = f"127.0.0.1:{self.server.port}"
        entry = ServiceEntry("runner", "r", os.getpid(), socket.gethostname(), address, "", 1)
        registry.write_service(self.home, entry)
        return self

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)
        for lease in self.held:
            lease.release()

    async def List(self, request: Any, context: Any) -> pipo_pb2.ListPipelinesReply:
        return pipo_pb2.ListPipelinesReply()

    async def Adopt(self, request: Any, context: Any) -> pipo_pb2.ListPipelinesReply:
        self.asked.append(list(request.attach))
        for name in request.attach if self.takes else ():
            files = self.home.pipeline(name)
            self.held.append(Lease.acquire(files.claim, clock=CLOCK))
            desired.write(files, Desired("running", "/x.pipo", state="running"))
        return pipo_pb2.ListPipelinesReply()


@pytest.fixture
async def access(home: Home) -> AsyncIterator[Access]:
    made = Access(home, Config())
    yield made
    await made.close()


@pytest.fixture
async def host(home: Home) -> AsyncIterator[Host]:
    made = await Host(home).start()  # type: ignore[abstract]
    yield made
    await made.stop()


@pytest.fixture
async def pipeline(home: Home) -> AsyncIterator[FakePipeline]:
    made = await FakePipeline().start(home)
    yield made
    await made.die()


async def states(access: Access) -> dict[str, str]:
    return {one.pipeline: one.state for one in (await access.list_runners()).runners}


async def test_a_detached_one_is_taken_over(
    access: Access, host: Host, pipeline: FakePipeline
) -> None:
    assert await states(access) == {"signups": "detached"}
    reply = await access.attach(pipo_pb2.AttachRequest(pipeline="signups"))
    assert (list(reply.attached), host.asked) == (["signups"], [["signups"]])
    assert [(one.state, one.host_id) for one in reply.runners] == [("attached", "r")]
    again = await access.attach(pipo_pb2.AttachRequest())
    assert (list(again.attached), host.asked[1]) == ([], [])


async def test_what_no_host_takes_is_told_as_it_is(
    access: Access, home: Home, monkeypatch: pytest.MonkeyPatch, host: Host
) -> None:
    monkeypatch.setattr(runners, "ATTACH_WAIT_S", 0.0)
    host.takes = False
    desired.write(home.pipeline("x"), Desired("running", "/x.pipo", state="running"))
    registry.write(home, ENTRY)
    reply = await access.attach(pipo_pb2.AttachRequest(pipeline="x"))
    assert (list(reply.attached), host.asked) == ([], [["x"]])
    assert [one.state for one in reply.runners] == ["stale"]


async def test_attaching_needs_a_host_and_something_that_runs(
    access: Access, home: Home, pipeline: FakePipeline
) -> None:
    with pytest.raises(Unavailable, match="no runner host is running") as refused:
        await access.attach(pipo_pb2.AttachRequest())
    assert "pipo engine start" in refused.value.hint
    with pytest.raises(NotFound, match="no pipeline named 'nobody'"):
        await access.attach(pipo_pb2.AttachRequest(pipeline="nobody"))
    desired.write(home.pipeline("x"), Desired("stopped", "/x.pipo", state="stopped"))
    with pytest.raises(InvalidState, match="pipeline 'x' is not running"):
        await access.attach(pipo_pb2.AttachRequest(pipeline="x"))


class Freezing(FakePipeline):
    """Answers its first greeting, and then no more."""

    greeted = False

    async def Hello(self, request: Any, context: Any) -> pipeline_pb2.HelloReply:
        if self.greeted:
            await asyncio.sleep(3600)
        return await super().Hello(request, context)


async def test_one_that_was_greeted_and_is_frozen_since(
    access: Access, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge 401, 442: it is not taken over, and not ended."""
    pipeline = Freezing()
    await pipeline.start(home)
    assert await states(access) == {"signups": "detached"}
    pipeline.greeted = True
    monkeypatch.setattr(runners, "ANSWER_TIMEOUT_S", 0.1)
    assert await states(access) == {"signups": "unreachable"}
    await pipeline.die()
