"""The output block around any connector, against a real stack (outputs)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, outcome, push, running, settled
from tests.stack import Stack, lines, query

pytestmark = pytest.mark.slow

TEMPLATED = """\
secrets: { word: env:WORD }
input: { via: push }
output:
  from: input
  to: sqlite
  with:
    path: "./${env.WHO}-${data.part}.db"
    table: t
    create: true
    columns:
      packet_id: "${meta.packet_id}"
      from_data: "${data.n}"
      from_meta: "${meta.trigger}/${meta.pipeline}"
      from_env: "${env.WHO}"
      from_secrets: "${secrets.word}"
"""
TEMPLATED_FILE = """\
secrets: { word: env:WORD }
input: { via: push }
output: { from: input, to: file, with: { path: "./out/${env.WHO}-${secrets.word}/${data.n}-${meta.trigger}.jsonl" } }
"""
FAN_IN = """\
inputs:
  one: { via: push }
  two: { via: http, with: { path: /two } }
  three: { via: push }
nodes:
  shaped: { from: three, transform: map, with: { data: { n: "${data.n}" } } }
output: { from: [one, two, shaped], to: sqlite, with: { path: ./fan-in.db, table: t, create: true } }
"""
VALIDATED = """\
inputs:
  normalize: { via: push }
output:
  from: normalize
  to: sqlite
  with: { path: ./data/people.db, table: people, create: true }
  validate:
    - type(data.age) == "number"
    - len(data.name) <= 200
  on_invalid:
    then: dead_letter
    message: "Packet ${meta.packet_id} failed output rule '${error.rule}'; not written"
"""
RULES = """\
errors: { retry: 5, delay: 10ms, then: halt }
input: { via: push }
output:
  from: input
  to: sqlite
  with: { path: ./rules.db, table: t, create: true }
  validate:
    - data.n > 0
    - meta.trigger == "push" && meta.source != "evil"
    - env.WHO == "ada" || data.any
    - output.with.table == data.table
  on_error: { retry: 3, delay: 10ms, then: pause }
"""
FAILING = """\
errors:{errors}
input: {{ via: push }}
output:
  from: input
  to: sqlite
  with: {{ path: ./none/{name}.db, table: t }}
  on_error:{own}
"""


def failing(name: str, errors: str, own: str) -> str:
    return FAILING.format(name=name, errors=errors, own=own)


TAPPED = """\
input: { via: push }
nodes:
  tell: { from: input, tap: log, with: { level: warn, message: "saw ${data.word} of ${meta.packet_id}" } }
output: { from: tell, to: file, with: { path: ./out/tapped.jsonl } }
"""
MIXED = """\
inputs:
  hand: { via: push, validate: ['data.n != "reject"'] }
nodes:
  keep: { from: hand, filter: 'data.n != "filter"' }
output:
  from: keep
  to: sqlite
  with: { path: ./mixed.db, table: t, create: true }
  validate: ['data.n != "invalid"']
delivered:
  check: query
  with: { sql: "SELECT ? != 'unseen'", params: ["${data.n}"] }
  within: 300ms
"""
KEYED = """\
input: { via: push }
nodes:
  early: { from: input, transform: map, with: { data: { id: "${data.id}", early: "${meta.key}" } } }
output:
  from: early
  to: sqlite
  with:
    path: ./keyed.db
    table: t
    create: true
    key: id
    columns: { id: "${data.id}", early: "${data.early}", late: "${meta.key}" }
delivered:
  check: record_exists
  with: { where: { id: "${meta.key}", late: "${meta.key}" } }
  within: 1s
"""
BY_KEY = """\
input: { via: push }
output: { from: input, to: sqlite, with: { path: ./by-key.db, table: t, create: true } }
delivered:
  check: record_exists
  with:
    where: { packet_id: "${meta.key}" }
  within: 1s
