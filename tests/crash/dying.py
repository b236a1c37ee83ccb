"""A pipeline that is killed while somebody recovers its packets."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.packets import inspect, outcome, packet, push, run_sql
from tests.stack import Stack, lines, query, wait_for

# The kinds that write a file.
IN_FILES = ("file", "waiting")
TEXTS = {
    # Its line stands in the file before the check fails, far before any mark of the next run.
    "file": """pipo: 1
name: dies
input: { via: push }
output: { from: input, to: file, with: { path: ./dies.jsonl } }
delivered: { check: file_exists, with: { path: ./seen }, within: 300ms }
""",
    # As `file`, but that someone decides.
    "waiting": """pipo: 1
name: dies
input: { via: push }
output: { from: input, to: file, with: { path: ./dies.jsonl } }
delivered:
  check: file_exists
  with: { path: ./seen }
  within: 300ms
  on_fail: { then: agent }
agent: { control: true }
""",
    # A number dies at its step, and a text is delivered.
    "failing": """pipo: 1
name: dies
buffer: { max: 20000 }
input: { via: push }
nodes:
  shape: { from: input, transform: map, with: { data: { n: "${upper(data.n)}" } } }
output: { from: shape, to: sqlite, with: { path: ./dies.db, table: t, create: true } }
""",
    # As `failing`, but that someone decides over numbers.
    "handed": """pipo: 1
name: dies
buffer: { max: 20000 }
input: { via: push }
nodes:
  shape:
    from: input
    transform: map
    with: { data: { n: "${upper(data.n)}" } }
    on_error: { retry: 0, then: agent }
output: { from: shape, to: sqlite, with: { path: ./dies.db, table: t, create: true } }
agent: { control: true }
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

    def escalated(self, n: int) -> str:
        id = push(self.stack, "dies", {"n": n})
        wait_for(lambda: packet(self.stack, "dies", id)["state"] == "escalated")
        return id

    def mend(self) -> None:
        """The cause is gone."""
        if self.kind in IN_FILES:
            (self.stack.workspace / "seen").touch()
        else:
            run_sql(self.stack.workspace / "dies.db", "CREATE TABLE seen (x)")

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """The answer of an operation, such as `dlq/replay`; empty when nobody answered."""
        try:
            status, _, answer = self.stack.request(
                f"/api/pipelines/dies/{what}", json.dumps(fields).encode()
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

    def delivered_once(
        self, ids: list[str], event: str = "dlq.replayed", *, deliveries: int = 1
    ) -> None:
        """Each was taken up once, as `event` tells, and stands at the destination once."""
        wait_for(
            lambda: self.stack.stats("dies").get("delivered") == len(ids), what=self.stack.output
        )
        for id in ids:
            types = self.types(id)
            assert (types[event], types["packet.delivered"]) == (1, deliveries), types
        assert self.written() == sorted(ids)
        assert self.queue() == []

    def written(self) -> list[str]:
        """The packets at the destination, as often as they stand there."""
        if self.kind in IN_FILES:
            return sorted(one["packet_id"] for one in lines(self.stack.workspace / "dies.jsonl"))
        found = query(self.stack.workspace / "dies.db", "SELECT packet_id FROM t")
        return sorted(row[0] for row in found)


def cases(
    *kinds: str, points: tuple[str | None, ...], soak: tuple[str, ...] = ()
) -> pytest.MarkDecorator:
    """Every kind at every point; those of the kinds in `soak` are left to `make soak`."""
    made = [
        pytest.param(
            (kind, point),
            point,
            id=f"{kind}-{point}",
            marks=[pytest.mark.soak] if kind in soak else [],
        )
        for kind in (*kinds, *soak)
        for point in points
    ]
    return pytest.mark.parametrize(("dies", "point"), made, indirect=["dies"])
