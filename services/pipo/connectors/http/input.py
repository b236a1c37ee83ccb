"""Takes packets over HTTP, whoever carried the request here: a gateway, or its own port.

Order: route, method, token (nothing of these needs the body), size, signature over
the raw body, parse, intake. What fails before intake journals nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipo.connectors.contract import (
    Accepted,
    Arrival,
    HttpAnswer,
    HttpRequest,
    Input,
    InputContext,
    InputSpec,
    RefusedArrival,
    RejectedArrival,
    Settlement,
    Taken,
)
from pipo.connectors.formats import parse_body
from pipo.connectors.http.answers import (
    Outcome,
    accepted,
    for_packets,
    refusal,
    too_large,
    unavailable,
)
from pipo.connectors.http.routes import Route, Routes, route
from pipo.errors import CODES, BadRequest, PipoError
from pipo.home import ports

# Records of one body that are taken together.
RECORDS_TOGETHER = 64
# And about how many bytes of them: a wide header stands in every record.
BYTES_TOGETHER = 1024 * 1024
# A body from this size on is judged and parsed on a thread.
LONG_BODY_BYTES = 256 * 1024

_STOPPING = RefusedArrival("the pipeline is stopping", "try again once it runs")


def build(specs: Sequence[InputSpec], context: InputContext) -> Input:
    return HttpInputs(specs, context)


class HttpInputs:
    """All http inputs of a pipeline; each answers on its own path and method."""

    def __init__(self, specs: Sequence[InputSpec], context: InputContext) -> None:
        self._context = context
        self._intake = context.intake
        self._routes = Routes([route(spec) for spec in specs])
        self._reserved = context.listening
        self._named = _port(specs) if context.listening is None else None
        self._listener: Any = None
        self._taking = 0
        self._closing = asyncio.Event()
        self._quiet = asyncio.Event()

    async def open(self) -> None:
        """Raises: Conflict, when the port of `listen` is taken."""
        if self._reserved is None and self._named is not None:
            self._reserved = ports.reserve(self._named, self._context.home)
        if self._reserved is not None and self._listener is None:
            # Only a pipeline with a port of its own pays for an HTTP server.
            from pipo.connectors.http.listener import Listener

            listener = Listener(self, self._reserved, self._context)
            await listener.open()
            self._listener = listener

    @property
    def port(self) -> int | None:
        return None if self._listener is None else int(self._listener.port)

    async def close(self) -> None:
        self._closing.set()
        while self._taking:
            self._quiet.clear()
            await self._quiet.wait()
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    def routes(self) -> Mapping[str, str]:
        return self._routes.by_input()

    def early(self, request: HttpRequest) -> HttpAnswer | None:
        found = self._routes.find(request)
        return found if isinstance(found, HttpAnswer) else None

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        found = self._routes.find(request)
        if isinstance(found, HttpAnswer):
            return found
        if len(request.body) < LONG_BODY_BYTES:
            unfit = self._unfit(found, request)
        else:
            unfit = await asyncio.to_thread(self._unfit, found, request)
        if unfit is not None:
            return unfit
        try:
            packets = await _parsed(found, request)
            outcomes, refused = await self._take_all(found, request, packets)
        except PipoError as error:
            return _error_answer(error)
        if found.waits:
            outcomes = await self._ended(outcomes, found.timeout_s)
        return for_packets(
            outcomes,
            refused,
            many=found.format == "csv",
            waited=found.waits,
            reject_status=found.reject_status,
        )

    def arrival(self, request: HttpRequest) -> Arrival | HttpAnswer | None:
        found = self._routes.find(request)
        if isinstance(found, HttpAnswer):
            return found
        if found.waits or found.format == "csv" or len(request.body) >= LONG_BODY_BYTES:
            return None
        unfit = self._unfit(found, request)
        if unfit is not None:
            return unfit
        try:
            (data,) = parse_body(found.format, request.body, request.header("content-type") or "")
        except PipoError as error:
            return _error_answer(error)
        return Arrival(found.input, data, "http", request.peer)

    async def answer_arrivals(self, arrivals: Sequence[Arrival]) -> list[HttpAnswer]:
        if self._closing.is_set():
            return [unavailable(_STOPPING)] * len(arrivals)
        try:
            taken = await self._take(arrivals)
        except PipoError as error:
            return [_error_answer(error)] * len(arrivals)
        return [self._single(arrival, one) for arrival, one in zip(arrivals, taken, strict=True)]

    def _single(self, arrival: Arrival, taken: Taken) -> HttpAnswer:
        if isinstance(taken, Accepted):
            return accepted(taken.packet_id)
        if isinstance(taken, RefusedArrival):
            return unavailable(taken)
        return for_packets(
            [_outcome(taken)],
            None,
            many=False,
            waited=False,
            reject_status=self._routes.reject_status(arrival.input),
        )

    def _unfit(self, found: Route, request: HttpRequest) -> HttpAnswer | None:
        if self._closing.is_set():
            return unavailable(_STOPPING)
        limit = self._context.packet_limit
        if len(request.body) > limit:
            return too_large(limit)
        signature = found.auth.signature
        if signature is not None and not signature.allows(request):
            return refusal(
                401,
                "the signature does not match the body",
                f"send the hex HMAC-{signature.algorithm.upper()} of the raw body in the header"
                f" {signature.header}",
            )
        coding = (request.header("content-encoding") or "identity").strip().lower()
        if coding not in ("", "identity") and found.format != "bytes":
            return refusal(400, f"the body is coded with {coding}", "send it as it is")
        # Only its chunks are undone on the way here; a coding beneath them would be taken for data.
        transfer = (request.header("transfer-encoding") or "chunked").strip().lower()
        if transfer != "chunked":
            return refusal(400, f"the body is sent as {transfer}", "send it as it is")
        return None

    # ── intake ───────────────────────────────────────────────────────────────

    async def _take_all(
        self, found: Route, request: HttpRequest, packets: Iterable[Any]
    ) -> tuple[list[Outcome], RefusedArrival | None]:
        """Takes packets in their order and stops at the first that is refused (edge 91)."""
        outcomes: list[Outcome] = []
        for group in _groups(packets) if found.format == "csv" else [list(packets)]:
            if self._closing.is_set():
                return outcomes, _STOPPING
            arrivals = [Arrival(found.input, data, "http", request.peer) for data in group]
            for taken in await self._take(arrivals):
                if isinstance(taken, RefusedArrival):
                    return outcomes, taken
                outcomes.append(_outcome(taken))
        return outcomes, None

    async def _take(self, arrivals: Sequence[Arrival]) -> list[Taken]:
        self._taking += 1
        try:
            return await self._intake.take(arrivals)
        finally:
            self._taking -= 1
            self._quiet.set()

    # ── waiting for the end ──────────────────────────────────────────────────

    async def _ended(self, outcomes: Sequence[Outcome], timeout_s: float) -> list[Outcome]:
        """How the accepted packets ended, or that they go on, by the deadline."""
        clock = self._context.clock
        deadline = clock.monotonic() + timeout_s
        ended = []
        for outcome in outcomes:
            if outcome.state == "accepted":
                left = max(0.0, deadline - clock.monotonic())
                settlement = await self._unless_closing(
                    self._intake.settled(outcome.packet_id, left)
                )
                outcome = _settled(outcome, settlement)
            ended.append(outcome)
        return ended

    async def _unless_closing(self, wait: Coroutine[Any, Any, Settlement]) -> Settlement | None:
        """The wait's result, or None when the input closes first (edge 32)."""
        asked = asyncio.create_task(wait, name="wait for a packet's end")
        closing = asyncio.create_task(self._closing.wait(), name="wait for the input's end")
        try:
            await asyncio.wait({asked, closing}, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else None
        finally:
            asked.cancel()
            closing.cancel()


def _error_answer(error: PipoError) -> HttpAnswer:
    return refusal(CODES[error.code].http, error.message, error.hint)


async def _parsed(found: Route, request: HttpRequest) -> Iterable[Any]:
    content_type = request.header("content-type") or ""
    if len(request.body) < LONG_BODY_BYTES:
        return parse_body(found.format, request.body, content_type)
    return await asyncio.to_thread(parse_body, found.format, request.body, content_type)


def _groups(records: Iterable[Mapping[str, str]]) -> Iterator[list[Mapping[str, str]]]:
    """The records of a csv by those that are taken in one commit."""
    group, size = [], 0
    for record in records:
        group.append(record)
        size += sum(map(len, record)) + sum(map(len, record.values()))
        if len(group) == RECORDS_TOGETHER or size >= BYTES_TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group


def _outcome(taken: Taken) -> Outcome:
    if isinstance(taken, RejectedArrival):
        return Outcome(taken.packet_id, "rejected", taken.message, taken.rule)
    assert not isinstance(taken, RefusedArrival), "a refused packet has no outcome"
    return Outcome(taken.packet_id, "accepted")


def _settled(outcome: Outcome, settlement: Settlement | None) -> Outcome:
    """A packet that still goes on is `accepted`, whatever state it has reached (edge 30)."""
    if settlement is None or settlement.state not in (
        "delivered",
        "filtered",
        "dead_lettered",
        "escalated",
    ):
        return outcome
    return Outcome(outcome.packet_id, settlement.state, settlement.error)


def _port(specs: Sequence[InputSpec]) -> int | None:
    """The one port that all inputs share (edge 39)."""
    ports = {spec.settings["listen"] for spec in specs if spec.settings.get("listen") is not None}
    if len(ports) > 1:
        raise BadRequest(
            f"the http inputs name several ports: {', '.join(map(str, sorted(ports)))}",
            hint="set one `listen`; they share it",
        )
    return ports.pop() if ports else None
