"""SIGKILL around a replay and a purge: each is done once or not at all, and nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import inspect, outcome, run_sql
from tests.stack import Stack, lines, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

REPLAY = ("dlq.before_replay_commit", "dlq.after_replay_commit")
PURGE = ("dlq.before_purge_commit", "dlq.after_purge_commit")
COVERED = frozenset((*REPLAY, *PURGE))
# Points that a replayed packet passes on its way, the second time each.
ON_THE_WAY = ("output.before_write:2", "output.after_write:2", "written.after_commit:2")
TEXTS = {
    # Its line stands in the file before the check fails, far before any mark of the next run.
    "file": """pipo: 1
name: dies
input: { via: push }
output: { from: input, to: file, with: { path: ./dies.jsonl } }
delivered: { check: file_exists, with: { path: ./seen }, within: 300ms }
""",
    "sqlite": """pipo: 1
name: dies
input: { via: push }
output: { from: input, to: sqlite, with: { path: ./dies.db, table: t, create: true } }
delivered:
  check: query
  with: { sql: "SELECT 1 FROM sqlite_schema WHERE name = 'seen'" }
  within: 300ms
""",
    "split": """pipo: 1
name: dies
input: { via: push }
nodes:
  good: { from: input, filter: "true" }
  bad: { from: input, transform: map, with: { data: { n: "${upper(data.n)}" } } }
