"""What a start says goes to the runner host as it was said; the doors judge it first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pipo.clock import SystemClock
from pipo.errors import Conflict, Finding, Forbidden, InvalidPipeline, PipoError
from pipo.home import Home, registry, tokens
from pipo.home.config import Config, TokenSetting
from pipo.home.leases import Lease
from pipo.home.registry import ServiceEntry
from pipo.rpc.channels import dial
from pipo.rpc.errors import calling
from pipo.rpc.server import serve
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc, runner_pb2_grpc
from pipo_gateway.gateway import Gateway
from tests.unit.gateway.fake_pipeline import FakePipeline

SOURCE = "pipo: 1\nname: signups\n"
TOKENS = {"OPERATOR": ("operate", None), "EDITOR": ("edit", None), "LIMITED": ("edit", "signups")}


class FakeRunner(runner_pb2_grpc.RunnerServicer):
    """Keeps what it is asked; answers with the pipeline, or raises."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.raises: PipoError | None = None

    async def List(self, request: Any, context: Any) -> pipo_pb2.ListPipelinesReply:
        return pipo_pb2.ListPipelinesReply()

    async def Start(self, request: Any, context: Any) -> pipo_pb2.PipelineInfo:
        return self._kept(request)

    async def Restart(self, request: Any, context: Any) -> pipo_pb2.PipelineInfo:
        return self._kept(request)

    def _kept(self, request: Any) -> pipo_pb2.PipelineInfo:
        self.asked.append(request)
        if self.raises is not None:
            raise self.raises
        return pipo_pb2.PipelineInfo(
            name="new", state="running", listen=8790, ttl="1h", detached=True
        )


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Config:
    if not getattr(request, "param", False):
        return Config(workspace=tmp_path)
    made = []
    for name, (scope, only) in TOKENS.items():
        monkeypatch.setenv(name, name.lower())
        made.append(TokenSetting(name.lower(), f"env:{name}", scope, (only,) if only else None))  # type: ignore[arg-type]
    return Config(tokens=tuple(made), workspace=tmp_path)


guarded = pytest.mark.parametrize("config", [True], indirect=True)


@pytest_asyncio.fixture
async def runner(home: Home) -> AsyncIterator[FakeRunner]:
    made = FakeRunner()  # type: ignore[abstract]  # nobody asks for the rest
    lease = Lease.acquire(registry.service_lease(home, "runner", "r"), clock=SystemClock())
    server = await serve(made, bind="127.0.0.1", port=0, internal_token=tokens.internal_token(home))
    registry.write_service(
        home, ServiceEntry("runner", "r", 1, "here", f"127.0.0.1:{server.port}", "", 1)
    )
    yield made
    await server.stop(0)
    lease.release()


