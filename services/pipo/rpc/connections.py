"""Channels to pipeline processes: one each, kept while the process lives at its address.

A registry entry can outlive its process, and the kernel may give the port to
another one: so the first call on a channel is Hello, and an answer under another
name counts as no answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pipo.home.registry import Entry
from pipo.rpc.channels import Channel, dial
from pipo.rpc.errors import Unanswered, calling
from pipo.rpc.stubs import pipeline_pb2
from pipo.rpc.stubs.pipeline_pb2_grpc import PipelineStub

if TYPE_CHECKING:
    from pipo.rpc.stubs.pipeline_pb2_grpc import PipelineAsyncStub

HELLO_TIMEOUT_S = 2.0


class Peer:
    """One pipeline process, as long as it stays what its registry entry says."""

    def __init__(self, entry: Entry, token: str) -> None:
        self.entry = entry
        self.channel: Channel = dial(entry.address, token)
        self.stub: PipelineAsyncStub = PipelineStub(self.channel)  # type: ignore[assignment]
        self._greeting = asyncio.Lock()
        self._greeted = False

    @property
    def whom(self) -> str:
        """How messages name it."""
        return f"pipeline {self.entry.pipeline!r}"

    def doubted(self) -> None:
        """The next use greets again. Calls under way go on."""
        self._greeted = False

    async def greet(self) -> None:
        """Returns once the process has answered under the right name.

        Raises: Unanswered.
        """
        if self._greeted:
            return
        async with self._greeting:
            if self._greeted:
                return
            with calling(self.whom):
                hello = await self.stub.Hello(pipeline_pb2.HelloRequest(), timeout=HELLO_TIMEOUT_S)
            if hello.pipeline != self.entry.pipeline:
                raise Unanswered(
                    f"{self.whom} does not answer: {hello.pipeline!r} has its port now",
                    hint="it may be starting; try again",
                )
            self._greeted = True


class Connections:
    """The peers of this process, by pipeline."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._peers: dict[str, Peer] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def to(self, entry: Entry) -> Peer:
        """The greeted peer of an entry.

        Raises: Unanswered, if nobody of that name answers at its address.
        """
        peer = self.peer(entry)
        await peer.greet()
        return peer

    def peer(self, entry: Entry) -> Peer:
        """The peer of an entry, not greeted: for calls that name the pipeline they mean."""
        peer = self._peers.get(entry.pipeline)
        if peer is None or not _same(peer.entry, entry):
            self._drop(entry.pipeline)
            peer = self._peers[entry.pipeline] = Peer(entry, self._token)
        return peer

    def doubt(self, name: str) -> None:
        """A call has failed: the peer is greeted again before its next one."""
        if name in self._peers:
            self._peers[name].doubted()

    def _drop(self, name: str) -> None:
        """Forgets the peer of a process that is gone; its calls under way end as unanswered."""
        peer = self._peers.pop(name, None)
        if peer is not None:
            closing = asyncio.create_task(peer.channel.close(), name=f"close channel to {name}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends every channel. Safe twice."""
        for name in list(self._peers):
            self._drop(name)
        if self._closing:
            await asyncio.wait(self._closing)


def _same(left: Entry, right: Entry) -> bool:
    """Whether two entries mean one process."""
    return (left.address, left.pid, left.started_at) == (right.address, right.pid, right.started_at)