output: { from: [good, bad], to: sqlite, with: { path: ./dies.db, table: t, create: true } }
""",
}


class Dies:
    """The pipeline `dies`, with a trap at a point."""

    def __init__(self, folder: Path, kind: str, point: str | None) -> None:
        self.kind = kind
        self._sprung = folder / "sprung"
        trap = {"PIPO_CRASH_AT": point, "PIPO_CRASH_ONCE": str(self._sprung)} if point else {}
        self.stack = Stack(folder, env=trap, config="engine:\n  restart: { backoff: 200ms }\n")
        self.stack.write("dies.pipo", TEXTS[kind])

    def dead(self, n: int) -> str:
        end = outcome(self.stack, "dies", {"n": n})
        assert end["state"] == "dead_lettered", end
        return str(end["packet_id"])

    def mend(self) -> None:
        """The cause is gone."""
        if self.kind == "file":
            (self.stack.workspace / "seen").touch()
        else:
            run_sql(self.stack.workspace / "dies.db", "CREATE TABLE seen (x)")

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """The answer; empty when nobody answered."""
        try:
            status, _, answer = self.stack.request(
                f"/api/pipelines/dies/dlq/{what}", json.dumps(fields).encode()
            )
        except OSError:
            return {}
        found: dict[str, Any] = json.loads(answer) if status == 200 else {}
        return found

    def after_the_crash(self) -> None:
        wait_for(self._sprung.exists, what=lambda: f"the trap springs\n{self.stack.output()}")
        self.serves()

    def serves(self) -> None:
        wait_for(
            lambda: self.stack.get("/api/pipelines/dies").get("runner") is not None,
            deadline_s=150,
            what=lambda: f"it comes back\n{self.stack.output()}",
        )

    def kill(self) -> None:
        pid = self.stack.pipeline_pid("dies")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.stack.pipeline_pid("dies") not in (None, pid), deadline_s=150)
        self.serves()

    def queue(self) -> list[str]:
        return [one["packet_id"] for one in self.stack.get("/api/pipelines/dies/dlq")["packets"]]

    def types(self, id: str) -> Counter[str]:
        return Counter(event["type"] for event in inspect(self.stack, "dies", id)["events"])

    def delivered_once(self, ids: list[str]) -> None:
        wait_for(
            lambda: self.stack.stats("dies").get("delivered") == len(ids), what=self.stack.output()
        )
        for id in ids:
            types = self.types(id)
            assert types["dlq.replayed"] == types["packet.delivered"] == 1, types
        assert self.written() == sorted(ids)
        assert self.queue() == []

    def written(self) -> list[str]:
        """The packets at the destination, as often as they stand there."""
        if self.kind == "file":
            return sorted(one["packet_id"] for one in lines(self.stack.workspace / "dies.jsonl"))
        found = query(self.stack.workspace / "dies.db", "SELECT packet_id FROM t")
        return sorted(row[0] for row in found)


@pytest.fixture
def dies(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Dies]:
    made = Dies(tmp_path, *request.param)
    try:
        made.stack.start()
        yield made
    finally:
        made.stack.kill_all()


def cases(*kinds: str, points: tuple[str | None, ...]) -> pytest.MarkDecorator:
    made = [((kind, point), point) for kind in kinds for point in points]
    names = [f"{kind}-{point}" for (kind, point), _ in made]
    return pytest.mark.parametrize(("dies", "point"), made, indirect=["dies"], ids=names)


@pytest.mark.seed("O005", "R025", "R061")
@cases("file", "sqlite", points=REPLAY)
def test_a_crash_at_a_replay(dies: Dies, point: str) -> None:
    ids = [dies.dead(n) for n in range(3)]
    dies.mend()
    assert dies.ask("replay", ids=ids) == {}
    dies.after_the_crash()
    if point == REPLAY[0]:
        # Nobody was told, and nothing stands: it is sent again.
        assert dies.queue() == ids[::-1]
        assert dies.ask("replay", ids=ids)["replayed"] == 3
    else:
        assert dies.ask("replay", ids=ids) == {}
    dies.delivered_once(ids)


@pytest.mark.seed("O005", "R025", "R061")
@cases("file", "sqlite", points=ON_THE_WAY)
def test_a_crash_of_a_replayed_packet_on_its_way(dies: Dies, point: str) -> None:
    # The only packet, so that its second write is that of the replay.
    id = dies.dead(1)
    dies.mend()
    dies.ask("replay", all=True)
    dies.after_the_crash()
    dies.delivered_once([id])


@pytest.mark.seed("R025")
@cases("file", points=(None,))
def test_a_kill_right_after_the_answer(dies: Dies, point: None) -> None:
    """Edge 264. What waits in a pause is not lost either, nor written from a mark on."""
    ids = [dies.dead(n) for n in range(3)]
    dies.mend()
    assert dies.stack.pipo("pause", "dies").returncode == 0
    assert dies.ask("replay", all=True)["replayed"] == 3
    dies.kill()
    assert dies.stack.stats("dies")["pending"] == 3
    assert dies.stack.pipo("resume", "dies").returncode == 0
    dies.delivered_once(ids)


@pytest.mark.seed("R023", "R025")
@cases("split", points=REPLAY)
def test_a_crash_at_the_replay_of_a_copy(dies: Dies, point: str) -> None:
    id = dies.dead(1)
    dies.ask("replay", ids=[id])
    dies.after_the_crash()
    if point == REPLAY[0]:
        assert dies.ask("replay", ids=[id])["packets"] == [
            {"packet_id": id, "units": [{"id": f"{id}:bad", "node": "bad"}]}
        ]
    # Its cause stands: the copy dies again, and the packet with it.
    wait_for(lambda: dies.queue() == [id], what=dies.stack.output())
    assert dies.types(id)["packet.dead_lettered"] == 2
    assert dies.types(id)["dlq.replayed"] == 1
    assert dies.written() == [f"{id}:good"]


@pytest.mark.seed("R027", "R028")
@cases("split", points=PURGE)
def test_a_crash_at_a_purge(dies: Dies, point: str) -> None:
    ids = [dies.dead(n) for n in range(3)]
    assert dies.ask("purge", ids=ids[:2]) == {}
    dies.after_the_crash()
    if point == PURGE[0]:
        assert dies.queue() == ids[::-1]
        assert dies.ask("purge", ids=ids[:2])["purged"] == 2
    assert dies.queue() == [ids[2]]
    for id in ids[:2]:
        assert inspect(dies.stack, "dies", id)["packet"] is None
        assert dies.types(id) == {"dlq.purged": 1}
