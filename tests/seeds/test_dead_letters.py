"""Dead letters through a real stack: why there are any, how they are listed, replayed and purged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.packets import inspect, outcome, packet, push, run_sql, running, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, journal_of, lines, query, wait_for

pytestmark = pytest.mark.slow


def to_table(name: str, more: str = "") -> str:
    return f"  to: sqlite\n  with: {{ path: ./data/{name}.db, table: t, create: true{more} }}\n"


def to_stub(path: str, more: str = "retry: 1, delay: 100ms") -> str:
    return f'  to: http\n  with: {{ url: "${{env.STUB}}{path}" }}\n  on_error: {{ {more} }}\n'


def looked_for(name: str, on_fail: str = "") -> str:
    return (
        "delivered:\n  check: file_exists\n"
        f"  with: {{ path: ./seen/{name} }}\n  within: 300ms\n{on_fail}"
    )


PUSHED = "input: { via: push }\noutput:\n  from: input\n"
SHAPED = (
    "input: { via: push }\n"
    'nodes: { shape: { from: input, transform: map, with: { data: { msg: "${upper(data.msg)}" } } } }\n'
    "output:\n  from: shape\n"
)
SPLIT = (
    "input: { via: push }\nnodes:\n"
    '  good: { from: input, transform: map, with: { data: { n: "${data.n}", way: good } } }\n'
    '  bad: { from: input, transform: map, with: { data: { n: "${data.n}", way: bad } } }\n'
    "output:\n  from: [good, bad]\n"
)
UNQUERIED = (
    'delivered:\n  check: query\n  within: 300ms\n  with: { sql: "SELECT 1 FROM missing_table" }\n'
)
PIPELINES = {
    "sender": SHAPED + to_stub("/sender"),
    "at-node": SHAPED + to_table("at-node"),
    "at-rule": PUSHED
    + to_table("at-rule").replace("  to:", "  validate: ['data.n < 5']\n  to:", 1),
    "unseen": PUSHED
    + to_table("unseen")
    + UNQUERIED.replace(
        "SELECT 1 FROM missing_table", "SELECT 1 FROM sqlite_schema WHERE name = 'seen'"
    ),
    "unqueried": PUSHED + to_table("unqueried") + UNQUERIED,
    "altered": PUSHED + to_table("altered") + "  on_error: { retry: 0 }\n",
    "replaced": (
        PUSHED
        + '  to: file\n  with: { path: "./out/${data.name}.json", mode: write, format: json }\n'
        + looked_for("replaced")
    ),
    "appended": (
        PUSHED + "  to: file\n  with: { path: ./out/appended.jsonl }\n" + looked_for("appended")
    ),
    "keyed": PUSHED + to_stub("/keyed"),
    "looped": (
        "input: { via: push }\nnodes:\n  again:\n    from: input\n    transform: map\n"
        '    with: { data: { n: "${data.n + 1}" } }\n'
        '    loop: { back_to: again, until: "data.n >= 5", max: 2 }\n'
        "output:\n  from: again\n" + to_table("looped")
    ),
    "split": SPLIT + to_stub("/split", "retry: 0"),
    "paged": PUSHED + to_stub("/paged", "retry: 0"),
    "listed": PUSHED + to_stub("/listed", "retry: 0"),
    "held": PUSHED + to_stub("/held", "retry: 0"),
    "ending": PUSHED + to_stub("/ending", "retry: 0"),
    "purged": SPLIT + to_stub("/purged", "retry: 0"),
    "buggy": SHAPED + to_table("buggy"),
    "versions": SHAPED + to_stub("/versions"),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        made.fallback = Reply(500)
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("dead-letters"),
        PIPELINES,
        env={"STUB": receiver.url},
        config="engine: { env_allow: [STUB] }\n",
    ) as made:
        yield made


def works(receiver: Receiver, name: str) -> None:
    """From now on what is sent to the pipeline's path arrives."""
    receiver.script(f"/{name}", Reply(stores=True))


