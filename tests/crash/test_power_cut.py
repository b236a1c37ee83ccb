"""A power cut at any moment: no acknowledged packet is missing, no file is damaged.

A file layer under SQLite notes every write and sync of a journal under load. From that
one log, crash images are built: at a moment of the log, each file holds what was synced
and none, all, half or torn sectors of what was not. Each image is opened as a start
would open it. The ledger of acknowledgements lives outside and is synced before an
answer counts; a packet in it must be in every image of a later moment.

Source: design §10, issue 2 (must show, 8).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipo.clock import SystemClock
from pipo.journal import tip
from pipo.journal.changes import Change
from pipo.journal.connection import run
from pipo.journal.opening import FILE, open_journal
from pipo.journal.sqlite_journal import SqliteJournal
from tests.load.ledger import Ledger, read
from tests.unit.journal.file_layer import Call, layer
from tests.unit.journal.packets import accepted, delivered, packet_id, version, written

IMAGES = 500
PACKETS = 240
SENDERS = 6
# Small, so that the log holds many moments of folding the WAL into the database.
CHECKPOINT_PAGES = 60
SECTOR = 512
NAMES = (FILE, f"{FILE}-wal")

Choose = Callable[[random.Random, Call], Iterator[Call]]


def lose_all(chance: random.Random, call: Call) -> Iterator[Call]:
    yield from ()


def keep_all(chance: random.Random, call: Call) -> Iterator[Call]:
    yield call


def keep_half(chance: random.Random, call: Call) -> Iterator[Call]:
    if chance.random() < 0.5:
        yield call


def tear(chance: random.Random, call: Call) -> Iterator[Call]:
    """Some sectors of a write, cut where the disk cuts them."""
    if call.kind != "write":
        yield from keep_half(chance, call)
        return
    start = 0
    while start < len(call.data):
        end = start + SECTOR - (call.offset + start) % SECTOR
        if chance.random() < 0.5:
            yield Call("write", call.file, call.offset + start, call.data[start:end])
        start = end


LOSSES: tuple[Choose, ...] = (lose_all, keep_all, keep_half, tear)


@dataclass
class Log:
    """Every call to the disk, in order, and after which call each answer had come."""

    calls: list[Call] = field(default_factory=list)
    answered: list[tuple[int, str]] = field(default_factory=list)
    began: int = 0


@dataclass
class File:
    """One file of a disk: what is safe on it, and what was written since its last sync."""

    safe: bytearray = field(default_factory=bytearray)
    loose: list[Call] = field(default_factory=list)

    def take(self, call: Call) -> None:
        if call.kind == "sync":
            for one in self.loose:
                put(self.safe, one)
            self.loose.clear()
        else:
            self.loose.append(call)

    def image(self, chance: random.Random, choose: Choose) -> bytes:
        made = bytearray(self.safe)
        for call in self.loose:
            for kept in choose(chance, call):
                put(made, kept)
        return bytes(made)


def put(content: bytearray, call: Call) -> None:
    if call.kind == "truncate":
        del content[call.offset :]
        return
    if len(content) < call.offset:
        content.extend(bytes(call.offset - len(content)))
    content[call.offset : call.offset + len(call.data)] = call.data


async def load(folder: Path, *, synchronous: str, ledger: Path) -> Log:
    """A journal under load, by several senders; what happened to its files."""
    log = Log()
    with layer(log.calls.append) as vfs:
        journal = SqliteJournal.open(
            folder,
            pipeline="people",
            clock=SystemClock(),
            vfs=vfs,
            synchronous=synchronous,
            checkpoint_pages=CHECKPOINT_PAGES,
        )
        await journal.commit(version())
        log.began = len(log.calls)
        answers = Ledger(ledger)
        numbers = iter(range(1, PACKETS + 1))

        async def send() -> None:
            for n in numbers:
                await journal.commit(accepted(n, data=b'{"text":"%s"}' % (b"x" * (n * 37 % 900))))
                answers.note(packet_id(n))
                answers.sync()
                log.answered.append((len(log.calls), packet_id(n)))
                then: tuple[Change, ...] = (written(n), delivered(n))
                if n % 3:
                    journal.stage(*then[: n % 3])

        await asyncio.gather(*(send() for _ in range(SENDERS)))
        answers.close()
        await journal.close(clean=False)
    return log


def images(log: Log, chance: random.Random) -> Iterator[tuple[int, dict[str, bytes]]]:
    """IMAGES moments under load, each with the content of its files."""
    moments = sorted(chance.randrange(log.began, len(log.calls) + 1) for _ in range(IMAGES))
    disk = {name: File() for name in NAMES}
    position = 0
    for number, moment in enumerate(moments):
        for call in log.calls[position:moment]:
            name = Path(call.file).name
            if name in disk:
                assert call.kind != "delete", "the load deletes no file"
                disk[name].take(call)
        position = moment
        choose = LOSSES[number % len(LOSSES)]
        yield moment, {name: file.image(chance, choose) for name, file in disk.items()}


@dataclass
class Verdict:
    """What the images showed."""

    images: int = 0
    lossy: int = 0
    damaged: list[str] = field(default_factory=list)
    miscounted: int = 0


def judge(log: Log, ledger: Path, folder: Path, chance: random.Random) -> Verdict:
    """Opens every image as a start would, and compares it with the ledger."""
    verdict = Verdict()
    promised = set(read(ledger))
    assert promised == {packet for _, packet in log.answered}
    for moment, files in images(log, chance):
        verdict.images += 1
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / f"{FILE}-shm").unlink(missing_ok=True)
        opened = open_journal(
            folder, pipeline="people", clock=SystemClock(), vfs=None, synchronous="OFF"
        )
        whole = run(opened.db, "PRAGMA integrity_check")
        if whole != [("ok",)]:
            verdict.damaged.append(f"at {moment}: {whole}")
        kept = {row[0] for row in run(opened.db, "SELECT id FROM units")}
        verdict.lossy += any(at <= moment and packet not in kept for at, packet in log.answered)
        verdict.miscounted += opened.counters.get("all.accepted", 0) != len(kept)
        opened.db.close()
    return verdict


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tip is written: images have none, and its syncs would be most of the time."""
    monkeypatch.setattr(tip, "write", lambda folder, made: None)


async def cut(tmp_path: Path, synchronous: str) -> Verdict:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    live, image, ledger = tmp_path / "live", tmp_path / "image", tmp_path / "ledger"
    for folder in (live, image):
        folder.mkdir()
    log = await load(live, synchronous=synchronous, ledger=ledger)
    checkpoints = sum(call.kind == "sync" and call.file.endswith(FILE) for call in log.calls)
    assert checkpoints > 3, "the load folded its WAL several times"
    return await asyncio.to_thread(judge, log, ledger, image, random.Random(seed))


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.usefixtures("untold")
async def test_no_power_cut_loses_what_was_acknowledged(tmp_path: Path) -> None:
    verdict = await cut(tmp_path, "FULL")
    assert verdict == Verdict(images=IMAGES)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.usefixtures("untold")
async def test_the_same_without_a_sync_at_each_commit_loses_some(tmp_path: Path) -> None:
    """The control: with synchronous=NORMAL the judge must find losses, and still no damage."""
    verdict = await cut(tmp_path, "NORMAL")
    assert verdict.lossy > 0
    assert (verdict.images, verdict.damaged, verdict.miscounted) == (IMAGES, [], 0)
