"""SIGKILL around acks and their deadlines: each packet is confirmed or late once, whatever died."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.traps import trap, trapped
from tests.packets import inspect, packet, push
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# Where an ack, its delivery after a pause, and a missed deadline are killed.
ACK = ("ack.before_commit", "ack.after_commit")
CONFIRM = ("ack.before_delivery",)
DEADLINE = ("ack.before_deadline_commit", "ack.after_deadline_commit")
COVERED = frozenset((*ACK, *CONFIRM, *DEADLINE))
# Points that every write passes, for a packet that parks after it.
WRITES = ("output.before_write", "output.after_write", "written.after_commit")
ENDS = ("delivered.before_commit", "delivered.after_commit")
TEXT = """pipo: 1
name: {name}
concurrency: 1
input: {{ via: push }}
output:
  from: input
  to: sqlite
  with: {{ path: ./{name}.db, table: t, create: true }}
delivered:
  check: external
  within: {within}
"""


NUMBERS = iter(range(1, 1000))


class Parks:
    """A pipeline of the stack, with a trap at a point."""

    def __init__(self, stack: Stack, point: str | None, within: str = "60s") -> None:
        self.stack = stack
        self.name = f"p{next(NUMBERS)}"
        self._trap = trap(stack, self.name, point)
        file = stack.write(f"{self.name}.pipo", TEXT.format(name=self.name, within=within))
        assert stack.pipo("start", str(file)).returncode == 0

    def push(self) -> str:
        """A packet that parks, or that meets the trap on its way there."""
        return push(self.stack, self.name, {"n": 7})

    def ack(self, id: str) -> dict[str, Any]:
        """The answer of the ack; empty when nobody answered."""
        body = json.dumps({"packet_id": id, "by": "Ada"}).encode()
        try:
            status, _, answer = self.stack.request(f"/api/pipelines/{self.name}/ack", body)
        except OSError:
            return {}
        found: dict[str, Any] = json.loads(answer) if status == 200 else {}
        return found

    def parked(self, id: str) -> None:
        """It waits for its ack, after whatever crash there was."""
        wait_for(lambda: self.types(id)["delivery.awaiting_ack"], what=self.stack.output)
        wait_for(
            lambda: (self.stack.get(f"/api/pipelines/{self.name}")["runner"] or {})["awaiting_ack"]
        )

    def after_the_crash(self) -> None:
        wait_for(
            lambda: not self._trap.exists(), what=lambda: f"the trap springs\n{self.stack.output()}"
        )
        wait_for(self._serves, deadline_s=150, what=lambda: f"it comes back\n{self.stack.output()}")

    def _serves(self) -> bool:
        info = self.stack.get(f"/api/pipelines/{self.name}")
        return info.get("runner") is not None

    def kill(self) -> None:
        pid = self.stack.pipeline_pid(self.name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.stack.pipeline_pid(self.name) not in (None, pid), deadline_s=150)
        wait_for(self._serves)

    def events(self, id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = inspect(self.stack, self.name, id)["events"]
        return found

    def types(self, id: str) -> Counter[str]:
        return Counter(event["type"] for event in self.events(id))

    def one(self, id: str, type_: str) -> dict[str, Any]:
        """The detail of the one event of a type."""
        (found,) = (event for event in self.events(id) if event["type"] == type_)
        detail: dict[str, Any] = found["detail"]
        return detail

    def is_(self, id: str, state: str) -> bool:
        return bool(packet(self.stack, self.name, id)["state"] == state)

    def ends(self, id: str, state: str) -> None:
        """The packet is one row, and has come to its one end."""
        wait_for(lambda: self.is_(id, state), what=lambda: f"{state}\n{self.stack.output()}")
        assert query(self.stack.workspace / f"{self.name}.db", "SELECT packet_id, n FROM t") == [
            [id, 7]
        ]
        delivered, late = (1, 0) if state == "delivered" else (0, 1)
        types = self.types(id)
        assert types["packet.delivered"] == types["packet.acked"] == delivered, types
        assert types["delivery.unverified"] == types["packet.dead_lettered"] == late, types
        assert types["output.written"] == 1, types


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack of all tests but one, whose restart comes late."""
    yield from trapped(tmp_path_factory.mktemp("parks"), "backoff: 200ms")


@pytest.fixture
def parks(shared: Stack, request: pytest.FixtureRequest) -> Parks:
    return Parks(shared, *request.param)


def at(points: tuple[str, ...], *settings: str) -> pytest.MarkDecorator:
    """Each point, with the stack that has its trap there."""
    return pytest.mark.parametrize(
        ("parks", "point"),
        [pytest.param((point, *settings), point, id=point) for point in points],
        indirect=["parks"],
    )