def dead(stack: Stack, name: str, data: Any) -> str:
    """The id of a packet that has died."""
    end = outcome(stack, name, data)
    assert end["state"] == "dead_lettered", end
    return str(end["packet_id"])


def queue(stack: Stack, name: str) -> list[str]:
    """The ids of the dead letters, newest first."""
    return [one["packet_id"] for one in stack.get(f"/api/pipelines/{name}/dlq")["packets"]]


def said(stack: Stack, *words: str) -> str:
    done = stack.pipo(*words)
    assert done.returncode == 0, done
    return done.stdout


def types(stack: Stack, name: str, id: str) -> list[str]:
    return [event["type"] for event in inspect(stack, name, id)["events"]]


def one(stack: Stack, name: str, id: str, type_: str) -> dict[str, Any]:
    """The detail of the packet's one event of a type."""
    (found,) = (e for e in inspect(stack, name, id)["events"] if e["type"] == type_)
    detail: dict[str, Any] = found["detail"]
    return detail


def rows(stack: Stack, name: str, sql: str = "SELECT * FROM t") -> Any:
    return query(stack.workspace / f"data/{name}.db", sql)


# ── why, and how it is listed ────────────────────────────────────────────────


@pytest.mark.seed("R006", "R008", "R009", "R010", "R062")
def test_the_table_names_step_attempts_version_and_error(stack: Stack, receiver: Receiver) -> None:
    first, second = dead(stack, "sender", {"msg": "yo"}), dead(stack, "sender", {"msg": "hi"})
    head, *packets, last = said(stack, "dlq", "sender").splitlines()
    assert re.split(r"  +", head) == [
        "PACKET",
        "FAILED AT",
        "ATTEMPTS",
        "VER",
        "DEAD SINCE",
        "ERROR",
    ]
    for line, id in zip(packets, (second, first), strict=True):
        found, step, attempts, version, since, error = re.split(r"  +", line, maxsplit=5)
        assert (found, step, attempts, version) == (id, "output", "2", "v1")
        assert re.fullmatch(r"\d+s ago", since)
        assert error.startswith(f"output.failed: POST {receiver.url}/sender")
    assert last == "2 of 2 dead-lettered; replay with pipo dlq replay sender <id…>|--all"
    assert said(stack, "dlq", "sender", "--limit", "1").splitlines()[-1].startswith("1 of 2 ")
    before = len(receiver.at("/sender"))
    works(receiver, "sender")
    assert said(stack, "dlq", "replay", "sender", "--all").startswith("replayed 2 packet(s)")
    for id in (first, second):
        assert settled(stack, "sender", id)["state"] == "delivered"
    assert sorted(receiver.keys("/sender")[before:]) == sorted((first, second))
    sent = sorted(got.json["msg"] for got in receiver.at("/sender")[before:])
    assert sent == ["HI", "YO"]
    assert (
        json.loads(said(stack, "packets", "sender", "--state", "dead_lettered", "--json"))[
            "packets"
        ]
        == []
    )
    assert stack.stats("sender")["dead_lettered"] == 0


@pytest.mark.seed("R006", "R008")
def test_a_step_and_an_output_rule(stack: Stack) -> None:
    at_node, at_rule = dead(stack, "at-node", {"msg": 7}), dead(stack, "at-rule", {"n": 9})
    assert re.search(rf"{at_node}  shape +1  v1 .* node\.failed: ", said(stack, "dlq", "at-node"))
    listing = said(stack, "dlq", "at-rule")
    assert re.search(rf"{at_rule}  output +\d  v1 .* output\.invalid: ", listing)


