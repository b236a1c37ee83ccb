"""Both ends of a chain and its check, against a receiver that does as it is told (edges 243-248)."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pipo.clock import SystemClock
from pipo.connectors.contract import (
    Accepted,
    Arrival,
    CheckContext,
    CheckError,
    HandOver,
    Impossible,
    InputSpec,
    Judgement,
    Passed,
    Pending,
    Refused,
    Seen,
    Target,
    WriteFailed,
    WriteUnit,
)
from pipo.connectors.pipeline import standings
from pipo.connectors.pipeline.checks import ENDED, PipelineChecks
from pipo.connectors.pipeline.input import PipelineInput
from pipo.connectors.pipeline.output import PipelineOutput
from pipo.connectors.pipeline.standings import Standings
from pipo.home import Home, registry, tokens
from pipo.home.registry import Entry
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs.packet_pb2 import ErrorInfo
from pipo.rpc.stubs.pipeline_pb2 import (
    DeliverReply,
    DeliverRequest,
    DownstreamStanding,
    DownstreamStateReply,
    DownstreamStateRequest,
    DownstreamWait,
    HandOff,
    HandOffAnswer,
)
from pipo.rpc.stubs.pipeline_pb2_grpc import PipelineServicer
from pipo.rpc.wire import STREAM_MESSAGE_BYTES_MAX
from tests.contract.connectors.contract import context
from tests.contract.connectors.intake import FakeIntake, input_context

SHORT_S = 2.0


class Store(PipelineServicer):
    """The receiver `store`."""

    def __init__(self) -> None:
        self.messages: list[DeliverRequest] = []
        self.whole: dict[str, bytes] = {}
        self.seen: dict[str, HandOff] = {}
        self.errors: dict[str, ErrorInfo] = {}
        self.silent: set[str] = set()
        self.left_s: list[float] = []
        """What each call had left of its time limit as it came."""
        self.waits: asyncio.Queue[DownstreamWait] = asyncio.Queue(100)
        self.tell: asyncio.Queue[DownstreamStanding | None] = asyncio.Queue(100)
        self.streams = 0

    async def Deliver(
        self, requests: AsyncIterator[DeliverRequest], context: Any
    ) -> AsyncIterator[DeliverReply]:
        self.left_s.append(context.time_remaining())
        async for request in requests:
            self.messages.append(request)
            answers = [answer for one in request.hand_offs for answer in self._answer(one)]
            if answers:
                yield DeliverReply(answers=answers)
        if self.silent:
            await asyncio.Event().wait()

    def _answer(self, one: HandOff) -> list[HandOffAnswer]:
        self.whole[one.key] = self.whole.get(one.key, b"") + one.data
        duplicate, self.seen[one.key] = one.key in self.seen, one
        if one.more or one.key in self.silent:
            return []
        if one.key in self.errors:
            return [HandOffAnswer(request_id=one.request_id, error=self.errors[one.key])]
        made = HandOffAnswer(request_id=one.request_id, packet_id=f"01{one.key}", state="accepted")
        made.duplicate = duplicate
        return [made]

    async def DownstreamState(
        self, requests: AsyncIterator[DownstreamStateRequest], context: Any
    ) -> AsyncIterator[DownstreamStateReply]:
        self.streams += 1
        reading = asyncio.create_task(self._read(requests), name="waits")
        try:
            while (standing := await self.tell.get()) is not None:
                yield DownstreamStateReply(standings=[standing])
        finally:
            reading.cancel()

    async def _read(self, requests: AsyncIterator[DownstreamStateRequest]) -> None:
        async for request in requests:
            assert request.pipeline == "store"
            for wait in request.waits:
                self.waits.put_nowait(wait)

    async def told(self, state: str, reason: str = "") -> DownstreamWait:
        """Answers the next wait."""
        async with asyncio.timeout(60):
            wait = await self.waits.get()
        standing = DownstreamStanding(request_id=wait.request_id, state=state, reason=reason)
        self.tell.put_nowait(standing)
        return wait


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def store() -> Store:
    return Store()  # type: ignore[abstract]  # the other calls answer UNIMPLEMENTED


@pytest.fixture
async def running(home: Home, store: Store) -> AsyncIterator[RunningServer]:
    server = await serve(
        store, bind="127.0.0.1", port=0, internal_token=tokens.internal_token(home)
    )
    register(home, f"127.0.0.1:{server.port}")
    yield server
    await server.stop(0)


def register(home: Home, address: str) -> None:
    entry = Entry(
        pipeline="store",
        version=1,
        pid=1,
        host="h",
        address=address,
        listen=None,
        ttl=None,
        state="running",
        status="active",
        started_at=1,
        runner="r",
        file="store.pipo",
        restarts=0,
    )
    registry.write(home, entry)


# ── the output ───────────────────────────────────────────────────────────────


@pytest.fixture
async def output(home: Home, tmp_path: Path) -> AsyncIterator[PipelineOutput]:
    made = PipelineOutput(context(tmp_path, home=home))
    await made.open({})
    await made.open({})
    yield made
    await made.close()
    await made.close()


def unit(key: str, data: Any = None, **given: Any) -> WriteUnit:
    settings = {"pipeline": "store", **given.pop("settings", {})}
    return WriteUnit(id=key, key=key, data=data, settings=settings, repeat="first", **given)


async def write(output: PipelineOutput, *units: WriteUnit) -> list[Any]:
    return list((await output.write(units, atomic=False)).results)


@pytest.mark.seed("C019")
async def test_a_group_is_one_call_with_an_answer_for_each(
    output: PipelineOutput, store: Store, running: RunningServer
) -> None:
    store.errors["wrong"] = ErrorInfo(code="rejected", message="no email", hint="kept as 01R")
    store.errors["full"] = ErrorInfo(code="unavailable", message="buffer full (2)")
    good, wrong, full, copy = await write(
        output,
        unit("good", {"n": 2**70}),
        unit("wrong"),
        unit("full"),
        unit("01S:a", 1, upstream={"depth": 4}, settings={"data": ["own"]}),
    )
    assert good == {"pipeline": "store", "packet_id": "01good", "duplicate": False}
    assert (type(wrong), wrong.message) == (
        WriteFailed,
        "downstream_rejected: pipeline 'store': no email",
    )
    assert wrong.hint == "kept as 01R"
    assert full.message == "downstream_unavailable: pipeline 'store': buffer full (2)"
    assert copy["packet_id"] == "0101S:a"
    (message,) = store.messages
    assert (message.pipeline, message.sender) == ("store", "p")
    # Ten seconds, less its way here.
    (left_s,) = store.left_s
    assert 5.0 < left_s <= 10.0
    assert store.whole["good"] == b'{"n":1180591620717411303424}'
    assert store.whole["01S:a"] == b'["own"]'
    handed = store.seen["01S:a"]
    assert (handed.packet_id, handed.depth) == ("01S", 5)
    assert (store.seen["good"].packet_id, store.seen["good"].depth) == ("good", 1)


async def test_a_repeat_has_the_same_packet(
    output: PipelineOutput, store: Store, running: RunningServer
) -> None:
    (first,) = await write(output, unit("k"))
    (again,) = await write(output, unit("k"))
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["packet_id"] == again["packet_id"]


async def test_messages_stay_under_their_limit(
    output: PipelineOutput, store: Store, running: RunningServer
) -> None:
    large = "x" * (3 * 1024 * 1024)
    units = [unit(f"u{n}", "y" * 200_000) for n in range(12)]
    results = await write(output, unit("large", large), *units)
    assert all(isinstance(one, dict) for one in results)
    assert json.loads(store.whole["large"]) == large
    assert all(one.ByteSize() < STREAM_MESSAGE_BYTES_MAX for one in store.messages)
    assert sum(len(one.hand_offs) > 1 for one in store.messages) >= 3


async def test_a_receiver_that_does_not_run(output: PipelineOutput) -> None:
    one, other = await write(output, unit("a"), unit("b"))
    assert one.message == "downstream_unavailable: pipeline 'store' is not running"
    assert (one.hint, other.message) == ("start it with: pipo start store", one.message)


@pytest.mark.seed("C019")
async def test_a_frozen_receiver_has_its_whole_time_to_connect_too(
    output: PipelineOutput, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_timeout_s", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        register(home, f"127.0.0.1:{frozen.getsockname()[1]}")
        began = time.monotonic()
        (failed,) = await write(output, unit("a"))
    assert failed.message == "downstream_unavailable: pipeline 'store' did not answer in time"
    assert time.monotonic() - began >= 0.5


async def test_a_receiver_that_comes_is_found_within_half_a_second(
    output: PipelineOutput, home: Home, store: Store
) -> None:
    register(home, "127.0.0.1:1")
    (failed,) = await write(output, unit("a"))
    assert "downstream_unavailable: pipeline 'store' does not answer" in failed.message
    server = await serve(
        store, bind="127.0.0.1", port=0, internal_token=tokens.internal_token(home)
    )
    try:
        register(home, f"127.0.0.1:{server.port}")
        assert (await write(output, unit("a")))[0]["packet_id"] == "01a"
    finally:
        await server.stop(0)


async def test_what_was_answered_in_time_counts(
    output: PipelineOutput,
    store: Store,
    running: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.silent.add("late")
    monkeypatch.setattr(output, "_timeout_s", SHORT_S)
    told, late = await write(output, unit("told"), unit("late"))
    assert told["packet_id"] == "01told"
    assert "downstream_unavailable: pipeline 'store' did not answer in time" in late.message
    store.silent.clear()
    monkeypatch.undo()
    assert (await write(output, unit("late")))[0]["duplicate"]


async def test_a_stranger_is_not_let_in(
    tmp_path: Path, home: Home, store: Store, running: RunningServer
) -> None:
    other = Home(tmp_path / "other")
    other.ensure()
    register(other, f"127.0.0.1:{running.port}")
    made = PipelineOutput(context(tmp_path, home=other))
    await made.open({})
    try:
        (refused,) = await write(made, unit("a"))
    finally:
        await made.close()
    assert "downstream_unavailable" in refused.message
    assert store.messages == []


async def test_units_of_one_receiver_share_a_place(output: PipelineOutput) -> None:
    assert output.place({"pipeline": "store"}, "a") == output.place({"pipeline": "store"}, "b")
    assert output.place({"pipeline": "other"}, "a") != output.place({"pipeline": "store"}, "a")
    assert output.explicit_key({"pipeline": "store"}) is None
    output.prepare({}, {"pipeline": "store"}, "a")
    await output.recover({"pipeline": "store"})


# ── the input ────────────────────────────────────────────────────────────────


def taker(intake: FakeIntake) -> PipelineInput:
    specs = [
        InputSpec("one", {"from": ["gate", "other"]}, "json"),
        InputSpec("two", {"from": ["forms"]}, "form"),
    ]
    return PipelineInput(specs, input_context(intake))


def handed(sender: str, key: str, data: Any = 1, depth: int = 1) -> HandOver:
    return HandOver(sender, "01S", key, depth, data)


@pytest.mark.seed("C011")
async def test_each_sender_has_its_input_and_its_format() -> None:
    intake = FakeIntake()
    taken = await taker(intake).deliver(
        [handed("gate", "a", {"n": 1}, depth=16), handed("forms", "b", "x=1&y=2")]
    )
    assert taken == [Accepted("p1"), Accepted("p2")]
    upstream = {"pipeline": "gate", "packet_id": "01S", "key": "a", "depth": 16}
    assert intake.arrivals[0] == Arrival(
        "one", {"n": 1}, "pipeline", "gate", key="a", upstream=upstream
    )
    assert (intake.arrivals[1].input, intake.arrivals[1].data) == ("two", {"x": "1", "y": "2"})


async def test_what_is_refused_leaves_nothing_and_holds_up_nobody() -> None:
    intake = FakeIntake()
    deep, stranger, good = await taker(intake).deliver(
        [handed("gate", "a", depth=17), handed("thief", "b"), handed("other", "c")]
    )
    assert isinstance(deep, Refused)
    assert "17 times, more than 16" in deep.message
    assert isinstance(stranger, Refused)
    assert stranger.message == "thief may not hand packets over to p"
    assert good == Accepted("p1")
    assert [one.key for one in intake.arrivals] == ["c"]


# ── the check ────────────────────────────────────────────────────────────────


@pytest.fixture
async def checks(home: Home) -> AsyncIterator[PipelineChecks]:
    made = PipelineChecks(CheckContext(SystemClock(), home))
    yield made
    await made.close()
    await made.close()


def target(packet: str = "01P") -> Target:
    result = {"pipeline": "store", "packet_id": packet, "duplicate": False}
    return Target("downstream", {}, result, {"pipeline": "store"})


async def look(checks: PipelineChecks, packet: str = "01P") -> Judgement:
    (seen,) = await checks.look("store", [target(packet)])
    assert isinstance(seen, Seen), seen
    return checks.judge(target(packet), seen)


async def news(judgement: Judgement) -> None:
    """Waits for what a look said to wait for."""
    assert isinstance(judgement, Pending)
    assert judgement.news is not None
    async with asyncio.timeout(60):
        await judgement.news


async def test_the_receiver_is_asked_once_and_tells_when_it_is_delivered(
    checks: PipelineChecks, store: Store, running: RunningServer
) -> None:
    waiting = await look(checks)
    again = await look(checks)
    assert isinstance(again, Pending)
    assert again.why == "packet 01P of pipeline 'store' is not settled, not yet delivered"
    assert (await store.told("delivered")).packet_id == "01P"
    await news(waiting)
    passed = await look(checks)
    assert isinstance(passed, Passed)
    assert passed.evidence == {"pipeline": "store", "packet_id": "01P", "state": "delivered"}
    assert (store.streams, store.waits.qsize()) == (1, 0)


@pytest.mark.seed("D043", "D044")
@pytest.mark.parametrize("state", sorted(ENDED))
async def test_any_other_end_is_final(
    checks: PipelineChecks, store: Store, running: RunningServer, state: str
) -> None:
    waiting = await look(checks)
    await store.told(state, "no such table")
    await news(waiting)
    found = await look(checks)
    assert isinstance(found, Impossible)
    assert found.why == f"packet 01P of pipeline 'store' is {state}: no such table"


async def test_a_packet_that_still_moves_is_asked_for_anew(
    checks: PipelineChecks, store: Store, running: RunningServer
) -> None:
    waiting = await look(checks)
    await store.told("verifying")
    await news(waiting)
    pending = await look(checks)
    assert isinstance(pending, Pending)
    assert "is verifying, not yet delivered" in pending.why
    assert pending.news is None
    waiting = await look(checks)
    await store.told("delivered")
    await news(waiting)
    assert isinstance(await look(checks), Passed)


@pytest.mark.seed("D045")
async def test_a_receiver_that_goes_is_an_error_and_is_found_again(
    checks: PipelineChecks, home: Home, store: Store
) -> None:
    (absent,) = await checks.look("store", [target()])
    assert isinstance(absent, CheckError)
    assert "'store' is not running (start it with: pipo start store)" in absent.message
    token = tokens.internal_token(home)
    server = await serve(store, bind="127.0.0.1", port=0, internal_token=token)
    register(home, f"127.0.0.1:{server.port}")
    one, two = await look(checks), await look(checks, "01Q")
    for _ in range(2):
        async with asyncio.timeout(60):
            await store.waits.get()
    await server.stop(0)
    registry.remove(home, "store")
    # Whoever waits is woken, and finds that nobody is there.
    await news(one)
    await news(two)
    (absent,) = await checks.look("store", [target()])
    assert isinstance(absent, CheckError)
    server = await serve(store, bind="127.0.0.1", port=0, internal_token=token)
    try:
        register(home, f"127.0.0.1:{server.port}")
        waiting = await look(checks)
        await store.told("delivered")
        await news(waiting)
        assert isinstance(await look(checks), Passed)
    finally:
        await server.stop(0)


async def test_an_answer_that_comes_during_a_look_is_handed_out_once(
    checks: PipelineChecks,
    store: Store,
    running: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replay asks anew: what was true of the packet before is not told of it again."""
    send = Standings._send

    async def slowly(self: Standings, call: Any, waits: Any) -> None:
        await send(self, call, waits)
        await store.told("dead_lettered", "no such table")
        async with asyncio.timeout(60):
            await waits[0].news

    monkeypatch.setattr(Standings, "_send", slowly)
    assert isinstance(await look(checks), Impossible)
    monkeypatch.setattr(Standings, "_send", send)
    waiting = await look(checks)
    await store.told("delivered")
    await news(waiting)
    assert isinstance(await look(checks), Passed)


