"""Edges of intake, pushes, outputs and checks, on one stack; the numbers are the reference's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, outcome, packet, push, running, settled
from tests.stack import Stack, query

pytestmark = pytest.mark.slow

RULES = """\
inputs:
  web:
    via: http
    with: { path: /web/, auth: { header: X-Token, equals: "${env.WHO}" } }
    validate: ["len(data.n) > 0", "data.n != 'no'"]
    on_invalid: { respond: 409, message: "${error.rule} for ${data.n.x + lower(1)}" }
  hand:
    via: push
    validate: ["lower(data.n) == data.n"]
output: { from: [web, hand], to: stdout }
"""
TABLE = "input: {{ via: push }}\noutput: {{ from: input, to: sqlite, with: {{ path: ./{}.db, table: t{} }} }}\n"


def looks(check: str, settings: str) -> str:
    return (
        "input: { via: push }\noutput: { from: input, to: file, with: { path: ./out/looks.jsonl } }\n"
        f"delivered: {{ check: {check}, with: {{ {settings} }}, within: 300ms }}\n"
    )


PIPELINES = {
    "rules": RULES,
    "once": TABLE.format("once", ", create: true, key: id, columns: { id: '${data.id}' }"),
    "key-only": TABLE.format(
        "key-only", ", create: true, mode: upsert, key: id, columns: { id: '${data.id}' }"
    ),
    "strict": TABLE.format("strict", ""),
    "holes": TABLE.format("holes", ", create: true")
    + 'delivered: { check: record_exists, with: { where: { n: "${data.n}" } }, within: 300ms }\n',
    "no-sql": TABLE.format("no-sql", ", create: true")
    + 'delivered: { check: query, with: { sql: "${data.sql}" }, within: 300ms }\n',
    "exists": looks("file_exists", 'path: "./at/${data.at}"'),
    "line": looks("line_contains", 'path: "./at/lines", value: "${data.value}"'),
    "sum": looks("checksum", 'path: "./at/lines", sha256: "${data.sum}"'),
    "parent": "input: { via: push }\noutput: { from: input, to: file, with: { path: ./at/lines/x.jsonl } }\n",
    "broken-words": TABLE.format("none/broken", "").replace(
        " } }\n", " }, on_error: { message: 'no ${lower(7)}' } }\n"
    ),
    "filtering": (
        "input: { via: push }\nnodes:\n"
        "  keep: { from: input, filter: 'lower(data.n) == data.n', on_error: { retry: 5, delay: 1s } }\n"
        "output: { from: keep, to: stdout }\n"
    ),
}
BEFORE = {"strict.db": "CREATE TABLE t (packet_id PRIMARY KEY, n INTEGER NOT NULL CHECK (n > 0))"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("edges")
    at = folder / "workspace/at"
    (at / "folder").mkdir(parents=True)
    (at / "lines").write_text("alpha\r\nbeta\n")
    config = "engine: { env_allow: [WHO] }\n"
    with running(folder, PIPELINES, env={"WHO": "ada"}, config=config, before=BEFORE) as made:
        yield made


def web(
    stack: Stack, body: bytes, path: str = "/in/rules/web", **more: Any
) -> tuple[int, dict[str, Any]]:
    status, _, answer = stack.request(path, body, headers={"X-Token": "ada"}, **more)
    return status, json.loads(answer)


def test_the_order_of_a_request_s_gates(stack: Stack) -> None:
    """22-25, 27."""
    before = stack.stats("rules")
    for path, method, token, body, wanted in (
        ("/in/rules/none", "PUT", "", b"", 404),
        ("/in/rules/web", "PUT", "", b"", 405),
        ("/in/rules/web", "POST", "bob", b"{", 401),
        ("/in/rules/web", "POST", "ada", b"{", 400),
    ):
        status, headers, answer = stack.request(
            path, body, method=method, headers={"X-Token": token}
        )
        assert status == wanted
        said = json.loads(answer)
        assert said["error"]
        if status == 404:
            assert "POST /web" in said["hint"]
        if status == 405:
            assert headers["Allow"] == "POST"
        if status == 401:
            assert "X-Token" in said["hint"]
    assert stack.stats("rules")["rejected"] == before["rejected"]
    assert web(stack, b'{"n": "yes"}', "/in/rules/web/?n=1")[0] == 202


def test_a_rejection_is_journaled_with_its_rule(stack: Stack) -> None:
    """3, 7-10: the rule that cannot be evaluated counts as false, and so does a broken message."""
    for data, rule in (({"n": "no"}, "data.n != 'no'"), ({"n": 7}, "len(data.n) > 0")):
        status, said = web(stack, json.dumps(data).encode())
        assert (status, said["state"]) == (409, "rejected")
        found = inspect(stack, "rules", said["packet_id"])
        error = found["packet"]["error"]
        assert (error["code"], error["rule"], error["node"]) == ("input.invalid", rule, "web")
        assert "[" in error["message"]
        assert rule in error["message"]
        assert [event["type"] for event in found["events"]] == ["packet.rejected"]
    _, said = web(stack, b'{"n": 7}')
    assert "could not be evaluated" in packet(stack, "rules", said["packet_id"])["error"]["message"]


def test_each_input_has_its_own_rules(stack: Stack) -> None:
    """19, 82."""
    assert web(stack, b'{"n": "NO"}')[0] == 202
    refused = stack.pipo("push", "rules", "--data", '{"n": "NO"}')
    assert refused.returncode == 1
    assert "lower(data.n) == data.n" in refused.stderr
    assert packet(stack, "rules", push(stack, "rules", {"n": "no"}))["input"] == "hand"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["data"]),
        ({"data": 1, "source": 7}, ["source"]),
        ({"data": 1, "source": "x" * 201}, ["source", "200"]),
        ({"data": 1, "input": "nobody"}, ["nobody", "web", "hand"]),
        ({"data": 1, "colour": 1}, ["colour"]),
    ],
    ids=["no data", "a number", "201", "no such input", "unknown field"],
)
def test_a_push_that_is_wrong(stack: Stack, body: dict[str, Any], words: list[str]) -> None:
    """71, 80, 81."""
    status, _, answer = stack.request("/api/pipelines/rules/push", json.dumps(body).encode())
    said = json.loads(answer)
    assert (status, said["code"]) == (400, "bad_request")
    for word in words:
        assert word in f"{said['error']} {said['hint']}", said


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=-1", "after=1.5"])
def test_pages_of_events_have_bounds(stack: Stack, query: str) -> None:
    """77."""
    status, _, answer = stack.request(f"/api/pipelines/rules/events?{query}", method="GET")
    assert (status, json.loads(answer)["code"]) == (400, "bad_request")


def test_the_first_event_is_the_start(stack: Stack) -> None:
    """78; an empty page echoes where it began (77)."""
    first = stack.get("/api/pipelines/once/events?limit=1")["events"][0]
    assert (first["seq"], first["type"]) == (1, "pipeline.started")
    assert first["detail"] == {"version": 1, "recovered": 0}
    page = stack.get("/api/pipelines/once/events?after=99999")
    assert (page["events"], page["last_seq"], page["more"]) == ([], 99999, False)


@pytest.mark.parametrize("name", ["once", "key-only"])
def test_a_second_write_of_a_key_changes_nothing(stack: Stack, name: str) -> None:
    """163, 164."""
    ends = [outcome(stack, name, {"id": "a"}) for _ in range(2)]
    assert [end["state"] for end in ends] == ["delivered"] * 2
    assert [end["result"]["changes"] for end in ends] == [1, 0]
    assert query(stack.workspace / f"{name}.db", "SELECT id FROM t") == [["a"]]


@pytest.mark.parametrize(("data", "word"), [({"n": None}, "NOT NULL"), ({"n": 0}, "CHECK")])
def test_a_constraint_of_the_table_is_a_write_error(stack: Stack, data: Any, word: str) -> None:
    """169."""
    error = outcome(stack, "strict", data)["error"]
    assert error["code"] == "output.failed"
    assert word in error["message"]


def test_null_matches_no_row(stack: Stack) -> None:
    """172."""
    assert outcome(stack, "holes", {"n": 1})["state"] == "delivered"
    assert outcome(stack, "holes", {"n": None})["error"]["code"] == "delivery.unverified"


@pytest.mark.parametrize("sql", ["", "   ", "SELECT nothing_like_it FROM t", "SELECT 1; SELECT 1"])
def test_sql_that_cannot_run_is_an_error(stack: Stack, sql: str) -> None:
    """174."""
    end = outcome(stack, "no-sql", {"sql": sql})
    assert end["error"]["code"] == "delivery.unverified"
    assert end["error"]["message"] != "query did not pass"


def test_what_a_file_check_cannot_take(stack: Stack) -> None:
    """189-191."""
    for name, data, word in (
        ("exists", {"at": "folder"}, "a folder"),
        ("line", {"value": ""}, "value"),
        ("sum", {"sum": "ab"}, "64 hex"),
        ("exists", {"at": "none"}, "does not exist"),
    ):
        error = outcome(stack, name, data)["error"]
        assert error["code"] == "delivery.unverified"
        assert word in error["message"], error
    assert outcome(stack, "line", {"value": "alpha"})["state"] == "delivered"


def test_a_parent_that_is_a_file(stack: Stack) -> None:
    """186."""
    error = outcome(stack, "parent", {"n": 1})["error"]
    assert error["code"] == "output.failed"
    assert "at/lines" in error["message"]
    assert (stack.workspace / "at/lines").read_bytes() == b"alpha\r\nbeta\n"


def test_a_broken_message_falls_back_to_the_plain_one(stack: Stack) -> None:
    """9, for the output."""
    message = outcome(stack, "broken-words", {"n": 1})["error"]["message"]
    assert "none/broken.db" in message
    assert "[the message template failed" in message


def test_a_filter_is_never_tried_again(stack: Stack) -> None:
    """100; 15: the row's attempt stays 0 while the error counts one."""
    id = push(stack, "filtering", {"n": 7})
    end = settled(stack, "filtering", id)
    assert (end["state"], end["error"]["attempts"], end["attempt"]) == ("dead_lettered", 1, 0)
