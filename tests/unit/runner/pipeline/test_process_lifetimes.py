"""A whole pipeline process that comes to the end of its lifetime, on a real journal."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import aiohttp
import pytest

from pipo.clock import Clock, SystemClock
from pipo.connectors.contract import (
    HandOver,
    HttpRequest,
    Refused,
    RefusedArrival,
    WriteFailed,
)
from pipo.errors import BadRequest, InvalidState, Rejected, Unavailable
from pipo.home import registry
from pipo.journal import reads
from pipo.journal.endings import last_ending
from pipo_runner.pipeline.life.ends import End
from tests.stack import free_ports, soon
from tests.unit.journal.conftest import open_quick
from tests.unit.runner.pipeline.rig import FakeOutput, quiet
from tests.unit.runner.pipeline.test_process import (
    HALTS,
    PAUSES,
    PLAIN,
    House,
    house,
    output,
)

__all__ = ["house", "output"]

HOUR_MS = 3_600_000
ORDER = (
    "pipeline.started",
    "pipeline.paused",
    "pipeline.resumed",
    "pipeline.lifetime",
    "pipeline.draining",
    "pipeline.stopped",
    "pipeline.completed",
    "pipeline.failed",
)


def lives(body: str, block: str) -> str:
    return f"{body}lifetime: {{ {block} }}\n"


class MovedClock(SystemClock):
    """The machine's clock, with the wall clock set forward by so much."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._by_ms


async def order(house: House) -> list[str]:
    return [one for one in await house.events() if one in ORDER]


async def facts(house: House, type_: str) -> list[Any]:
    journal = open_quick(house.home.pipeline("people").folder)
    try:
        page = await reads.events(journal.rows)
        return [json.loads(one.detail or b"{}") for one in page.events if one.type == type_]
    finally:
        await journal.close(clean=True)


async def ending(house: House) -> tuple[str, str]:
    journal = open_quick(house.home.pipeline("people").folder)
    try:
        found = await last_ending(journal.rows)
    finally:
        await journal.close(clean=True)
    assert found is not None
    return found.kind, found.reason


async def ended(run: asyncio.Task[int]) -> int:
    async with asyncio.timeout(60):
        return await run


# ── the limits ───────────────────────────────────────────────────────────────


@pytest.mark.seed("L004", "L006", "L008")
async def test_a_pipeline_completes_with_its_last_packet(house: House) -> None:
    process = await house.start(lives(PLAIN, "max_packets: 3"))
    run = house.running()
    pushed = await asyncio.gather(*(house.push({"n": n}) for n in range(8)), return_exceptions=True)
    refused = [one for one in pushed if isinstance(one, BaseException)]
    assert len(refused) == 5
    for one in refused:
        assert isinstance(one, Unavailable)
        assert "lifetime.max_packets (3)" in one.message
        assert "lifetime" in one.hint
    assert await ended(run) == 0
    assert [line["data"] for line in house.lines] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert await order(house) == [
        "pipeline.started",
        "pipeline.lifetime",
        "pipeline.draining",
        "pipeline.completed",
    ]
    assert (await house.events())[-1] == "pipeline.completed"
    (told,) = await facts(house, "pipeline.lifetime")
    assert (told["reason"], told["stats"]["accepted"]) == ("max_packets", 3)
    assert set(told["stats"]) == {
        "accepted",
        "delivered",
        "pending",
        "escalated",
        "dead_lettered",
        "uptime",
        "in_per_min",
        "last_delivery_at",
    }
    assert registry.entries(house.home) == []
    assert await ending(house) == ("completed", "max_packets")
    assert process.status == "stopping"


