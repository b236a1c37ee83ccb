"""SIGKILL in a pause, beside held and escalated packets, and at each commit that makes them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.traps import trap, trapped
from tests.packets import inspect, packet, push, run_sql
from tests.stack import Stack, lines, query, wait_for

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# The points of this file, by the word that brings a pipeline to them.
POINTS = {
    "manual": (
        "paused.before_commit",
        "paused.after_commit",
        "resumed.before_commit",
        "resumed.after_commit",
    ),
    "pause": (
        "held.before_commit",
        "held.after_commit",
        "paused.before_commit",
        "resumed.before_commit",
        "resumed.after_commit",
    ),
    "halt": (
        "held.before_commit",
        "held.after_commit",
        "failed.before_commit",
        "failed.after_commit",
    ),
    "agent": ("escalated.before_commit", "escalated.after_commit"),
}
COVERED = frozenset(point for points in POINTS.values() for point in points)
TEXT = """pipo: 1
name: {name}
input: {{ via: push }}
output:
  from: input
  to: sqlite
  with: {{ path: ./there/{name}.db, table: t }}
  on_error: {{ then: {then} }}
agent: {{ control: true }}
"""
NUMBERS = iter(range(1, 1000))
TABLE = "CREATE TABLE IF NOT EXISTS t (packet_id TEXT PRIMARY KEY, n INTEGER)"


class Waits:
    """A pipeline of the stack whose table is not there until `mend`."""

    def __init__(self, stack: Stack, word: str, point: str | None) -> None:
        self.stack = stack
        self.name = f"w{next(NUMBERS)}"
        self.database = stack.workspace / f"there/{self.name}.db"
        self._trap = trap(stack, self.name, point)
        self.file = stack.write(
            f"{self.name}.pipo",
            TEXT.format(name=self.name, then="pause" if word == "manual" else word),
        )
        self.database.parent.mkdir(exist_ok=True)
        if word == "manual":
            self.mend()

    def start(self) -> None:
        assert self.stack.pipo("start", str(self.file)).returncode == 0

    def mend(self) -> None:
        run_sql(self.database, TABLE)

    @property
    def info(self) -> dict[str, Any]:
        """The pipeline as REST tells it; empty while it cannot be asked."""
        try:
            found: dict[str, Any] = self.stack.get(f"/api/pipelines/{self.name}")
        except (OSError, ValueError):
            return {}
        return found

    def is_(self, status: str) -> bool:
        """Whether it runs and says so of itself, or has ended so."""
        info = self.info
        return status in (info.get("status"), info.get("state"))

    def push(self) -> str:
        return push(self.stack, self.name, {"n": 7})

    def says(self, word: str) -> bool:
        """`pipo pause`, `resume`, `stop` or `start`; whether it answered."""
        return self.stack.pipo(word, self.name).returncode == 0

    def events(self, type_: str) -> list[dict[str, Any]]:
        """The details of every event of a type."""
        found = self.stack.get(f"/api/pipelines/{self.name}/events?limit=1000")["events"]
        return [one["detail"] or {} for one in found if one["type"] == type_]

    def after_the_crash(self) -> None:
        """The trap has sprung, and a later run or its last word is there."""
        wait_for(
            lambda: not self._trap.exists(), what=lambda: f"the trap springs\n{self.stack.output()}"
        )
        wait_for(
            lambda: self.info.get("runner") is not None or self.info.get("state") == "failed",
            what=lambda: f"it comes back\n{self.stack.output()}",
        )

    def kill(self) -> None:
        """SIGKILL of the process; the next run serves on return."""
        pid = self.stack.pipeline_pid(self.name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.stack.pipeline_pid(self.name) not in (None, pid), what="the restart")
        wait_for(lambda: self.info.get("runner"))

    def ends_in_one_row(self, id: str) -> None:
        """Mended and let go, the packet is written once and delivered once."""
        wait_for(
            lambda: packet(self.stack, self.name, id)["state"] == "delivered",
            what=lambda: f"delivered; {self.info}\n{self.stack.output()}",
        )
        assert query(self.database, "SELECT packet_id, n FROM t") == [[id, 7]]
        types = [event["type"] for event in inspect(self.stack, self.name, id)["events"]]
        assert types.count("packet.delivered") == 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack of all tests but those whose engine waits otherwise."""
    yield from trapped(tmp_path_factory.mktemp("waits"), "backoff: 200ms, max_backoff: 1m")


