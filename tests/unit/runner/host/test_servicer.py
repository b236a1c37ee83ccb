"""The gRPC service over a supervisor that only notes what it is asked."""

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipo.errors import InvalidPipeline, InvalidState
from pipo.home import Home, registry
from pipo.home.desired import Desired
from pipo.home.registry import Entry
from pipo.home.sent import Sent
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.server import serve
from pipo.rpc.stubs import pipo_pb2, runner_pb2, runner_pb2_grpc
from pipo_runner.host.options import Asked
from pipo_runner.host.servicer import RunnerServicer

ENTRY = Entry(
    pipeline="p",
    version=4,
    pid=77,
    host="box",
    address="127.0.0.1:1",
    listen=8790,
    ttl=None,
    state="running",
    status="paused",
    started_at=5,
    runner="here",
    file="/w/p.pipo",
    restarts=2,
)


class FakePipelines:
    def __init__(self) -> None:
        options = {"ttl": "2h", "detached": True}
        wish = Desired(
            "running", "/w/p.pipo", options, last_exit="exit 1", error=None, runner="here"
        )
        self.one = SimpleNamespace(name="p", wish=wish, state="running", restarts=2, runs=True)
        self.supervised = [self.one]
        self.adopted: list[list[str]] = []
        self.asked: list[Any] = []

    async def start(self, target: Any, asked: Asked) -> Any:
        self.asked.append((target, asked))
        if target == "bad.pipo":
            raise InvalidPipeline("bad.pipo has 1 error")
        if target == "p":
            raise InvalidState("p is already running: pid 77 on box")
        return self.one

    async def stop(self, name: str, *, now: bool) -> tuple[str, bool]:
        return ("stopped" if now else "draining"), name == "again"

    async def restart(self, name: str, asked: Asked) -> Any:
        self.asked.append((name, asked))
        return self.one

    async def adopt(self, attach: Sequence[str] = ()) -> None:
        self.adopted.append(list(attach))


@pytest.fixture
async def stub(home: Home) -> AsyncIterator[Any]:
    registry.write(home, ENTRY)
    pipelines = FakePipelines()
    server = await serve(
        RunnerServicer(cast(Any, pipelines), home), bind="127.0.0.1", port=0, internal_token="t"
    )
    channel = dial(f"127.0.0.1:{server.port}", "t")
    stub = runner_pb2_grpc.RunnerStub(channel)
    cast(Any, stub).pipelines = pipelines
    yield stub
    await channel.close()
    await server.stop(0)


async def test_restart_answers_with_the_pipeline(stub: Any) -> None:
    info = await stub.Restart(pipo_pb2.RestartRequest(pipeline="p"))
    assert (info.name, info.state, info.pid) == ("p", "running", 77)


async def test_start_answers_with_the_pipeline(stub: Any) -> None:
    info = await stub.Start(pipo_pb2.StartRequest(target="p.pipo"))
    assert (info.name, info.state, info.status, info.pid, info.host) == (
        "p",
        "running",
        "paused",
        77,
        "box",
    )
    assert (info.version, info.listen, info.restarts, info.last_exit) == (4, 8790, 2, "exit 1")
    assert (info.ttl, info.detached) == ("2h", True)
    assert not info.HasField("error")


async def test_what_a_start_says_reaches_the_supervisor_and_what_it_does_not_say_stays_unsaid(
    stub: Any,
) -> None:
    files = {"./a.py": "x = 1"}
    await stub.Start(pipo_pb2.StartRequest(target="q", ttl="1h", listen=8790, detached=False))
    await stub.Start(pipo_pb2.StartRequest(name="s", source="pipo: 1", files=files))
    await stub.Restart(pipo_pb2.RestartRequest(pipeline="q", ttl="1h"))
    await stub.Restart(pipo_pb2.RestartRequest(pipeline="q", listen=1))
    assert stub.pipelines.asked == [
        ("q", Asked(ttl="1h", listen=8790, detached=False)),
        (Sent("s", "pipo: 1", files), Asked()),
        ("q", Asked(ttl="1h")),
        ("q", Asked(listen=1)),
    ]


async def test_refusals_keep_their_code(stub: Any) -> None:
    with pytest.raises(InvalidPipeline, match="1 error"), calling("the runner"):
        await stub.Start(pipo_pb2.StartRequest(target="bad.pipo"))
    with pytest.raises(InvalidState, match="pid 77 on box"), calling("the runner"):
        await stub.Start(pipo_pb2.StartRequest(target="p"))


async def test_stop_list_and_adopt(stub: Any) -> None:
    reply = await stub.Stop(pipo_pb2.StopRequest(pipeline="again", now=True))
    assert (reply.pipeline, reply.state, reply.already) == ("again", "stopped", True)
    stub.pipelines.one.runs = False
    stub.pipelines.one.state = "backoff"
    listed = await stub.List(runner_pb2.ListRequest())
    assert [(one.name, one.state, one.HasField("pid")) for one in listed.pipelines] == [
        ("p", "backoff", False)
    ]
    await stub.Adopt(runner_pb2.AdoptRequest())
    await stub.Adopt(runner_pb2.AdoptRequest(attach=["p"]))
    assert stub.pipelines.adopted == [[], ["p"]]
