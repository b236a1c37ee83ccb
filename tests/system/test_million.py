"""A journal of a million settled packets: it answers at once, and is cleaned up beside the work.

`make soak` runs it. The packets are made by a script from two that went through Pipo: one that
was delivered and one that died, in their rows, events and counts.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.load.http_posts import Outcome, post
from tests.packets import outcome, run_sql
from tests.stack import Stack, journal_of, query, wait_for

COUNT = 1_000_000
DEAD = 10_000
ANSWER_S = 0.050
# Twenty connections that rest so long send about 500 packets a second.
CONNECTIONS, PAUSE_S = 20, 0.036
IDLE_PACKETS = 10_000
P99_TIMES = 3.0

PIPELINE = """\
pipo: 1
name: many
input: { via: http, with: { path: /many } }
output:
  from: input
  to: file
  with: { path: ./out/many.jsonl }
  validate: ['data.n != -1']
retention: { data: TRAIL, trail: TRAIL, rejected: TRAIL }
"""

DAY_AGO = (
    "UPDATE meta SET value = CAST(value AS INTEGER) - 100000000 WHERE key = 'last_compaction';"
)

# Copies the rows of two packets: ids, numbers and times differ. Ages are from an hour on.
MULTIPLY = """
import json, sqlite3, sys
database, delivered, dead, count, deaths = sys.argv[1], *sys.argv[2:4], *map(int, sys.argv[4:])
db = sqlite3.connect(database)
db.create_function("copy_id", 1, lambda n: "00" + format(n, "024d"), deterministic=True)
def columns(table):
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
def copied(table, source, numbers, changed):
    names = columns(table)
    chosen = ", ".join(changed.get(name, f"t.{name}") for name in names)
    db.execute(
        f"WITH RECURSIVE n(n) AS (SELECT {numbers[0]} UNION ALL SELECT n + 1 FROM n "
        f"WHERE n < {numbers[1] - 1}) INSERT INTO {table} ({', '.join(names)}) "
        f"SELECT {chosen} FROM n CROSS JOIN (SELECT *, row_number() OVER () AS place FROM {table} "
        f"WHERE {'id' if table == 'units' else 'unit'} = ?) t", (source,))
hour, at = 3_600_000, lambda name: f"t.{name} - 3600000 - n"
last = db.execute("SELECT max(seq) FROM events").fetchone()[0]
db.execute("PRAGMA synchronous=OFF")
for source, numbers in ((delivered, (0, count - deaths)), (dead, (count - deaths, count))):
    copied("units", source, numbers, {"id": "copy_id(n)", **{
        name: at(name) for name in ("received_at", "updated_at", "settled_at")}})
    events = db.execute("SELECT count(*) FROM events WHERE unit = ?", (source,)).fetchone()[0]
    first = db.execute("SELECT max(seq) FROM events").fetchone()[0]
    copied("events", source, numbers, {
        "seq": f"{first} + (n - {numbers[0]}) * {events} + place", "unit": "copy_id(n)", "at": at("at")})
for name, more in (("now.delivered", count - deaths), ("now.dead_lettered", deaths),
                   ("all.accepted", count), ("all.delivered", count - deaths)):
    assert db.execute("UPDATE counters SET value = value + ? WHERE name = ?", (more, name)).rowcount
