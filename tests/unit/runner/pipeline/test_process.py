"""A whole pipeline process on a real journal: its start and its ends."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipo import collector
from pipo.clock import Clock, SystemClock
from pipo.connectors import registry as connectors
from pipo.connectors.contract import Flush, Refused, Settlement, WriteFailed
from pipo.errors import BadRequest, InvalidState, Unavailable
from pipo.home import Home, registry, standing
from pipo.home.config import Config
from pipo.home.leases import Lease
from pipo.journal import reads
from pipo.journal.endings import last_ending
from pipo.journal.sqlite_journal import SqliteJournal
from pipo.rpc.channels import dial
from pipo.rpc.server import RunningServer, serve
from pipo.rpc.stubs import pipeline_pb2, pipeline_pb2_grpc, pipo_pb2
from pipo_runner.pipeline import closing
from pipo_runner.pipeline import process as process_module
from pipo_runner.pipeline.definition.versions import read_definition
from pipo_runner.pipeline.flow import resting
from pipo_runner.pipeline.life.ends import End, Kind
from pipo_runner.pipeline.process import PipelineProcess
from pipo_runner.spec import ProcessSpec
from tests.stack import soon
from tests.unit.journal.conftest import open_quick
from tests.unit.runner.pipeline.rig import FakeOutput, quiet

TO_FILE = "to: file, with: { path: ./out.jsonl }"
PLAIN = f"input: {{ via: push }}\noutput: {{ from: input, {TO_FILE} }}\n"
CHECKED = f"{PLAIN}delivered: {{ check: file_exists }}\n"
RETRIED = PLAIN.replace(" }\n", ", on_error: { retry: 3, delay: 10m, max_delay: 10m } }\n").replace(
    "via: push, on_error: { retry: 3, delay: 10m, max_delay: 10m } }", "via: push }"
)
BATCHED = (
    "input: { via: push }\n"
    f"output: {{ from: input, batch: {{ size: 100, within: 1h }}, {TO_FILE} }}\n"
)
TOKEN = "the-home-token"


class House:
    """A home with one pipeline file, and the runs of its process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.home.ensure()
        self.home.pipeline("people").ensure()
        self.file = folder / "people.pipo"
        self.clock: Clock = SystemClock()
        self.options: dict[str, Any] = {}
        self.journal: SqliteJournal
        self.process: PipelineProcess
        self._servers: list[RunningServer] = []

    async def start(self, body: str = PLAIN, **config: Any) -> PipelineProcess:
        """A run that serves; its end comes with `end`."""
        self.file.write_text(f"pipo: 1\nname: people\n{body}")
        self.journal = open_quick(self.home.pipeline("people").folder)
        self.process = PipelineProcess(
            ProcessSpec(
                home=str(self.home.root),
                name="people",
                file=str(self.file),
                runner_id="r1",
                bind="127.0.0.1",
                advertise="127.0.0.1",
                restarts=2,
                options=self.options,
            ),
            home=self.home,
            config=replace(Config(), **{"stop_timeout_s": 30.0, **config}),
            clock=self.clock,
            definition=read_definition(self.file, "people", connectors.manifests()),
            journal=self.journal,
            internal_token=TOKEN,
        )
        self.address = await self.process.start()
        return self.process

    def running(self) -> asyncio.Task[int]:
        """The run, on its way to its end."""
        return asyncio.create_task(self.process.run_to_end(), name="a run")

    async def end(self, kind: Kind = "suspend", reason: str = "shutdown") -> int:
        """Ends the run and says with which code."""
        self.process.end(End(kind, reason))
        return await self.process.run_to_end()

    async def kill(self) -> None:
        """The journal is left as a crash leaves it."""
        await self.journal.close(clean=False)

    async def serve(self, *words: Any, **keys: Any) -> RunningServer:
        """As the process serves, and known to `tidy`."""
        made = await serve(*words, **keys)
        self._servers.append(made)
        return made

    async def tidy(self) -> None:
        """Ends what a run that was killed has left in this process."""
        for server in self._servers:
            await server.stop(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if hasattr(self, "journal"):
            await self.journal.close(clean=False)

    async def push(self, data: Any = None) -> str:
        raw = json.dumps(data if data is not None else {"n": 1}).encode()
        reply = await self.process.pushes.push(pipo_pb2.PushRequest(data=raw))
        return reply.packet_id

    async def settled(self, packet_id: str) -> str:
        return (await self.process.parts.intake.settled(packet_id, 5.0)).state

    async def events(self) -> list[str]:
        """Every event in the journal, read anew."""
        journal = open_quick(self.home.pipeline("people").folder)
        try:
            return [event.type for event in (await reads.events(journal.rows)).events]
        finally:
            await journal.close(clean=True)

    @property
    def lines(self) -> list[Any]:
        """What stands in the output file."""
        file = self.folder / "out.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    # A test's own garbage is not to be frozen.
    monkeypatch.setattr(collector, "calm", lambda: None)
    made = House(tmp_path)
    monkeypatch.setattr(process_module, "serve", made.serve)
    yield made
    await made.tidy()


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> FakeOutput:
    """The destination of every process of the test."""
    made = FakeOutput()
    monkeypatch.setattr(connectors, "build_output", lambda name, context: made)
    return made


# ── start ────────────────────────────────────────────────────────────────────


async def test_a_start_serves_and_is_in_the_registry(house: House) -> None:
    process = await house.start()
    assert process.status == "active"
    (entry,) = registry.entries(house.home)
    assert (entry.address, entry.status, entry.restarts) == (house.address, "active", 2)
    channel = dial(house.address, TOKEN)
    reply = await pipeline_pb2_grpc.PipelineStub(channel).Hello(pipeline_pb2.HelloRequest())
    await channel.close()
    assert (reply.pipeline, reply.version) == ("people", 1)
    page = await reads.events(house.journal.rows)
    (first,) = page.events
    assert (first.seq, first.type) == (1, "pipeline.started")
    await house.end()


async def test_an_entry_that_somebody_damaged_stands_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its webhooks, its chain and its commands find it by that entry alone."""
    monkeypatch.setattr(standing, "LOOK_S", 0.001)
    lease = Lease.acquire(house.home.pipeline("people").lease, clock=SystemClock())
    try:
        await house.start()
        (before,) = registry.entries(house.home)
        (house.home.run / "people.json").write_text("null")
        await soon(lambda: registry.entries(house.home) == [before])
        await house.end()
        assert registry.entries(house.home) == []
    finally:
        lease.release()


async def test_a_secret_without_a_value_refuses_the_start(house: House) -> None:
    with pytest.raises(BadRequest, match="token"):
        await house.start(f"{PLAIN}secrets: {{ token: env:NO_SUCH_VARIABLE_HERE }}\n")
    assert registry.entries(house.home) == []


async def test_a_packet_goes_all_the_way(house: House) -> None:
    await house.start()
    packet = await house.push({"n": 7})
    assert await house.settled(packet) == "delivered"
    assert house.lines == [{"packet_id": packet, "data": {"n": 7}}]
    info = await house.process.info()
    assert (info.stats.accepted, info.stats.delivered) == (1, 1)
    assert info.last_seq == house.journal.last_seq
    names = {one.name for one in house.process.metrics()}
    assert "pipo_journal_commit_duration_seconds" in names
    await house.end()


async def test_who_asks_late_hears_the_end_and_its_error(house: House, output: FakeOutput) -> None:
    output.answer = lambda unit: Refused("no ink") if unit.data["n"] else {"rowid": 1}
    await house.start()
    for number, end in ((1, Settlement("dead_lettered", "no ink")), (0, Settlement("delivered"))):
        packet = await house.push({"n": number})
        intake = house.process.parts.intake
        assert await intake.settled(packet, 5.0) == end
        # It is no longer pending: the journal knows.
        assert await intake.settled(packet, 5.0) == end
    assert await intake.settled("nobody", 5.0) == Settlement("accepted")
    await house.end()


async def test_a_changed_file_is_a_new_version(house: House) -> None:
    await house.start()
    await house.end()
    assert (await house.start()).version == 1
    await house.end()
    assert (await house.start(PLAIN + "# changed\n")).version == 2
    await house.end()


# ── pause ────────────────────────────────────────────────────────────────────

HALTS = f"{PLAIN[:-3]}, on_error: {{ then: halt }} }}\n"
PAUSES = f"{PLAIN[:-3]}, on_error: {{ then: pause }} }}\n"


def registered(house: House) -> str:
    (entry,) = registry.entries(house.home)
    return entry.status


async def test_a_pause_and_its_end_are_told_everywhere(house: House) -> None:
    process = await house.start()
    assert (await process.pause("")).already is False
    packet = await house.push()
    again = await process.pause("agent")
    assert (again.state, again.already) == ("paused", True)
    info = await process.info()
    assert (info.status, info.paused_reason, info.stats.pending) == ("paused", "manual", 1)
    states = [one.labels["state"] for one in process.metrics() if "state" in one.labels]
    assert states == ["paused"]
    await soon(lambda: registered(house) == "paused")
    assert house.lines == []
    resumed = await process.resume()
    assert (resumed.state, resumed.already) == ("active", False)
    assert (await process.resume()).already is True
    assert await house.settled(packet) == "delivered"
    await soon(lambda: registered(house) == "active")
    assert process.status == "active"
    await house.end()
    events = await house.events()
    assert [one for one in events if one in ("pipeline.paused", "pipeline.resumed")] == [
        "pipeline.paused",
        "pipeline.resumed",
    ]


@pytest.mark.parametrize("reason", ["stall", "budget", "error at $output", "Manual"])
async def test_only_some_reasons_may_be_asked_for(house: House, reason: str) -> None:
    process = await house.start()
    with pytest.raises(BadRequest, match=f"reason is '{re.escape(reason)}'"):
        await process.pause(reason)
    assert process.status == "active"
    await house.end()


async def test_what_drains_can_neither_be_paused_nor_resumed(house: House) -> None:
    process = await house.start(CHECKED)
    await house.push()
    process.ask_to_stop(now=False)
    for call in (process.pause(""), process.resume()):
        with pytest.raises(InvalidState, match="people is draining"):
            await call
    run = house.running()
    await soon(lambda: process.status == "draining")
    for call in (process.pause(""), process.resume()):
        with pytest.raises(InvalidState, match="people is draining"):
            await call
    process.end(End("now", "stop"))
    await run


async def test_a_drain_of_a_paused_pipeline_resumes_it_first(house: House) -> None:
    process = await house.start()
    await process.pause("")
    packet = await house.push()
    assert await house.end("drain", "stop") == 0
    assert house.lines == [{"packet_id": packet, "data": {"n": 1}}]
    events = await house.events()
    order = ["pipeline.paused", "pipeline.resumed", "pipeline.draining", "pipeline.stopped"]
    assert [one for one in events if one in order] == order


@pytest.mark.parametrize("crashes", [True, False])
async def test_a_pause_outlives_a_crash_and_a_suspension(house: House, crashes: bool) -> None:
    process = await house.start()
    await process.pause("agent")
    packet = await house.push()
    for _ in range(2):
        if crashes:
            await house.kill()
        else:
            assert await house.end() == 0
        process = await house.start()
        info = await process.info()
        assert (info.status, info.paused_reason, info.stats.pending) == ("paused", "agent", 1)
        assert registered(house) == "paused"
    await quiet()
    assert house.lines == []
    page = await reads.events(house.journal.rows)
    paused = [json.loads(one.detail or b"") for one in page.events if one.type == "pipeline.paused"]
    assert paused == [{"reason": "agent"}] + [{"reason": "agent", "restored": True}] * 2
    await process.resume()
    assert await house.settled(packet) == "delivered"
    await house.end()


@pytest.mark.parametrize("kind", ["now", "drain"])
async def test_a_clean_stop_ends_a_pause(house: House, kind: Kind) -> None:
    process = await house.start()
    await process.pause("")
    await house.end(kind, "stop")
    process = await house.start()
    assert process.status == "active"
    await house.end()


async def test_a_policy_pauses_while_the_run_suspends(house: House, output: FakeOutput) -> None:
    await house.start(PAUSES, stop_timeout_s=5.0)
    output.hold()
    await house.push()
    await soon(lambda: output.writes)
    run = house.running()
    house.process.end(End("suspend", "shutdown"))
    await soon(lambda: house.process.status == "stopping")
    output.answer = lambda unit: WriteFailed("no ink")
    output.let_go()
    await run
    process = await house.start(PAUSES)
    info = await process.info()
    assert (info.status, info.paused_reason, info.held) == ("paused", "error at $output", 1)
    await house.end()


async def test_a_drain_ends_beside_a_packet_that_is_held(house: House, output: FakeOutput) -> None:
    output.answer = lambda unit: WriteFailed("no ink")
    await house.start(PAUSES)
    await house.push()
    await soon(lambda: house.process.status == "paused")
    # The resume of the drain lets it try once more.
    assert await house.end("drain", "stop") == 0
    events = await house.events()
    assert events.count("packet.held") == 2
    assert events.count("pipeline.paused") == 1
    assert events[-1] == "pipeline.stopped"
    output.answer = lambda unit: {"rowid": 1}
    await house.start(PAUSES)
    assert house.process.status == "active"
    await soon(lambda: len(house.process.parts.pending) == 0)
    await house.end()


async def test_a_halt_ends_the_run_with_its_own_word(house: House, output: FakeOutput) -> None:
    output.answer = lambda unit: Refused("no ink") if unit.data["n"] == 1 else {"rowid": 1}
    await house.start(HALTS)
    output.hold()
    packet = await house.push({"n": 1})
    await soon(lambda: output.writes)
    other = await house.push({"n": 2})
    run = house.running()
    output.let_go()
    assert await run == 1
    # What was not in hand was not begun.
    assert output.written == [packet]
    assert registry.entries(house.home) == []
    assert "pipeline.stopped" not in await house.events()
    journal = open_quick(house.home.pipeline("people").folder)
    ending = await last_ending(journal.rows)
    await journal.close(clean=True)
    assert ending is not None
    assert (ending.kind, ending.reason) == ("failed", "error at $output: no ink")
    output.answer = lambda unit: {"rowid": 1}
    await house.start(HALTS)
    assert [await house.settled(one) for one in (packet, other)] == ["delivered", "delivered"]
    assert output.written == [packet, packet, other]
    await house.end()


async def test_a_run_that_halts_as_it_starts_takes_nothing(
    house: House, output: FakeOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"{PLAIN}delivered: {{ check: file_exists, on_fail: {{ then: halt }} }}\n"
    process = await house.start(body)
    written = await house.push({"n": 1})
    await soon(lambda: len(process.offers) == 1)
    await process.pause("")
    waiting = await house.push({"n": 2})
    await house.end("now", "stop")

    async def lost(self: FakeOutput, settings: Any) -> None:
        raise Refused("the check cannot be asked")

    monkeypatch.setattr(FakeOutput, "recover", lost)
    monkeypatch.setattr(
        "pipo_runner.pipeline.delivery.verification.Verifications._render",
        lambda *_: (_ for _ in ()).throw(Refused("the check cannot be asked")),
    )
    await house.start(body)
    await quiet()
    assert await house.process.run_to_end() == 1
    assert output.written == [written]
    assert (await house.events())[-1] == "pipeline.failed"
    assert waiting not in output.written


async def test_a_halt_cuts_a_drain_short(house: House, output: FakeOutput) -> None:
    await house.start(f"{HALTS}concurrency: 1\n")
    output.hold()
    output.answer = lambda unit: Refused("no ink")
    await house.push()
    await house.push()
    run = house.running()
    house.process.ask_to_stop(now=False)
    await soon(lambda: house.process.status == "draining" and output.writes)
    output.let_go()
    assert await run == 1
    assert (await house.events())[-1] == "pipeline.failed"


# ── dead letters ─────────────────────────────────────────────────────────────


async def dead(house: House, output: FakeOutput) -> str:
    """A packet that has died; the next write works."""
    output.answer = lambda unit: Refused("no ink")
    packet = await house.push()
    assert await house.settled(packet) == "dead_lettered"
    output.answer = lambda unit: {"rowid": 1}
    return packet


async def replay(house: House, packet: str) -> int:
    done = await house.process.operations.dead_letters.replay([packet], every=False, by="ada")
    return done.replayed


async def test_what_drains_purges_and_does_not_replay(house: House, output: FakeOutput) -> None:
    """Edge 261."""
    process = await house.start()
    first, second = await dead(house, output), await dead(house, output)
    output.hold()
    await house.push()
    run = house.running()
    process.ask_to_stop(now=False)
    for _ in range(2):
        with pytest.raises(InvalidState, match="people is draining") as caught:
            await replay(house, second)
        assert "once it has ended: pipo start people" in caught.value.hint
        await soon(lambda: process.status == "draining")
    done = await process.operations.dead_letters.purge([first], every=False, by="ada")
    assert done.purged == 1
    output.let_go()
    assert await run == 0
    with pytest.raises(InvalidState, match="people is stopping"):
        await process.operations.dead_letters.purge([second], every=False, by="ada")
    assert (await house.events()).count("dlq.purged") == 1


async def test_a_drain_that_begins_beside_a_replay_waits_for_it(
    house: House, output: FakeOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await house.start()
    packet = await dead(house, output)
    run = house.running()
    submit = house.journal.submit

    def and_drain(*changes: Any, done: Any) -> None:
        submit(*changes, done=done)
        process.ask_to_stop(now=False)

    monkeypatch.setattr(house.journal, "submit", and_drain)
    assert await replay(house, packet) == 1
    assert await run == 0
    # Whether the drain is journaled before the write or behind it is the scheduler's.
    told = [event for event in await house.events() if event != "pipeline.draining"]
    assert told[-3:] == ["output.written", "packet.delivered", "pipeline.stopped"]


async def test_a_replay_runs_the_version_that_accepted_the_packet(
    house: House, output: FakeOutput
) -> None:
    await house.start(PLAIN.replace("out.jsonl", "v1.jsonl"))
    packet = await dead(house, output)
    await house.end()
    await house.start(PLAIN.replace("out.jsonl", "v2.jsonl"))
    assert house.process.version == 2
    assert await replay(house, packet) == 1
    assert await house.settled(packet) == "delivered"
    assert str(output.writes[-1][0].settings["path"]).endswith("v1.jsonl")
    await house.end()


# ── drain ────────────────────────────────────────────────────────────────────


async def test_a_drain_works_off_what_was_accepted(house: House, output: FakeOutput) -> None:
    await house.start()
    output.hold()
    packet = await house.push()
    run = house.running()
    house.process.ask_to_stop(now=False)
    await soon(lambda: house.process.status == "draining")
    with pytest.raises(Unavailable, match="pipeline is draining"):
        await house.push()
    await quiet()
    assert not run.done()
    output.let_go()
    assert await run == 0
    assert registry.entries(house.home) == []
    events = await house.events()
    assert events.count("packet.delivered") == 1
    assert events[-1] == "pipeline.stopped"
    assert packet in output.written


async def test_a_stop_says_whether_one_was_under_way(house: House) -> None:
    await house.start()
    first = house.process.ask_to_stop(now=False)
    second = house.process.ask_to_stop(now=True)
    assert (first.state, first.already) == ("draining", False)
    assert (second.state, second.already) == ("stopping", True)
    assert await house.process.run_to_end() == 0


@pytest.mark.parametrize(("restart", "reason"), [(True, "restart"), (False, "stop")])
async def test_a_drain_says_what_follows_it(house: House, restart: bool, reason: str) -> None:
    process = await house.start()
    await process.pause("")
    assert process.ask_to_drain(restart=restart).already is False
    assert process.ask_to_stop(now=False).already is True
    assert await process.run_to_end() == 0
    journal = open_quick(house.home.pipeline("people").folder)
    ending = await last_ending(journal.rows)
    await journal.close(clean=True)
    assert ending is not None
    assert (ending.kind, ending.reason) == ("stopped", reason)
    # Either is a clean end (decision 7).
    assert (await house.start()).status == "active"
    await house.end()


@pytest.mark.seed("L007")
async def test_a_drain_ends_at_the_time_limit_of_its_file(house: House) -> None:
    hasty = f"{CHECKED}lifetime: {{ drain_timeout: 1ms }}\n"
    await house.start(hasty)
    packet = await house.push()
    # Half of what a drain may take where the file says nothing.
    async with asyncio.timeout(60):
        assert await house.end("drain", "stop") == 0
    await house.start(hasty)
    assert len(house.process.offers) == 1
    assert packet in {unit.id for unit in (await house.journal.recover()).units}
    await house.end()


async def test_a_second_stop_cuts_a_drain_short(house: House) -> None:
    await house.start(CHECKED)
    await house.push()
    await soon(lambda: len(house.process.offers) == 1)
    run = house.running()
    house.process.end(End("drain", "stop"))
    await soon(lambda: house.process.status == "draining")
    house.process.end(End("drain", "stop"))
    await quiet()
    assert not run.done()
    house.process.end(End("now", "stop"))
    assert await run == 0


async def test_a_second_stop_counts_while_the_inputs_close(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, free = asyncio.Event(), asyncio.Event()

    class Slow:
        async def open(self) -> None:
            """Listens at once."""

        async def close(self) -> None:
            closing.set()
            await free.wait()

    monkeypatch.setattr(connectors, "build_inputs", lambda *words: Slow())
    await house.start(CHECKED)
    await house.push()
    run = house.running()
    house.process.end(End("drain", "stop"))
    await closing.wait()
    house.process.end(End("now", "stop"))
    free.set()
    async with asyncio.timeout(60):
        assert await run == 0


async def test_an_end_may_be_asked_for_twice_before_the_start_is_over(house: House) -> None:
    made = house.start()
    house.file.write_text(f"pipo: 1\nname: people\n{PLAIN}")
    task = asyncio.create_task(made)
    await soon(lambda: hasattr(house, "process"))
    house.process.end(End("suspend", "shutdown"))
    house.process.end(End("suspend", "shutdown"))
    await task
    assert await house.process.run_to_end() == 0


# ── suspend and now ──────────────────────────────────────────────────────────


async def test_a_suspend_gives_waits_back_and_the_next_run_goes_on(
    house: House, output: FakeOutput
) -> None:
    output.answer = lambda unit: WriteFailed("busy")
    await house.start(RETRIED)
    packet = await house.push()
    await soon(lambda: house.process.parts.executor.in_hand == 1 and output.writes)
    await soon(lambda: house.journal.counters.get("total.step.retry"))
    assert await house.end() == 0
    assert (await house.events())[-1] == "pipeline.stopped"
    output.writes.clear()
    await house.start(RETRIED)
    (unit,) = (await house.journal.recover()).units
    assert (unit.id, unit.attempt) == (packet, 1)
    # What is left of ten minutes is still waited for.
    await quiet()
    assert output.writes == []
    await house.end()


async def test_a_suspend_waits_for_the_write_in_hand(house: House, output: FakeOutput) -> None:
    await house.start(stop_timeout_s=5.0)
    output.hold()
    await house.push()
    await soon(lambda: output.writes)
    run = house.running()
    house.process.end(End("suspend", "shutdown"))
    await quiet()
    assert not run.done()
    output.let_go()
    assert await run == 0
    assert "output.written" in await house.events()


@pytest.mark.parametrize("kind", ["suspend", "now"])
async def test_a_write_that_hangs_is_left_and_taken_up_again(
    house: House, output: FakeOutput, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    monkeypatch.setattr(closing, "NOW_GRACE_S", 0.01)
    monkeypatch.setattr(closing, "REQUESTS_GRACE_S", 0.01)
    await house.start(stop_timeout_s=0.05)
    output.hold()
    packet = await house.push()
    await soon(lambda: output.writes)
    assert await house.end(kind, "stop") == 0
    assert "output.written" not in await house.events()
    output.let_go()
    await house.start()
    assert await house.settled(packet) == "delivered"
    assert output.writes[-1][0].repeat == "recovered"
    await house.end()


@pytest.mark.seed("O074")
async def test_a_stop_waits_two_seconds_for_a_flush_and_the_next_start_does_it(
    house: House, output: FakeOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s: list[float] = []

    def over_at_once(seconds: float) -> asyncio.Timeout:
        waited_s.append(seconds)
        return asyncio.timeout(0.0)

    watched = SimpleNamespace(Event=asyncio.Event, timeout=over_at_once)
    monkeypatch.setattr(resting, "asyncio", watched)
    monkeypatch.setattr(closing, "REQUESTS_GRACE_S", 0.01)
    await house.start(BATCHED, stop_timeout_s=60.0)
    output.hold()
    packet = await house.push()
    parts = house.process.parts
    await soon(lambda: (unit := parts.pending.back(packet)) and unit.batched)
    await soon(lambda: parts.batches.at_rest)
    assert output.writes == []
    assert await house.end("now", "stop") == 0
    assert [unit.id for (unit,) in output.writes] == [packet]
    assert waited_s == [2.0]
    assert "output.written" not in await house.events()
    monkeypatch.setattr(resting, "asyncio", asyncio)
    output.let_go()
    await house.start(BATCHED)
    assert await house.end("drain", "stop") == 0
    assert [(unit.id, unit.repeat) for (unit,) in output.writes] == [
        (packet, "first"),
        (packet, "recovered"),
    ]
    assert (await house.events()).count("output.written") == 1


@pytest.mark.parametrize("second", ["suspend", "now"])
async def test_a_second_signal_ends_at_once(
    house: House, output: FakeOutput, monkeypatch: pytest.MonkeyPatch, second: Kind
) -> None:
    monkeypatch.setattr(closing, "REQUESTS_GRACE_S", 0.01)
    await house.start(stop_timeout_s=60.0)
    output.hold()
    await house.push()
    await soon(lambda: output.writes)
    run = house.running()
    house.process.end(End("suspend", "shutdown"))
    await soon(lambda: house.process.status == "stopping")
    house.process.end(End("drain", "stop"))
    await quiet()
    assert not run.done()
    house.process.end(End(second, "shutdown"))
    async with asyncio.timeout(60):
        assert await run == 0


async def test_who_waits_for_an_end_is_let_go_at_a_stop(house: House) -> None:
    await house.start(CHECKED)
    packet = await house.push()
    waiting = asyncio.create_task(house.settled(packet))
    await quiet()
    await house.end()
    assert await waiting == "accepted"


async def test_who_watches_hears_the_last_word_and_holds_nothing_up(
    house: House, output: FakeOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "REQUESTS_GRACE_S", 60.0)
    await house.start()
    output.hold()
    await house.push()
    await soon(lambda: output.writes)
    channel = dial(house.address, TOKEN)
    pages = pipeline_pb2_grpc.PipelineStub(channel).WatchEvents(pipo_pb2.ListEventsRequest())
    seen: list[str] = []

    async def watch() -> None:
        async for page in pages:
            seen.extend(event.type for event in page.events)

    watching = asyncio.create_task(watch())
    await soon(lambda: "packet.accepted" in seen)
    run = house.running()
    house.process.end(End("now", "stop"))
    await soon(lambda: house.process.status == "stopping")
    output.let_go()
    async with asyncio.timeout(60):
        assert await run == 0
        await watching
    assert seen[-3:] == ["output.written", "packet.delivered", "pipeline.stopped"]
    await channel.close()


# ── crashes ──────────────────────────────────────────────────────────────────


async def test_a_crash_ends_the_run_without_a_last_word(house: House, output: FakeOutput) -> None:
    async def write(units: Any, *, atomic: bool) -> Any:

        return Flush([])

    output.write = write  # type: ignore[method-assign]
    await house.start()
    run = house.running()
    await house.push()
    with pytest.raises(ValueError, match="zip"):
        await run
    await house.kill()
    assert (await house.events())[-1] != "pipeline.stopped"


async def test_a_journal_that_fails_ends_the_run(house: House) -> None:
    await house.start()
    run = house.running()
    house.journal.failed.set_result(OSError("the disk is gone"))
    with pytest.raises(OSError, match="the disk is gone"):
        await run


async def test_a_crash_in_a_drain_ends_it(house: House) -> None:
    await house.start(CHECKED)
    await house.push()
    await soon(lambda: len(house.process.offers) == 1)
    run = house.running()
    house.process.end(End("drain", "stop"))
    await soon(lambda: house.process.status == "draining")
    house.journal.failed.set_result(OSError("the disk is gone"))
    with pytest.raises(OSError, match="the disk is gone"):
        await run


async def test_after_a_crash_nothing_is_written_twice(house: House) -> None:
    await house.start()
    first = await house.push({"n": 1})
    assert await house.settled(first) == "delivered"
    await house.process.parts.writing.idle(1.0)
    house.process.parts.executor.close()
    second = await house.push({"n": 2})
    await house.kill()
    await house.start()
    assert await house.settled(second) == "delivered"
    assert [line["data"]["n"] for line in house.lines] == [1, 2]
    await house.end()


async def test_an_accepted_packet_survives_a_crash(house: House) -> None:
    await house.start(CHECKED)
    packet = await house.push()
    await house.kill()
    await house.start(CHECKED)
    await soon(lambda: len(house.process.offers) == 1)
    assert (await house.journal.recover()).units[0].id == packet
    await house.end()
