"""Chains through a real stack (the seed document Chains, edges 243-252)."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, operate, outcome, packet, push, running, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, query, wait_for

pytestmark = pytest.mark.slow

ONCE = "on_error: { retry: 0 }"
PATIENT = "on_error: { retry: 200, backoff: fixed, delay: 100ms }"
DOWNSTREAM = "delivered: { check: downstream, within: 30s }\n"


def to(receiver: str, more: str = ONCE, source: str = "input") -> str:
    """An output that hands over."""
    hand_over = f"  to: pipeline\n  with: {{ pipeline: {receiver} }}\n"
    return f"output:\n  from: {source}\n{hand_over}  {more}\n"


def taking(*senders: str) -> str:
    return f"input: {{ via: pipeline, with: {{ from: [{', '.join(senders)}] }} }}\n"


def into(name: str, source: str = "input", more: str = "") -> str:
    table = f"{{ path: ./data/{name}.db, table: t, create: true{more} }}"
    return f"output:\n  from: {source}\n  to: sqlite\n  with: {table}\n"


def posting(path: str, more: str = ONCE) -> str:
    return (
        f'output:\n  from: input\n  to: http\n  with: {{ url: "${{env.STUB}}{path}" }}\n  {more}\n'
    )


# A table that is the same whichever packet comes first.
COLUMNS = ', columns: { packet_id: "${meta.packet_id}", n: "${data.n}", by: "${data.by}", of: "${data.of}" }'
PUSHED = "input: { via: push }\n"
LOOKED_UP = (
    'delivered: { check: record_exists, with: { where: { packet_id: "${meta.packet_id}" } } }\n'
)
FAN = (
    "nodes:\n"
    '  a: { from: input, filter: "true" }\n'
    '  b: { from: input, transform: map, with: { data: { n: "${data.n + 1}" } } }\n'
)
PIPELINES = {
    # Three in a row.
    "first": PUSHED + to("second") + DOWNSTREAM,
    "second": taking("first") + to("third") + DOWNSTREAM,
    "third": taking("second") + into("third") + LOOKED_UP,
    # A receiver with several inputs and rules of its own; `stranger` is not on its list.
    "asking": PUSHED + to("store", "on_error: { retry: 1, delay: 50ms }") + DOWNSTREAM,
    "stranger": PUSHED + to("store"),
    "picky": PUSHED
    + to("store", 'validate: ["data.fine"]\n  on_invalid: { then: dead_letter }')
    + DOWNSTREAM,
    "fanning": PUSHED + FAN + to("store", source="[a, b]") + DOWNSTREAM,
    "store": (
        "inputs:\n"
        "  intake:\n    via: pipeline\n"
        "    with: { from: [asking, picky, fanning] }\n"
        "    schema: ./handed.json\n"
        '    validate: ["exists(data.n)"]\n'
        '    on_invalid: { message: "not by ${error.rule}" }\n'
        "  manual: { via: push }\n"
        "  form: { via: http, with: { path: /form } }\n"
        "nodes:\n"
        "  way:\n    from: [intake, manual, form]\n"
        "    route: { chained: \"meta.input == 'intake'\", other: else }\n"
        "  mark:\n    from: way.chained\n    transform: map\n"
        '    with: { data: { n: "${data.n}", by: "${meta.source}", of: "${meta.upstream.packet_id}" } }\n'
        + into("store", "[mark, way.other]", COLUMNS)
    ),
    # A receiver that ends packets as the packet says.
    "judged": PUSHED
    + to("judge")
    + DOWNSTREAM.replace(
        "}\n",
        ', on_fail: { message: "${result.pipeline} ${result.packet_id} ${result.duplicate}:'
        ' ${error.message}" } }\n',
    ),
    "judge": taking("judged")
    + 'nodes: { keep: { from: input, filter: "data.keep" } }\n'
    + into("judge", "keep")
    + '  validate: ["data.good"]\n',
    # A receiver that somebody confirms.
    "waiting": PUSHED + to("confirmed") + DOWNSTREAM,
    "content": PUSHED + to("confirmed") + "delivered: { check: ack }\n",
    "confirmed": taking("waiting", "content")
    + into("confirmed")
    + "delivered: { check: external, within: 1h }\n",
    # Receivers of a flaky destination.
    "retrying": PUSHED + to("flaky") + DOWNSTREAM,
    "flaky": taking("retrying") + posting("/flaky", "on_error: { retry: 3, delay: 100ms }"),
    "broken": PUSHED + to("mended") + DOWNSTREAM,
    "mended": taking("broken") + posting("/mended"),
    # One whose receiver is nowhere.
    "stuck": PUSHED
    + to("nowhere", "on_error: { retry: 40, backoff: fixed, delay: 100ms }")
    + "delivered: { check: downstream, within: 30s, stall: { after: 1s } }\n",
    # Two that feed each other.
    "ping": "inputs:\n  start: { via: push }\n  back: { via: pipeline, with: { from: [pong] } }\n"
    + to("pong", source="[start, back]"),
    "pong": taking("ping") + to("ping"),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("chains")
    (folder / "workspace").mkdir()
    (folder / "workspace/handed.json").write_text('{"properties": {"of": {"type": "string"}}}')
    with running(
        folder,
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        yield made


def handed(stack: Stack, sender: str, id: str) -> dict[str, Any]:
    """The result of a hand-off, once there is one."""
    found: dict[str, Any] = wait_for(lambda: packet(stack, sender, id)["result"])
    return found


def reason(end: dict[str, Any]) -> str:
    return str(end["error"]["message"])


def inbox(stack: Stack, name: str) -> list[list[Any]]:
    return query(
        journal_of(stack.home, name), "SELECT sender, key, packet, input FROM inbox ORDER BY key"
    )


# ── what travels ─────────────────────────────────────────────────────────────


@pytest.mark.seed("O048", "C008", "C025", "C026")
def test_three_in_a_row(stack: Stack) -> None:
    id = push(stack, "first", {"n": 1})
    assert settled(stack, "first", id)["state"] == "delivered"
    one = handed(stack, "first", id)
    assert one == {"pipeline": "second", "packet_id": one["packet_id"], "duplicate": False}
    middle = packet(stack, "second", one["packet_id"])
    assert (middle["trigger"], middle["source"], middle["state"]) == (
        "pipeline",
        "first",
        "delivered",
    )
    assert middle["upstream"] == {"pipeline": "first", "packet_id": id, "key": id, "depth": 1}
    last = packet(stack, "third", handed(stack, "second", middle["packet_id"])["packet_id"])
    assert last["state"] == "delivered"
    assert last["upstream"] == {
        "pipeline": "second",
        "packet_id": middle["packet_id"],
        "key": middle["packet_id"],
        "depth": 2,
    }
    assert [last["packet_id"], 1] in query(
        stack.workspace / "data/third.db", "SELECT packet_id, n FROM t"
    )


def test_status_names_both_ends(stack: Stack) -> None:
    assert stack.get("/api/pipelines/second")["chain"] == {"feeds": ["third"], "fed_by": ["first"]}
    listed = {one["name"]: one["chain"] for one in stack.get("/api/pipelines")["pipelines"]}
    assert listed["third"] == {"feeds": [], "fed_by": ["second"]}
    shown = stack.pipo("status", "second").stdout
    assert re.search(r"^feeds +third$", shown, re.MULTILINE)
    assert re.search(r"^fed by +first$", shown, re.MULTILINE)


@pytest.mark.seed("C004", "C010", "C025")
def test_one_receiver_takes_from_every_input(stack: Stack) -> None:
    chained = push(stack, "asking", {"n": 10})
    pushed = push(stack, "store", {"n": 11}, input="manual")
    status, _, answer = stack.request("/in/store/form", b'{"n": 12}')
    assert status == 202, answer
    got = handed(stack, "asking", chained)["packet_id"]
    posted = json.loads(answer)["packet_id"]
    for one in (got, pushed, posted):
        assert settled(stack, "store", one)["state"] == "delivered"
    sql = "SELECT packet_id, n, by, of FROM t WHERE n BETWEEN 10 AND 12 ORDER BY n"
    wait_for(lambda: len(query(stack.workspace / "data/store.db", sql)) == 3)
    assert query(stack.workspace / "data/store.db", sql) == [
        [got, 10, "asking", chained],
        [pushed, 11, None, None],
        [posted, 12, None, None],
    ]


@pytest.mark.seed("C020", "C023", "C025")
def test_each_copy_becomes_a_packet_of_its_own(stack: Stack) -> None:
    id = push(stack, "fanning", {"n": 20})
    assert settled(stack, "fanning", id)["state"] == "delivered"
    rows = [row for row in inbox(stack, "store") if row[0] == "fanning"]
    assert [row[:2] + row[3:] for row in rows] == [
        ["fanning", f"{id}:a", "intake"],
        ["fanning", f"{id}:b", "intake"],
    ]
    for row in rows:
        made = packet(stack, "store", row[2])
        assert (made["upstream"]["packet_id"], made["upstream"]["key"]) == (id, row[1])


@pytest.mark.seed("C011", "C028", "C016")
def test_what_the_receiver_refuses(stack: Stack) -> None:
    before = stack.stats("store")["rejected"]
    end = outcome(stack, "asking", {"m": 1})
    assert (end["state"], end["error"]["code"], end["error"]["attempts"]) == (
        "dead_lettered",
        "output.failed",
        2,
    )
    for word in ("downstream_rejected", "'store'", "not by exists(data.n)"):
        assert word in reason(end)
    typed = outcome(stack, "asking", {"n": 1, "of": 7})
    for word in ("downstream_rejected", "'store'", "not by schema"):
        assert word in reason(typed)
    # Each attempt is kept as a rejection at the receiver (decision 4), and in no inbox.
    assert stack.stats("store")["rejected"] == before + 4
    assert [row for row in inbox(stack, "store") if row[1] == end["packet_id"]] == []
    kept = re.search(r"kept as (\w{26})", reason(end))
    assert kept is not None
    rejected = packet(stack, "store", kept[1])
    assert (rejected["state"], rejected["source"]) == ("rejected", "asking")
    assert rejected["upstream"]["packet_id"] == end["packet_id"]
    for data in ({"m": 1}, {"n": 1, "of": 7}):
        assert packet(stack, "store", push(stack, "store", data, input="manual"))["packet_id"]
    before = stack.stats("store")
    stranger = outcome(stack, "stranger", {"n": 1})
    assert "downstream_rejected" in reason(stranger)
    assert "stranger may not hand packets over to store" in reason(stranger)
    after = stack.stats("store")
    assert (after["accepted"], after["rejected"]) == (before["accepted"], before["rejected"])


@pytest.mark.seed("C007")
def test_a_sender_has_rules_of_its_own(stack: Stack) -> None:
    end = outcome(stack, "picky", {"n": 1, "fine": False})
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.invalid")
    assert outcome(stack, "picky", {"n": 1, "fine": True})["state"] == "delivered"


@pytest.mark.seed("C027")
def test_a_circle_ends_at_sixteen_hops(stack: Stack) -> None:
    id = push(stack, "ping", {"n": 1})
    wait_for(
        lambda: stack.stats("ping").get("dead_lettered", 0) + stack.stats("pong")["dead_lettered"]
    )
    assert settled(stack, "ping", id)["state"] == "delivered"
    assert [stack.stats(name)["accepted"] for name in ("ping", "pong")] == [9, 8]
    (dead,) = stack.get("/api/pipelines/ping/dlq")["packets"]
    assert "downstream_rejected" in dead["error"]["message"]
    assert "17 times, more than 16" in dead["error"]["message"]
    found = packet(stack, "ping", dead["packet_id"])
    assert found["upstream"]["depth"] == 16
    assert stack.stats("pong")["rejected"] == 0


# ── when a packet counts as delivered ────────────────────────────────────────


@pytest.mark.seed("D042", "C032")
def test_the_sender_waits_for_what_the_receiver_waits_for(stack: Stack) -> None:
    id = push(stack, "waiting", {"n": 1})
    got = handed(stack, "waiting", id)["packet_id"]
    content = outcome(stack, "content", {"n": 2})
    assert content["state"] == "delivered"
    wait_for(lambda: packet(stack, "confirmed", got)["state"] == "verifying")
    assert packet(stack, "waiting", id)["state"] == "verifying"
    for one in (got, content["result"]["packet_id"]):
        assert stack.pipo("ack", "confirmed", one).returncode == 0
    end = settled(stack, "waiting", id)
    assert end["state"] == "delivered"
    assert end["evidence"]["packet_id"] == got
    # Not a moment before the receiver's own end.
    assert end["updated_at"] >= packet(stack, "confirmed", got)["updated_at"]


@pytest.mark.seed("D043", "C008", "C032")
@pytest.mark.parametrize(
    ("data", "state", "why"),
    [
        ({"keep": True, "good": False}, "dead_lettered", "data.good"),
        ({"keep": False, "good": True}, "filtered", ""),
    ],
    ids=["dead-lettered", "filtered"],
)
def test_an_end_that_is_no_delivery_fails_at_once(
    stack: Stack, data: dict[str, Any], state: str, why: str
) -> None:
    end = outcome(stack, "judged", data)
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified")
    assert end["updated_at"] - end["received_at"] < 10_000
    got = end["result"]["packet_id"]
    assert reason(end).startswith(f"judge {got} false: ")
    for word in ("'judge'", got, state, why):
        assert word in reason(end)


@pytest.mark.seed("D046")
def test_the_receivers_own_retries_are_waited_for(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/flaky", Reply(500), Reply(500), Reply(200, stores=True))
    end = outcome(stack, "retrying", {"n": 1})
    assert end["state"] == "delivered"
    got = inspect(stack, "flaky", end["result"]["packet_id"])
    assert got["packet"]["state"] == "delivered"
    assert len(receiver.at("/flaky")) == 3


@pytest.mark.seed("C033", "C034")
def test_a_replay_goes_from_the_receiver_to_the_sender(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/mended", Reply(500))
    end = outcome(stack, "broken", {"n": 1})
    id, got = end["packet_id"], end["result"]["packet_id"]
    assert end["state"] == "dead_lettered"
    assert stack.pipo("dlq", "replay", "broken", id).returncode == 0
    again = wait_for(
        lambda: p if (p := settled(stack, "broken", id))["result"]["duplicate"] else None
    )
    assert (again["state"], again["result"]["packet_id"]) == ("dead_lettered", got)
    assert f"{got} of pipeline 'mended' is dead_lettered" in reason(again)
    receiver.script("/mended", Reply(200, stores=True))
    assert stack.pipo("dlq", "replay", "mended", got).returncode == 0
    wait_for(lambda: packet(stack, "mended", got)["state"] == "delivered")
    assert stack.pipo("dlq", "replay", "broken", id).returncode == 0
    found = wait_for(
        lambda: p if (p := settled(stack, "broken", id))["error"] != again["error"] else None
    )
    assert found["state"] == "delivered", inspect(stack, "broken", id)["events"]
    assert stack.stats("mended")["accepted"] == 1
    assert [one.json for one in receiver.done if one.path == "/mended"] == [{"n": 1}]


@pytest.mark.seed("D044")
def test_a_packet_that_the_receiver_has_no_longer(stack: Stack) -> None:
    end = outcome(stack, "judged", {"keep": True, "good": False})
    id, got = end["packet_id"], end["result"]["packet_id"]
    assert stack.pipo("dlq", "purge", "judge", got).returncode == 0
    assert stack.pipo("dlq", "replay", "judged", id).returncode == 0
    again = wait_for(lambda: p if "gone" in reason(p := settled(stack, "judged", id)) else None)
    assert (again["result"]["duplicate"], again["result"]["packet_id"]) == (True, got)
    assert f"{got} of pipeline 'judge' is gone" in reason(again)


@pytest.mark.seed("C031")
def test_a_stall_notices_a_long_outage(stack: Stack) -> None:
    end = outcome(stack, "stuck", {"n": 1})
    assert "downstream_unavailable: pipeline 'nowhere' is not running" in reason(end)
    events = stack.get("/api/pipelines/stuck/events?limit=1000")["events"]
    assert [one["type"] for one in events if one["type"] == "pipeline.stall"]


@pytest.mark.seed("R054")
def test_a_push_goes_through_the_rules_of_a_chained_input(stack: Stack) -> None:
    words = ("push", "store", "--input", "intake", "--json", "--data")
    for data, rule in (('{"m": 1}', "exists(data.n)"), ('{"n": 1, "of": 7}', "schema")):
        answer = json.loads(stack.pipo(*words, data).stdout)
        assert (answer["ok"], answer["code"]) == (False, "rejected")
        assert f"not by {rule}" in answer["error"]
    made = json.loads(stack.pipo(*words, '{"n": 30}').stdout)
    found = packet(stack, "store", made["packet_id"])
    assert (found["trigger"], found["input"], found["upstream"]) == ("push", "intake", None)


# ── links ────────────────────────────────────────────────────────────────────

LINKED = {
    "gate": PUSHED + to("depot", PATIENT) + DOWNSTREAM,
    "quick": PUSHED + to("depot") + DOWNSTREAM,
    "depot": taking("gate", "quick") + into("depot") + "buffer: { max: 2 }\n",
}


@pytest.fixture
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("links"), LINKED) as made:
        yield made


def own(stack: Stack, name: str) -> tuple[Any, ...]:
    """What is a pipeline's own: whether and how it runs, as which version, in which process."""
    told = stack.get(f"/api/pipelines/{name}")
    return told["state"], told["status"], told["version"], stack.pipeline_pid(name)