async def test_an_answer_that_comes_behind_a_look_is_the_next_ones(
    checks: PipelineChecks, store: Store, running: RunningServer
) -> None:
    """What is told before a look is judged is handed out by the next look, and only by that."""
    (seen,) = await checks.look("store", [target()])
    assert isinstance(seen, Seen)
    await store.told("dead_lettered", "no such table")
    async with asyncio.timeout(60):
        await seen.value.news
    await news(checks.judge(target(), seen))
    assert isinstance(await look(checks), Impossible)
    waiting = await look(checks)
    await store.told("delivered")
    await news(waiting)
    assert isinstance(await look(checks), Passed)


async def test_what_nobody_looks_at_is_forgotten(
    checks: PipelineChecks,
    store: Store,
    running: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standings, "FORGET_S", 0.0)
    waiting = await look(checks)
    await store.told("delivered")
    await news(waiting)
    for _ in range(10):
        await asyncio.sleep(0)
    assert checks._standings["store"]._known == {}


async def test_a_result_without_a_packet_is_an_error(checks: PipelineChecks) -> None:
    for result in (None, {"pipeline": "store"}):
        (seen,) = await checks.look("store", [Target("downstream", {}, result, {})])
        assert isinstance(seen, CheckError)
        assert "left no packet_id" in seen.message
    with pytest.raises(CheckError, match="left no pipeline"):
        checks.place(Target("downstream", {}, None, {}))