"""

PIPELINES = {
    "templated": TEMPLATED,
    "templated-file": TEMPLATED_FILE,
    "fan-in": FAN_IN,
    "validated": VALIDATED,
    "rules": RULES,
    "falls-back": failing(
        "a", " { retry: 2, delay: 50ms, message: 'from errors' }", " { delay: 20ms }"
    ),
    "own-message": failing(
        "b", " { retry: 7, delay: 50ms, message: no }", " { retry: 1, message: own }"
    ),
    "seed-message": failing(
        "c",
        " {}",
        " { retry: 2, backoff: exponential, delay: 50ms, max_delay: 1m, then: dead_letter, message:"
        ' "Could not write ${meta.packet_id} after ${error.attempts} attempts: ${error.message}" }',
    ),
    "tapped": TAPPED,
    "mixed": MIXED,
    "keyed": KEYED,
    "by-key": BY_KEY,
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    environment = {"WHO": "ada", "WORD": "open-sesame"}
    config = "engine: { env_allow: [WHO] }\n"
    folder = tmp_path_factory.mktemp("block")
    with running(folder, PIPELINES, env=environment, config=config) as made:
        yield made


def rows(stack: Stack, name: str, sql: str) -> list[list[Any]]:
    return query(stack.workspace / f"{name}.db", sql)


def retries(stack: Stack, name: str, id: str) -> list[float]:
    """The waits before each further attempt at the output, in ms."""
    [step] = [s for s in inspect(stack, name, id)["steps"] if s["step"] == "$output"]
    return [float(retry["wait_ms"]) for retry in step["retries"]]


@pytest.mark.seed("O009")
def test_every_text_is_a_template(stack: Stack) -> None:
    end = outcome(stack, "templated", {"n": 7, "part": "x"})
    assert end["state"] == "delivered", end
    assert rows(stack, "ada-x", "SELECT * FROM t") == [
        [end["packet_id"], 7, "push/templated", "ada", "open-sesame"]
    ]
    assert outcome(stack, "templated-file", {"n": 7})["state"] == "delivered"
    path = stack.workspace / "out/ada-open-sesame/7-push.jsonl"
    assert [record["data"] for record in lines(path)] == [{"n": 7}]


@pytest.mark.seed("O011")
def test_packets_of_every_source_are_written_the_same_way(stack: Stack) -> None:
    ids = [push(stack, "fan-in", {"n": 1}, input="one")]
    status, _, _ = stack.request("/in/fan-in/two", b'{"n": 2}')
    assert status == 202
    ids.append(push(stack, "fan-in", {"n": 3}, input="three"))
    stack.settle("fan-in")
    found = rows(stack, "fan-in", "SELECT n, typeof(n), packet_id FROM t ORDER BY n")
    assert [row[:2] for row in found] == [[1, "integer"], [2, "integer"], [3, "integer"]]
    assert [found[0][2], found[2][2]] == ids
    assert stack.stats("fan-in")["delivered"] == 3


@pytest.mark.seed("O055")
def test_the_rules_of_the_seed(stack: Stack) -> None:
    good = outcome(stack, "validated", {"name": "Ada", "age": 36})
    assert good["state"] == "delivered"
    for data, rule in (
        ({"name": "Bo", "age": "36"}, 'type(data.age) == "number"'),
        ({"name": "x" * 201, "age": 1}, "len(data.name) <= 200"),
    ):
        bad = outcome(stack, "validated", data)
        assert (bad["state"], bad["error"]["code"]) == ("dead_lettered", "output.invalid")
        assert bad["error"]["rule"] == rule
        message = f"Packet {bad['packet_id']} failed output rule '{rule}'; not written"
        assert bad["error"]["message"] == message
        shown = stack.pipo("inspect", "validated", bad["packet_id"]).stdout
        assert f"error output.invalid: {message}" in shown
    found = query(stack.workspace / "data/people.db", "SELECT packet_id, name, age FROM people")
    assert found == [[good["packet_id"], "Ada", 36]]


@pytest.mark.seed("O054", "O056")
def test_each_rule_must_be_true_and_none_is_tried_twice(stack: Stack) -> None:
    good = outcome(stack, "rules", {"n": 1, "table": "t"})
    assert good["state"] == "delivered"
    bad = (
        ({"n": 0, "table": "t"}, "api", "data.n > 0"),
        ({"n": 1, "table": "t"}, "evil", "meta.trigger"),
        ({"n": 1, "table": "other"}, "api", "output.with.table"),
        ({"n": "x".join("ab"), "table": "t"}, "api", "data.n > 0"),
    )
    for data, source, rule in bad:
        end = settled(stack, "rules", push(stack, "rules", data, source=source))
        assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.invalid")
        assert end["error"]["rule"].startswith(rule)
        assert end["error"]["attempts"] == 1
        assert retries(stack, "rules", end["packet_id"]) == []
    assert rows(stack, "rules", "SELECT packet_id FROM t") == [[good["packet_id"]]]


@pytest.mark.seed("O059")
def test_on_error_falls_back_to_errors_field_by_field(stack: Stack) -> None:
    end = outcome(stack, "falls-back", {"n": 1})
    assert (end["error"]["code"], end["error"]["message"]) == ("output.failed", "from errors")
    assert retries(stack, "falls-back", end["packet_id"]) == [20, 20]
    end = outcome(stack, "own-message", {"n": 1})
    assert (end["error"]["attempts"], end["error"]["message"]) == (2, "own")
    assert retries(stack, "own-message", end["packet_id"]) == [50]


def test_the_message_of_the_seed_says_how_often_it_tried(stack: Stack) -> None:
    end = outcome(stack, "seed-message", {"n": 1})
    head = f"Could not write {end['packet_id']} after 3 attempts: "
    assert end["error"]["code"] == "output.failed"
    assert end["error"]["message"].startswith(head)
    assert len(end["error"]["message"]) > len(head)
    assert retries(stack, "seed-message", end["packet_id"]) == [50, 100]


@pytest.mark.seed("O080")
def test_a_tap_leaves_the_data_as_it_is(stack: Stack) -> None:
    data = {"word": "né", "deep": [1, {"a": None}], "big": 12345678901234567890}
    id = push(stack, "tapped", data)
    settled(stack, "tapped", id)
    records = lines(stack.workspace / "out/tapped.jsonl")
    assert [(record["packet_id"], record["data"]) for record in records] == [(id, data)]
    assert f"saw né of {id}" in stack.pipo("logs", "tapped").stdout
    steps = inspect(stack, "tapped", id)["steps"]
    assert [(step["step"], step["data"]) for step in steps][1] == ("tell", None)


@pytest.mark.seed("O002", "R006")
def test_only_what_passed_the_check_is_delivered(stack: Stack) -> None:
    for word in ("one", "filter", "invalid", "unseen", "two"):
        push(stack, "mixed", {"n": word})
    refused = stack.pipo("push", "mixed", "--data", '{"n": "reject"}')
    assert refused.returncode == 1
    stack.settle("mixed")
    stats = stack.pipo("status", "mixed", "--json").stdout
    assert stack.stats("mixed")["delivered"] == 2, stats
    found = stack.get("/api/pipelines/mixed/packets")["packets"]
    ends = sorted((p["state"], (p["error"] or {}).get("code", "")) for p in found)
    assert ends == [
        ("dead_lettered", "delivery.unverified"),
        ("dead_lettered", "output.invalid"),
        ("delivered", ""),
        ("delivered", ""),
        ("filtered", ""),
        ("rejected", "input.invalid"),
    ]
    dead = stack.pipo("packets", "mixed", "--state", "dead_lettered").stdout
    assert "output.invalid: " in dead
    assert "delivery.unverified: " in dead
    assert "2 of 2" in dead
    assert outcome(stack, "seed-message", {"n": 2})["state"] == "dead_lettered"


def test_an_explicit_key_is_known_at_the_output_and_later(stack: Stack) -> None:
    """O052 asks for an http header too."""
    end = outcome(stack, "keyed", {"id": "order-7"})
    assert end["state"] == "delivered", end
    assert rows(stack, "keyed", "SELECT id, early, late FROM t") == [
        ["order-7", end["packet_id"], "order-7"]
    ]


def test_a_check_by_the_key(stack: Stack) -> None:
    """O053 asks for fan-out copies too."""
    assert outcome(stack, "by-key", {"n": 1})["state"] == "delivered"