@pytest.fixture
def waits(shared: Stack, request: pytest.FixtureRequest) -> Waits:
    made = Waits(shared, *request.param)
    made.start()
    return made


@pytest.fixture
def slow_to_restart(tmp_path: Path) -> Iterator[Waits]:
    """The same where a restart is a minute away."""
    for stack in trapped(tmp_path, "backoff: 1m, max_backoff: 1m"):
        made = Waits(stack, "manual", None)
        made.start()
        yield made


def at_points(word: str) -> pytest.MarkDecorator:
    """Each point of a word, with the stack that has its trap there."""
    return pytest.mark.parametrize(
        ("waits", "point"),
        [pytest.param((word, point), point, id=point) for point in POINTS[word]],
        indirect=["waits"],
    )


@at_points("manual")
def test_a_crash_at_a_pause_or_its_end(waits: Waits, point: str) -> None:
    if point.startswith("resumed"):
        assert waits.says("pause")
        id = waits.push()
        waits.says("resume")
        waits.after_the_crash()
    else:
        waits.says("pause")
        waits.after_the_crash()
        id = waits.push()
    # What was committed holds, and nothing else.
    paused = point in ("paused.after_commit", "resumed.before_commit")
    assert waits.is_("paused" if paused else "active")
    if paused:
        assert waits.info["runner"]["paused_reason"] == "manual"
        assert waits.events("pipeline.paused")[-1] == {"reason": "manual", "restored": True}
        assert packet(waits.stack, waits.name, id)["state"] == "accepted"
        assert waits.says("resume")
    waits.ends_in_one_row(id)


@at_points("pause")
def test_a_crash_at_a_hold_or_its_end(waits: Waits, point: str) -> None:
    id = waits.push()
    if point.startswith("resumed"):
        wait_for(lambda: waits.is_("paused"))
        waits.mend()
        waits.says("resume")
    waits.after_the_crash()
    committed = point in ("held.after_commit", "resumed.before_commit")
    if point != "resumed.after_commit":
        # Held once: by the run that crashed, or by the one after it.
        wait_for(lambda: waits.is_("paused"))
        assert waits.info["runner"]["paused_reason"] == "error at $output"
        assert waits.info["runner"]["held"] == 1
        restored = [one.get("restored", False) for one in waits.events("pipeline.paused")]
        assert restored == ([False, True] if committed else [False])
        waits.mend()
        assert waits.says("resume")
    waits.ends_in_one_row(id)
    assert len(waits.events("packet.held")) == 1


@at_points("halt")
def test_a_crash_at_a_halt(waits: Waits, point: str) -> None:
    id = waits.push()
    wait_for(lambda: waits.is_("failed"), what=waits.stack.output)
    assert len(waits.events("pipeline.failed")) == 1
    # Only a halt that said its last word is not run again; the hold may share its commit.
    runs = {"failed.after_commit": (1,), "held.after_commit": (1, 2)}.get(point, (2,))
    assert len(waits.events("pipeline.started")) in runs
    assert waits.info["error"].startswith("error at $output: ")
    waits.mend()
    assert waits.says("start")
    waits.ends_in_one_row(id)


@at_points("agent")
def test_a_crash_at_a_hand_over(waits: Waits, point: str) -> None:
    id = waits.push()
    waits.after_the_crash()
    wait_for(lambda: packet(waits.stack, waits.name, id)["state"] == "escalated")
    (told,) = waits.events("packet.escalated")
    assert (told["reason"], told["error"]["code"]) == ("error", "output.failed")
    assert waits.info["stats"]["escalated"] == 1


# ── killed while it waits ────────────────────────────────────────────────────