async def test_a_start_at_the_limit_accepts_nothing_and_completes_again(house: House) -> None:
    """Edge 313, decision 6."""
    body = lives(PLAIN, "max_packets: 1")
    await house.start(body)
    await house.push()
    assert await ended(house.running()) == 0
    process = await house.start(body)
    with pytest.raises(Unavailable, match=r"lifetime.max_packets \(1\)"):
        await house.push()
    with pytest.raises(InvalidState, match="its lifetime is over: max_packets 1"):
        process._must_run("rerun")
    assert await ended(house.running()) == 0
    assert (await order(house))[4:] == [
        "pipeline.started",
        "pipeline.lifetime",
        "pipeline.draining",
        "pipeline.completed",
    ]
    # With more room it goes on.
    await house.start(lives(PLAIN, "max_packets: 2"))
    packet = await house.push()
    assert await house.settled(packet) == "delivered"
    assert await ended(house.running()) == 0


async def test_what_is_rejected_uses_nothing_up(house: House) -> None:
    body = PLAIN.replace("via: push", "via: push, validate: ['data.n > 0']", 1)
    await house.start(lives(body, "max_packets: 2"))
    run = house.running()
    await house.push({"n": 1})
    for _ in range(2):
        with pytest.raises(Rejected):
            await house.push({"n": 0})
    await quiet()
    assert not run.done()
    await house.push({"n": 1})
    assert await ended(run) == 0
    (told,) = await facts(house, "pipeline.lifetime")
    assert told["stats"]["accepted"] == 2


@pytest.mark.seed("L005", "L008", "L011")
@pytest.mark.parametrize(
    "until", ["stats.accepted >= 2", "stats.delivered >= 2", "stats.dead_lettered > 0"]
)
async def test_a_condition_ends_it(house: House, output: FakeOutput, until: str) -> None:
    dies = "dead_lettered" in until
    output.answer = lambda unit: Refused("no ink") if dies and unit.data["n"] else {"rowid": 1}
    await house.start(lives(PLAIN, f"until: {until}"))
    run = house.running()
    await house.push({"n": 0})
    await quiet()
    assert not run.done()
    await house.push({"n": 1})
    assert await ended(run) == 0
    (told,) = await facts(house, "pipeline.lifetime")
    assert told["reason"] == "until"
    assert await ending(house) == ("completed", "until")


@pytest.mark.seed("L010", "L014")
async def test_counts_of_a_condition_survive_restarts(house: House, output: FakeOutput) -> None:
    body = lives(PLAIN, "until: stats.delivered >= 2")
    await house.start(body)
    await house.settled(await house.push())
    await house.end()
    await house.start(body)
    assert not house.process._ends.end
    await house.settled(await house.push())
    assert await ended(house.running()) == 0
    await house.start(body)
    # It holds from the start.
    assert await ended(house.running()) == 0
    assert (await order(house)).count("pipeline.lifetime") == 2


@pytest.mark.seed("L009")
async def test_what_drains_names_the_limit_at_every_door(house: House, output: FakeOutput) -> None:
    body = PLAIN.replace(
        "input: { via: push }",
        "inputs:\n  hand: { via: push }\n  web: { via: http, with: { path: /web } }\n"
        "  link: { via: pipeline, with: { from: [other] } }",
    ).replace("from: input", "from: [hand, web, link]")
    process = await house.start(lives(body, "until: stats.accepted >= 1"))
    output.hold()
    await house.push()
    run = house.running()
    await soon(lambda: process.status == "draining")
    with pytest.raises(Unavailable, match=r"lifetime.until \(stats.accepted >= 1\) is reached"):
        await house.push()
    assert process._http is not None
    answer = await process._http.answer(HttpRequest("POST", "/web", "", [], "peer", b"1"))
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (503, "5")
    assert b"lifetime.until (stats.accepted >= 1)" in answer.body
    assert process.hand_overs.input is not None
    (taken,) = await process.hand_overs.input.deliver([HandOver("other", "p", "k", 1, 1)])
    assert isinstance(taken, RefusedArrival)
    assert "lifetime.until" in taken.message
    assert process.parts.admission.refused[("web", "lifetime")] == 1
    info = await process.info()
    assert "its lifetime is over: until stats.accepted >= 1" in info.notes
    output.let_go()
    assert await ended(run) == 0


