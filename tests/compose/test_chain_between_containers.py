"""A chain whose two ends run in different containers, one of which dies: each packet goes once."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.load import careful_posts, chain_judge
from tests.load.careful_posts import Ledger, send
from tests.system.test_chain_across_hosts import DEPOT, GATE

from . import engine
from .test_two_runners import host_of, hostname, inside, pipelines, running

pytestmark = [pytest.mark.compose, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(3600)]

COUNT = 2_000
# What stands in SQLite files of the containers, as JSON.
QUERY = (
    "import json,sqlite3,sys;"
    "print(json.dumps([sqlite3.connect(f'file:{d}?mode=ro',uri=True,timeout=60)"
    ".execute(q).fetchall() for d,q in json.loads(sys.argv[1])]))"
)
JOURNALS = [f"/var/lib/pipo/pipelines/{name}/journal.db" for name in ("gate", "depot")]
ROWS = ("/workspace/depot/depot.db", "SELECT packet_id, email FROM t")


@pytest.fixture
def pair(stack: engine.Project) -> Iterator[engine.Project]:
    """Two runners with nothing but the chain, one end on each."""
    stack.compose("down", "--timeout", "60")
    stack.up(runners=2)
    try:
        engine.wait_until("it answers", lambda: bool(pipelines(stack)), limit_s=300)
        for name in pipelines(stack):
            post(stack, f"/{name}/stop", {"now": True})
        engine.wait_until("nothing runs", lambda: not running(stack), limit_s=300)
        for name, source in (("depot", DEPOT), ("gate", GATE)):
            post(stack, "", {"name": name, "source": source})
        yield stack
    finally:
        stack.compose("down", "--timeout", "60")
        stack.up()


def post(stack: engine.Project, path: str, body: dict[str, Any]) -> None:
    """An operation on pipelines, as the admin."""
    token = inside(stack, "cat", "/var/lib/pipo/admin.token").strip()
    request = urllib.request.Request(
        f"http://127.0.0.1:{stack.ports[0]}/api/pipelines{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=120).close()


def look(stack: engine.Project, *asked: tuple[str, str]) -> list[list[list[Any]]]:
    found: list[list[list[Any]]] = json.loads(
        inside(stack, "python3", "-c", QUERY, json.dumps(asked))
    )
    return found


async def test_the_receivers_container_dies_and_the_hand_off_goes_on(
    pair: engine.Project, tmp_path: Path
) -> None:
    sender, receiver = host_of(pair, "gate"), host_of(pair, "depot")
    assert sender != receiver
    ledger = Ledger(tmp_path / "ledger")

    async def kill() -> None:
        await ledger.reached(COUNT // 5)
        await asyncio.to_thread(engine.run, "docker", "kill", receiver)

    async with asyncio.TaskGroup() as group:
        load = group.create_task(
            send(
                (f"p{n}@example.com" for n in range(COUNT)),
                port=pair.ports[0],
                path="/in/gate/people",
                connections=8,
                ledger=ledger,
                limit_s=900,
            ),
            name="load",
        )
        group.create_task(kill(), name="kill")
    ledger.close()

    def settled() -> bool:
        found = pipelines(pair)
        runs = all(found[name]["state"] == "running" for name in ("gate", "depot"))
        return runs and all(found[name]["stats"]["pending"] == 0 for name in ("gate", "depot"))

    await asyncio.to_thread(engine.wait_until, "all settles", settled, limit_s=300)
    assert set(running(pair).values()) == {hostname(sender)}
    units, rows = chain_judge.UNITS, look(pair, ROWS)[0]
    chain = chain_judge.journals(
        look(pair, *((path, units) for path in JOURNALS)),
        look(pair, *((path, chain_judge.INBOX) for path in JOURNALS)),
    )
    answered, emails = ledger.read(), Counter(email for _, email in rows)
    assert (
        chain_judge.faults(
            answered.values(),
            chain,
            [packet_id for packet_id, _ in rows],
            pipelines(pair)["gate"]["stats"]["delivered"],
        )
        == []
    )
    assert careful_posts.faults(set(answered), load.result().unknown, dict(emails)) == []
    assert len(answered) + len(load.result().unknown) == COUNT
