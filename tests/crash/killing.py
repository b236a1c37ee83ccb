"""Kills the pipelines of one stack, each once at the same point, and reads what is there then.

The traps are set only once every pipeline has delivered packets: the kill meets one that
has something at its destination, and something in hand. Pushes go on until each is answered.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from pipo.rpc.channels import dial
from pipo.rpc.stubs import pipo_pb2, pipo_pb2_grpc
from tests.crash.judge import Journal, Record, Unreadable, faults, parse
from tests.crash.matrix import DATABASES, OWN, Case
from tests.load.ledger import Ledger, read
from tests.packets import push
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, journal_of, query_each, wait_for

# Packets before and after the trap is set, where no batch says how many.
FEW = 3
TEXT = """pipo: 1
name: {name}
input: {{ via: push }}
nodes:
  shape:
    from: input
    transform: map
    with: {{ data: {{ id: "${{meta.packet_id}}", n: "${{data.n}}" }} }}
output:
  from: shape
  to: {to}
{batch}delivered: {{ {check} }}
"""
DATABASE = "sqlite\n  with: {{ path: ./{file}, table: t, create: true{more} }}"
UPSERT = ', mode: upsert, key: n, columns: { n: "${data.n}", id: "${data.id}" }'
CHECKS = {
    "insert": 'record_exists, with: { where: { packet_id: "${meta.packet_id}" } }',
    "upsert": 'record_exists, with: { where: { n: "${data.n}" } }',
    "append": 'line_contains, with: { value: "${meta.packet_id}" }',
    # A later packet replaces what was there.
    "write": "file_nonempty",
    "http": 'follow_up, with: { url: "URL/kept/${meta.packet_id}", match: "${meta.packet_id}" }',
}
ACCEPTED = "SELECT id, json_extract(data, '$.n') FROM units WHERE root IS NULL"
ENDS = """
SELECT unit, type, count(*) FROM events
WHERE type IN ('packet.delivered', 'packet.dead_lettered', 'packet.filtered', 'packet.rejected')
GROUP BY unit, type
"""
LAST = "SELECT unit FROM events WHERE type = 'output.written' ORDER BY seq DESC LIMIT 1"


@dataclass(frozen=True)
class Victim:
    """One case and the pipeline that it is tried with, whose name a process's own has room for."""

    case: Case
    name: str

    @property
    def kind(self) -> str:
        """What its check depends on."""
        return self.case.shape.rpartition("-")[2]

    @property
    def count(self) -> int:
        """How many packets come before the trap is set, and again after."""
        return self.case.size or FEW

    def text(self, url: str) -> str:
        """Its file."""
        size, own = self.case.size, self.case.check == OWN
        check = f"check: {CHECKS[self.kind] if own else 'ack'}, within: 5m"
        return TEXT.format(
            name=self.name,
            to=self._to(url),
            batch=f"  batch: {{ size: {size}, within: 1s }}\n" if size else "",
            check=check.replace("URL", url),
        )

    def _to(self, url: str) -> str:
        shape = self.case.shape
        if shape == "http":
            return f"http\n  with: {{ url: {url}/{self.name}, method: POST }}"
        if shape in DATABASES:
            return DATABASE.format(file=self.file, more=UPSERT if shape == "upsert" else "")
        kind, _, mode = shape.partition("-")
        return f"file\n  with: {{ path: ./{self.file}, format: {kind}, mode: {mode} }}"

    @property
    def file(self) -> str:
        return f"{self.name}.{'db' if self.case.shape in DATABASES else 'out'}"


