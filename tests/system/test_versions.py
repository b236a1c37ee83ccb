"""Versions through REST and the command line: one stack, its pipeline `live` from its first start on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import inspect, outcome, push
from tests.stack import Stack, lines, query, wait_for

TEXT = """pipo: 1
name: live
secrets: { token: env:LIVE_TOKEN }
concurrency: 2
input: { via: http, with: { path: /in } }
nodes:
  shape: { from: input, transform: map, with: { data: { n: "${data.n}", made: first } } }
output: { from: shape, to: file, with: { path: ./out.jsonl } }
"""
SECRET = "s3cr3t-of-live"
# Others that are changed while they run.
SENDER = """pipo: 1
name: sender
input: { via: push }
output: { from: input, to: pipeline, with: { pipeline: left } }
"""
RECEIVER = """pipo: 1
name: left
input: { via: pipeline, with: { from: [sender] } }
output: { from: input, to: file, with: { path: ./left.jsonl } }
"""
BATCHED = """pipo: 1
name: batched
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: ./batched.db, table: first, create: true }
  batch: { size: 10, within: 1h }
"""


class Live:
    """The pipeline `live` in a stack that stays up for the whole module."""

    def __init__(self, folder: Path) -> None:
        self.stack = Stack(folder, env={"LIVE_TOKEN": SECRET})
        self.file = self.stack.write("live.pipo", TEXT)
        self.stack.write("sender.pipo", SENDER)
        for name in ("left", "right"):
            self.stack.write(f"{name}.pipo", RECEIVER.replace("left", name))
        self.stack.write("batched.pipo", BATCHED)

    def rest(
        self, path: str, body: dict[str, Any] | None = None, *, of: str = "live"
    ) -> tuple[int, dict[str, Any]]:
        raw, method = (None, "GET") if body is None else (json.dumps(body).encode(), "POST")
        status, _, answer = self.stack.request(f"/api/pipelines/{of}{path}", raw, method=method)
        return status, json.loads(answer)

    def cli(self, *words: str) -> tuple[int, str]:
        done = self.stack.pipo(*words)
        return done.returncode, done.stdout + done.stderr

    def do(self, what: str, *, of: str = "live", **fields: Any) -> dict[str, Any]:
        """Any operation that must go well."""
        status, told = self.rest(f"/{what}", fields, of=of)
        assert status in (200, 202), told
        return told

    def apply(self, text: str) -> dict[str, Any]:
        return self.do("apply", source=text)

    def made(self, n: int) -> tuple[str, int]:
        """What a new packet is made of, and the version that it went by."""
        end = outcome(self.stack, "live", {"n": n})
        packet = inspect(self.stack, "live", end["packet_id"])["packet"]
        return packet["data"]["made"], packet["version"]

    def versions(self) -> list[tuple[int, str]]:
        found = self.rest("/versions")[1]["versions"]
        return [(one["version"], one["reason"]) for one in found]

    def pid(self) -> int:
        pid = self.stack.pipeline_pid("live")
        assert pid is not None
        return pid

    def serves(self) -> None:
        wait_for(
            lambda: self.stack.get("/api/pipelines/live").get("runner") is not None,
            deadline_s=60,
            what=self.stack.output,
        )


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = Live(tmp_path_factory.mktemp("versions"))
    try:
        made.stack.start()
        yield made
        assert made.stack.stop() == 0
    finally:
        made.stack.kill_all()


def text(made: str) -> str:
    return TEXT.replace("made: first", f"made: {made}")


def test_a_live_apply_and_a_rollback(live: Live) -> None:
    """Edges 343-346, 358, 359: new packets use the new version, in the same process."""
    pid = live.pid()
    assert live.made(1) == ("first", 1)
    other = live.stack.workspace / "other.txt"
    other.write_text(text("second"))
    words = ("apply", "live", str(other), "--reason", f"with {SECRET}", "--by", "ada", "--json")
    assert json.loads(live.cli(*words)[1]) == {
        "version": 2,
        "previous": 1,
        "changed": True,
        "pending_older": 0,
        "warnings": [],
        "engine": "up",
    }
    assert live.made(2) == ("second", 2)
    assert live.do("rollback", version="v1", by="ada")["version"] == 3
    assert live.made(3) == ("first", 3)
    assert live.pid() == pid
    status, told = live.rest("/rollback", {"version": 1})
    assert (status, told["changed"], told["version"], told["rolled_back_to"]) == (200, False, 3, 1)

    status, told = live.rest("/versions")
    assert (told["current"], told["latest"], told["source"]) == (3, 3, "runner")
    newest, applied, first = told["versions"]
    assert newest["hash"] == first["hash"] != applied["hash"]
    assert [(one["author"], one["reason"]) for one in told["versions"]] == [
        ("ada", "rollback to v1"),
        # Edge 361.
        ("ada", "with ***"),
        ("human", "first start"),
    ]
    assert live.stack.get("/api/pipelines/live")["version"] == 3
    events = live.rest("/events?limit=1000")[1]["events"]
    assert [one["detail"] for one in events if one["type"] == "version.applied"] == [
        {
            "version": 2,
            "previous": 1,
            "author": "ada",
            "author_kind": "human",
            "reason": "with ***",
        },
        {
            "version": 3,
            "previous": 2,
            "author": "ada",
            "author_kind": "human",
            "reason": "rollback to v1",
        },
    ]


def test_a_diff_reads_like_any_other(live: Live) -> None:
    """Edge 354, 399."""
    live.apply(text("third"))
    latest = live.rest("/versions")[1]["latest"]
    status, told = live.rest(f"/diff?from=1&to=v{latest}")
    assert (status, told["identical"], told["added"], told["removed"]) == (200, False, 1, 1)
    assert told["diff"].startswith(f"--- live v1\n+++ live v{latest}\n@@ -4,5 +4,5 @@\n")
    told = live.rest("/diff?from=v1&to=1")[1]
    assert (told["identical"], told["diff"], told["added"]) == (True, "", 0)
    status, told = live.rest("/versions/v1")
    assert (status, told["version"], told["text"], told["texts"]) == (200, 1, TEXT, {})


@pytest.mark.seed("L032")
def test_what_may_not_change_live_is_refused_by_its_key(live: Live) -> None:
    """Edges 347-350, 422: nothing is written, by no door."""
    before = live.versions()
    status, told = live.rest("/apply", {"source": TEXT.replace("concurrency: 2", "concurrency: 3")})
    assert (status, told["code"]) == (409, "invalid_state")
    assert told["error"] == "concurrency may not change while live runs"
    assert told["hint"].endswith("then: pipo restart live")
    broken = TEXT.replace("concurrency: 2", "concurrency: none")
    status, told = live.rest("/apply", {"source": broken})
    assert (status, told["code"]) == (422, "invalid_pipeline")
    assert [one["code"] for one in told["diagnostics"]] == ["P002"]
    status, told = live.rest("/rollback", {"version": "v99"})
    assert (status, told["error"]) == (404, "pipeline 'live' has no version v99")
    assert f"v1 to v{len(before)}" in told["hint"]
    for path, body, wanted in (
        ("/rollback", {"version": "newest"}, 400),
        ("/rollback", {}, 400),
        ("/rollback", {"version": 0}, 404),
        ("/apply", {"source": ""}, 400),
        ("/apply", {"source": TEXT, "files": {"a": 1}}, 400),
        ("/apply", {"source": TEXT, "colour": "red"}, 400),
        ("/diff?from=1", None, 400),
        ("/diff?from=one&to=2", None, 400),
        ("/versions/99", None, 404),
        ("/versions/v", None, 400),
    ):
        assert (live.rest(path, body)[0], path) == (wanted, path)
    assert live.versions() == before


@pytest.mark.seed("L032")
def test_a_file_wins_when_it_changes_and_stands_back_while_it_does_not(live: Live) -> None:
    """Edges 342, 360, 398: what was applied stays across restarts; an edit makes the file win."""
    live.apply(text("kept"))
    kept = live.made(10)
    assert kept[0] == "kept"
    live.do("restart")
    live.serves()
    assert live.made(11) == kept
    live.file.write_text(TEXT.replace("concurrency: 2", "concurrency: 3"))
    live.do("restart")
    live.serves()
    assert live.made(12) == ("first", kept[1] + 1)
    assert live.versions()[0] == (kept[1] + 1, "file changed")


def test_packets_of_three_versions_each_end_on_their_own(live: Live) -> None:
    """Edges 346, 351, 352, 360: also when it dies right after the answer."""
    live.do("pause")
    pushed: dict[str, str] = {}
    three = TEXT.replace("concurrency: 2", "concurrency: 3")
    answers = []
    for n, word in enumerate(("a", "b", "c")):
        answers.append(live.apply(three.replace("made: first", f"made: {word}")))
        pushed[push(live.stack, "live", {"n": n})] = word
    assert [one["pending_older"] for one in answers] == [0, 1, 2]
    live.do("rollback", version=answers[0]["version"])
    pid = live.pid()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: live.stack.pipeline_pid("live") not in (None, pid), deadline_s=60)
    live.serves()
    history = live.rest("/versions")[1]
    assert history["current"] == answers[2]["version"] + 1
    assert [one["pending"] for one in history["versions"][:4]] == [0, 1, 1, 1]
    live.do("resume")
    live.stack.settle("live")
    made = {
        one["packet_id"]: one["data"]["made"] for one in lines(live.stack.workspace / "out.jsonl")
    }
    assert {id: made[id] for id in pushed} == pushed


@pytest.mark.seed("C036")
def test_a_chain_goes_to_another_receiver_from_the_next_packet_on(live: Live) -> None:
    pid = live.stack.pipeline_pid("sender")
    assert outcome(live.stack, "sender", 1)["state"] == "delivered"
    applied = live.do("apply", of="sender", source=SENDER.replace("left", "right"))
    assert applied["changed"] is True
    assert outcome(live.stack, "sender", 2)["state"] == "delivered"
    for name, data in (("left", 1), ("right", 2)):
        live.stack.settle(name)
        written = lines(live.stack.workspace / f"{name}.jsonl")
        assert [one["data"] for one in written] == [data]
    assert live.stack.pipeline_pid("sender") == pid
    status, told = live.rest("/apply", {"source": RECEIVER.replace("[sender]", "[x]")}, of="left")
    assert (status, told["error"]) == (409, "input.with may not change while left runs")
    to_file = SENDER.replace("to: pipeline, with: { pipeline: left }", "to: stdout")
    status, told = live.rest("/apply", {"source": to_file}, of="sender")
    assert (status, told["error"]) == (409, "output.to may not change while sender runs")


@pytest.mark.seed("O077")
def test_packets_of_two_versions_are_batched_apart(live: Live) -> None:
    """A pause flushes what waits: two of the older version, one of the newer."""
    ids = [push(live.stack, "batched", {"n": n}) for n in range(2)]
    live.do("apply", of="batched", source=BATCHED.replace("table: first", "table: second"))
    ids.append(push(live.stack, "batched", {"n": 2}))
    for id in ids:
        wait_for(
            lambda id=id: "output.batched" in _types(live, id),  # type: ignore[misc]
            deadline_s=60,
            what=live.stack.output,
        )
    live.do("pause", of="batched")
    live.stack.settle("batched")
    live.do("resume", of="batched")
    database = live.stack.workspace / "batched.db"
    assert query(database, "SELECT n FROM first ORDER BY n") == [[0], [1]]
    assert query(database, "SELECT n FROM second") == [[2]]
    sizes = [
        event["detail"]["size"]
        for id in ids
        for event in inspect(live.stack, "batched", id)["events"]
        if event["type"] == "output.written"
    ]
    assert sizes == [2, 2, 1]


def _types(live: Live, id: str) -> list[str]:
    return [event["type"] for event in inspect(live.stack, "batched", id)["events"]]


def test_a_stopped_pipeline_is_read_and_not_changed(live: Live) -> None:
    """Edges 381, 382, 398, 422; decision 1."""
    running = live.rest("/versions")[1]
    live.do("stop")
    wait_for(lambda: live.stack.get("/api/pipelines/live")["state"] == "stopped", deadline_s=60)
    told = live.rest("/versions")[1]
    assert (told["current"], told["latest"], told["source"]) == (None, running["latest"], "journal")
    assert told["versions"] == running["versions"]
    assert f"the next start runs v{running['latest']}" in live.cli("history", "live")[1]
    assert live.rest("/diff?from=1&to=v1")[1]["source"] == "journal"
    assert live.rest("/versions/1")[1]["text"] == TEXT
    status, told = live.rest("/rollback", {"version": 1})
    assert (status, told["code"], told["hint"]) == (
        409,
        "invalid_state",
        "start it with: pipo start live",
    )
    assert live.rest("/apply", {"source": TEXT})[1]["hint"] == "start it with: pipo start live"
    live.do("start")
    live.serves()
    assert live.versions()[0][0] == running["latest"]
