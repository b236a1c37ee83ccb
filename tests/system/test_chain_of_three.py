"""http → clean → store → archive: three pipelines, and every process killed again and again.

What was answered stands in a ledger outside of Pipo. Whatever died, each packet is one packet of
each pipeline, one key of each inbox, and one row.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.load import careful_posts
from tests.load.careful_posts import Ledger, Tally, send
from tests.load.chain_judge import faults, read
from tests.packets import run_sql
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

CHAIN = ("intake", "store", "archive")
SERVICES = ("runner", "checker")
PATH = "/in/intake/people"
POINTS = (
    "accepted.before_commit",
    "accepted.after_commit",
    "output.before_write",
    "output.after_write",
    "written.after_commit",
    "verdict.before_commit",
    "delivered.before_commit",
    "delivered.after_commit",
)
# What the covering test kills: the one in the middle, which is both receiver and sender, at each
# point, and the two ends where the other side cannot know. The long one kills all of them.
FEW = (
    *(("store", point) for point in POINTS),
    ("intake", "output.after_write"),
    ("archive", "accepted.after_commit"),
)
MANY = 20_000
CONFIG = """engine:
  restart: { backoff: 100ms, max_backoff: 200ms, max_restarts: 1000 }
"""
PATIENT = "on_error: { retry: 10000, backoff: fixed, delay: 200ms }"
FILES = {
    "intake": f"""pipo: 1
name: intake
buffer: {{ max: 30000 }}
input: {{ via: http, with: {{ path: /people }} }}
nodes:
  clean:
    from: input
    transform: map
    with: {{ data: {{ name: "${{trim(data.name)}}", email: "${{lower(trim(data.email))}}" }} }}
output: {{ from: clean, to: pipeline, with: {{ pipeline: store }}, {PATIENT} }}
delivered: {{ check: downstream, within: 1h }}
""",
    "store": f"""pipo: 1
name: store
buffer: {{ max: 30000 }}
input: {{ via: pipeline, with: {{ from: [intake] }} }}
output: {{ from: input, to: pipeline, with: {{ pipeline: archive }}, {PATIENT} }}
delivered: {{ check: downstream, within: 1h }}
""",
    "archive": """pipo: 1
name: archive
buffer: { max: 30000 }
input: { via: pipeline, with: { from: [store] } }
output:
  from: input
  to: sqlite
  with: { path: ./archive.db, table: t, create: true }
delivered:
  check: record_exists
  with: { where: { packet_id: "${meta.packet_id}" } }
  within: 1h
