"""What each format makes of a request and of a push (edges 88-99)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import packet, running
from tests.stack import Stack

pytestmark = pytest.mark.slow


def door(form: str, more: str = "") -> str:
    return (
        f"input: {{ via: http, format: {form}, with: {{ path: /x }}{more} }}\n"
        "output: { from: input, to: stdout }\n"
    )


FORMATS = ("json", "text", "csv", "form", "bytes")
PIPELINES = {
    **{form: door(form) for form in FORMATS},
    "ruled": door("csv", ", validate: [\"data.n != 'bad'\"]"),
    "typed": door(
        "json", ", schema: ./whole.json, validate: ['data > 0'], on_invalid: { respond: 409 }"
    ),
    "typed-rows": door("csv", ", schema: ./row.json"),
    "small": "buffer: { max: 2 }\nconcurrency: 1\n"
    "input: { via: http, format: csv, with: { path: /x } }\nnodes:\n"
    "  work: { from: input, transform: map, with: { data: '${lower(data)}' }, on_error: { retry: 1, delay: 2s } }\n"
    "output: { from: work, to: stdout }\n",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("formats")
    (folder / "workspace").mkdir()
    (folder / "workspace/whole.json").write_text('{"type": "integer"}')
    (folder / "workspace/row.json").write_text('{"properties": {"n": {"pattern": "^[0-9]+$"}}}')
    with running(folder, PIPELINES) as made:
        yield made


def post(stack: Stack, name: str, body: bytes, content_type: str = "") -> tuple[int, Any]:
    status, _, answer = stack.request(
        f"/in/{name}/x", body, headers={"content-type": content_type} if content_type else {}
    )
    return status, json.loads(answer)


def data_of(stack: Stack, name: str, body: bytes, content_type: str = "") -> list[Any]:
    status, said = post(stack, name, body, content_type)
    assert status == 202, said
    ids = [one["packet_id"] for one in said.get("packets", [said])]
    return [packet(stack, name, id)["data"] for id in ids]


@pytest.mark.parametrize(
    "body", ["null", "true", "7", '"x"', "[]", "{}", "-0.5e3", "[1,[2,[3]]]", '"\\u0000"']
)
def test_json_is_any_value(stack: Stack, body: str) -> None:
    assert data_of(stack, "json", body.encode()) == [json.loads(body)]


@pytest.mark.parametrize("body", ["", "x", "{not json", "a\r\nb\n", "né\0"], ids=repr)
def test_text_is_any_body(stack: Stack, body: str) -> None:
    assert data_of(stack, "text", body.encode()) == [body]


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("a,b\n1,2\n", [{"a": "1", "b": "2"}]),
        ("a,b\r1,2\r3,4", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ('a,b\n"x\ny","say ""hi"""\n\n\n', [{"a": "x\ny", "b": 'say "hi"'}]),
        ("\ufeffa\n\n7\n", [{"a": "7"}]),
        ('a,b\n,""\n', [{"a": "", "b": ""}]),
    ],
    ids=["LF", "CR", "quotes", "BOM", "empty"],
)
def test_csv_dialects(stack: Stack, body: str, rows: list[Any]) -> None:
    assert data_of(stack, "csv", body.encode(), "text/csv") == rows
    status, said = post(stack, "csv", body.encode(), "text/csv")
    assert (status, len(said["packets"])) == (202, len(rows))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"a,b\n",
        b"a,a\n1,2\n",
        b"a,\n1,2\n",
        b"a\n1,2\n",
        b'a\n"x\n',
        b'a\nx"y\n',
        b"a\n1\n2,3\n",
    ],
    ids=repr,
)
def test_csv_that_is_none(stack: Stack, body: bytes) -> None:
    before = stack.stats("csv")["accepted"]
    status, said = post(stack, "csv", body, "text/csv")
    assert status == 400, said
    assert said["error"]
    assert said["hint"]
    assert stack.stats("csv")["accepted"] == before


def test_csv_some_rejected(stack: Stack) -> None:
    """94, and 28: accepted ones decide the status only where none was rejected."""
    status, said = post(stack, "ruled", b"n\nok\nbad\nfine\n", "text/csv")
    assert status == 422
    assert [one["state"] for one in said["packets"]] == ["accepted", "rejected", "accepted"]
    stack.settle("ruled")
    assert stack.stats("ruled")["delivered"] == 2


def test_csv_into_a_full_buffer(stack: Stack) -> None:
    """91-93: records after the first that finds no room are not tried."""
    status, headers, answer = stack.request("/in/small/x", b"n\n1\n2\n3\n4\n")
    said = json.loads(answer)
    assert (status, headers["Retry-After"]) == (503, "5")
    assert [one["state"] for one in said["packets"]] == ["accepted", "accepted"]
    assert "buffer full (2 packets pending)" in said["error"]
    status, _, answer = stack.request("/in/small/x", b"n\n5\n")
    assert (status, "packets" in json.loads(answer)) == (503, False)
    assert stack.stats("small")["accepted"] == 2


def test_bytes_are_kept(stack: Stack) -> None:
    raw = bytes(range(256))
    [data] = data_of(stack, "bytes", raw, "image/png")
    assert (base64.b64decode(data["base64"]), data["content_type"], data["size"]) == (
        raw,
        "image/png",
        256,
    )


@pytest.mark.parametrize(
    ("form", "sent", "data"),
    [
        ("csv", "a,b\n1,2\n", {"a": "1", "b": "2"}),
        ("form", "a=1&a=2&b=x", {"a": ["1", "2"], "b": "x"}),
        ("text", "plain", "plain"),
        ("json", '{"a": 1}', '{"a": 1}'),
        ("csv", {"a": 1}, {"a": 1}),
        ("text", [1], [1]),
    ],
)
def test_a_pushed_text_is_parsed_like_a_body(stack: Stack, form: str, sent: Any, data: Any) -> None:
    """99: with `json`, or for a value already structured, nothing is left to parse."""
    done = stack.pipo("push", form, "--data", json.dumps(sent), "--json")
    assert done.returncode == 0, done.stderr
    assert packet(stack, form, json.loads(done.stdout)["packet_id"])["data"] == data


def test_a_pushed_csv_holds_one_record(stack: Stack) -> None:
    for text in ("a\n1\n2\n", "a\n"):
        done = stack.pipo("push", "csv", "--data", json.dumps(text))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr


def test_what_a_schema_refuses_is_answered_and_kept(stack: Stack) -> None:
    """The status is `on_invalid.respond` of a schema's refusal as of a rule's (edges 7 and 28)."""
    status, said = post(stack, "typed", b'"7"')
    assert (status, said["state"], said["rule"]) == (409, "rejected", "schema")
    assert said["error"] == 'schema: data: "7" is not of type "integer"'
    kept = packet(stack, "typed", said["packet_id"])
    assert (kept["state"], kept["data"], kept["error"]["code"]) == ("rejected", "7", "input.schema")
    status, said = post(stack, "typed", b"-7")
    assert (status, said["rule"]) == (409, "data > 0")
    assert post(stack, "typed", b"7")[0] == 202


def test_rows_are_judged_one_by_one(stack: Stack) -> None:
    status, said = post(stack, "typed-rows", b"n\n1\nx\n3\n")
    assert status == 422
    assert [one["state"] for one in said["packets"]] == ["accepted", "rejected", "accepted"]
    assert said["packets"][1]["error"] == 'schema: data.n: "x" does not match "^[0-9]+$"'
