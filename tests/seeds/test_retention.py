"""Retention through a real stack: what a start finds too old goes, step by step; nothing else does."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Iterator

import pytest

from tests.packets import inspect, packet, push, running, settled
from tests.stack import Stack, journal_of, query, wait_for
from tests.unit.runner.pipeline.rig import PLAIN, pipeline_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GRAPH = """\
input: { via: push, validate: ['data.kind != "bad"'] }
nodes:
  kept: { from: input, filter: 'data.kind != "out"' }
output:
  from: kept
  to: file
  with: { path: ./out/NAME.jsonl }
  validate: ['data.kind != "dead"']
delivered: { check: external, within: 1h }
"""
SPLIT = """\
input: { via: push }
nodes:
  left: { from: input, transform: map, with: { data: { way: left } } }
  right: { from: input, transform: map, with: { data: { way: right } } }
output: { from: [left, right], to: file, with: { path: ./out/split.jsonl } }
delivered: { check: external, within: 1h }
"""
PIPELINES = {
    "unset": GRAPH,
    "cleared": GRAPH + "retention: { data: 1s, trail: 1h, rejected: 1h }\n",
    "rejects": GRAPH + "retention: { data: 1h, trail: 1h, rejected: 1s }\n",
    "gone": GRAPH + "retention: { data: 1s, trail: 1s, rejected: 1s }\n",
    "buried": GRAPH + "retention: { data: 1h, trail: 1h, rejected: 1h, dlq: 1s }\n",
    "split": SPLIT + "retention: { data: 1s, trail: 1s, rejected: 1s, dlq: 1s }\n",
}
KINDS = ("seen", "out", "bad", "dead", "waits")
STATES = {
    "seen": "delivered",
    "out": "filtered",
    "bad": "rejected",
    "dead": "dead_lettered",
    "waits": "verifying",
}


class Aged:
    """A stack whose pipelines have each one packet of every kind, older than a second."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.ids: dict[str, dict[str, str]] = {}

    def fill(self) -> None:
        for name in PIPELINES:
            if name != "split":
                self.ids[name] = {kind: self._one(name, kind) for kind in KINDS}
        split = push(self.stack, "split", {"n": 1})
        self._ack("split", f"{split}:left", split)
        self.ids["split"] = {"root": split}
        newest = time.time()
        wait_for(lambda: time.time() > newest + 1.5, what="everything is older than a second")

    def _one(self, name: str, kind: str) -> str:
        if kind == "bad":
            status, _, body = self.stack.request(
                f"/api/pipelines/{name}/push", b'{"data": {"kind": "bad"}}'
            )
            assert status == 422, body
            ((id,),) = query(
                journal_of(self.stack.home, name), "SELECT id FROM units WHERE state = 'rejected'"
            )
            return str(id)
        id = push(self.stack, name, {"kind": kind})
        if kind == "seen":
            self._ack(name, id, id)
        elif kind == "waits":
            wait_for(lambda: packet(self.stack, name, id)["state"] == "verifying")
        else:
            settled(self.stack, name, id)
        return id

    def _ack(self, name: str, key: str, id: str) -> None:
        body = json.dumps({"packet_id": key}).encode()
        status, _, answer = self.stack.request(f"/api/pipelines/{name}/ack", body)
        assert status == 200, answer
        if key == id and ":" not in id:
            settled(self.stack, name, id)

    def finish(self) -> None:
        """Delivers what waits: a stop drains."""
        for name, ids in self.ids.items():
            waits = f"{ids['root']}:right" if name == "split" else ids["waits"]
            self._ack(name, waits, waits)

    def start_again(self, name: str) -> None:
        """A new process; a drain would wait for what is not delivered."""
        old = self.stack.pipeline_pid(name)
        assert old is not None
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: self.stack.pipeline_pid(name) not in (old, None), what="it starts again")

    def units(self, name: str) -> dict[str, tuple[str, bool]]:
        """State of each unit of the journal, and whether it holds a payload."""
        found = query(
            journal_of(self.stack.home, name),
            "SELECT id, state, data IS NOT NULL OR result IS NOT NULL FROM units",
        )
        return {id: (state, bool(full)) for id, state, full in found}

    def events(self, name: str, id: str) -> int:
        sql = f"SELECT count(*) FROM events WHERE unit = '{id}'"
        ((count,),) = query(journal_of(self.stack.home, name), sql)
        return int(count)


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aged]:
    pipelines = {name: text.replace("NAME", name) for name, text in PIPELINES.items()}
    with running(tmp_path_factory.mktemp("retention"), pipelines) as stack:
        made = Aged(stack)
        made.fill()
        for name in PIPELINES:
            made.start_again(name)
        yield made
        made.finish()


