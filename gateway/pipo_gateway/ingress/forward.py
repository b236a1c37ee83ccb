"""One HTTP request to `/in/<pipeline><path>`, from its first line to its answer.

A body of up to one piece travels with its head. A larger one is passed on while it
arrives, so that a pipeline can refuse it early and the gateway never holds it whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiohttp import StreamReader, web

from pipo.errors import BadRequest, NotFound, PipoError, Unavailable
from pipo.home.paths import NAME
from pipo.rpc.stubs.pipeline_pb2 import IngestAnswer
from pipo.rpc.wire import STREAM_PIECE_BYTES_MAX
from pipo_gateway.expectation import go_on
from pipo_gateway.ingress.answer import JSON_TYPE, Answer, header_lines
from pipo_gateway.ingress.budget import Budget
from pipo_gateway.ingress.lane import Head, Lane, NotAnswered, NotSent
from pipo_gateway.ingress.lanes import Lanes
from pipo_gateway.refusals import refusal, too_large
from pipo_gateway.targets import ingress_target, valid

# A body whose next bytes do not come within this time is given up.
BODY_PAUSE_S = 30.0
RETRY_AFTER = (("Retry-After", "1"),)
# A head always fits into a message beside a piece of a body.
HEAD_BYTES_MAX = 64 * 1024
# What a header costs in a message beside its text, and what the forwarded ones cost.
HEADER_BYTES = 8
FORWARDED_BYTES = 256

_TOO_LONG = BadRequest(
    f"path, query and headers are longer than {HEAD_BYTES_MAX // 1024} KiB", hint="send less"
)


class Ingress:
    """Answers every request below `/in/`."""

    def __init__(self, lanes: Lanes, budget: Budget) -> None:
        self._lanes = lanes
        self._budget = budget
        self.stopping = False

    async def answer(self, request: web.BaseRequest, target: str) -> Answer:
        """The pipeline's answer, or why there is none; raises nothing that a client can cause."""
        name, path, query = ingress_target(target)
        try:
            lane = self._lanes.ready(name)
            if lane is None or self.stopping:
                lane = await self._lane(name)
            head = _head(request, path, query)
            return await self._exchange(request, name, lane, head)
        except _Refused as refused:
            return refused.answer
        except PipoError as error:
            again = RETRY_AFTER if isinstance(error, Unavailable) else ()
            return refusal(error, headers=again)
        except NotSent:
            gone = Unavailable(f"pipeline {name!r} just went away", hint="try again in a moment")
            return refusal(gone, headers=RETRY_AFTER)
        except NotAnswered:
            lost = Unavailable(
                f"pipeline {name!r} went away before it answered",
                hint="the packet may have been accepted: look before you send it again",
            )
            return refusal(lost, status=502)

    async def _lane(self, name: str) -> Lane:
        if self.stopping:
            raise Unavailable("the gateway is stopping", hint="try again in a moment")
        if not NAME.fullmatch(name):
            raise NotFound(
                f"no pipeline named {name[:100]!r}", hint="the address is /in/<pipeline>/<path>"
            )
        return await self._lanes.opened(name)

    async def _exchange(
        self, request: web.BaseRequest, name: str, lane: Lane, head: Head
    ) -> Answer:
        """Sends the request and waits for its answer. Cancelled: the pipeline is told."""
        self._refuse_early(head.content_length)
        body = _Body(request, self._budget)
        request_id = 0
        try:
            first = body.whole() or await body.first()
            if lane.closed:
                # It was given up, or broke, before anything of this request was sent.
                lane = await self._lane(name)
            request_id, answer = lane.send(head, first, last=body.complete)
            while not body.complete and not answer.done():
                piece = await _before(answer, body.piece())
                if piece is not None:
                    await lane.send_piece(request_id, piece, last=body.complete)
            found = await answer
        except BaseException:
            lane.cancel(request_id)
            raise
        finally:
            body.release()
        headers = found.headers
        lines = header_lines((h.name, h.value) for h in headers) if headers else JSON_TYPE
        return Answer(found.status, found.body, lines)

    def _refuse_early(self, declared: int | None) -> None:
        """Refuses by the declared length alone, before a byte of the body is read."""
        if not declared:
            return
        if declared > self._budget.body_bytes_limit:
            raise _Refused(too_large(self._budget.body_bytes_limit))
        if not self._budget.has_room(declared):
            raise _full()