@pytest.mark.seed("C017", "C028", "C029", "C030", "D045", "C035", "C006", "C022")
def test_a_receiver_that_comes_and_goes(linked: Stack) -> None:
    entry = linked.home / "run/depot.json"
    assert entry.exists()
    alone = own(linked, "gate")
    assert linked.pipo("pause", "depot").returncode == 0
    assert own(linked, "gate") == alone
    held = push(linked, "gate", {"n": 1})
    got = handed(linked, "gate", held)["packet_id"]
    assert (packet(linked, "gate", held)["state"], packet(linked, "depot", got)["state"]) == (
        "verifying",
        "accepted",
    )
    push(linked, "gate", {"n": 2})
    wait_for(lambda: linked.stats("depot")["pending"] == 2)
    full = outcome(linked, "quick", {"n": 3})
    assert "downstream_unavailable" in reason(full)
    assert "buffer full (2 packets pending)" in reason(full)
    # It goes while two wait for its check, and another is to be handed over.
    assert linked.pipo("stop", "depot", "--now").returncode == 0
    wait_for(lambda: not entry.exists())
    gone = outcome(linked, "quick", {"n": 4})
    assert "downstream_unavailable" in reason(gone)
    assert "'depot' is not running" in reason(gone)
    assert gone["error"]["attempts"] == 1
    late = push(linked, "gate", {"n": 5})
    wait_for(lambda: packet(linked, "gate", late)["attempt"] > 1)
    found = linked.get("/api/pipelines/depot")
    assert (found["state"], packet(linked, "gate", held)["state"]) == ("stopped", "verifying")
    assert linked.pipo("start", "depot").returncode == 0
    for id in (held, late):
        assert settled(linked, "gate", id)["state"] == "delivered"
    stats = linked.settle("gate")
    assert (stats["delivered"], stats["dead_lettered"]) == (3, 0)
    assert linked.stats("depot")["accepted"] == 3
    assert own(linked, "gate") == alone
    # And the other way round.
    alone, pid = own(linked, "depot"), linked.pipeline_pid("gate")
    operate(linked, "gate", "pause")
    assert own(linked, "depot") == alone
    operate(linked, "gate", "restart")
    wait_for(lambda: linked.pipeline_pid("gate") not in (None, pid))
    assert own(linked, "depot") == alone
    log = (linked.home / "logs/gate.log").read_text()
    assert "pipeline 'depot' is not running" in log