db.commit()
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
"""


def p99_ms(stack: Stack, since_ms: int, until_ms: int) -> float:
    """Acceptance to delivery, of the packets accepted in that time."""
    rows = query(
        journal_of(stack.home, "many"),
        "SELECT settled_at - received_at FROM units INDEXED BY units_settled "
        f"WHERE state = 'delivered' AND settled_at >= {since_ms} "
        f"AND received_at BETWEEN {since_ms} AND {until_ms}",
    )
    times = sorted(row[0] for row in rows)
    assert len(times) > 1_000, "enough to speak of a hundredth"
    return float(times[len(times) * 99 // 100])


def flow(stack: Stack, count: int, stop: threading.Event) -> Outcome:
    """Packets at a steady rate, until they are over or it is told to stop."""
    posts = post(
        count,
        port=stack.port,
        path="/in/many/many",
        connections=CONNECTIONS,
        pause_s=PAUSE_S,
        deadline_s=1_500,
        stop=stop,
    )
    return asyncio.run(posts)


def answers_s(look: Callable[[], object]) -> float:
    """The middle one of eleven answers, through the gateway."""
    times = []
    for _ in range(11):
        began = time.monotonic()
        look()
        times.append(time.monotonic() - began)
    return sorted(times)[5]


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_a_million_settled_packets(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    def told(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)

    file = stack.write("many.pipo", PIPELINE.replace("TRAIL", "30d"))
    stack.start(file)
    ids = [sent(stack, 1), sent(stack, -1)]
    journal = journal_of(stack.home, "many")
    # The first start only starts the clock of the compaction; the clean-up writes it.
    wait_for(lambda: query(journal, "SELECT 1 FROM meta WHERE key = 'last_compaction'"))
    assert stack.stop() == 0
    command = [sys.executable, "-c", MULTIPLY, str(journal), *ids, str(COUNT), str(DEAD)]
    subprocess.run(command, check=True, timeout=900)
    before = journal.stat().st_size
    told(f"{COUNT:,} packets, {before / 1e6:,.0f} MB")

    stack.start(file, deadline_s=120)
    some = "00" + format(COUNT // 2, "024d")
    base = "/api/pipelines/many"
    for what, path in (
        ("status", base),
        ("packets", f"{base}/packets?limit=50"),
        ("packets further on", f"{base}/packets?limit=50&after={some}"),
        ("delivered", f"{base}/packets?limit=50&state=delivered"),
        ("dlq", f"{base}/dlq?limit=50"),
        ("inspect", f"{base}/packets/{some}"),
    ):
        took = answers_s(lambda path=path: stack.get(path))  # type: ignore[misc]
        told(f"{what}: {took * 1e3:.1f} ms")
        assert took < ANSWER_S, what

    began = now_ms()
    sent_idle = flow(stack, IDLE_PACKETS, threading.Event())
    idle = p99_ms(stack, began, now_ms())
    rate = IDLE_PACKETS / sent_idle.seconds
    told(f"idle: {rate:.0f} packets a second, p99 {idle:.0f} ms")
    stack.settle("many")
    assert stack.stop() == 0

    stack.write("many.pipo", PIPELINE.replace("TRAIL", "30m"))
    run_sql(journal, DAY_AGO)
    stop = threading.Event()
    flown: list[Outcome] = []
    stack.start(file, deadline_s=120)
    began = now_ms()
    sender = threading.Thread(target=lambda: flown.append(flow(stack, 10**9, stop)))
    sender.start()
    try:
        clock = time.monotonic()
        wait_for(
            lambda: (
                not query(journal, f"SELECT 1 FROM units WHERE id = '00{0:024d}'")
                and compacted(stack)
            ),
            deadline_s=1_400,
            what="everything old is gone and its space given back",
        )
        took_s = time.monotonic() - clock
        busy = p99_ms(stack, began, now_ms())
    finally:
        stop.set()
        sender.join(60)
    stack.settle("many")
    left = query(journal, "SELECT state, count(*) FROM units WHERE id < '01' GROUP BY state")
    assert stack.stats("many")["dead_lettered"] == DEAD + 1
    assert stack.stop() == 0
    after = journal.stat().st_size
    (done,) = flown
    told(
        f"cleaned up in {took_s:.0f} s beside {sum(done.statuses.values()) / done.seconds:.0f} "
        f"packets a second, p99 {busy:.0f} ms ({busy / idle:.2f} x); {after / 1e6:,.0f} MB\n"
    )
    assert left == [["dead_lettered", DEAD]]
    assert set(done.statuses) == {202}
    # What stays are the dead letters and what came meanwhile.
    kept = DEAD + IDLE_PACKETS + sum(done.statuses.values())
    assert after < 1.3 * before * kept / COUNT
    assert busy < P99_TIMES * idle


def sent(stack: Stack, number: int) -> str:
    """The id of one packet that went through the pipeline."""
    return str(outcome(stack, "many", {"n": number, "note": "x" * 200})["packet_id"])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def compacted(stack: Stack) -> bool:
    log = stack.home / "logs/many.log"
    return "the journal was compacted" in log.read_text()
