"""`pipo start` beside a host that brings back what should run."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pipo.errors import InvalidState
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


async def started(host: Resuming, target: str, patience_s: float) -> Any:
    request = pipo_pb2.StartRequest(target=target)
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
