"""A destination that does as it is told, and time that passes only when all wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from pipo.connectors.contract import (
    CheckError,
    Checks,
    Impossible,
    Judgement,
    Passed,
    Pending,
    Seen,
    Target,
)
from pipo.errors import InvalidState
from pipo.home.registry import Entry
from pipo.rpc.stubs.checker_pb2 import (
    Verdict,
    Verification,
    VerificationsReply,
    VerificationsRequest,
)
from pipo.rpc.stubs.pipeline_pb2 import HelloReply, HelloRequest
from pipo.rpc.stubs.pipeline_pb2_grpc import PipelineServicer

_T = TypeVar("_T")
Run = Callable[[Callable[["LoopClock"], Coroutine[Any, Any, _T]]], _T]


class PatientLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer when nothing is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            events = select(0 if timeout is None or timeout > 0 else timeout)
            if not events and timeout is not None and timeout > 0:
                self._now += timeout
            return events

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


class LoopClock:
    """The loop's own time as a Clock; no chance in it."""

    def now_ms(self) -> int:
        return 1_790_000_000_000 + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def jitter(self, span_s: float) -> float:
        return 0.0


@dataclass
class FakeChecks:
    """One check, `there`: passes for units whose `id` stands in `present`.

    A unit named `never` can never pass. `before` runs before each look answers: it may
    wait, raise, or return the answers itself.
    """

    present: set[str] = field(default_factory=set)
    before: Callable[[str, Sequence[Target]], Coroutine[Any, Any, Any]] | None = None
    looks: list[tuple[float, str, list[str]]] = field(default_factory=list)
    looking: dict[str, int] = field(default_factory=dict)
    overlapped: bool = False
    closed: bool = False
    tells: bool = False
    news: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    """With `tells`: what the last look at each unit said to wait for."""

    def place(self, target: Target) -> str:
        place = target.output.get("path", "")
        if place == "broken":
            raise KeyError(place)
        return str(place)

    async def look(self, place: str, targets: Sequence[Target]) -> list[Seen | CheckError]:
        now = asyncio.get_running_loop().time()
        self.looks.append((now, place, [t.settings["id"] for t in targets]))
        self.overlapped |= self.looking.get(place, 0) > 0
        self.looking[place] = self.looking.get(place, 0) + 1
        try:
            answers = await self.before(place, targets) if self.before else None
        finally:
            self.looking[place] -= 1
        if answers is not None:
            return list(answers)
        return [
            Seen(t.settings["id"] in self.present, {"path": place, "id": t.settings["id"]})
            for t in targets
        ]

    def judge(self, target: Target, seen: Seen) -> Judgement:
        match target.settings["id"]:
            case "never":
                return Impossible("it was dead-lettered", seen.evidence)
            case "bug":
                raise ZeroDivisionError("judged")
        if seen.value:
            return Passed(seen.evidence)
        if self.tells:
            news = asyncio.get_running_loop().create_future()
            self.news[target.settings["id"]] = news
            return Pending("it will be told", seen.evidence, news=news)
        return Pending(f"no {target.settings['id']} there", seen.evidence)

    async def close(self) -> None:
        self.closed = True

    @property
    def times(self) -> list[float]:
        """When the looks began, from the first one on."""
        return [round(at - self.looks[0][0], 6) for at, _, _ in self.looks]


@dataclass
class FakeConnectors:
    """One output, `fake`, with one check, `there`."""

    checks: FakeChecks = field(default_factory=FakeChecks)

    def offered(self, output: str) -> frozenset[str]:
        return frozenset({"there", "status"})

    def build_checks(self, output: str) -> Checks:
        if output != "fake":
            raise InvalidState(f"the checks of output {output!r} are not built yet")
        return self.checks


def make_offer(id: str, **changes: Any) -> Verification:
    """An offer of unit `id` at path `a`, with a `within` of 10 s unless it says otherwise."""
    words = {
        "id": f"{id}:1:1",
        "check": changes.pop("check", "there"),
        "with": json.dumps({"id": id}).encode(),
        "result": b'{"rowid": 1}',
        "output": changes.pop("output", "fake"),
        "target": json.dumps({"path": changes.pop("path", "a")}).encode(),
        "within_ms": changes.pop("within_ms", 10_000),
    }
    return Verification(**{"within_left_ms": words["within_ms"], **words, **changes})


class FakePipeline(PipelineServicer):
    """Offers what is put into `offers`; keeps what it is told."""

    def __init__(self) -> None:
        self.offers: asyncio.Queue[VerificationsReply | None] = asyncio.Queue(100)
        self.told: asyncio.Queue[VerificationsRequest] = asyncio.Queue(10_000)
        self.messages: list[VerificationsRequest] = []
        self.name = "people"
        self.met = 0
        self.ended = asyncio.Event()

    async def Hello(self, request: HelloRequest, context: Any) -> HelloReply:
        self.met += 1
        return HelloReply(pipeline=self.name)

    async def Verifications(
        self, requests: AsyncIterator[VerificationsRequest], context: Any
    ) -> AsyncIterator[VerificationsReply]:
        self.ended.clear()
        reading = asyncio.create_task(self._read(requests), name="fake pipeline reads")
        try:
            while (reply := await self.offers.get()) is not None:
                yield reply
        finally:
            reading.cancel()
            self.ended.set()

    async def _read(self, requests: AsyncIterator[VerificationsRequest]) -> None:
        async for request in requests:
            self.messages.append(request)
            await self.told.put(request)

    async def hello(self) -> VerificationsRequest:
        """The first message of the next stream."""
        while not (message := await self.next()).HasField("hello"):
            pass
        return message

    async def next(self) -> VerificationsRequest:
        async with asyncio.timeout(60):
            return await self.told.get()

    async def verdicts(self, count: int) -> list[Verdict]:
        found: list[Verdict] = []
        while len(found) < count:
            found += (await self.next()).verdicts
        return found


def entry_of(port: int) -> Entry:
    """The registry entry of a pipeline `people` that serves on `port`."""
    return Entry(
        pipeline="people",
        version=1,
        pid=1,
        host="h",
        address=f"127.0.0.1:{port}",
        listen=None,
        ttl=None,
        state="active",
        status="active",
        started_at=1,
        runner="r",
        file="people.pipo",
        restarts=0,
    )


@pytest.fixture
def offer() -> Callable[..., Verification]:
    return make_offer


@pytest.fixture
def pipeline() -> FakePipeline:
    return FakePipeline()  # type: ignore[abstract]  # the other calls answer UNIMPLEMENTED


@pytest.fixture
def entry() -> Callable[[int], Entry]:
    return entry_of


@pytest.fixture
def connectors() -> FakeConnectors:
    return FakeConnectors()


@pytest.fixture
def checks(connectors: FakeConnectors) -> FakeChecks:
    return connectors.checks


@pytest.fixture
def patiently() -> Run[Any]:
    """Runs `scene(clock)` on a PatientLoop."""

    def run(scene: Callable[[LoopClock], Coroutine[Any, Any, _T]]) -> _T:
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            return runner.run(scene(LoopClock()))

    return run