@pytest.mark.seed("D045")
def test_a_receiver_that_stays_away_fails_the_check_at_its_deadline(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pipelines = {
        "gate": PUSHED + to("depot") + "delivered: { check: downstream, within: 8s }\n",
        "depot": taking("gate") + into("depot") + "delivered: { check: external, within: 1h }\n",
    }
    with running(tmp_path_factory.mktemp("away"), pipelines) as stack:
        id = push(stack, "gate", {"n": 1})
        handed(stack, "gate", id)
        # Not by the command: the deadline is near.
        assert stack.request("/api/pipelines/depot/stop", b'{"now": true}')[0] == 200
        end = settled(stack, "gate", id)
        assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified")
        assert "'depot' is not running" in reason(end)
        assert end["updated_at"] - end["received_at"] >= 8_000


@pytest.mark.seed("C019", "C021")
def test_a_frozen_receiver_has_ten_seconds(linked: Stack) -> None:
    first = push(linked, "gate", {"n": 1})
    assert settled(linked, "gate", first)["state"] == "delivered"
    pid = linked.pipeline_pid("depot")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        id = push(linked, "gate", {"n": 2})
        wait_for(lambda: packet(linked, "gate", id)["attempt"] >= 1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert settled(linked, "gate", id)["state"] == "delivered"
    trace = inspect(linked, "gate", id)
    [retry, *_] = [e for e in trace["events"] if e["type"] == "step.retry"]
    waited = retry["at"] - trace["packet"]["received_at"]
    assert 9_000 < waited < 30_000, waited
    assert "downstream_unavailable" in retry["detail"]["error"]
    # The first try was taken in once the receiver went on: the second one finds its packet.
    assert linked.stats("depot")["accepted"] == 2
    assert len([row for row in inbox(linked, "depot") if row[1] == id]) == 1


@pytest.mark.seed("C018")
def test_another_home_is_another_world(tmp_path_factory: pytest.TempPathFactory) -> None:
    here = {"gate": PUSHED + to("depot")}
    there = {"depot": taking("gate") + into("depot")}
    with (
        running(tmp_path_factory.mktemp("here"), here) as sender,
        running(tmp_path_factory.mktemp("there"), there) as other,
    ):
        end = outcome(sender, "gate", {"n": 1})
        assert "'depot' is not running" in reason(end)
        assert other.stats("depot")["accepted"] == 0