@at((*ACK, *ENDS))
def test_a_crash_at_an_ack(parks: Parks, point: str) -> None:
    id = parks.push()
    parks.parked(id)
    assert parks.ack(id) == {}
    parks.after_the_crash()
    # Nobody was told; it stands or it does not, and it may be sent again.
    answer = wait_for(lambda: parks.ack(id))
    assert answer["already"] is point.endswith(".after_commit"), answer
    parks.ends(id, "delivered")
    assert parks.one(id, "packet.acked") == {"by": "Ada"}
    assert parks.types(id)["delivery.awaiting_ack"] == 1


@at(CONFIRM)
def test_a_crash_between_an_ack_in_a_pause_and_its_delivery(parks: Parks, point: str) -> None:
    id = parks.push()
    parks.parked(id)
    assert parks.stack.pipo("pause", parks.name).returncode == 0
    assert parks.ack(id)["state"] == "verifying"
    assert parks.stack.pipo("resume", parks.name).returncode in (0, 1)
    parks.after_the_crash()
    parks.ends(id, "delivered")
    assert parks.one(id, "packet.delivered") == {"evidence": {"acked_by": "Ada"}}


@at(DEADLINE, "1s")
def test_a_crash_at_a_missed_deadline(parks: Parks, point: str) -> None:
    id = parks.push()
    parks.after_the_crash()
    parks.ends(id, "dead_lettered")
    window = parks.one(id, "delivery.awaiting_ack")
    assert window["deadline"] == window["since"] + 1000
    error = parks.one(id, "delivery.unverified")
    assert (error["code"], error["message"]) == (
        "delivery.unverified",
        "not acknowledged within 1s",
    )


@at(WRITES)
def test_a_crash_at_the_write_of_a_packet_that_parks(parks: Parks, point: str) -> None:
    id = parks.push()
    parks.after_the_crash()
    parks.parked(id)
    window = parks.one(id, "delivery.awaiting_ack")
    (written,) = (e for e in parks.events(id) if e["type"] == "output.written")
    assert (window["since"], window["deadline"]) == (written["at"], written["at"] + 60_000)
    assert wait_for(lambda: parks.ack(id))["already"] is False
    parks.ends(id, "delivered")


@pytest.mark.seed("D051")
@pytest.mark.parametrize("parks", [(None, "20s")], indirect=True, ids=[""])
def test_a_restart_keeps_the_deadline(parks: Parks) -> None:
    late, confirmed = parks.push(), parks.push()
    for id in (late, confirmed):
        parks.parked(id)
    # So late that a whole window from the restart on would be told from what is left of it.
    deadline = parks.one(late, "delivery.awaiting_ack")["deadline"]
    wait_for(lambda: time.time() * 1000 > deadline - 14_000, what="a part of the window is over")
    parks.kill()
    assert parks.stack.get(f"/api/pipelines/{parks.name}")["runner"]["awaiting_ack"] == 2
    assert parks.ack(confirmed)["already"] is False
    wait_for(lambda: parks.is_(confirmed, "delivered"))
    wait_for(lambda: parks.is_(late, "dead_lettered"), what=parks.stack.output)
    window = parks.one(late, "delivery.awaiting_ack")
    (end,) = (e for e in parks.events(late) if e["type"] == "packet.dead_lettered")
    assert window["deadline"] == deadline <= end["at"]
    journal = journal_of(parks.stack.home, parks.name)
    starts = query(journal, "SELECT at FROM events WHERE type = 'pipeline.started' ORDER BY seq")
    assert end["at"] < starts[-1][0] + 20_000
    # A repeated ack, after the restart and the delivery (edge 217).
    assert parks.ack(confirmed) == {
        "packet_id": confirmed,
        "state": "delivered",
        "acked": True,
        "already": True,
    }
    assert parks.types(confirmed)["packet.acked"] == 1


def test_a_restart_after_the_deadline_fails_at_once(tmp_path: Path) -> None:
    """Edge 214: the outcome is the deadline's own, however long nobody ran."""
    for stack in trapped(tmp_path, "backoff: 6s, max_backoff: 6s"):
        parks = Parks(stack, None, "4s")
        id = parks.push()
        parks.parked(id)
        parks.kill()
        parks.ends(id, "dead_lettered")
        assert parks.one(id, "delivery.unverified")["message"] == "not acknowledged within 4s"
        assert parks.types(id)["delivery.awaiting_ack"] == 1


@pytest.mark.parametrize("parks", [(None, "60s")], indirect=True, ids=[""])
def test_an_ack_in_a_pause_outlives_a_crash_and_waits_for_the_resume(parks: Parks) -> None:
    id = parks.push()
    parks.parked(id)
    assert parks.stack.pipo("pause", parks.name).returncode == 0
    assert parks.ack(id)["already"] is False
    parks.kill()
    assert parks.is_(id, "verifying")
    assert parks.stack.get(f"/api/pipelines/{parks.name}")["runner"]["awaiting_ack"] == 0
    assert parks.ack(id)["already"] is True
    assert parks.stack.pipo("resume", parks.name).returncode == 0
    parks.ends(id, "delivered")
