"""`output.batch`, against a real stack (outputs, "Batching")."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.load.grpc_pushes import push as push_many
from tests.packets import inspect, packet, push, run_sql, running, settled
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow

SNIPPET = """\
inputs:
  parse: { via: push }
output:
  from: parse
  to: sqlite
  batch:
    size: 100
    within: 2s
  with: { path: ./data/events.db, table: events, create: true }
"""


def batched(name: str, batch: str, more: str = "", *, table: str = ", create: true") -> str:
    """Pushed packets become rows of `t`, a batch at a time."""
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: sqlite\n"
        f'  batch: {{ {batch} }}\n  with: {{ path: "./{name}.db", table: t{table} }}\n{more}'
    )


def filed(path: str, batch: str, more: str = "") -> str:
    return (
        "input: { via: push }\noutput:\n  from: input\n  to: file\n"
        f'  batch: {{ {batch} }}\n  with: {{ path: "{path}"{more} }}\n'
    )


SEEN = """\
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.key}" } }
  within: 1s
"""
PIPELINES = {
    "events": SNIPPET,
    "ruled": batched(
        "ruled", "size: 3, within: 1h", "  validate: ['type(data.n) == \"number\"']\n"
    ),
    "plain-within": batched("plain-within", "size: 1000"),
    "whole": batched("whole", "size: 20, within: 1h"),
    "places": batched("${data.place}", "size: 4, within: 1h"),
    "appended": filed("./appended.jsonl", "size: 20, within: 1h"),
    "files": filed("./files/${data.place}.jsonl", "size: 4, within: 1h"),
    "last": filed("./last.json", "size: 3, within: 1h", ", format: json, mode: write"),
    "table": filed("./table.csv", "size: 3, within: 1h", ", format: csv"),
    "texts": filed("./texts.txt", "size: 3, within: 1h", ", format: text"),
    "array": filed("./array.json", "size: 3, within: 1h", ", format: json"),
    "removed": batched("removed", "size: 3, within: 1h", SEEN, table=""),
    "locked": batched(
        "locked", "size: 5, within: 1h", "  on_error: { retry: 100, delay: 100ms }\n"
    ),
    "odd": batched(
        "odd", "size: 100, within: 1h", "  on_error: { retry: 1, delay: 20ms }\n", table=""
    ),
    "marked": batched("marked", "size: 10, within: 1h"),
    "single": "concurrency: 1\n"
    + batched("single", "size: 1", table=", create: true").replace("  batch: { size: 1 }\n", ""),
    "hundred": batched("hundred", "size: 100, within: 1h"),
    "large": "buffer: { max: 100000 }\nconcurrency: 64\n"
    + batched("large", "size: 100000, within: 1h"),
}
BEFORE = {
    "removed.db": "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER);"
    "CREATE TRIGGER gone AFTER INSERT ON t WHEN new.n = 2"
    " BEGIN DELETE FROM t WHERE packet_id = new.packet_id; END",
    "odd.db": "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER CHECK (n <> 36))",
}


NUMBERS = count()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    config = "engine:\n  restart: { backoff: 200ms }\n"
    folder = tmp_path_factory.mktemp("batches")
    with running(folder, PIPELINES, config=config, before=BEFORE) as made:
        yield made


def push_all(stack: Stack, name: str, *data: Any) -> list[str]:
    return [push(stack, name, one) for one in data]


def sizes(stack: Stack, name: str) -> list[int]:
    """The size of the group that each packet was written in, in the order of the writes."""
    return [
        json.loads(detail)["size"]
        for (detail,) in query(
            journal_of(stack.home, name),
            "SELECT detail FROM events WHERE type = 'output.written' ORDER BY seq",
        )
    ]


def events(stack: Stack, name: str, type_: str) -> list[list[Any]]:
    sql = f"SELECT unit, at, detail FROM events WHERE type = '{type_}' ORDER BY seq"
    return query(journal_of(stack.home, name), sql)


def numbers(stack: Stack, name: str) -> list[int]:
    return [n for (n,) in query(stack.workspace / f"{name}.db", "SELECT n FROM t ORDER BY n")]


@contextmanager
def counted(path: Path, program: str) -> Iterator[list[int]]:
    """What a reader outside has counted meanwhile; filled at the end."""
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    seen: list[int] = []
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        yield seen
        told, _ = reader.communicate("", timeout=60)
        seen += json.loads(told)
    finally:
        reader.kill()
        reader.wait()


LOOK = """
import json, os, select, sqlite3, sys
def rows():
    try:
        db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, timeout=60)
        return db.execute("SELECT count(*) FROM t").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