@pytest.mark.seed("D006", "D018", "R006", "R021")
def test_a_check_that_never_passes_and_its_replay(stack: Stack) -> None:
    id = dead(stack, "unseen", {"n": 1})
    assert re.search(
        rf"{id}  delivered +\d  v1 .* delivery\.unverified: ", said(stack, "dlq", "unseen")
    )
    assert (
        json.loads(said(stack, "inspect", "unseen", id, "--json"))["packet"]["error"]["code"]
        == "delivery.unverified"
    )
    run_sql(stack.workspace / "data/unseen.db", "CREATE TABLE seen (x)")
    assert f"  {id}  → output\n" in said(stack, "dlq", "replay", "unseen", id)
    assert settled(stack, "unseen", id)["state"] == "delivered"
    # It was written again, and checked again.
    assert types(stack, "unseen", id).count("output.written") == 2
    assert rows(stack, "unseen") == [[id, 1]]


@pytest.mark.seed("D020")
def test_the_last_error_of_a_check_that_could_not_run(stack: Stack) -> None:
    id = dead(stack, "unqueried", {"n": 1})
    assert re.search(
        rf"{id}  delivered .* delivery\.unverified: .*missing_table",
        said(stack, "dlq", "unqueried"),
    )


@pytest.mark.seed("R015", "R010")
def test_pages_join_to_the_whole_list(stack: Stack) -> None:
    ids = [dead(stack, "paged", n) for n in range(5)]
    for command in (("dlq", "paged"), ("packets", "paged")):
        seen: list[str] = []
        after: Sequence[str] = ()
        while True:
            page = json.loads(said(stack, *command, "--json", "--limit", "2", *after))
            assert page["total"] == 5
            seen += [one["packet_id"] for one in page["packets"]]
            if page["next"] is None:
                break
            after = ("--after", page["next"])
        assert seen == sorted(ids, reverse=True)
    text = said(stack, "dlq", "paged", "--limit", "2").splitlines()
    assert text[-2] == f"go on with pipo dlq paged --limit 2 --after {ids[3]}"
    assert text[-1].startswith("2 of 5 dead-lettered")


@pytest.mark.seed("R016")
def test_a_stopped_pipeline_lists_and_refuses_the_rest(stack: Stack) -> None:
    id = dead(stack, "listed", 1)
    ages = re.compile(r"\d+s ago")
    table = ages.sub("ago", said(stack, "dlq", "listed"))
    said(stack, "stop", "listed")
    wait_for(lambda: stack.get("/api/pipelines/listed")["state"] == "stopped")
    assert ages.sub("ago", said(stack, "dlq", "listed")) == table
    assert json.loads(said(stack, "dlq", "listed", "--json"))["source"] == "journal"
    for words in (
        ("dlq", "replay", "listed", id),
        ("dlq", "purge", "listed", "--all"),
        ("push", "listed", "--data", "1"),
        ("ack", "listed", id),
    ):
        refused = stack.pipo(*words)
        assert refused.returncode == 1
        assert "is not running" in refused.stderr
        assert "pipo start listed" in refused.stderr
        told = json.loads(stack.pipo(*words, "--json").stdout)
        assert (told["ok"], told["code"]) == (False, "invalid_state")
    said(stack, "start", "listed")
    assert queue(stack, "listed") == [id]


# ── replay ───────────────────────────────────────────────────────────────────


