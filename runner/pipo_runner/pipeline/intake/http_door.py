"""Requests for the http inputs, as they arrive in pieces on a gateway's stream.

Each request is answered on its own as soon as it can be; answers that are ready
together travel together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pipo.connectors.contract import Arrival, HttpAnswer, HttpRequest
from pipo.payload import encode
from pipo.rpc.stubs import pipeline_pb2 as pb
from pipo_runner.pipeline.flow.timers import Timers
from pipo_runner.pipeline.intake.body_budget import BodyBudget

MESSAGE_BYTES_LIMIT: Final = 1024 * 1024


class Answering(Protocol):
    """The http inputs (contract.HttpInput), as this stream uses them."""

    def early(self, request: HttpRequest) -> HttpAnswer | None: ...

    async def answer(self, request: HttpRequest) -> HttpAnswer: ...

    def arrival(self, request: HttpRequest) -> Arrival | HttpAnswer | None: ...

    async def answer_arrivals(self, arrivals: Sequence[Arrival]) -> list[HttpAnswer]: ...


@dataclass(slots=True, eq=False)
class _Open:
    """A request whose body is still arriving."""

    head: pb.IngestHead
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0


class HttpDoor:
    """One gateway's stream of requests."""

    def __init__(
        self,
        target: Answering | None,
        *,
        packet_limit: int,
        budget: BodyBudget,
        timers: Timers,
        name: str,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._target = target
        self._limit = packet_limit
        self._budget = budget
        self._timers = timers
        self._name = name
        self._on_error = on_error
        self._open: dict[int, _Open] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._quick: list[tuple[int, Arrival, int]] = []
        self._answering = 0
        self._answers: list[pb.IngestAnswer] = []
        self._ready = asyncio.Event()
        self._ended = False

    async def serve(
        self, requests: AsyncIterator[pb.IngestRequest]
    ) -> AsyncIterator[pb.IngestReply]:
        """The stream's answers, until the gateway or a stop ends it and all are given.

        So a request that was sent and has no answer when the stream ends was never taken.
        """
        reader = self._timers.read(self._read(requests), name=f"ingest {self._name}")
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                answers, self._answers = self._answers, []
                for message in _grouped(answers):
                    yield message
                if self._ended and not self._running and not self._answering and not self._answers:
                    return
        finally:
            reader.cancel()
            for opened in self._open.values():
                self._budget.give_back(opened.size)
            self._open.clear()
            for task in list(self._running.values()):
                task.cancel()

    async def _read(self, requests: AsyncIterator[pb.IngestRequest]) -> None:
        try:
            async for request in requests:
                for part in request.parts:
                    self._part(part)
                self._take_quick()
        finally:
            self._ended = True
            self._ready.set()

    def _part(self, part: pb.IngestPart) -> None:
        number = part.request_id
        if part.cancelled:
            self._forget(number)
            return
        if part.HasField("head"):
            if part.last:
                # The common case: a whole request in one piece.
                self._start(number, part.head, part.body, len(part.body))
                return
            if not self._begin(number, part.head):
                return
        opened = self._open.get(number)
        if opened is None:
            return
        if opened.size + len(part.body) > self._limit:
            self._forget(number)
            self._give(number, too_large(self._limit))
            return
        if not self._budget.take(len(part.body)):
            self._forget(number)
            self._give(number, busy())
            return
        opened.size += len(part.body)
        opened.pieces.append(part.body)
        if part.last:
            del self._open[number]
            self._start(number, opened.head, b"".join(opened.pieces), opened.size, held=True)

    def _begin(self, number: int, head: pb.IngestHead) -> bool:
        """Whether the body is wanted at all (design §8: early refusals)."""
        if self._target is not None:
            early = self._target.early(_request(head, b""))
            if early is not None:
                self._give(number, early)
                return False
        self._open[number] = _Open(head)
        return True

    def _start(
        self, number: int, head: pb.IngestHead, body: bytes, size: int, *, held: bool = False
    ) -> None:
        if size > self._limit:
            self._give(number, too_large(self._limit))
            return
        if not held and not self._budget.take(size):
            self._give(number, busy())
            return
        request = _request(head, body)
        quick = None if self._target is None else self._target.arrival(request)
        if isinstance(quick, Arrival):
            self._quick.append((number, quick, size))
            return
        if quick is not None:
            self._budget.give_back(size)
            self._give(number, quick)
            return
        task = self._timers.spawn(self._answer(number, request), name=f"request {number}")
        self._running[number] = task
        # Not in the task itself: one that is cancelled before its first turn never runs.
        task.add_done_callback(lambda _: self._answered(number, size))

    def _take_quick(self) -> None:
        """Requests of one message that hold one packet each are one commit and one task."""
        if self._quick:
            group, self._quick = self._quick, []
            self._answering += 1
            self._timers.spawn(self._answer_quick(group), name=f"requests of {self._name}")

    async def _answer_quick(self, group: Sequence[tuple[int, Arrival, int]]) -> None:
        assert self._target is not None
        try:
            answers = await self._target.answer_arrivals([arrival for _, arrival, _ in group])
        except Exception as error:
            self._on_error(error)
            answers = [failed()] * len(group)
        finally:
            self._answering -= 1
            self._budget.give_back(sum(size for _, _, size in group))
            self._ready.set()
        for (number, _, _), answer in zip(group, answers, strict=True):
            self._give(number, answer)

    async def _answer(self, number: int, request: HttpRequest) -> None:
        try:
            answer = no_http() if self._target is None else await self._target.answer(request)
        except Exception as error:
            self._on_error(error)
            answer = failed()
        self._give(number, answer)

    def _answered(self, number: int, size: int) -> None:
        self._running.pop(number, None)
        self._budget.give_back(size)
        self._ready.set()

    def _give(self, number: int, answer: HttpAnswer) -> None:
        self._answers.append(
            pb.IngestAnswer(
                request_id=number,
                status=answer.status,
                headers=[pb.Header(name=n, value=v) for n, v in answer.headers],
                body=answer.body,
            )
        )
        self._ready.set()

    def _forget(self, number: int) -> None:
        opened = self._open.pop(number, None)
        if opened is not None:
            self._budget.give_back(opened.size)
        task = self._running.pop(number, None)
        if task is not None:
            task.cancel()


def _grouped(answers: list[pb.IngestAnswer]) -> list[pb.IngestReply]:
    """Messages of less than 1 MiB each."""
    messages: list[pb.IngestReply] = []
    group: list[pb.IngestAnswer] = []
    size = 0
    for answer in answers:
        length = len(answer.body) + 256
        if group and size + length > MESSAGE_BYTES_LIMIT:
            messages.append(pb.IngestReply(answers=group))
            group, size = [], 0
        group.append(answer)
        size += length
    if group:
        messages.append(pb.IngestReply(answers=group))
    return messages


def _request(head: pb.IngestHead, body: bytes) -> HttpRequest:
    return HttpRequest(
        method=head.method,
        path=head.path,
        query=head.query,
        headers=[(h.name, h.value) for h in head.headers],
        peer=head.peer,
        body=body,
    )


def _answer(status: int, error: str, hint: str, **headers: str) -> HttpAnswer:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return HttpAnswer(status, encode({"error": error, "hint": hint}) + b"\n", named)


def too_large(limit: int) -> HttpAnswer:
    return _answer(
        413,
        f"the body is larger than {limit} bytes",
        "send less, or raise engine.packet_limit",
    )


def busy() -> HttpAnswer:
    return _answer(503, "too many bodies at once", "try again in a moment", Retry_After="1")


def no_http() -> HttpAnswer:
    return _answer(404, "this pipeline has no http input", "use pipo push")


def failed() -> HttpAnswer:
    return _answer(
        500, "the request could not be handled; this is a bug in Pipo", "the log tells more"
    )
