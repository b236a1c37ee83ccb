"""A stop ends at once what holds nothing up, and says what is going on."""

from __future__ import annotations

import asyncio
import time
from itertools import groupby
from threading import Event, Thread
from typing import Any

import grpc
import pytest

from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from tests.stack import Stack, wait_for

PIPELINE = """pipo: 1
name: rows
input:
  via: http
  with: { path: /rows }
output:
  from: input
  to: sqlite
  with: { path: ./data/rows.db, table: rows, create: true }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
"""


class Watch:
    """The states that GET /api/pipelines/rows tells in turn, and its slowest answer."""

    def __init__(self, stack: Stack) -> None:
        self.states: list[str] = []
        self.slowest_s = 0.0
        self._stack = stack
        self._ended = Event()
        self._thread = Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            self.states.append(self._stack.get("/api/pipelines/rows")["state"])
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    @property
    def in_turn(self) -> list[str]:
        return [state for state, _ in groupby(self.states)]


@pytest.mark.slow
@pytest.mark.parametrize("now", [(), ("--now",)], ids=["drain", "now"])
def test_a_stop_with_every_kind_of_stream_open(stack: Stack, now: tuple[str, ...]) -> None:
    stack.start(stack.write("rows.pipo", PIPELINE))
    assert stack.request("/in/rows/rows", b"1")[0] == 202
    stack.settle("rows")
    with Watch(stack) as watch:
        ended = asyncio.run(_stopped_beside_streams(stack, now))
    # So it was ended in order: what the grace cuts off is cancelled.
    assert ended.code() is grpc.StatusCode.UNAVAILABLE
    assert "is stopping" in (ended.details() or "")
    assert [s for s in watch.in_turn if s != "stopping"] == ["running", "stopped"]
    assert watch.slowest_s < 20.0
    log = stack.output()
    assert "action=verifications.lost" not in log
    assert "action=lane.broken" not in log


async def _stopped_beside_streams(stack: Stack, now: tuple[str, ...]) -> grpc.aio.AioRpcError:
    """Stops `rows` while a push stream is open; how that stream ended."""
    token = (stack.home / "admin.token").read_text().strip()
    metadata = (("authorization", f"Bearer {token}"),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.port + 1}") as channel:
        push = pipo_pb2_grpc.PipoStub(channel).PushStream(metadata=metadata)
        item = pipo_pb2.PushItem(request_id=1, data=b"2")
        await push.write(pipo_pb2.PushStreamRequest(pipeline="rows", items=[item]))
        assert (await push.read()).results[0].packet_id
        await asyncio.to_thread(stack.pipo, "stop", "rows", *now)
        await asyncio.to_thread(_await_stopped, stack)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await _read_to_end(push)
        return ended.value


async def _read_to_end(push: Any) -> None:
    while await push.read() is not grpc.aio.EOF:
        pass


def _await_stopped(stack: Stack) -> None:
    wait_for(lambda: stack.get("/api/pipelines/rows")["state"] == "stopped", what="it stops")
