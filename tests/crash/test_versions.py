"""SIGKILL around an apply and a rollback: the one version is in force afterwards, or the other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.packets import inspect, packet, push
from tests.stack import Stack, journal_of, lines, query_each, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]

BEFORE, AFTER = "version.before_commit", "version.after_commit"
COVERED = frozenset((BEFORE, AFTER))
FEW: Final = 200
MANY: Final = 10_000
TEXT = """pipo: 1
name: turns
buffer: { max: 30000 }
input: { via: push }
nodes:
  shape: { from: input, transform: map, with: { data: { made: v1 } } }
output: { from: shape, to: file, with: { path: ./turns.jsonl } }
"""


class Turns:
    """The pipeline `turns`, with a trap at a point that a test may set again."""

    def __init__(self, folder: Path, point: str) -> None:
        self._sprung = folder / "sprung"
        trap = {"PIPO_CRASH_AT": point, "PIPO_CRASH_ONCE": str(self._sprung)}
        self.stack = Stack(folder, env=trap, config="engine:\n  restart: { backoff: 200ms }\n")
        self.stack.write("turns.pipo", TEXT)

    def ask(self, what: str, **fields: Any) -> dict[str, Any] | None:
        """The answer; None when nobody answered."""
        try:
            status, _, answer = self.stack.request(
                f"/api/pipelines/turns/{what}", json.dumps(fields).encode()
            )
        except OSError:
            return None
        return dict(json.loads(answer)) if status == 200 else None

    def crashed(self) -> None:
        """The trap has sprung and it serves again; the trap is set anew."""
        wait_for(self._sprung.exists, deadline_s=60, what=f"the trap\n{self.stack.output()}")
        wait_for(
            lambda: self.stack.get("/api/pipelines/turns").get("runner") is not None,
            deadline_s=60,
            what=f"it comes back\n{self.stack.output()}",
        )
        self._sprung.unlink()

    def disarm(self) -> None:
        self._sprung.touch()

    def versions(self) -> list[str]:
        found = self.stack.get("/api/pipelines/turns/versions")
        assert found["current"] == found["latest"]
        return [one["reason"] for one in found["versions"]]

    def push_many(self, count: int) -> set[str]:
        with ThreadPoolExecutor(8) as pool:
            return set(pool.map(lambda n: push(self.stack, "turns", n), range(count)))


@pytest.fixture
def turns(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Turns]:
    made = Turns(tmp_path, request.param)
    try:
        made.stack.start()
        yield made
    finally:
        made.stack.kill_all()


@pytest.mark.seed("R058")
@pytest.mark.parametrize(
    ("turns", "point"), [(BEFORE, BEFORE), (AFTER, AFTER)], indirect=["turns"], ids=[BEFORE, AFTER]
)
def test_a_crash_leaves_one_version_or_the_other(turns: Turns, point: str) -> None:
    """Edges 360 and 370. Packets of each version are there all along, and end on their own."""
    second = TEXT.replace("made: v1", "made: v2")
    assert turns.ask("pause") is not None
    first = push(turns.stack, "turns", 1)

    assert turns.ask("apply", source=second) is None
    turns.crashed()
    if point == BEFORE:
        # Nobody was told, and nothing stands: it is sent again.
        assert turns.versions() == ["first start"]
        turns.disarm()
        assert turns.ask("apply", source=second) is not None
        turns._sprung.unlink()
    assert turns.versions() == ["applied", "first start"]
    assert inspect(turns.stack, "turns", first)["packet"]["version"] == 1
    later = push(turns.stack, "turns", 2)

    assert turns.ask("rollback", version=1) is None
    turns.crashed()
    turns.disarm()
    if point == BEFORE:
        assert turns.versions() == ["applied", "first start"]
        assert turns.ask("rollback", version=1) is not None
    assert turns.versions() == ["rollback to v1", "applied", "first start"]
    last = push(turns.stack, "turns", 3)

    assert turns.ask("resume") is not None
    assert turns.stack.settle("turns")["delivered"] == 3
    assert [packet(turns.stack, "turns", id)["version"] for id in (first, later, last)] == [1, 2, 3]
    written = {
        one["packet_id"]: one["data"]["made"]
        for one in lines(turns.stack.workspace / "turns.jsonl")
    }
    assert written == {first: "v1", later: "v2", last: "v1"}


@pytest.mark.parametrize(
    ("turns", "point", "count"),
    [
        pytest.param(BEFORE, BEFORE, FEW, id=f"{BEFORE}-{FEW}"),
        *(
            pytest.param(
                point,
                point,
                MANY,
                marks=[pytest.mark.soak, pytest.mark.timeout(3600)],
                id=f"{point}-{MANY}",
            )
            for point in (BEFORE, AFTER)
        ),
    ],
    indirect=["turns"],
)
def test_many_packets_wait_while_an_apply_dies(turns: Turns, point: str, count: int) -> None:
    """Each ends once, on the version that took it; an apply that was done changes nothing again."""
    second = TEXT.replace("made: v1", "made: v2")
    assert turns.ask("pause") is not None
    first = turns.push_many(count)

    assert turns.ask("apply", source=second) is None
    turns.crashed()
    turns.disarm()
    again = turns.ask("apply", source=second)
    assert again is not None
    assert again["changed"] == (point == BEFORE)
    assert turns.versions() == ["applied", "first start"]
    assert turns.stack.stats("turns")["pending"] == count
    later = turns.push_many(count)

    assert turns.ask("resume") is not None
    deadline_s = 60 + count / 20
    wait_for(
        lambda: turns.stack.stats("turns").get("delivered") == 2 * count, deadline_s=deadline_s
    )
    units, ends = query_each(
        [
            (journal_of(turns.stack.home, "turns"), sql)
            for sql in (
                "SELECT id, version, state FROM units",
                "SELECT unit, count(*) FROM events WHERE type = 'packet.delivered' GROUP BY unit",
            )
        ]
    )
    assert {id for id, version, _ in units if version == 1} == first
    assert {id for id, version, _ in units if version == 2} == later
    assert {state for _, _, state in units} == {"delivered"}
    assert dict(ends) == dict.fromkeys(first | later, 1)
    written = [
        (one["packet_id"], one["data"]["made"])
        for one in lines(turns.stack.workspace / "turns.jsonl")
    ]
    assert Counter(written) == Counter([(id, "v1") for id in first] + [(id, "v2") for id in later])