def records():
    if not os.path.exists(sys.argv[1]):
        return 0
    text = open(sys.argv[1], "rb").read()
    # Linux shows a write that is under way page by page: an end at a page's end is no write's.
    return text.count(b"\\n") if len(text) % os.sysconf("SC_PAGE_SIZE") or not text else -1
seen = set()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    seen.add(COUNT())
seen.add(COUNT())
print(json.dumps(sorted(seen)))
"""


# ── collecting ───────────────────────────────────────────────────────────────


@pytest.mark.seed("O066")
def test_the_snippet_runs(stack: Stack) -> None:
    checked = stack.pipo("check", "events.pipo")
    assert checked.returncode == 0, checked.stdout
    port = stack.port + 1
    asyncio.run(push_many(100, port=port, pipeline="events", group=100))
    stats = stack.settle("events")
    assert stats["delivered"] == 100
    # They came at once: the last one filled the batch before the timer.
    assert sizes(stack, "events") == [100] * 100
    asyncio.run(push_many(2, port=port, pipeline="events"))
    stack.settle("events")
    assert sizes(stack, "events")[100:] == [2, 2]
    (_, joined, _) = events(stack, "events", "output.batched")[100]
    (_, written, _) = events(stack, "events", "output.written")[100]
    assert 1_900 < written - joined < 30_000


@pytest.mark.seed("O058")
def test_an_invalid_packet_never_enters_a_batch(stack: Stack) -> None:
    first, bad, *others = push_all(stack, "ruled", *({"n": n} for n in (1, "two", 3, 4)))
    stack.settle("ruled")
    assert sizes(stack, "ruled") == [3, 3, 3]
    end = packet(stack, "ruled", bad)
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.invalid")
    assert [unit for unit, _, _ in events(stack, "ruled", "output.batched")] == [first, *others]


@pytest.mark.seed("O067")
def test_within_is_one_second_unless_it_says_otherwise(stack: Stack) -> None:
    one = push(stack, "plain-within", {"n": 1})
    settled(stack, "plain-within", one)
    ((_, joined, _),) = events(stack, "plain-within", "output.batched")
    ((_, written, _),) = events(stack, "plain-within", "output.written")
    assert 950 <= written - joined < 30_000


@pytest.mark.seed("O068")
def test_a_batch_is_flushed_by_what_comes_first(stack: Stack) -> None:
    """Also shown exactly, on a clock of its own, in the runner's tests."""
    push_all(stack, "whole", *({"n": n} for n in range(20)))
    stack.settle("whole")
    assert sizes(stack, "whole") == [20] * 20
    (_, joined, _), *_ = events(stack, "whole", "output.batched")
    (_, written, _), *_ = events(stack, "whole", "output.written")
    assert written - joined < 20_000


@pytest.mark.seed("O069")
def test_a_reader_outside_sees_only_whole_batches(stack: Stack) -> None:
    before = stack.stats("whole")["delivered"]
    with counted(stack.workspace / "whole.db", LOOK.replace("COUNT", "rows")) as seen:
        push_all(stack, "whole", *({"n": n} for n in range(100)))
        stack.settle("whole")
    assert set(seen) <= set(range(0, before + 101, 20))
    assert seen[-1] == before + 100
    with counted(stack.workspace / "appended.jsonl", LOOK.replace("COUNT", "records")) as seen:
        push_all(stack, "appended", *({"n": n} for n in range(100)))
        stack.settle("appended")
    assert set(seen) - {-1} <= set(range(0, 101, 20))
    assert seen[-1] == 100