@pytest.mark.seed("R017", "R020", "R024", "O036")
def test_a_replay_is_all_or_nothing_and_sends_the_same_key(
    stack: Stack, receiver: Receiver
) -> None:
    first, second, third = (dead(stack, "keyed", n) for n in range(3))
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    works(receiver, "keyed")
    before = len(receiver.at("/keyed"))
    for bad, code in ((unknown, "not_found"), (f"{first}:a", "not_found")):
        told = json.loads(stack.pipo("dlq", "replay", "keyed", first, bad, "--json").stdout)
        assert told["code"] == code
    assert queue(stack, "keyed") == [third, second, first]
    assert said(stack, "dlq", "replay", "keyed", first, first) == (
        "replayed 1 packet(s) from the dead-letter queue of keyed\n"
        f"  {first}  → output\n"
        "follow them with pipo packets keyed or pipo inspect keyed <id>\n"
    )
    assert settled(stack, "keyed", first)["state"] == "delivered"
    again = stack.pipo("dlq", "replay", "keyed", second, first)
    assert (again.returncode, "delivered, not dead_lettered" in again.stderr) == (1, True), again
    assert queue(stack, "keyed") == [third, second]
    told = json.loads(said(stack, "dlq", "replay", "keyed", "--all", "--json"))
    assert (told["replayed"], told["skipped"]) == (2, [])
    assert told["packets"] == [
        {"packet_id": id, "units": [{"id": id, "node": "$output"}]} for id in (second, third)
    ]
    for id in (second, third):
        settled(stack, "keyed", id)
    # Those of `--all` are written side by side.
    sent = receiver.keys("/keyed")[before:]
    assert (sent[0], sorted(sent[1:])) == (first, sorted((second, third)))
    assert queue(stack, "keyed") == []
    assert said(stack, "dlq", "replay", "keyed", "--all").startswith("replayed 0 packet(s)")


@pytest.mark.seed("R018", "R019")
def test_a_replay_keeps_data_and_version_and_runs_no_step_twice(
    stack: Stack, receiver: Receiver
) -> None:
    id = dead(stack, "versions", {"msg": "old"})
    file = stack.workspace / "versions.pipo"
    file.write_text(file.read_text().replace("upper(data.msg)", "data.msg + '!'"))
    said(stack, "restart", "versions")
    newer = dead(stack, "versions", {"msg": "new"})
    assert [line.split()[3] for line in said(stack, "dlq", "versions").splitlines()[1:3]] == [
        "v2",
        "v1",
    ]
    before = len(receiver.at("/versions"))
    said(stack, "dlq", "replay", "versions", "--all", "--by", "Ada")
    # Still down: each had all its tries again, and is back.
    wait_for(lambda: len(receiver.at("/versions")) == before + 4)
    wait_for(lambda: queue(stack, "versions") == [newer, id])
    works(receiver, "versions")
    said(stack, "dlq", "replay", "versions", id)
    assert settled(stack, "versions", id)["version"] == 1
    assert receiver.at("/versions")[-1].json == {"msg": "OLD"}
    assert types(stack, "versions", id).count("node.done") == 1
    replays = [e for e in inspect(stack, "versions", id)["events"] if e["type"] == "dlq.replayed"]
    assert next(event["detail"]["by"] for event in replays) == "Ada"
    assert all(event["detail"]["error"]["code"] == "output.failed" for event in replays)
    steps = inspect(stack, "versions", id)["steps"]
    assert [(step["event"], step["attempts"]) for step in steps[2:6:2]] == [
        ("packet.dead_lettered", 2)
    ] * 2
    assert [step["event"] for step in steps[3:7:2]] == ["dlq.replayed"] * 2


@pytest.mark.seed("R066")
def test_what_a_bug_killed_is_pushed_into_the_fixed_pipeline(stack: Stack) -> None:
    id = dead(stack, "buggy", {"msg": 7})
    file = stack.workspace / "buggy.pipo"
    file.write_text(file.read_text().replace("upper(data.msg)", "data.msg"))
    said(stack, "restart", "buggy")
    said(stack, "dlq", "replay", "buggy", id)
    wait_for(lambda: types(stack, "buggy", id).count("packet.dead_lettered") == 2)
    assert packet(stack, "buggy", id)["version"] == 1
    found = json.loads(said(stack, "inspect", "buggy", id, "--json"))["packet"]["data"]
    pushed = json.loads(said(stack, "push", "buggy", "--data", json.dumps(found), "--json"))
    assert settled(stack, "buggy", pushed["packet_id"])["state"] == "delivered"
    said(stack, "dlq", "purge", "buggy", id)
    assert queue(stack, "buggy") == []
    assert rows(stack, "buggy") == [[pushed["packet_id"], 7]]