async def post(
    client: aiohttp.ClientSession, path: str, body: dict[str, Any], token: str = ""
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with client.post(path, json=body, headers=headers) as got:
        return got.status, await got.json()


async def test_a_start_by_its_file_is_201_with_the_entry(
    client: aiohttp.ClientSession, runner: FakeRunner
) -> None:
    said = {"file": "/w/new.pipo", "listen": 8790, "detached": True, "ttl": "1h"}
    status, told = await post(client, "/api/pipelines", said)
    assert (status, told["name"], told["listen"], told["detached"], told["ttl"]) == (
        201,
        "new",
        8790,
        True,
        "1h",
    )
    assert {"lifetime", "resources"} <= told.keys()
    assert runner.asked == [
        pipo_pb2.StartRequest(target="/w/new.pipo", listen=8790, detached=True, ttl="1h")
    ]


async def test_a_text_is_sent_with_its_files(
    client: aiohttp.ClientSession, runner: FakeRunner
) -> None:
    said: dict[str, Any] = {"name": "signups", "source": SOURCE, "files": {"./a.json": "{}"}}
    assert (await post(client, "/api/pipelines", said))[0] == 201
    assert runner.asked == [pipo_pb2.StartRequest(**said)]


async def test_start_and_restart_by_name(
    client: aiohttp.ClientSession, pipeline: FakePipeline, runner: FakeRunner
) -> None:
    one = "/api/pipelines/signups"
    assert (await post(client, f"{one}/start", {"listen": 1, "detached": False}))[0] == 200
    assert (await post(client, f"{one}/restart", {"ttl": "2h", "listen": 2}))[0] == 200
    assert runner.asked == [
        pipo_pb2.StartRequest(target="signups", listen=1, detached=False),
        pipo_pb2.RestartRequest(pipeline="signups", ttl="2h", listen=2),
    ]


@pytest.mark.parametrize(
    ("body", "error", "hint"),
    [
        ({"file": "x.pipo"}, "file is 'x.pipo'", "absolute"),
        ({"file": "/x", "ttl": "0s"}, "ttl is '0s'", "at least"),
        ({"file": "/x", "ttl": 5}, "ttl is not a text", "fields are"),
        ({"file": "/x", "listen": 0}, "listen is not a port", "use 1-65535"),
        ({"file": "/x", "listen": 65536}, "listen is not a port", "use 1-65535"),
        ({"file": "/x", "listen": "8790"}, "listen is not a port", "use 1-65535"),
        ({"file": "/x", "listen": True}, "listen is not a port", "use 1-65535"),
        ({"file": "/x", "detached": "yes"}, "detached is not true or false", "fields are"),
        (
            {"file": "/x", "source": "pipo: 1", "name": "x"},
            "both a file and name",
            "name and source",
        ),
        ({"file": "/x", "tll": "1h"}, "unknown field 'tll'", "ttl"),
        ({"name": "x"}, "file is missing", "needs file"),
        ({"source": "pipo: 1"}, "name is missing", "name and a source"),
        ({"name": "x", "source": "y", "files": ["a"]}, "files is not an object of texts", "fields"),
    ],
)
async def test_what_is_refused_at_the_door(
    client: aiohttp.ClientSession, runner: FakeRunner, body: dict[str, Any], error: str, hint: str
) -> None:
    status, told = await post(client, "/api/pipelines", body)
    assert (status, told["code"]) == (400, "bad_request"), told
    assert told["error"].startswith(error)
    assert hint in told["hint"]
    assert runner.asked == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (
            InvalidPipeline(
                "x.pipo has 1 error", findings=[Finding("P002", "error", "no", "", 1, 1)]
            ),
            422,
        ),
        (Conflict("port 8790 on 127.0.0.1 is taken by the pipeline 'x' (pid 7)"), 409),
        (Forbidden("fn is code that was sent", hint="engine.allow_uploaded_code"), 403),
    ],
)
async def test_the_hosts_reason_is_the_answer(
    client: aiohttp.ClientSession, runner: FakeRunner, error: PipoError, status: int
) -> None:
    runner.raises = error
    got, told = await post(client, "/api/pipelines", {"file": "/x.pipo"})
    assert (got, told["error"], told["code"]) == (status, error.message, error.code)
    assert [d["code"] for d in told.get("diagnostics") or ()] == (["P002"] if got == 422 else [])


@guarded
async def test_a_text_wants_the_scope_of_an_apply(
    client: aiohttp.ClientSession, gateway: Gateway, pipeline: FakePipeline, runner: FakeRunner
) -> None:
    sent = {"name": "signups", "source": SOURCE}
    assert (await post(client, "/api/pipelines", sent, "operator"))[0] == 403
    assert (await post(client, "/api/pipelines", {**sent, "name": "x"}, "limited"))[0] == 403
    assert (await post(client, "/api/pipelines", {"file": "/w/x.pipo"}, "limited"))[0] == 403
    assert runner.asked == []
    assert (await post(client, "/api/pipelines", sent, "limited"))[0] == 201
    assert (await post(client, "/api/pipelines", sent, "editor"))[0] == 201
    assert (await post(client, "/api/pipelines", {"file": "/w/x.pipo"}, "operator"))[0] == 201

    async def start(token: str, **said: Any) -> None:
        channel = dial(gateway.address, token)
        try:
            with calling("the gateway"):
                await pipo_pb2_grpc.PipoStub(channel).Start(pipo_pb2.StartRequest(**said))
        finally:
            await channel.close()

    for token, name in (("operator", "signups"), ("limited", "x")):
        with pytest.raises(Forbidden):
            await start(token, name=name, source=SOURCE)
    await start("limited", **sent)
    await start("limited", target="signups", listen=8790)
    assert [request.listen for request in runner.asked] == [0, 0, 0, 0, 8790]