@pytest.mark.seed("O069")
@pytest.mark.parametrize("name", ["places", "files"])
def test_a_batch_is_one_write_for_each_path(stack: Stack, name: str) -> None:
    push_all(stack, name, *({"place": place, "n": n} for n, place in enumerate("abab")))
    stack.settle(name)
    assert sizes(stack, name) == [4] * 4
    if name == "files":
        for place in "ab":
            found = lines(stack.workspace / f"files/{place}.jsonl")
            assert {one["data"]["place"] for one in found} == {place}
            assert len(found) == 2
        return
    for place, wanted in (("a", [0, 2]), ("b", [1, 3])):
        assert numbers(stack, place) == wanted
        # The table's, and the rows': two.
        assert _commits(stack.workspace / f"{place}.db") <= 2


def _commits(database: Path) -> int:
    """SQLite's file change counter: how many transactions have altered the file."""
    return int.from_bytes(database.read_bytes()[24:28], "big")


@pytest.mark.seed("O078")
def test_the_last_packet_of_a_batch_wins_a_file_of_its_own(stack: Stack) -> None:
    push_all(stack, "last", *({"n": n} for n in range(3)))
    stats = stack.settle("last")
    assert (stats["delivered"], sizes(stack, "last")) == (3, [3, 3, 3])
    assert json.loads((stack.workspace / "last.json").read_text())["n"] == 2