def expect(
    aged: Aged, name: str, *, cleared: Collection[str] = (), gone: Collection[str] = ()
) -> None:
    """Waits until exactly that is gone, and the rest stands as it was."""
    ids = aged.ids[name]
    wanted = {ids[kind]: (STATES[kind], kind not in cleared) for kind in KINDS if kind not in gone}
    wait_for(lambda: aged.units(name) == wanted, what=f"{name}: {aged.units(name)} is {wanted}")


@pytest.mark.seed("L045", "L051")
def test_the_defaults_keep_what_is_seconds_old(aged: Aged) -> None:
    said = "retention: { data: 7d, trail: 30d, rejected: 3d, dlq: forever }\n"
    assert pipeline_of(PLAIN + said).retention == pipeline_of(PLAIN).retention
    expect(aged, "unset")


@pytest.mark.seed("L046", "L051", "L052", "R014")
def test_data_goes_from_what_was_delivered_or_filtered_alone(aged: Aged) -> None:
    expect(aged, "cleared", cleared={"seen", "out"})
    id = aged.ids["cleared"]["seen"]
    listed = aged.stack.pipo("packets", "cleared")
    assert id in listed.stdout
    told = aged.stack.pipo("inspect", "cleared", id)
    assert told.returncode == 0
    assert "delivered" in told.stdout
    assert "data {" not in told.stdout
    types = [event["type"] for event in inspect(aged.stack, "cleared", id)["events"]]
    assert types[0] == "packet.accepted"
    assert types[-1] == "packet.delivered"


@pytest.mark.seed("L049")
def test_the_data_of_rejected_packets_has_an_age_of_its_own(aged: Aged) -> None:
    expect(aged, "rejects", cleared={"bad"})


@pytest.mark.seed("L048", "L052", "R014")
def test_packets_go_whole_with_their_events(aged: Aged) -> None:
    before = aged.stack.stats("gone")
    expect(aged, "gone", gone={"seen", "out", "bad"})
    ids = aged.ids["gone"]
    assert [aged.events("gone", ids[kind]) for kind in ("seen", "out", "bad")] == [0, 0, 0]
    told = aged.stack.pipo("inspect", "gone", ids["seen"])
    assert told.returncode == 1
    assert ids["seen"] in told.stderr
    assert before["accepted"] == aged.stack.stats("gone")["accepted"] == 4
    assert aged.stack.stats("gone")["delivered"] == 1
    sql = "SELECT type FROM events WHERE unit IS NULL ORDER BY seq"
    types = [type_ for (type_,) in query(journal_of(aged.stack.home, "gone"), sql)]
    assert types.count("pipeline.started") == 2
    assert query(journal_of(aged.stack.home, "gone"), "SELECT version FROM versions") == [[1]]


@pytest.mark.seed("L050")
def test_dead_letters_go_where_they_have_an_age(aged: Aged) -> None:
    expect(aged, "buried", gone={"dead"})
    assert aged.ids["buried"]["dead"] not in aged.stack.pipo("dlq", "buried").stdout


@pytest.mark.seed("L052")
def test_a_packet_that_waits_for_a_copy_stays(aged: Aged) -> None:
    root = aged.ids["split"]["root"]
    wanted = {
        root: ("branched", True),
        f"{root}:left": ("delivered", False),
        f"{root}:right": ("verifying", True),
    }
    wait_for(lambda: aged.units("split") == wanted, what=f"{aged.units('split')} is {wanted}")