@pytest.mark.seed("R022")
def test_a_loop_that_hit_its_limit_starts_its_passes_over(stack: Stack) -> None:
    id = dead(stack, "looped", {"n": 0})
    error = packet(stack, "looped", id)["error"]
    assert (error["code"], error["node"]) == ("loop.max", "again")
    passes = types(stack, "looped", id).count("node.looped")
    assert passes == 2
    assert f"  {id}  → again\n" in said(stack, "dlq", "replay", "looped", id)
    end = settled(stack, "looped", id)
    # Without new passes it would have died at once.
    assert types(stack, "looped", id).count("node.looped") > passes
    assert end["state"] == "delivered", end
    assert rows(stack, "looped") == [[id, 5]]


@pytest.mark.seed("R023")
def test_only_the_dead_copies_run_again(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/split", lambda got: Reply(500) if got.json["way"] == "bad" else Reply())
    id = dead(stack, "split", {"n": 1})
    assert packet(stack, "split", id)["error"]["code"] == "branch.dead_lettered"
    receiver.script("/split", Reply())
    before = len(receiver.at("/split"))
    assert f"  {id}  → output (bad)\n" in said(stack, "dlq", "replay", "split", id)
    assert settled(stack, "split", id)["state"] == "delivered"
    assert receiver.keys("/split")[before:] == [f"{id}:bad"]
    assert types(stack, "split", id)[-3:] == [
        "packet.dead_lettered",
        "dlq.replayed",
        "packet.delivered",
    ]
    assert stack.stats("split")["delivered"] == 1


@pytest.mark.seed("R026")
def test_a_paused_pipeline_holds_what_is_replayed(stack: Stack, receiver: Receiver) -> None:
    id = dead(stack, "held", 1)
    works(receiver, "held")
    before = len(receiver.at("/held"))
    said(stack, "pause", "held")
    said(stack, "dlq", "replay", "held", id)
    assert packet(stack, "held", id)["state"] == "writing"
    stats = stack.stats("held")
    assert (stats["pending"], stats["dead_lettered"]) == (1, 0)
    assert len(receiver.at("/held")) == before
    said(stack, "resume", "held")
    assert settled(stack, "held", id)["state"] == "delivered"


@pytest.mark.seed("R026")
def test_a_draining_pipeline_purges_and_does_not_replay(stack: Stack, receiver: Receiver) -> None:
    first, second = dead(stack, "ending", 1), dead(stack, "ending", 2)
    receiver.script("/ending", Reply(delay_s=6.0))
    slow = push(stack, "ending", 3)
    wait_for(lambda: packet(stack, "ending", slow)["state"] == "writing")
    stack.request("/api/pipelines/ending/drain", b"{}")
    wait_for(lambda: stack.get("/api/pipelines/ending")["status"] == "draining")
    refused = stack.pipo("dlq", "replay", "ending", first)
    assert refused.returncode == 1
    assert "pipo start ending" in refused.stderr, refused
    said(stack, "dlq", "purge", "ending", first)
    wait_for(lambda: stack.get("/api/pipelines/ending")["state"] == "stopped")
    assert queue(stack, "ending") == [second]
    said(stack, "start", "ending")


@pytest.mark.seed("O005", "O033")
def test_what_a_replay_writes_again_stands_once(stack: Stack) -> None:
    replaced = dead(stack, "replaced", {"name": "a", "n": 1})
    appended = dead(stack, "appended", {"n": 1})
    folder = stack.workspace / "out"
    text = (folder / "a.json").read_text()
    (stack.workspace / "seen").mkdir(exist_ok=True)
    for name, id in (("replaced", replaced), ("appended", appended)):
        (stack.workspace / "seen" / name).touch()
        said(stack, "dlq", "replay", name, id)
        assert settled(stack, name, id)["state"] == "delivered"
    assert (folder / "a.json").read_text() == text
    assert [record["packet_id"] for record in lines(folder / "appended.jsonl")] == [appended]
    assert {path.name for path in folder.iterdir() if not path.name.startswith(".pipo")} == {
        "a.json",
        "appended.jsonl",
    }


@pytest.mark.seed("O022")
def test_a_new_field_is_written_once_there_is_a_column(stack: Stack) -> None:
    assert outcome(stack, "altered", {"n": 1})["state"] == "delivered"
    defined = rows(stack, "altered", "SELECT sql FROM sqlite_schema WHERE name = 't'")
    id = dead(stack, "altered", {"n": 2, "more": "x"})
    assert rows(stack, "altered", "SELECT sql FROM sqlite_schema WHERE name = 't'") == defined
    run_sql(stack.workspace / "data/altered.db", "ALTER TABLE t ADD COLUMN more")
    said(stack, "dlq", "replay", "altered", id)
    assert settled(stack, "altered", id)["state"] == "delivered"
    assert rows(stack, "altered", "SELECT n, more FROM t ORDER BY n") == [[1, None], [2, "x"]]


# ── purge ────────────────────────────────────────────────────────────────────


def journaled(stack: Stack, name: str, sql: str) -> Any:
    return query(Path(journal_of(stack.home, name)), sql)


@pytest.mark.seed("R027", "R028")
def test_a_purge_leaves_one_record_and_touches_nothing_else(
    stack: Stack, receiver: Receiver
) -> None:
    works(receiver, "purged")
    delivered = outcome(stack, "purged", {"n": 0})["packet_id"]
    receiver.script("/purged", lambda got: Reply(500) if got.json["way"] == "bad" else Reply())
    id, other = dead(stack, "purged", {"n": 1}), dead(stack, "purged", {"n": 2})
    tables = ("units", "events")
    kept = {
        table: f"SELECT * FROM {table} WHERE {column} NOT LIKE '{id}%' ORDER BY 1"
        for table, column in zip(tables, ("id", "unit"), strict=True)
    }
    before = {table: journaled(stack, "purged", sql) for table, sql in kept.items()}
    received_at = packet(stack, "purged", id)["received_at"]
    accepted = stack.stats("purged")["accepted"]
    refused = stack.pipo("dlq", "purge", "purged", id, delivered)
    assert (refused.returncode, "not dead_lettered" in refused.stderr) == (1, True)
    assert queue(stack, "purged") == [other, id]
    assert said(stack, "dlq", "purge", "purged", id, "--by", "Ada") == (
        f"purged 1 packet(s) from the dead-letter queue of purged\n  {id}\n"
    )
    trace = inspect(stack, "purged", id)
    assert trace["packet"] is None
    (record,) = trace["events"]
    assert record["type"] == "dlq.purged"
    detail = record["detail"]
    assert (detail["by"], detail["version"], detail["received_at"]) == ("Ada", 1, received_at)
    assert detail["error"]["code"] == "branch.dead_lettered"
    assert {table: journaled(stack, "purged", sql) for table, sql in kept.items()} == before
    assert journaled(stack, "purged", f"SELECT id FROM units WHERE id LIKE '{id}%'") == []
    left = journaled(stack, "purged", f"SELECT type FROM events WHERE unit LIKE '{id}%'")
    assert left == [["dlq.purged"]]
    assert (
        json.loads(stack.pipo("dlq", "purge", "purged", id, "--json").stdout)["code"] == "not_found"
    )
    told = json.loads(said(stack, "dlq", "purge", "purged", "--all", "--json"))
    assert (told["purged"], told["packet_ids"]) == (1, [other])
    assert said(stack, "dlq", "purge", "purged", "--all").startswith("purged 0 packet(s)")
    assert stack.stats("purged")["accepted"] == accepted