""",
}


class Chain:
    """The three pipelines in a stack, what is posted to them, and who was killed."""

    def __init__(self, folder: Path) -> None:
        self.traps = folder / "traps"
        self.traps.mkdir()
        self.stack = Stack(folder, env={"PIPO_CRASH_TRAPS": str(self.traps)}, config=CONFIG)
        for name, text in FILES.items():
            self.stack.write(f"{name}.pipo", text)
        self._ledger = folder / "ledger"
        self.tally = Tally()
        self.killed: Counter[str] = Counter()
        self.posted = 0

    def post(self, count: int, *, connections: int = 4, limit_s: float = 150.0) -> None:
        """Posts that many sign-ups, each until its fate is known."""
        keys = [f"p{n}@example.com" for n in range(self.posted, self.posted + count)]
        self.posted += count
        ledger = Ledger(self._ledger)
        posting = send(
            keys,
            port=self.stack.port,
            path=PATH,
            connections=connections,
            ledger=ledger,
            limit_s=limit_s,
        )
        try:
            made = asyncio.run(posting)
        finally:
            ledger.close()
        self.tally.refused += made.refused
        self.tally.unknown |= made.unknown

    def kill(self, name: str) -> None:
        """Kills a pipeline's process or a service, if it lives."""
        find = self.stack.service_pid if name in SERVICES else self.stack.pipeline_pid
        pid = find(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed[name] += 1

    def set_trap(self, name: str, point: str) -> Path:
        """The pipeline dies when it next comes to the point; the file is gone then."""
        trap = self.traps / f"pipo:{name}@{point}"
        trap.touch()
        return trap

    def spring(self, name: str, point: str) -> None:
        """Kills a pipeline at a point: posts until something has come that far."""
        trap = self.set_trap(name, point)
        end = time.monotonic() + 150
        while trap.exists():
            assert time.monotonic() < end, f"{name} never came to {point}\n{self.stack.output()}"
            self.post(2)
            with suppress(AssertionError):
                wait_for(lambda: not trap.exists(), deadline_s=1)
        self.killed[name] += 1

    def settle(self, *, deadline_s: float = 180.0) -> None:
        for name in CHAIN:
            self.stack.settle(name, deadline_s=deadline_s)

    def answered(self) -> dict[str, str]:
        """What the ledger says: addresses, and their packets' ids."""
        ledger = Ledger(self._ledger)
        ledger.close()
        return ledger.read()

    def faults(self) -> list[str]:
        """What is wrong; empty when all is well."""
        rows = query(self.stack.workspace / "archive.db", "SELECT packet_id, email FROM t")
        answered = self.answered()
        found = faults(
            answered.values(),
            read(self.stack.home, CHAIN),
            [packet_id for packet_id, _ in rows],
            self.stack.stats("intake")["delivered"],
        )
        emails = Counter(email for _, email in rows)
        return [*found, *careful_posts.faults(set(answered), self.tally.unknown, dict(emails))]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    made = Chain(tmp_path)
    try:
        made.stack.start()
        yield made
    finally:
        made.stack.kill_all()


@pytest.mark.seed("C020", "C021", "C022", "R061")
@pytest.mark.timeout(900)
def test_each_commit_on_the_way_through_three(chain: Chain) -> None:
    """Killed at the points of both sides of a hand-off, while the host and the checker die, too."""
    for number, (name, point) in enumerate(FEW):
        chain.spring(name, point)
        if number in (3, 6):
            chain.kill(SERVICES[number // 6])
    chain.settle()
    assert chain.faults() == []
    assert chain.killed == Counter([*(name for name, _ in FEW), *SERVICES])


@pytest.mark.seed("C020", "C022")
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_twenty_thousand_through_three_with_kills_at_any_moment(chain: Chain) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    moments = random.Random(seed)
    places = [(name, point) for name in CHAIN for point in POINTS]
    moments.shuffle(places)
    over = threading.Event()
    killer = threading.Thread(target=keep_killing, args=(chain, moments, places, over.is_set))
    began = time.monotonic()
    killer.start()
    try:
        chain.post(MANY, connections=16, limit_s=2400)
        posted_s = time.monotonic() - began
    finally:
        over.set()
        killer.join()
    # The points that it did not come to in that time, and what is still on its way.
    for name, point in places:
        chain.spring(name, point)
    wait_for(lambda: not list(chain.traps.iterdir()), deadline_s=300, what=chain.stack.output)
    for name in moments.sample([*CHAIN, *SERVICES], 5):
        chain.kill(name)
        # No condition to wait for: the kill comes at a moment of its own.
        time.sleep(moments.random())
    chain.settle(deadline_s=900)
    tally = chain.tally
    print(
        f"{len(chain.answered())} acknowledged in {posted_s:.0f} s, settled after "
        f"{time.monotonic() - began:.0f} s; killed {dict(chain.killed)}; "
        f"{tally.refused} refused and sent again, {len(tally.unknown)} cut off"
    )
    assert chain.faults() == []
    assert len(chain.answered()) + len(tally.unknown) == chain.posted >= MANY
    assert all(chain.killed[name] >= 5 for name in (*CHAIN, *SERVICES)), chain.killed


def keep_killing(
    chain: Chain,
    moments: random.Random,
    places: list[tuple[str, str]],
    over: Callable[[], bool],
) -> None:
    """Kills one after the other in an order of its own, by turns at any moment and at the next of
    the places, until it is over; the places that are left stay in the list."""
    while not over():
        time.sleep(0.3 + moments.random())
        chain.kill(moments.choice([*CHAIN, *SERVICES]))
        time.sleep(0.3 + moments.random())
        if places:
            name, point = places.pop()
            chain.set_trap(name, point)
            chain.killed[name] += 1


@pytest.mark.soak
def test_the_judge_turns_red_when_an_inbox_forgets(chain: Chain) -> None:
    """The negative control: a receiver that keeps no inbox takes a repeat for a new packet."""
    assert chain.stack.pipo("stop", "store").returncode == 0
    wait_for(lambda: not (chain.stack.home / "run/store.json").exists())
    run_sql(
        journal_of(chain.stack.home, "store"),
        "CREATE TRIGGER forget AFTER INSERT ON inbox BEGIN DELETE FROM inbox; END",
    )
    assert chain.stack.pipo("start", "store").returncode == 0
    chain.spring("intake", "output.after_write")
    chain.settle()
    found = chain.faults()
    assert any(fault.startswith("more than one packet of the receiver") for fault in found), found
    assert any(fault.startswith("no key of the inbox") for fault in found), found
    assert any(fault.endswith("is 2 rows") for fault in found), found