class _Body:
    """A request's body as it arrives, within the limit and the budget."""

    __slots__ = ("_budget", "_content", "_held", "_request", "complete")

    def __init__(self, request: web.BaseRequest, budget: Budget) -> None:
        self._request = request
        self._content: StreamReader = request.content
        self._budget = budget
        self._held = 0
        self.complete = False

    def whole(self) -> bytes:
        """The whole body when all of it is here and it is one piece; else empty."""
        content = self._content
        if not content.is_eof() or content.total_bytes > STREAM_PIECE_BYTES_MAX:
            return b""
        body = content.read_nowait()
        self._count(len(body))
        self.complete = True
        return body

    async def first(self) -> bytes:
        """The first piece; asks the client to go on if it waits to be asked."""
        if self.complete:
            return b""
        await go_on(self._request)
        return await self.piece()

    async def piece(self) -> bytes:
        """The next piece, at most 256 KiB; `complete` with the last one."""
        content = self._content
        parts: list[bytes] = []
        size = 0
        while size < STREAM_PIECE_BYTES_MAX and not content.at_eof():
            part = await self._more(STREAM_PIECE_BYTES_MAX - size)
            self._count(len(part))
            size += len(part)
            parts.append(part)
        self.complete = content.at_eof()
        return b"".join(parts)

    def release(self) -> None:
        """The body is no longer held."""
        self._budget.give_back(self._held)
        self._held = 0

    async def _more(self, size: int) -> bytes:
        try:
            async with asyncio.timeout(BODY_PAUSE_S):
                return await self._content.read(size)
        except TimeoutError:
            late = BadRequest(
                f"the rest of the body did not come within {BODY_PAUSE_S:.0f} s",
                hint="send it again",
            )
            raise _Refused(refusal(late, status=408)) from None
        except web.RequestPayloadError as error:
            bad = BadRequest(f"the body cannot be read: {error}", hint="check its encoding")
            raise _Refused(refusal(bad)) from error

    def _count(self, size: int) -> None:
        if self._held + size > self._budget.body_bytes_limit:
            raise _Refused(too_large(self._budget.body_bytes_limit))
        if not self._budget.take(size):
            raise _full()
        self._held += size


class _Refused(Exception):
    """The request ends here with this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


async def _before(
    answer: asyncio.Future[IngestAnswer], reading: Coroutine[None, None, bytes]
) -> bytes | None:
    """The next piece, or None when the answer comes before it."""
    task = asyncio.create_task(reading, name="piece of a body")
    try:
        either: set[asyncio.Future[Any]] = {task, answer}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()


def _full() -> Unavailable:
    return Unavailable(
        "too many bodies are in flight",
        hint="at most eight times engine.packet_limit are held at once; try again in a moment",
    )


def _head(request: web.BaseRequest, path: str, query: str) -> Head:
    """The request's head as it came, and who sent it (X-Forwarded-*)."""
    peer = request.remote or ""
    size = len(path) + len(query)
    headers = []
    for name, value in request.raw_headers:
        headers.append((name.decode("latin-1"), value.decode("latin-1")))
        size += len(name) + len(value) + HEADER_BYTES
    if size > HEAD_BYTES_MAX:
        raise _Refused(refusal(_TOO_LONG, status=431))
    had = request.headers
    headers.append(("X-Forwarded-For", peer))
    if "X-Forwarded-Host" not in had and (host := had.get("Host")) is not None:
        headers.append(("X-Forwarded-Host", valid(host)))
    if "X-Forwarded-Proto" not in had:
        headers.append(("X-Forwarded-Proto", "http"))
    return Head(
        request.method, path, query, headers, peer, request.content_length, size + FORWARDED_BYTES
    )
