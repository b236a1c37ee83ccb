"""Reruns and escalated packets through a real stack, and the seed's worked scenarios.

R062 and R066 stand with the dead letters, R064 also with the functions.
"""

from __future__ import annotations

import getpass
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, outcome, packet, push, run_sql, running, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def to_table(name: str, more: str = "") -> str:
    return f"  to: sqlite\n  with: {{ path: ./data/{name}.db, table: t, create: true{more} }}\n"


PUSHED = "input: { via: push }\noutput:\n  from: input\n"
AGENT = "agent: { control: true }\n"
COUNTED = (
    "input: { via: push }\nnodes:\n"
    "  note: { from: input, tap: file, with: { path: ./out/NAME.notes } }\n"
    "  shape: { from: note, transform: map, with: { data: { n: '${data.n + 1}' } } }\n"
    "output:\n  from: shape\n"
)
PIPELINES = {
    "heartbeat": (
        "input: { via: push }\nnodes:\n"
        "  stamp: { from: input, transform: map, with: { data: { at: '${data.n}' } } }\n"
        "output: { from: stamp, to: file, with: { path: ./out/heartbeat.jsonl } }\n"
    ),
    "upserted": COUNTED.replace("NAME", "upserted") + to_table("upserted", ", mode: upsert"),
    "inserted": COUNTED.replace("NAME", "inserted") + to_table("inserted"),
    "keyed": PUSHED + '  to: http\n  with: { url: "${env.STUB}/keyed" }\n',
    "kinds": (
        "input: { via: push }\nnodes:\n"
        "  keep: { from: input, filter: 'data.n < 100' }\n"
        "  shape: { from: keep, transform: map, with: { data: { n: '${data.n}' } } }\n"
        '  call: { from: shape, tap: http, with: { url: "${env.STUB}/call" } }\n'
        "  run: { from: call, tap: exec, with: { command: 'true' } }\n"
        "  note: { from: run, tap: file, with: { path: ./out/kinds.notes } }\n"
        "output:\n  from: note\n" + to_table("kinds")
    ),
    "chosen": (
        "input: { via: push }\nnodes:\n"
        "  keep: { from: input, filter: 'data.n < 100' }\n"
        "  ways:\n    from: keep\n    route: { split: 'data.n == 50', plain: else }\n"
        "  left: { from: ways.split, filter: 'true' }\n"
        "  right: { from: ways.split, filter: 'true' }\n"
        "  shape: { from: ways.plain, transform: map, with: { data: { n: '${upper(data.text)}' } } }\n"
        "output:\n  from: [left, right, shape]\n" + to_table("chosen")
    ),
    "versions": (
        "input: { via: push }\nnodes:\n"
        "  shape: { from: input, transform: map, with: { data: { n: '${data.n * 10}' } } }\n"
        "output:\n  from: shape\n" + to_table("versions", ", mode: upsert")
    ),
    "looped": (
        "input: { via: push }\nnodes:\n"
        "  more:\n    from: input\n    transform: map\n    with: { data: { n: '${data.n + 1}' } }\n"
        "    loop: { back_to: more, until: 'data.n >= 3', max: 5 }\n"
        "output:\n  from: more\n" + to_table("looped")
    ),
    "looked": PUSHED
    + to_table("looked")
    + (
        "delivered:\n  check: query\n  within: 300ms\n"
        "  with: { sql: \"SELECT 1 FROM sqlite_schema WHERE name = 'seen'\" }\n"
    ),
    "acked": PUSHED + to_table("acked") + "delivered: { check: external, within: 1h }\n",
    "sends": PUSHED + "  to: pipeline\n  with: { pipeline: takes }\n",
    "takes": (
        "input: { via: pipeline, with: { from: [sends] } }\noutput:\n  from: input\n"
        + to_table("takes")
    ),
    "cleared": PUSHED + to_table("cleared") + "retention: { data: 1s, trail: 1h, rejected: 1h }\n",
    "ticket-triage": (
        "input: { via: push }\nnodes:\n"
        "  triage:\n    from: input\n    tap: http\n"
        '    with: { url: "${env.STUB}/provider" }\n    on_error: { retry: 0, then: agent }\n'
        "output:\n  from: triage\n" + to_table("ticket-triage") + AGENT
    ),
    "commands": PUSHED + to_table("commands") + "  validate: ['data.n < 5']\n",
    "outage": PUSHED
    + (
        '  to: http\n  with: { url: "${env.STUB}/outage" }\n'
        "  on_error: { retry: 10, backoff: exponential, delay: 50ms, max_delay: 5m }\n"
    ),
    "people": (
        "input: { via: push }\nfn: ./people.fn.py\nnodes:\n"
        "  normalize: { from: input, transform: fn.normalize }\n"
        "output:\n  from: normalize\n" + to_table("people", ", mode: upsert")
    ),
    "filtering": (
        "input: { via: push }\nnodes:\n  adults: { from: input, filter: 'data.age > 81' }\n"
        "output:\n  from: adults\n" + to_table("filtering")
    ),
}
BUGGY = "def normalize(data):\n    return {'name': data['name'].lower()}\n"
FIXED = "def normalize(data):\n    return {'name': data['name'].title()}\n"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        made.fallback = Reply(stores=True)
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("reruns")
    (folder / "workspace").mkdir()
    (folder / "workspace" / "people.fn.py").write_text(BUGGY)
    with running(
        folder,
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        yield made


def delivered(stack: Stack, name: str, data: Any) -> str:
    end = outcome(stack, name, data)
    assert end["state"] == "delivered", end
    return str(end["packet_id"])


def said(stack: Stack, *words: str) -> str:
    done = stack.pipo(*words)
    assert done.returncode == 0, done
    return done.stdout


def rerun(stack: Stack, name: str, from_: str, **fields: Any) -> dict[str, Any]:
    """The answer over REST, with its status as `status`."""
    body = json.dumps({"from": from_, **fields}).encode()
    status, _, answer = stack.request(f"/api/pipelines/{name}/rerun", body)
    return {**json.loads(answer), "status": status}


def events(stack: Stack, name: str, id: str, type_: str) -> list[dict[str, Any]]:
    return [event for event in inspect(stack, name, id)["events"] if event["type"] == type_]


def again(stack: Stack, name: str, ids: list[str], from_: str, **fields: Any) -> dict[str, Any]:
    """A rerun of these, once they have settled."""
    done = rerun(stack, name, from_, ids=ids, **fields)
    assert done["status"] == 200, done
    for id in ids:
        wait_for(lambda id=id: len(ends(stack, name, id)) == 2)  # type: ignore[misc]
    return done


def ends(stack: Stack, name: str, id: str) -> list[str]:
    """How the packet has ended, each time."""
    known = ("packet.delivered", "packet.filtered", "packet.dead_lettered")
    return [e["type"] for e in inspect(stack, name, id)["events"] if e["type"] in known]


def rows(stack: Stack, name: str, sql: str = "SELECT * FROM t") -> Any:
    return query(stack.workspace / f"data/{name}.db", sql)


# ── the plan, and the run ────────────────────────────────────────────────────


@pytest.mark.seed("R029", "R031", "R032", "R040")
def test_the_plan_of_the_seed_runs_nothing_and_then_does(stack: Stack) -> None:
    first, second, third = (delivered(stack, "heartbeat", {"n": n}) for n in range(3))
    before = said(stack, "packets", "heartbeat", "--json")
    words = ("rerun", "heartbeat", "--from", "stamp")
    assert said(stack, *words, "--last", "2").splitlines() == [
        "plan: rerun 2 packet(s) of heartbeat from 'stamp', each on its own version",
        f"  {third}",
        f"  {second}",
        "steps that run again:",
        "  STEP    KIND            EFFECT",
        "  stamp   transform: map",
        "  output  output: file    writes again (idempotent on its key)",
        "nothing ran yet: run it with --yes",
    ]
    for asked, found in (
        (("--since", "1h"), [third, second, first]),
        (("--since", "1ms"), []),
        (("--all",), [third, second, first]),
        ((first, third), [first, third]),
        (("--since", "1h", "--last", "1"), [third]),
    ):
        told = json.loads(said(stack, *words, *asked, "--json"))
        assert [one["packet_id"] for one in told["packets"]] == found
        assert (told["dry"], told["rerun"], told["engine"]) == (True, len(found), "up")
    assert said(stack, "packets", "heartbeat", "--json") == before
    ran = said(stack, *words, "--last", "2", "--yes").splitlines()
    assert ran[0].startswith("rerunning 2 packet(s) of heartbeat from 'stamp', each on its own")
    for id in (second, third):
        wait_for(lambda id=id: len(ends(stack, "heartbeat", id)) == 2)  # type: ignore[misc]
    assert ends(stack, "heartbeat", first) == ["packet.delivered"]
    # The file has each packet once, whatever was written again.
    written = [one["packet_id"] for one in lines(stack.workspace / "out/heartbeat.jsonl")]
    assert written == [first, second, third]
    refused = stack.pipo(*words)
    assert (refused.returncode, "give ids, --all" in refused.stderr) == (2, True)


@pytest.mark.seed("R030", "R038", "R040")
def test_steps_before_the_node_do_not_run_again(stack: Stack) -> None:
    for name, left in (("upserted", 2), ("inserted", 7)):
        id = delivered(stack, name, {"n": 1})
        run_sql(stack.workspace / f"data/{name}.db", "UPDATE t SET n = 7")
        done = again(stack, name, [id], "shape", by="Ada")
        assert done["packets"] == [
            {"packet_id": id, "version": 1, "units": [{"id": id, "node": "shape"}]}
        ]
        # Upsert updates the row, insert keeps what is there.
        assert rows(stack, name) == [[id, left]]
        notes = (stack.workspace / f"out/{name}.notes").read_text().splitlines()
        assert len(notes) == 1
        steps = [step["step"] for step in inspect(stack, name, id)["steps"]]
        assert (steps.count("note"), steps.count("shape")) == (1, 3)
        (event,) = events(stack, name, id, "packet.rerun")
        assert event["node"] == "shape"
        assert event["detail"] == {
            "by": "Ada",
            "from": "shape",
            "version": 1,
            "was": "delivered",
        }


@pytest.mark.seed("R030")
def test_a_rerun_has_the_data_of_the_first_time_at_the_node(stack: Stack) -> None:
    id = delivered(stack, "looped", {"n": 0})
    assert len(events(stack, "looped", id, "node.looped")) == 2
    again(stack, "looped", [id], "more")
    assert len(events(stack, "looped", id, "node.looped")) == 4
    assert packet(stack, "looped", id)["data"] == {"n": 3}


@pytest.mark.seed("R040", "O036")
def test_the_same_key_is_sent_again(stack: Stack, receiver: Receiver) -> None:
    id = delivered(stack, "keyed", {"n": 1})
    again(stack, "keyed", [id], "output")
    assert receiver.keys("/keyed") == [id, id]


@pytest.mark.seed("R033")
def test_the_plan_flags_what_matters(stack: Stack) -> None:
    delivered(stack, "kinds", {"n": 1})
    plan = said(stack, "rerun", "kinds", "--from", "keep", "--last", "1").splitlines()
    effects = {}
    for line in plan[plan.index("steps that run again:") + 2 : -1]:
        step, *rest = re.split(r"  +", line.strip())
        effects[step] = rest
    assert effects == {
        "keep": ["filter"],
        "shape": ["transform: map"],
        "call": ["tap: http", "reaches outside again (external)"],
        "run": ["tap: exec", "reaches outside again (external)"],
        "note": ["tap: file", "writes again (write)"],
        "output": ["output: sqlite", "writes again (idempotent on its key)"],
    }
    told = rerun(stack, "kinds", "note", last=1, dry=True)["path"]
    assert told == [
        {"step": "note", "kind": "tap: file", "effect": "write"},
        {"step": "output", "kind": "output: sqlite", "effect": "write"},
    ]


@pytest.mark.seed("R034", "R035")
def test_what_cannot_rerun_is_skipped_and_named_refuses_all(stack: Stack) -> None:
    plain = delivered(stack, "chosen", {"n": 1, "text": "x"})
    filtered = outcome(stack, "chosen", {"n": 100})["packet_id"]
    split = delivered(stack, "chosen", {"n": 50})
    dead = outcome(stack, "chosen", {"n": 1, "text": 7})["packet_id"]
    assert packet(stack, "chosen", dead)["state"] == "dead_lettered"
    plan = rerun(stack, "chosen", "ways", all=True, dry=True)
    assert [one["packet_id"] for one in plan["packets"]] == [plain]
    reasons = {one["packet_id"]: one["reason"] for one in plan["skipped"]}
    assert set(reasons) == {filtered, split}
    assert reasons[filtered] == "it never reached 'ways'"
    assert reasons[split].startswith("it fanned out at or after 'ways'")
    told = said(stack, "rerun", "chosen", "--from", "ways", "--all").splitlines()
    assert f"  {filtered}  it never reached 'ways'" in told
    for id, code, reason in (
        (filtered, "invalid_state", "it never reached 'ways'"),
        (dead, "invalid_state", "it is dead_lettered, not delivered or filtered"),
        (f"{split}:left", "invalid_state", "it is a copy"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "not_found", "has no packet"),
    ):
        refused = rerun(stack, "chosen", "ways", ids=[plain, id])
        assert (refused["code"], reason in refused["error"]) == (code, True), refused
    assert ends(stack, "chosen", plain) == ["packet.delivered"]
    # Inside the branch it works, for the copy that went there.
    done = again(stack, "chosen", [split], "left")
    assert done["packets"][0]["units"] == [{"id": f"{split}:left", "node": "left"}]
    assert packet(stack, "chosen", split)["state"] == "delivered"
    none = rerun(stack, "chosen", "nowhere", all=True, dry=True)
    (reason,) = {one["reason"] for one in none["skipped"]}
    assert reason.startswith("its version v1 has no node 'nowhere' (it has ")
    assert "left" in reason
    assert reason.endswith(", output)")


@pytest.mark.seed("R036", "R037")
def test_each_on_its_own_version_or_for_good_on_the_one_in_force(stack: Stack) -> None:
    id = delivered(stack, "versions", {"n": 1})
    file = stack.workspace / "versions.pipo"
    file.write_text(file.read_text().replace("data.n * 10", "data.n * 1000"))
    said(stack, "apply", "versions", str(file))
    run_sql(stack.workspace / "data/versions.db", "UPDATE t SET n = 0")
    again(stack, "versions", [id], "shape")
    assert (packet(stack, "versions", id)["version"], rows(stack, "versions")) == (1, [[id, 10]])
    plan = said(stack, "rerun", "versions", id, "--from", "shape", "--current")
    assert plan.startswith("plan: rerun 1 packet(s) of versions from 'shape', on v2\n")
    done = rerun(stack, "versions", "shape", ids=[id], current=True)
    assert (done["current"], done["packets"][0]["version"]) == (2, 2)
    wait_for(lambda: len(ends(stack, "versions", id)) == 3)
    assert (packet(stack, "versions", id)["version"], rows(stack, "versions")) == (2, [[id, 1000]])
    assert events(stack, "versions", id, "packet.rerun")[-1]["detail"]["from_version"] == 1
    refused = rerun(stack, "versions", "gone", ids=[id], current=True)
    assert (refused["status"], refused["code"], refused["hint"]) == (
        400,
        "bad_request",
        "one of shape, output",
    )


@pytest.mark.seed("R035", "R039", "R041")
def test_it_is_checked_like_any_other_and_pending_until_then(stack: Stack) -> None:
    run_sql(stack.workspace / "data/looked.db", "CREATE TABLE seen (x)")
    id = delivered(stack, "looked", {"n": 1})
    run_sql(stack.workspace / "data/looked.db", "DROP TABLE seen")
    said(stack, "pause", "looked")
    assert rerun(stack, "looked", "output", ids=[id])["rerun"] == 1
    stats = json.loads(said(stack, "status", "looked", "--json"))["stats"]
    assert (stats["pending"], stats["delivered"]) == (1, 0)
    again_ = rerun(stack, "looked", "output", ids=[id])
    assert "it is writing, not delivered" in again_["error"]
    plan = rerun(stack, "looked", "output", all=True, dry=True)
    assert (plan["packets"], plan["skipped"]) == ([], [])
    said(stack, "resume", "looked")
    assert settled(stack, "looked", id)["state"] == "dead_lettered"
    assert packet(stack, "looked", id)["error"]["code"] == "delivery.unverified"


def test_a_rerun_waits_for_a_new_ack(stack: Stack) -> None:
    """Decision 12."""
    id = push(stack, "acked", {"n": 1})
    said(stack, "ack", "acked", id)
    assert settled(stack, "acked", id)["state"] == "delivered"
    assert rerun(stack, "acked", "output", ids=[id])["rerun"] == 1
    wait_for(lambda: len(events(stack, "acked", id, "delivery.awaiting_ack")) == 2)
    assert packet(stack, "acked", id)["state"] == "verifying"
    said(stack, "ack", "acked", id)
    assert settled(stack, "acked", id)["state"] == "delivered"


@pytest.mark.seed("R042")
def test_a_receiver_answers_with_the_packet_it_has(stack: Stack) -> None:
    id = delivered(stack, "sends", {"n": 1})
    stack.settle("takes")
    (theirs,) = stack.get("/api/pipelines/takes/packets")["packets"]
    before = inspect(stack, "takes", theirs["packet_id"])
    again(stack, "sends", [id], "output")
    result = packet(stack, "sends", id)["result"]
    assert (result["packet_id"], result["duplicate"]) == (theirs["packet_id"], True)
    assert inspect(stack, "takes", theirs["packet_id"]) == before
    assert stack.stats("takes")["accepted"] == 1


@pytest.mark.seed("L047", "R034")
def test_cleared_data_cannot_be_rerun(stack: Stack) -> None:
    id = delivered(stack, "cleared", {"n": 1})
    cleared = f"SELECT 1 FROM units WHERE id = '{id}' AND data IS NULL"
    # What has settled for longer than a second goes at a start.
    settled_at = f"SELECT settled_at FROM units WHERE id = '{id}'"
    ((at,),) = query(journal_of(stack.home, "cleared"), settled_at)
    wait_for(lambda: time.time() * 1000 > at + 1_100)
    said(stack, "restart", "cleared")
    wait_for(lambda: query(journal_of(stack.home, "cleared"), cleared))
    reason = "its payload was already cleared by retention"
    refused = rerun(stack, "cleared", "output", ids=[id])
    assert refused["error"] == f"{id} cannot be rerun: {reason}"
    plan = rerun(stack, "cleared", "output", all=True)
    assert (plan["rerun"], plan["skipped"]) == (0, [{"packet_id": id, "reason": reason}])


# ── escalated ────────────────────────────────────────────────────────────────


@pytest.mark.seed("R035", "R044", "R045", "R046", "R047", "R068")
def test_packets_that_wait_for_someone(stack: Stack, receiver: Receiver) -> None:
    name = "ticket-triage"
    # One that waits for nobody, and is in no listing of those that do.
    done = delivered(stack, name, {"n": 9})
    receiver.script("/provider", Reply(500))
    ids = [push(stack, name, {"n": n}) for n in range(4)]
    wait_for(lambda: stack.stats(name)["escalated"] == 4)
    head, row = (re.split(r"  +", line) for line in said(stack, "status", name).splitlines()[:2])
    assert row[head.index("PENDING")] == "4"
    listed = said(stack, "packets", name, "--state", "escalated")
    assert sorted(re.findall(r"^(01\w{24})", listed, re.MULTILINE)) == sorted(ids)
    plan = rerun(stack, name, "triage", all=True, dry=True)
    assert ([one["packet_id"] for one in plan["packets"]], plan["skipped"]) == ([done], [])
    named = rerun(stack, name, "triage", ids=[done, ids[0]])
    assert "it is escalated, not delivered" in named["error"]
    why = said(stack, "inspect", name, ids[0])
    assert re.search(r"triage +escalated", why)
    assert f"{receiver.url}/provider" in why
    # A stop and a start change nothing for them.
    said(stack, "stop", name)
    wait_for(lambda: stack.get(f"/api/pipelines/{name}")["state"] == "stopped")
    refused = stack.pipo("resolve", name, ids[0], "--action", "retry")
    assert (refused.returncode, f"pipo start {name}" in refused.stderr) == (1, True)
    said(stack, "start", name)
    assert stack.stats(name)["escalated"] == 4
    receiver.script("/provider", Reply())
    assert said(
        stack, "resolve", name, *ids[:2], "--action", "retry", "--reason", "provider back up"
    ).splitlines() == [
        f"retrying 2 packet(s) of {name}",
        *(f"  {id}  → triage" for id in ids[:2]),
        f"follow them with pipo packets {name} or pipo inspect {name} <id>",
    ]
    for id in ids[:2]:
        assert settled(stack, name, id)["state"] == "delivered"
    (event,) = events(stack, name, ids[0], "packet.resolved")
    detail = event["detail"]
    assert (detail["reason"], detail["by_kind"], detail["action"]) == (
        "provider back up",
        "human",
        "retry",
    )
    assert detail["by"] == getpass.getuser()
    story = said(stack, "inspect", name, ids[0])
    assert f"retry by {detail['by']}: provider back up" in story
    told = json.loads(
        said(stack, "resolve", name, ids[2], "--action", "drop", "--by", "Ada", "--json")
    )
    assert told["resolved"] == [{"packet_id": ids[2], "state": "filtered", "node": None}]
    assert events(stack, name, ids[2], "packet.resolved")[0]["detail"]["by"] == "Ada"
    # All or nothing; what was resolved is not resolved again.
    body = json.dumps({"ids": [ids[3], ids[2]], "action": "dead_letter"}).encode()
    status, _, answer = stack.request(f"/api/pipelines/{name}/resolve", body)
    assert (status, json.loads(answer)["code"]) == (409, "invalid_state")
    assert packet(stack, name, ids[3])["state"] == "escalated"
    body = json.dumps({"packet_id": ids[3], "action": "dead_letter"}).encode()
    assert stack.request(f"/api/pipelines/{name}/resolve", body)[0] == 200
    # Over REST nobody has said who.
    detail = events(stack, name, ids[3], "packet.resolved")[0]["detail"]
    assert (detail["by"], detail["by_kind"], detail["reason"]) == ("api", "human", None)
    said(stack, "dlq", "replay", name, ids[3])
    assert settled(stack, name, ids[3])["state"] == "delivered"


# ── worked scenarios ─────────────────────────────────────────────────────────


@pytest.mark.seed("R063")
def test_a_longer_retry_rides_out_an_outage(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/outage", Reply(503))
    id = push(stack, "outage", {"n": 1})
    wait_for(lambda: len(receiver.at("/outage")) >= 3)
    receiver.script("/outage", Reply(stores=True))
    assert settled(stack, "outage", id)["state"] == "delivered"
    assert stack.get("/api/pipelines/outage/dlq")["packets"] == []
    assert set(receiver.keys("/outage")) == {id}


@pytest.mark.seed("R064", "R065")
def test_i_fixed_a_bug_in_a_transform(stack: Stack) -> None:
    ada, bob = (delivered(stack, "people", {"name": name}) for name in ("ADA", "BOB"))
    assert rows(stack, "people") == [[ada, "ada"], [bob, "bob"]]
    (stack.workspace / "people.fn.py").write_text(FIXED)
    said(stack, "restart", "people")
    new = delivered(stack, "people", {"name": "CYD"})
    assert packet(stack, "people", new)["version"] == 2
    words = ("rerun", "people", "--from", "normalize", "--since", "24h", "--current")
    plan = said(stack, *words)
    assert plan.startswith("plan: rerun 3 packet(s) of people from 'normalize', on v2\n")
    assert rows(stack, "people") == [[ada, "ada"], [bob, "bob"], [new, "Cyd"]]
    said(stack, *words, "--yes")
    stack.settle("people")
    assert rows(stack, "people") == [[ada, "Ada"], [bob, "Bob"], [new, "Cyd"]]


@pytest.mark.seed("R067")
def test_a_filter_dropped_packets_that_it_should_not_have(stack: Stack) -> None:
    id = outcome(stack, "filtering", {"age": 36})["packet_id"]
    child = outcome(stack, "filtering", {"age": 8})["packet_id"]
    assert packet(stack, "filtering", id)["state"] == "filtered"
    file = stack.workspace / "filtering.pipo"
    file.write_text(file.read_text().replace("data.age > 81", "data.age > 18"))
    said(stack, "restart", "filtering")
    words = ("rerun", "filtering", "--from", "adults", "--since", "7d", "--current")
    assert f"  {child}\n  {id}\n" in said(stack, *words)
    said(stack, *words, "--yes")
    stack.settle("filtering")
    assert packet(stack, "filtering", id)["state"] == "delivered"
    # One may be filtered again.
    assert packet(stack, "filtering", child)["state"] == "filtered"
    assert rows(stack, "filtering") == [[id, 36]]


@pytest.mark.seed("R002", "R003")
def test_every_recovery_command_speaks_json_and_wants_a_runner(stack: Stack) -> None:
    def told(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(said(stack, *words, "--json"))
        return found

    name = "commands"
    first = told("push", name, "--data", '{"n": 1}')["packet_id"]
    dead = [told("push", name, "--data", '{"n": 9}')["packet_id"] for _ in range(2)]
    stack.settle(name)
    assert {one["packet_id"] for one in told("dlq", name)["packets"]} == set(dead)
    assert told("rerun", name, first, "--from", "output", "--yes")["rerun"] == 1
    assert told("dlq", "replay", name, dead[0])["replayed"] == 1
    stack.settle(name)
    assert told("dlq", "purge", name, dead[1])["purged"] == 1
    assert told("ack", "acked", delivered_by_ack(stack))["already"] is True
    assert told("stop", name)
    commands = [
        ("push", name, "--data", "{}"),
        ("ack", name, first),
        ("dlq", "replay", name, dead[0]),
        ("dlq", "purge", name, "--all"),
        ("rerun", name, first, "--from", "output", "--yes"),
        ("resolve", name, first, "--action", "retry"),
    ]
    for words in commands:
        refused = stack.pipo(*words, "--json")
        assert refused.returncode == 1, refused
        error = json.loads(refused.stdout)
        assert (error["code"], error["hint"]) == (
            "invalid_state",
            f"start it with: pipo start {name}",
        )
    assert [one["packet_id"] for one in told("dlq", name)["packets"]] == [dead[0]]


def delivered_by_ack(stack: Stack) -> str:
    """A packet of `acked` that is acknowledged."""
    id = push(stack, "acked", {"n": 1})
    said(stack, "ack", "acked", id)
    settled(stack, "acked", id)
    return id