class Killing:
    """One stack of victims, all of one point."""

    def __init__(
        self, folder: Path, cases: Sequence[Case], receiver: Receiver, *, backoff: str = "10ms"
    ) -> None:
        (self.point,) = {case.point for case in cases}
        self.victims = [Victim(case, f"v{n}") for n, case in enumerate(cases)]
        self._receiver = receiver
        receiver.fallback = lambda got: answer(receiver, got)
        self._traps = folder / "traps"
        self._traps.mkdir(parents=True)
        self.ledger = folder / "ledger"
        self.stack = Stack(
            folder,
            env={"PIPO_CRASH_AT": self.point, "PIPO_CRASH_ONCE": str(self._trap("*"))},
            config=f"engine:\n  restart: {{ backoff: {backoff}, max_backoff: {backoff} }}\n",
        )
        for victim in self.victims:
            self.stack.write(f"{victim.name}.pipo", victim.text(receiver.url))
            self._trap(f"pipo:{victim.name}").touch()

    def _trap(self, process: str) -> Path:
        return self._traps / process

    # ── the kill ─────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Delivers, kills, restarts, delivers the rest."""
        self.start()
        self.push(0)
        self.settle()
        before = self.pids()
        self.set_traps()
        self.push(1)
        self.sprung()
        wait_for(
            lambda: all(pid not in (None, before[name]) for name, pid in self.pids().items()),
            deadline_s=150,
            what=lambda: f"each runs again\n{self.stack.output()}",
        )
        self.settle()

    def start(self) -> None:
        """Starts them all; on a busy machine that takes a while."""
        self.stack.start()

    def set_traps(self) -> None:
        """From now on each is killed at the point, once."""
        for victim in self.victims:
            self._trap(f"pipo:{victim.name}").unlink()

    def sprung(self) -> None:
        """Waits until every one was killed."""
        wait_for(
            lambda: len(list(self._traps.iterdir())) == len(self.victims),
            deadline_s=150,
            what=lambda: f"{self.point} is reached by all of {self.victims}\n{self.stack.output()}",
        )

    def settle(self) -> None:
        """Waits until nothing is pending anywhere."""
        wait_for(self._at_rest, deadline_s=150, what=lambda: f"all settle\n{self.stack.output()}")

    def _at_rest(self) -> bool:
        try:
            found: list[dict[str, Any]] = self.stack.get("/api/pipelines")["pipelines"]
        except (OSError, ValueError):
            return False
        return len(found) == len(self.victims) and all(
            one["state"] == "running" and one["stats"] and one["stats"]["pending"] == 0
            for one in found
        )

    def pids(self) -> Mapping[str, int | None]:
        return {victim.name: self.stack.pipeline_pid(victim.name) for victim in self.victims}

    # ── pushing ──────────────────────────────────────────────────────────────

    def push(self, round_: int) -> None:
        """Brings every victim its packets; each is in the ledger when it was answered."""
        ledger = Ledger(self.ledger)
        try:
            asyncio.run(self._push_all(round_, ledger))
        finally:
            ledger.close()

    async def _push_all(self, round_: int, ledger: Ledger) -> None:
        async with asyncio.TaskGroup() as group:
            for victim in self.victims:
                numbers = set(range(round_ * victim.count, (round_ + 1) * victim.count))
                group.create_task(self._push(victim.name, numbers, ledger))

    async def _push(self, pipeline: str, left: set[int], ledger: Ledger) -> None:
        channel = dial(f"127.0.0.1:{self.stack.port + 1}", "")
        try:
            async with asyncio.timeout(150):
                while left:
                    await self._try(pipo_pb2_grpc.PipoStub(channel), pipeline, left, ledger)
        finally:
            await channel.close()

    async def _try(
        self, stub: pipo_pb2_grpc.PipoStub, pipeline: str, left: set[int], ledger: Ledger
    ) -> None:
        """One stream; what it leaves unanswered is sent again, as a client would."""

        async def requests() -> AsyncIterator[pipo_pb2.PushStreamRequest]:
            items = [
                pipo_pb2.PushItem(request_id=n, data=json.dumps({"n": n}).encode())
                for n in sorted(left)
            ]
            yield pipo_pb2.PushStreamRequest(pipeline=pipeline, items=items)

        try:
            async for reply in stub.PushStream(requests(), timeout=60):
                for result in reply.results:
                    assert result.error.code in ("", "unavailable"), result.error
                    if not result.error.code:
                        ledger.note(f"{pipeline}/{result.request_id}")
                        left.discard(result.request_id)
                ledger.sync()
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
        if left:
            await asyncio.sleep(0.05)

    def push_one(self, n: int) -> None:
        """Brings every victim one more packet, whether anybody lives to answer or not."""
        for victim in self.victims:
            with suppress(OSError, AssertionError):
                push(self.stack, victim.name, {"n": n})

    # ── looking ──────────────────────────────────────────────────────────────

    def faults(self) -> dict[str, list[str]]:
        """What is wrong, by case; empty when all is well."""
        journals = self.journals()
        rows = self._rows()
        found = {}
        for victim in self.victims:
            shape = victim.case.shape
            try:
                records = self._records(victim) if victim.name not in rows else rows[victim.name]
                wrong = faults(shape, self.answered(victim), journals[victim.name], records)
            except Unreadable as unreadable:
                wrong = [str(unreadable)]
            if wrong:
                found[f"{victim.name} {victim.case.name}"] = wrong
        return found

    def answered(self, victim: Victim) -> list[int]:
        names = (name.split("/") for name in read(self.ledger))
        return [int(n) for pipeline, n in names if pipeline == victim.name]

    def _records(self, victim: Victim) -> list[Record]:
        if victim.case.shape == "http":
            done = [got for got in self._receiver.done if got.path == f"/{victim.name}"]
            return [(got.json["id"], got.json["n"]) for got in done]
        return parse(victim.case.shape, self.file(victim).read_text())

    def file(self, victim: Victim) -> Path:
        """The file that it writes, or its database."""
        return self.stack.workspace / victim.file

    def _rows(self) -> Mapping[str, list[Record]]:
        asked = [v for v in self.victims if v.case.shape in DATABASES]
        answers = query_each([(self.file(v), "SELECT id, n FROM t") for v in asked])
        return {
            victim.name: [(id, n) for id, n in rows]
            for victim, rows in zip(asked, answers, strict=True)
        }

    def journals(self) -> Mapping[str, Journal]:
        """What each pipeline's own says."""
        files = [journal_of(self.stack.home, victim.name) for victim in self.victims]
        answers = query_each([(file, sql) for file in files for sql in (ACCEPTED, ENDS, LAST)])
        return {
            victim.name: _journal(*answers[3 * n : 3 * n + 3])
            for n, victim in enumerate(self.victims)
        }


def _journal(accepted: list[list[Any]], ends: list[list[Any]], last: list[list[Any]]) -> Journal:
    others: Counter[str] = Counter()
    for _, type_, times in ends:
        if type_ != "packet.delivered":
            others[type_] += times
    return Journal(
        accepted=dict(accepted),
        delivered={id: times for id, type_, times in ends if type_ == "packet.delivered"},
        others=others,
        last=last[0][0],
    )


def answer(receiver: Receiver, got: Got) -> Reply:
    """Keeps what is posted; tells who looks what was kept under a key."""
    if got.method == "GET":
        return Reply(body=receiver.kept.get(got.path.rpartition("/")[2], b""))
    return Reply(stores=True)
