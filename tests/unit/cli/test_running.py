"""`pipo start` beside a host that brings back what should run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from pipo.errors import InvalidState, NotFound
from pipo.rpc.stubs import pipo_pb2
from pipo_cli import running
from pipo_cli.client import Operations


class Resuming:
    """The operations of a home whose host has started `x` already; its states, one a look."""

    def __init__(self, *states: str) -> None:
        self._states = list(states)

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        raise InvalidState("x is already running: pid 7")

    async def list_pipelines(self) -> pipo_pb2.ListPipelinesReply:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        one = pipo_pb2.PipelineInfo(name="x", file="/work/x.pipo", state=state, pid=7)
        return pipo_pb2.ListPipelinesReply(pipelines=[one])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "RESUME_POLL_S", 0.0)


async def started(host: Resuming, target: str, patience_s: float, **said: Any) -> Any:
    request = pipo_pb2.StartRequest(target=target, **said)
    return await running._start(cast(Operations, host), request, patience_s)


@pytest.mark.parametrize("target", ["x", "/work/x.pipo"])
async def test_what_the_host_resumed_counts_as_started(target: str) -> None:
    assert (
        await started(Resuming("backoff", "unreachable", "starting", "running"), target, 5.0)
    ).pid == 7


@pytest.mark.parametrize(
    ("host", "target", "patience_s"),
    [
        (Resuming("running"), "x", 0.0),
        (Resuming("running"), "/elsewhere/x.pipo", 5.0),
        (Resuming("starting", "failed"), "x", 5.0),
        (Resuming("starting"), "x", 0.05),
    ],
    ids=["the stack was up", "another file", "it fails", "it hangs"],
)
async def test_else_the_refusal_stands(host: Resuming, target: str, patience_s: float) -> None:
    with pytest.raises(InvalidState, match="already running"):
        await started(host, target, patience_s)


@pytest.mark.parametrize("said", [{"ttl": "1h"}, {"listen": 8790}, {"detached": False}])
async def test_a_start_that_says_how_is_not_that_of_the_host(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidState, match="already running"):
        await started(Resuming("running"), "x", 5.0, **said)


class Elsewhere:
    """The operations of a machine that sees no file of this one."""

    def __init__(self) -> None:
        self.asked: list[pipo_pb2.StartRequest] = []

    async def start(self, request: pipo_pb2.StartRequest) -> pipo_pb2.PipelineInfo:
        self.asked.append(type(request).FromString(request.SerializeToString()))
        if request.target:
            raise NotFound(f"there is no file {request.target}")
        return pipo_pb2.PipelineInfo(name=request.name, state="running", pid=7)


TEXT = """\
pipo: 1
name: people
input: { via: push, schema: ./person.json }
output: { from: input, to: stdout }
"""


async def test_a_file_that_a_named_gateway_does_not_see_is_sent(tmp_path: Path) -> None:
    """Decision 37; one of this machine's home is only looked for."""
    (tmp_path / "person.json").write_text("{}")
    file = tmp_path / "people.pipo"
    file.write_text(TEXT)
    request = pipo_pb2.StartRequest(target=str(file), ttl="1h", listen=8790, detached=True)
    with pytest.raises(NotFound):
        await running._start(cast(Operations, Elsewhere()), request, 0.0)
    there = Elsewhere()
    assert (await running._start(cast(Operations, there), request, 0.0, file)).name == "people"
    assert there.asked[1] == pipo_pb2.StartRequest(
        name="people",
        source=TEXT,
        files={"./person.json": "{}"},
        ttl="1h",
        listen=8790,
        detached=True,
    )