@pytest.mark.seed("L040")
@pytest.mark.parametrize("waits", [("pause", None)], indirect=True, ids=["held"])
def test_a_pause_outlives_each_crash_with_what_it_holds(waits: Waits) -> None:
    id = waits.push()
    wait_for(lambda: waits.is_("paused"))
    backlog = waits.push()
    for count in (1, 2):
        waits.kill()
        assert waits.is_("paused")
        assert waits.info["runner"]["paused_reason"] == "error at $output"
        paused = waits.events("pipeline.paused")
        assert paused == [
            {"reason": "error at $output"},
            *[{"reason": "error at $output", "restored": True}] * count,
        ]
    held, waiting = (packet(waits.stack, waits.name, one) for one in (id, backlog))
    assert (held["state"], held["node"], held["error"]) == ("writing", "$output", None)
    assert [e["type"] for e in inspect(waits.stack, waits.name, backlog)["events"]] == [
        "packet.accepted"
    ]
    assert waiting["state"] == "accepted"
    log = (waits.stack.home / f"logs/{waits.name}.log").read_text()
    assert "held=2" in log
    waits.mend()
    assert waits.says("resume")
    for one in (id, backlog):
        wait_for(lambda one=one: packet(waits.stack, waits.name, one)["state"] == "delivered")  # type: ignore[misc]
    rows = query(waits.database, "SELECT packet_id FROM t")
    assert sorted(row[0] for row in rows) == sorted((id, backlog))
    assert len(waits.events("packet.held")) == 1


@pytest.mark.parametrize("waits", [("agent", None)], indirect=True, ids=["escalated"])
def test_an_escalated_packet_is_left_alone_by_a_crash(waits: Waits) -> None:
    id = waits.push()
    wait_for(lambda: packet(waits.stack, waits.name, id)["state"] == "escalated")
    before = inspect(waits.stack, waits.name, id)
    waits.mend()
    waits.kill()
    other = waits.push()
    wait_for(lambda: packet(waits.stack, waits.name, other)["state"] == "delivered")
    after = inspect(waits.stack, waits.name, id)
    assert after["packet"] == before["packet"]
    assert after["events"] == before["events"]
    assert (waits.info["stats"]["pending"], waits.info["stats"]["escalated"]) == (1, 1)


def test_a_stop_of_a_crashed_and_paused_pipeline_keeps_the_pause(slow_to_restart: Waits) -> None:
    """Edge 306: the engine journals the stop, and the pause behind it."""
    waits = slow_to_restart
    assert waits.says("pause")
    id = waits.push()
    pid = waits.stack.pipeline_pid(waits.name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: waits.is_("backoff"))
    assert waits.says("stop")
    wait_for(lambda: waits.is_("stopped"), what=waits.stack.output)
    types = [
        one["type"] for one in waits.stack.get(f"/api/pipelines/{waits.name}/events")["events"]
    ]
    assert types[-2:] == ["pipeline.stopped", "pipeline.paused"]
    assert waits.says("start")
    assert waits.is_("paused")
    assert waits.says("resume")
    waits.ends_in_one_row(id)


CHECKED = """pipo: 1
name: looks
input: { via: push }
output: { from: input, to: file, with: { path: ./out/looks.jsonl } }
delivered:
  check: file_exists
  with: { path: ./seen }
  within: 300ms
  on_fail: { then: pause }
"""


def test_a_check_that_is_held_is_asked_again_after_a_crash(shared: Stack) -> None:
    """Edge 209: what was written before the crash is not written again."""
    stack = shared
    file = stack.write("looks.pipo", CHECKED)

    def status() -> str | None:
        found: str | None = stack.get("/api/pipelines/looks")["status"]
        return found

    assert stack.pipo("start", str(file)).returncode == 0
    id = push(stack, "looks", {"n": 1})
    wait_for(lambda: status() == "paused")
    pid = stack.pipeline_pid("looks")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stack.pipeline_pid("looks") not in (None, pid), what="the restart")
    wait_for(lambda: status() == "paused")
    assert packet(stack, "looks", id)["state"] == "verifying"
    (stack.workspace / "seen").touch()
    assert stack.pipo("resume", "looks").returncode == 0
    wait_for(lambda: packet(stack, "looks", id)["state"] == "delivered")
    (line,) = lines(stack.workspace / "out/looks.jsonl")
    assert line["packet_id"] == id
    types = [event["type"] for event in inspect(stack, "looks", id)["events"]]
    assert types.count("output.written") == types.count("packet.held") == 1