@pytest.mark.seed("L009")
async def test_a_port_of_its_own_stays_open_to_say_so(house: House, output: FakeOutput) -> None:
    port = free_ports(1)
    body = PLAIN.replace("via: push", f"via: http, with: {{ path: /web, listen: {port} }}", 1)
    process = await house.start(lives(body, "max_packets: 1"))
    output.hold()
    run = house.running()

    async def post() -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}/web", json=1) as answer,
        ):
            return answer.status, await answer.text()

    assert (await post())[0] == 202
    await soon(lambda: process.status == "draining")
    status, told = await post()
    assert status == 503
    assert "lifetime.max_packets (1)" in told
    output.let_go()
    assert await ended(run) == 0
    with pytest.raises(aiohttp.ClientConnectionError):
        await post()


# ── how it ends ──────────────────────────────────────────────────────────────


@pytest.mark.seed("L006")
async def test_a_lifetime_that_stops_leaves_what_waits(house: House, output: FakeOutput) -> None:
    output.answer = lambda unit: WriteFailed("busy")
    retried = PLAIN[:-3] + ", on_error: { retry: 3, delay: 10m, max_delay: 10m } }\n"
    await house.start(lives(retried, "max_packets: 1, on_end: stop"))
    run = house.running()
    packet = await house.push()
    assert await ended(run) == 0
    assert await order(house) == ["pipeline.started", "pipeline.lifetime", "pipeline.completed"]
    await house.start(retried)
    assert packet in {unit.id for unit in (await house.journal.recover()).units}
    await house.end()


async def test_packets_that_wait_for_somebody_hold_no_lifetime_up(
    house: House, output: FakeOutput
) -> None:
    output.answer = lambda unit: Refused("no ink")
    body = PLAIN[:-3] + ", on_error: { then: agent } }\nagent: { control: true }\n"
    await house.start(lives(body, "until: stats.escalated > 0 && stats.accepted > 1"))
    first = await house.push()
    await soon(lambda: house.process.parts.statistics.scope()["escalated"] == 1)
    await house.push()
    assert await ended(house.running()) == 0
    journal = open_quick(house.home.pipeline("people").folder)
    states = {unit.id: unit.state for unit in (await journal.recover()).units}
    await journal.close(clean=True)
    assert states[first] == "escalated"


async def test_a_paused_pipeline_is_resumed_to_drain(house: House) -> None:
    """Edge 307."""
    process = await house.start(lives(PLAIN, "max_packets: 1"))
    await process.pause("")
    packet = await house.push()
    assert await ended(house.running()) == 0
    assert [line["packet_id"] for line in house.lines] == [packet]
    assert await order(house) == [
        "pipeline.started",
        "pipeline.paused",
        "pipeline.lifetime",
        "pipeline.resumed",
        "pipeline.draining",
        "pipeline.completed",
    ]
    assert (await house.start(PLAIN)).status == "active"
    await house.end()


async def test_a_lifetime_that_stops_ends_a_pause(house: House) -> None:
    process = await house.start(lives(PLAIN, "max_packets: 1, on_end: stop"))
    await process.pause("")
    await house.push()
    assert await ended(house.running()) == 0
    assert house.lines == []
    assert (await house.start(PLAIN)).status == "active"
    await house.end()


async def test_nothing_pauses_a_lifetime_drain(house: House, output: FakeOutput) -> None:
    output.answer = lambda unit: WriteFailed("no ink")
    process = await house.start(lives(PAUSES, "max_packets: 1"))
    run = house.running()
    await house.push()
    assert await ended(run) == 0
    assert "pipeline.paused" not in await house.events()
    with pytest.raises(InvalidState, match="its lifetime is over"):
        await process.pause("")


@pytest.mark.parametrize(
    ("end", "word"),
    [
        (End("now", "stop"), ("stopped", "stop")),
        (End("suspend", "shutdown"), ("stopped", "shutdown")),
        (End("drain", "stop"), ("completed", "max_packets")),
        (End("drain", "restart"), ("stopped", "restart")),
    ],
    ids=str,
)
async def test_another_end_beside_a_lifetime_drain(
    house: House, output: FakeOutput, end: End, word: tuple[str, str]
) -> None:
    process = await house.start(lives(PLAIN, "max_packets: 1"), stop_timeout_s=0.05)
    output.hold()
    await house.push()
    run = house.running()
    await soon(lambda: process.status == "draining")
    process.end(end)
    output.let_go()
    assert await ended(run) == 0
    assert await ending(house) == word
    assert (await house.events()).count("pipeline.lifetime") == 1