@pytest.mark.seed("O065")
def test_every_format_of_a_file_takes_a_batch(stack: Stack) -> None:
    for name in ("table", "texts", "array"):
        data = ["a", "b", "c"] if name == "texts" else [{"n": n} for n in range(3)]
        push_all(stack, name, *data)
        assert stack.settle(name)["delivered"] == 3
        assert sizes(stack, name) == [3, 3, 3]
    text = (stack.workspace / "table.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in text] == ["n", "0", "1", "2"]
    assert (stack.workspace / "texts.txt").read_text().splitlines() == ["a", "b", "c"]
    array = json.loads((stack.workspace / "array.json").read_text())
    assert [one["data"]["n"] for one in array] == [0, 1, 2]


@pytest.mark.seed("O075")
def test_a_packet_is_journaled_as_waiting_before_it_joins(stack: Stack) -> None:
    ids = push_all(stack, "marked", *({"n": n} for n in range(9)))
    journal = journal_of(stack.home, "marked")
    found = wait_for(
        lambda: (
            rows
            if len(rows := query(journal, "SELECT id FROM units WHERE cursor = '$batch'")) == 9
            else None
        )
    )
    assert sorted(one for (one,) in found) == sorted(ids)
    one = packet(stack, "marked", ids[0])
    assert (one["state"], one["node"]) == ("writing", "$batch")
    trail = [event["type"] for event in inspect(stack, "marked", ids[0])["events"]]
    assert trail == ["packet.accepted", "output.batched"]
    push(stack, "marked", {"n": 9})
    stack.settle("marked")
    assert sizes(stack, "marked") == [10] * 10


@pytest.mark.seed("O079")
def test_a_batch_of_a_hundred_is_one_transaction(stack: Stack) -> None:
    for name in ("single", "hundred"):
        for n in range(100):
            push(stack, name, {"n": n})
            if name == "single":
                stack.settle(name)
        stack.settle(name)
    commits = {name: _commits(stack.workspace / f"{name}.db") for name in ("single", "hundred")}
    assert commits["hundred"] <= 2
    assert commits["single"] >= 100


# ── failing ──────────────────────────────────────────────────────────────────


@pytest.mark.seed("O070")
def test_checks_run_per_packet_after_the_flush(stack: Stack) -> None:
    ids = push_all(stack, "removed", *({"n": n} for n in (1, 2, 3)))
    ends = [settled(stack, "removed", one) for one in ids]
    assert [end["state"] for end in ends] == ["delivered", "dead_lettered", "delivered"]
    assert ends[1]["error"]["code"] == "delivery.unverified"
    assert sizes(stack, "removed") == [3, 3, 3]


@pytest.mark.seed("O071")
def test_a_locked_database_delays_the_whole_batch_and_no_more(stack: Stack) -> None:
    database = stack.workspace / "locked.db"
    run_sql(database, "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER)")
    with _lock(database):
        ids = push_all(stack, "locked", *({"n": n} for n in range(5)))
        wait_for(lambda: len(events(stack, "locked", "step.retry")) >= 5)
    assert stack.settle("locked")["dead_lettered"] == 0
    retries = events(stack, "locked", "step.retry")
    assert {json.loads(detail)["batch"] for _, _, detail in retries} == {5}
    assert {unit for unit, _, _ in retries} == set(ids)
    assert events(stack, "locked", "output.batch_split") == []
    assert sizes(stack, "locked") == [5] * 5
    assert numbers(stack, "locked") == list(range(5))


@contextmanager
def _lock(database: Path) -> Iterator[None]:
    """Another process holds the database's write lock."""
    program = (
        "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('BEGIN EXCLUSIVE');"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.communicate("", timeout=60)


@pytest.mark.seed("O071", "O072")
def test_one_bad_of_a_hundred_leaves_ninety_nine(stack: Stack) -> None:
    ids = push_all(stack, "odd", *({"n": n} for n in range(100)))
    stats = stack.settle("odd")
    assert (stats["delivered"], stats["dead_lettered"]) == (99, 1)
    assert numbers(stack, "odd") == [n for n in range(100) if n != 36]
    end = packet(stack, "odd", ids[36])
    assert (end["error"]["code"], end["error"]["attempts"]) == ("output.failed", 2)
    assert "CHECK constraint failed" in end["error"]["message"]
    splits = [json.loads(detail) for _, _, detail in events(stack, "odd", "output.batch_split")]
    # The bad one is never alone before the last.
    halves = [[50, 50], [25, 25], [13, 12], [7, 6], [3, 3], [2, 1], [1, 1]]
    assert [one["into"] for one in splits] == halves
    # One retry of each part that held it.
    tries = [json.loads(detail) for _, _, detail in events(stack, "odd", "step.retry")]
    assert len(tries) == 100 + 50 + 25 + 13 + 6 + 3 + 2 + 1
    assert {one["attempt"] for one in tries} == {1}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_batch_of_a_hundred_thousand(stack: Stack) -> None:
    asyncio.run(push_many(100_000, port=stack.port + 1, pipeline="large", deadline_s=1_500))
    stack.settle("large", deadline_s=240)
    found = query(
        journal_of(stack.home, "large"),
        "SELECT detail, count(*) FROM events WHERE type = 'output.written' GROUP BY 1",
    )
    assert found == [['{"size":100000}', 100_000]]
    assert query(stack.workspace / "large.db", "SELECT count(*) FROM t") == [[100_000]]


# ── pauses and ends ──────────────────────────────────────────────────────────


@pytest.fixture
def name(stack: Stack) -> Iterator[str]:
    """What a pipeline is called that one test has for itself, stops or kills, and leaves stopped."""
    name = f"waits-{next(NUMBERS)}"
    yield name
    stack.request(f"/api/pipelines/{name}/stop", b'{"now": true}')


def waits(name: str) -> str:
    return f"pipo: 1\nname: {name}\n" + batched(name, "size: 100, within: 1h")


def _with_three(stack: Stack, name: str, more: str = "") -> list[str]:
    path = stack.write(f"{name}.pipo", waits(name) + more)
    assert stack.pipo("start", str(path)).returncode == 0
    ids = push_all(stack, name, *({"n": n} for n in range(3)))
    journal = journal_of(stack.home, name)
    waiting = "SELECT count(*) FROM units WHERE cursor = '$batch'"
    wait_for(lambda: query(journal, waiting) == [[3]], what="three wait")
    return ids


def _stopped(stack: Stack, name: str) -> None:
    wait_for(lambda: stack.get(f"/api/pipelines/{name}")["state"] == "stopped", what="it stops")


@pytest.mark.seed("O073")
@pytest.mark.parametrize("words", [("pause",), ("stop",), ("stop", "--now")], ids="-".join)
def test_pause_and_stop_flush_at_once(stack: Stack, name: str, words: tuple[str, ...]) -> None:
    _with_three(stack, name)
    word, *more = words
    assert stack.pipo(word, name, *more).returncode == 0
    wait_for(
        lambda: stack.workspace.joinpath(f"{name}.db").exists() and len(numbers(stack, name)) == 3
    )
    if word == "stop":
        _stopped(stack, name)
    journal = journal_of(stack.home, name)
    states = "SELECT state, group_size FROM units"
    wait_for(lambda: query(journal, states) == [["delivered", 3]] * 3, what="they are delivered")


@pytest.mark.seed("O073")
def test_what_a_pause_flushes_is_looked_for_after_it(stack: Stack, name: str) -> None:
    """Decision 35, edge 150: only `ack` and `none` settle with the write."""
    ids = _with_three(stack, name, SEEN)
    assert stack.pipo("pause", name).returncode == 0
    journal = journal_of(stack.home, name)
    states = "SELECT state, group_size FROM units"
    wait_for(lambda: query(journal, states) == [["verifying", 3]] * 3, what="they are written")
    assert numbers(stack, name) == [0, 1, 2]
    assert events(stack, name, "packet.delivered") == []
    assert stack.pipo("resume", name).returncode == 0
    assert [settled(stack, name, one)["state"] for one in ids] == ["delivered"] * 3


@pytest.mark.seed("O073")
def test_what_a_stop_flushes_is_looked_for_at_the_next_start(stack: Stack, name: str) -> None:
    """Edge 151: verified then, and not written again."""
    ids = _with_three(stack, name, SEEN)
    assert stack.pipo("stop", name, "--now").returncode == 0
    _stopped(stack, name)
    assert numbers(stack, name) == [0, 1, 2]
    found = query(journal_of(stack.home, name), "SELECT DISTINCT state FROM units")
    assert found in ([["verifying"]], [["delivered"]])
    assert stack.pipo("start", name).returncode == 0
    wait_for(lambda: stack.stats(name) or None)
    assert [settled(stack, name, one)["state"] for one in ids] == ["delivered"] * 3
    assert sizes(stack, name) == [3, 3, 3]


@pytest.mark.seed("O074")
def test_a_stop_waits_two_seconds_for_a_flush_and_the_next_start_does_it(
    stack: Stack, name: str
) -> None:
    database = stack.workspace / f"{name}.db"
    run_sql(database, "CREATE TABLE t (packet_id TEXT PRIMARY KEY, n INTEGER)")
    ids = _with_three(stack, name)
    with _lock(database):
        assert stack.pipo("stop", name, "--now").returncode == 0
        _stopped(stack, name)
        # The database is waited for for 5 s, and then the attempt has failed; but for a stop.
        assert events(stack, name, "step.retry") == []
        found = query(journal_of(stack.home, name), "SELECT id, cursor, state FROM units")
        assert sorted(found) == [[one, "$batch", "writing"] for one in sorted(ids)]
    assert stack.pipo("start", name).returncode == 0
    wait_for(lambda: stack.stats(name) or None)
    assert numbers(stack, name) == []
    assert stack.pipo("stop", name).returncode == 0
    _stopped(stack, name)
    assert numbers(stack, name) == [0, 1, 2]
    assert sizes(stack, name) == [3] * 3


@pytest.mark.seed("O077")
def test_each_version_is_batched_by_itself(stack: Stack, name: str) -> None:
    """A changed file is a new version at the next start; the packets of the old one stay its own."""
    _with_three(stack, name)
    pid = stack.pipeline_pid(name)
    assert pid is not None
    stack.write(f"{name}.pipo", waits(name).replace("table: t", "table: later").replace("100", "3"))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stack.pipeline_pid(name) not in (None, pid))
    wait_for(lambda: stack.stats(name) or None)
    push_all(stack, name, *({"n": n} for n in range(3, 6)))
    later = "SELECT n FROM later ORDER BY n"
    database = stack.workspace / f"{name}.db"
    wait_for(lambda: database.exists() and query(database, later) == [[3], [4], [5]])
    assert stack.stats(name)["pending"] == 3
    assert stack.pipo("stop", name).returncode == 0
    _stopped(stack, name)
    assert numbers(stack, name) == [0, 1, 2]
    assert sizes(stack, name) == [3] * 6
