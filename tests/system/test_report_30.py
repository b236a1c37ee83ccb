"""Report 30: a replay while the cause is still there feeds the queue to itself for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from tests.packets import inspect, push, running
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

MANY = 10_000
PIPELINES = {
    "loop": (
        "input: { via: push }\noutput:\n  from: input\n  to: http\n"
        '  with: { url: "${env.STUB}/loop" }\n  on_error: { retry: 1, delay: 0s }\n'
    ),
    "many": (
        "buffer: { max: 20000 }\n"
        "inputs:\n  hook: { via: http, format: csv, with: { path: /in } }\n"
        "  hand: { via: push }\n"
        'nodes: { bad: { from: [hook, hand], filter: "data.fine == 1 || upper(1) == 1" } }\n'
        "output: { from: bad, to: sqlite, with: { path: ./many.db, table: t, create: true } }\n"
    ),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        made.script("/loop", Reply(500))
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("report-30"),
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        yield made


def queue(stack: Stack, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.get(f"/api/pipelines/{name}/dlq?limit=1000")["packets"]
    return found


def test_each_dead_letter_runs_once_per_call(stack: Stack, receiver: Receiver) -> None:
    ids = [push(stack, "loop", n) for n in range(10)]
    wait_for(lambda: len(queue(stack, "loop")) == 10)
    before = len(receiver.at("/loop"))
    done = stack.pipo("dlq", "replay", "loop", "--all", "--by", "Ada")
    assert done.stdout.startswith("replayed 10 packet(s)"), done
    wait_for(lambda: len(queue(stack, "loop")) == 10 and stack.stats("loop")["pending"] == 0)
    # Nothing is on its way, so nothing goes round again.
    assert len(receiver.at("/loop")) == before + 20
    assert [one["packet_id"] for one in queue(stack, "loop")] == ids[::-1]
    assert {one["error"]["attempts"] for one in queue(stack, "loop")} == {2}
    for id in ids:
        events = inspect(stack, "loop", id)["events"]
        types = [event["type"] for event in events]
        assert types == [
            "packet.accepted",
            *("step.retry", "packet.dead_lettered", "dlq.replayed"),
            *("step.retry", "packet.dead_lettered"),
        ]
        assert events[3]["detail"]["by"] == "Ada"
    receiver.script("/loop", Reply(stores=True))
    effects = receiver.effects
    assert stack.pipo("dlq", "replay", "loop", "--all").stdout.startswith("replayed 10 packet(s)")
    wait_for(lambda: stack.stats("loop")["delivered"] == 10)
    assert (receiver.effects, queue(stack, "loop")) == (effects + 10, [])
    done = stack.pipo("dlq", "replay", "loop", "--all")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "replayed 0 packet(s) from the dead-letter queue of loop",
    )


def test_ten_thousand_while_new_packets_come(stack: Stack) -> None:
    body = "n\n" + "\n".join(map(str, range(MANY)))
    status, _, answer = stack.request(
        "/in/many/in", body.encode(), headers={"Content-Type": "text/csv"}, timeout_s=60
    )
    assert status == 202, answer
    wait_for(lambda: stack.stats("many").get("dead_lettered") == MANY, deadline_s=120)
    fed = 0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            stack.request, "/api/pipelines/many/dlq/replay", b'{"all": true}', timeout_s=90
        )
        while not asked.done():
            # One dies while the replay runs, and one is delivered.
            push(stack, "many", {"n": -1}, input="hand")
            push(stack, "many", {"fine": 1}, input="hand")
            fed += 1
            wait([asked], timeout=0.05)
    status, _, answer = asked.result()
    told = json.loads(answer)
    assert (status, told["skipped"], len(told["packets"])) == (200, [], 100)
    # One that had died before the pipeline heard of the replay is of it, too.
    assert told["replayed"] in range(MANY, MANY + fed + 1)
    assert fed > 1, "new packets flow"
    wait_for(lambda: stack.stats("many").get("pending") == 0, deadline_s=120)
    stats = stack.stats("many")
    assert (stats["dead_lettered"], stats["delivered"]) == (MANY + fed, fed)
    twice = "SELECT unit FROM events WHERE type = 'dlq.replayed' GROUP BY unit HAVING count(*) > 1"
    assert query(journal_of(stack.home, "many"), twice) == [], "none that died anew came again"
    status, _, answer = stack.request(
        "/api/pipelines/many/dlq/purge", b'{"all": true}', timeout_s=90
    )
    assert json.loads(answer)["purged"] == MANY + fed
    assert stack.stats("many")["dead_lettered"] == 0