async def test_a_halt_beside_a_lifetime_drain_fails_it(house: House, output: FakeOutput) -> None:
    output.answer = lambda unit: Refused("no ink")
    output.hold()
    process = await house.start(lives(HALTS, "max_packets: 1"))
    run = house.running()
    await house.push()
    await soon(lambda: process.status == "draining")
    output.let_go()
    assert await ended(run) == 1
    assert (await ending(house))[0] == "failed"


async def test_a_limit_that_is_reached_beside_a_stop_ends_nothing(
    house: House, output: FakeOutput
) -> None:
    process = await house.start(lives(PLAIN, "until: stats.delivered >= 1"))
    output.hold()
    await house.push()
    run = house.running()
    process.ask_to_stop(now=False)
    await soon(lambda: process.status == "draining")
    output.let_go()
    assert await ended(run) == 0
    assert process.parts.lifetime.reached is None
    assert "pipeline.lifetime" not in await house.events()
    assert await ending(house) == ("stopped", "stop")


# ── the ttl and its anchor ───────────────────────────────────────────────────


async def left_ms(house: House) -> int:
    info = await house.process.info()
    assert info.lifetime.ttl
    assert abs(info.lifetime.ends_at - house.clock.now_ms() - info.lifetime.remaining_ms) < 1000
    return int(info.lifetime.remaining_ms)


@pytest.mark.seed("L003", "L008")
async def test_a_ttl_ends_it(house: House) -> None:
    await house.start(lives(PLAIN, "ttl: 100ms"))
    packet = await house.push()
    assert await ended(house.running()) == 0
    assert [line["packet_id"] for line in house.lines] == [packet]
    (told,) = await facts(house, "pipeline.lifetime")
    assert told["reason"] == "ttl"


@pytest.mark.seed("L017", "L019")
@pytest.mark.parametrize("how", ["crash", "suspend", "new version"])
async def test_what_does_not_end_cleanly_keeps_the_anchor(house: House, how: str) -> None:
    body = lives(PLAIN, "ttl: 2h")
    await house.start(body)
    # Twice: the second time it is not the run before that counts, but the first.
    for away_ms in (HOUR_MS // 2, HOUR_MS):
        if how == "suspend":
            await house.end()
        else:
            await house.kill()
        house.clock = cast(Clock, MovedClock(away_ms))
        body += "# changed\n" if how == "new version" else ""
        await house.start(body)
        left = 2 * HOUR_MS - away_ms
        assert left - 60_000 < await left_ms(house) < left
    await house.end()


@pytest.mark.seed("L018")
@pytest.mark.parametrize("end", [("drain", "stop"), ("now", "stop"), ("drain", "restart")], ids=str)
async def test_a_clean_end_begins_a_new_lifetime(house: House, end: tuple[Any, str]) -> None:
    body = lives(PLAIN, "ttl: 2h")
    await house.start(body)
    await house.end(*end)
    house.clock = cast(Clock, MovedClock(HOUR_MS))
    await house.start(body)
    assert await left_ms(house) > 2 * HOUR_MS - 60_000
    await house.end()


@pytest.mark.seed("L018")
async def test_a_completed_lifetime_and_a_halt_begin_a_new_one(
    house: House, output: FakeOutput
) -> None:
    await house.start(lives(HALTS, "ttl: 2h, max_packets: 1"))
    output.answer = lambda unit: {"rowid": 1}
    await house.push()
    assert await ended(house.running()) == 0
    house.clock = cast(Clock, MovedClock(HOUR_MS))
    await house.start(lives(HALTS, "ttl: 2h"))
    assert await left_ms(house) > 2 * HOUR_MS - 60_000
    output.answer = lambda unit: Refused("no ink")
    await house.push()
    assert await ended(house.running()) == 1
    house.clock = cast(Clock, MovedClock(2 * HOUR_MS))
    output.answer = lambda unit: {"rowid": 1}
    await house.start(lives(HALTS, "ttl: 2h"))
    assert await left_ms(house) > 2 * HOUR_MS - 60_000
    await house.end()


@pytest.mark.seed("L020")
async def test_a_restart_behind_the_end_drains_at_once(house: House, output: FakeOutput) -> None:
    """Edge 318, 319."""
    body = lives(PLAIN, "ttl: 1h")
    await house.start(body)
    output.hold()
    packet = await house.push()
    await soon(lambda: output.writes)
    await house.kill()
    output.let_go()
    house.clock = cast(Clock, MovedClock(HOUR_MS))
    output.writes.clear()
    await house.start(body)
    with pytest.raises(Unavailable, match=r"pipeline is draining: lifetime\.ttl"):
        await house.push()
    assert await ended(house.running()) == 0
    assert output.written == [packet]
    assert (await order(house))[-4:] == [
        "pipeline.started",
        "pipeline.lifetime",
        "pipeline.draining",
        "pipeline.completed",
    ]


async def test_a_clock_that_was_set_back_gives_no_more_than_a_whole_ttl(house: House) -> None:
    body = lives(PLAIN, "ttl: 2h")
    house.clock = cast(Clock, MovedClock(24 * HOUR_MS))
    await house.start(body)
    await house.kill()
    house.clock = SystemClock()
    await house.start(body)
    assert 2 * HOUR_MS - 60_000 < await left_ms(house) <= 2 * HOUR_MS
    await house.end()


@pytest.mark.seed("L012", "L014")
async def test_a_crash_on_the_way_out_is_no_way_back(house: House, output: FakeOutput) -> None:
    """Its `until` holds no longer once the run is new; the lifetime is over all the same."""
    body = lives(PLAIN, "until: stats.uptime >= 1")
    output.hold()
    await house.start(body)
    packet = await house.push()
    run = house.running()
    await soon(lambda: house.process.status == "draining")
    await house.kill()
    run.cancel()
    output.let_go()
    output.writes.clear()
    await house.start(body)
    assert house.process.parts.statistics.scope()["uptime"] == 0
    assert await ended(house.running()) == 0
    assert output.written == [packet]
    assert await ending(house) == ("completed", "until")
    # A clean end forgets it.
    await house.start(body)
    assert house.process._ends.end is None
    await house.end("now", "stop")


# ── the ttl of a start ───────────────────────────────────────────────────────


@pytest.mark.seed("L021", "L022")
async def test_the_ttl_of_a_start_is_told_and_kept(house: House) -> None:
    """Edge 321, 325."""
    house.options = {"ttl": "30m"}
    await house.start(PLAIN)
    (entry,) = registry.entries(house.home)
    assert entry.ttl == "30m"
    info = await house.process.info()
    assert (info.ttl, info.lifetime.ttl) == ("30m", "30m")
    await house.kill()
    house.clock = cast(Clock, MovedClock(HOUR_MS))
    await house.start(PLAIN)
    assert await ended(house.running()) == 0
    assert [one.get("ttl") for one in await facts(house, "pipeline.started")] == ["30m", "30m"]


@pytest.mark.seed("L023")
async def test_a_start_without_one_goes_by_the_file(house: House) -> None:
    body = lives(PLAIN, "ttl: 2h")
    house.options = {"ttl": "30m"}
    await house.start(body)
    await house.end("drain", "stop")
    house.options = {}
    await house.start(body)
    assert await left_ms(house) > HOUR_MS
    (entry,) = registry.entries(house.home)
    assert entry.ttl is None
    assert not (await house.process.info()).HasField("ttl")
    await house.end()
    assert ["ttl" in one for one in await facts(house, "pipeline.started")] == [True, False]


async def test_a_ttl_that_is_none_refuses_the_start(house: House) -> None:
    """Edge 322."""
    house.options = {"ttl": "soon"}
    with pytest.raises(BadRequest, match="ttl"):
        await house.start(PLAIN)
    assert registry.entries(house.home) == []
