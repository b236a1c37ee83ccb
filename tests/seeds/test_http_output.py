"""The http output, against a real stack and a real receiver (outputs)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.packets import outcome, packet, push, running, settled
from tests.receiver import Receiver, Reply
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

SNIPPET = """\
secrets:
  crm_token: env:CRM_TOKEN
input: { via: push }
nodes: { enrich: { from: input, transform: map, with: { data: "${data}" } } }
output:
  from: enrich
  to: http
  with:
    method: POST
    url: https://crm.example.com/api/contacts
    headers:
      Authorization: "Bearer ${secrets.crm_token}"
    body:
      email: "${data.email}"
      name: "${data.name}"
      source: pipo
    success: [200, 201, 409]
  on_error:
    retry: 5
    backoff: exponential
    delay: 1s
"""
WRITE_ERRORS = """\
input: { via: push }
nodes: { enrich: { from: input, transform: map, with: { data: "${data}" } } }
output:
  from: enrich
  to: http
  with:
    url: https://api.example.com/items
  on_error:
    retry: 5
    backoff: exponential
    delay: 500ms
    max_delay: 1m
    then: dead_letter
    message: "Could not write ${meta.packet_id} after ${error.attempts} attempts: ${error.message}"
"""
WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)


def to_http(path: str, more: str = "", *, under: str = "", nodes: str = "") -> str:
    """Pushed packets become requests to a path of the receiver."""
    source = "last" if nodes else "input"
    return (
        f"input: {{ via: push }}\n{nodes}output:\n  from: {source}\n  to: http\n"
        f'  with: {{ url: "${{env.STUB}}{path}"{more} }}\n{under}'
    )


KEYED = ', headers: { idempotency-key: "${data.order_id}" }'
SEEN = 'delivered:\n  check: follow_up\n  with: { url: "${env.STUB}/seen?key=${meta.key}" }\n'
EARLIER = 'nodes: { last: { from: input, transform: map, with: { data: { order_id: "${data.order_id}", key: "${meta.key}" } } } }\n'
FANNED = """\
input: { via: push }
nodes:
  a: { from: input, transform: map, with: { data: { key: "${meta.key}" } } }
  b: { from: input, transform: map, with: { data: { key: "${meta.key}" } } }
output:
  from: [a, b]
  to: http
  with: { url: "${env.STUB}/fanned" }
  on_error: { retry: 1, delay: 100ms }
"""
PIPELINES = {
    "snippet": SNIPPET.replace("https://crm.example.com", "${env.STUB}"),
    "write-errors": WRITE_ERRORS.replace("https://api.example.com", "${env.STUB}"),
    "plain": to_http("/plain"),
    "hangs": to_http("/hangs"),
    "retried": to_http("/retried", under="  on_error: { retry: 2, delay: 100ms }\n"),
    "killed": to_http("/killed"),
    "keyed": to_http("/keyed", KEYED, under=SEEN, nodes=EARLIER),
    "fanned": FANNED,
    "refused": to_http("/refused", under="  on_error: { retry: 1, delay: 0s }\n"),
    "elsewhere": to_http("/elsewhere"),
    "nowhere": to_http("").replace("${env.STUB}", "${data.url}"),
    "counted": to_http(
        "/counted", under="delivered: { check: status, with: { success: [201] }, within: 500ms }\n"
    ),
    "busy": "concurrency: 4\n" + to_http("/busy"),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    receiver.script("/hangs", Reply(delay_s=60.0))
    receiver.script("/items", Reply(503, "closed for today"))
    environment = {"STUB": receiver.url, "CRM_TOKEN": "t0ken-of-the-crm"}
    folder = tmp_path_factory.mktemp("http")
    with running(
        folder, PIPELINES, env=environment, config="engine: { env_allow: [STUB] }\n"
    ) as made:
        made.hanging = push(made, "hangs", {"n": 1})  # type: ignore[attr-defined]
        made.failing = push(made, "write-errors", {"n": 1})  # type: ignore[attr-defined]
        yield made


@pytest.mark.seed("O034")
def test_the_snippet_sends_one_request_for_each_packet(stack: Stack, receiver: Receiver) -> None:
    (stack.workspace.parent / "snippet.pipo").write_text(f"pipo: 1\nname: crm\n{SNIPPET}")
    checked = stack.pipo("check", str(stack.workspace.parent / "snippet.pipo"))
    assert checked.returncode == 0, checked.stdout
    assert "error" not in checked.stdout
    for n, status in enumerate((200, 201, 409)):
        receiver.script("/api/contacts", Reply(status))
        data = {"email": f"{n}@x", "name": "Ada", "more": 1}
        assert outcome(stack, "snippet", data)["state"] == "delivered"
    got = receiver.at("/api/contacts")
    assert [one.method for one in got] == ["POST"] * 3
    assert [one.json for one in got] == [
        {"email": f"{n}@x", "name": "Ada", "source": "pipo"} for n in range(3)
    ]
    assert {tuple(one.all("Authorization")) for one in got} == {("Bearer t0ken-of-the-crm",)}
    assert {tuple(one.all("Content-Type")) for one in got} == {("application/json",)}


@pytest.mark.seed("O035")
def test_the_key_is_the_packets_id(stack: Stack, receiver: Receiver) -> None:
    ids = [push(stack, "plain", {"same": 1}) for _ in range(2)]
    for id in ids:
        assert settled(stack, "plain", id)["state"] == "delivered"
    assert sorted(receiver.keys("/plain")) == sorted(ids)


@pytest.mark.seed("O035", "O036", "O052")
def test_a_copys_key_names_its_branch(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/fanned", Reply(500), Reply(500), Reply(stores=True))
    end = outcome(stack, "fanned", {"n": 1})
    assert end["state"] == "delivered"
    keys = [f"{end['packet_id']}:{branch}" for branch in ("a", "b")]
    assert sorted(receiver.keys("/fanned")) == sorted(2 * keys)
    # A node sees the copy's own id.
    assert all(got.json == {"key": got.key} for got in receiver.at("/fanned"))


@pytest.mark.seed("O036")
def test_a_retry_sends_the_same_key(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/retried", Reply(500), Reply(drops="before"), Reply(stores=True))
    end = outcome(stack, "retried", {"n": 1})
    assert end["state"] == "delivered"
    assert receiver.keys("/retried") == [end["packet_id"]] * 3


@pytest.mark.seed("O036")
def test_a_write_repeated_after_a_kill_sends_the_same_key(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/killed", Reply(stores=True, delay_s=60.0), Reply(stores=True))
    before = receiver.effects
    id = push(stack, "killed", {"n": 1})
    wait_for(lambda: receiver.at("/killed"))
    pid = stack.pipeline_pid("killed")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert settled_again(stack, "killed", id)["state"] == "delivered"
    assert receiver.keys("/killed") == [id, id]
    assert receiver.effects == before + 1


def settled_again(stack: Stack, name: str, id: str) -> dict[str, Any]:
    """The packet's end, asked of a pipeline that is just being started anew."""

    def end() -> dict[str, Any] | None:
        try:
            found = packet(stack, name, id)
        except (OSError, ValueError):
            return None
        return found if found["state"] in ("delivered", "dead_lettered") else None

    return wait_for(end, deadline_s=30.0, what=f"{id} settles after the kill")


@pytest.mark.seed("O037", "O052")
def test_an_own_key_is_sent_and_is_what_meta_key_says(stack: Stack, receiver: Receiver) -> None:
    end = outcome(stack, "keyed", {"order_id": "order 7/a"})
    assert end["state"] == "delivered"
    (got,) = receiver.at("/keyed")
    assert got.all("Idempotency-Key") == ["order 7/a"]
    # An earlier node sees the unit's own id: the data may still change the key.
    assert got.json == {"order_id": "order 7/a", "key": end["packet_id"]}
    (looked,) = receiver.at("/seen")
    assert looked.target == "/seen?key=order%207/a"


def test_a_packet_without_its_own_key_is_not_sent_under_another(
    stack: Stack, receiver: Receiver
) -> None:
    before = len(receiver.at("/keyed"))
    end = outcome(stack, "keyed", {"other": 1})
    assert end["state"] == "dead_lettered"
    assert "the header idempotency-key renders to nothing" in end["error"]["message"]
    assert len(receiver.at("/keyed")) == before


@pytest.mark.seed("O038")
def test_a_refusal_is_a_write_error_with_the_start_of_the_body(
    stack: Stack, receiver: Receiver
) -> None:
    receiver.script("/refused", Reply(422, "no such e-mail: " + "x" * 5000))
    end = outcome(stack, "refused", {"n": 1})
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "output.failed")
    message = end["error"]["message"]
    assert message.startswith(f"POST {receiver.url}/refused answered 422: no such e-mail: xxx")
    assert len(message) < 300
    assert end["error"]["attempts"] == len(receiver.at("/refused")) == 2
    shown = stack.pipo("inspect", "refused", end["packet_id"]).stdout
    assert "answered 422: no such e-mail" in shown
    assert "2 attempts" in shown


@pytest.mark.seed("O039")
def test_a_request_times_out_after_30_s(stack: Stack, receiver: Receiver) -> None:
    id = stack.hanging  # type: ignore[attr-defined]
    end = settled(stack, "hangs", id, deadline_s=90.0)
    assert end["state"] == "dead_lettered"
    assert end["error"]["message"] == (
        f"POST {receiver.url}/hangs failed: no answer within 30 s (whether it was received is not known)"
    )
    assert 30_000 <= end["updated_at"] - end["received_at"] < 60_000


@pytest.mark.seed("O060")
def test_the_write_errors_of_the_seed(stack: Stack, receiver: Receiver) -> None:
    (stack.workspace.parent / "errors.pipo").write_text(f"pipo: 1\nname: errors\n{WRITE_ERRORS}")
    checked = stack.pipo("check", str(stack.workspace.parent / "errors.pipo"))
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.endswith("  ok\n")
    id = stack.failing  # type: ignore[attr-defined]
    end = settled(stack, "write-errors", id, deadline_s=60.0)
    answered = f"POST {receiver.url}/items answered 503: closed for today"
    message = f"Could not write {id} after 6 attempts: {answered}"
    assert (end["error"]["code"], end["error"]["message"]) == ("output.failed", message)
    told = stack.pipo("dlq", "write-errors").stdout
    assert "output.failed" in told
    assert message in told
    at = [got.at for got in receiver.at("/items")]
    waited = [later - earlier for earlier, later in pairwise(at)]
    assert len(waited) == len(WAITS_S)
    for seconds, wanted in zip(waited, WAITS_S, strict=True):
        assert wanted <= seconds < wanted + 0.4, waited


@pytest.mark.seed("O040", "D036", "D037")
def test_the_status_is_the_result_and_the_check_reads_it(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/counted", Reply(201))
    end = outcome(stack, "counted", {"n": 1})
    assert end["state"] == "delivered"
    said = stack.pipo("inspect", "counted", end["packet_id"], "--json").stdout
    assert json.loads(said)["packet"]["result"] == {"status": 201}
    receiver.script("/counted", Reply(200))
    end = outcome(stack, "counted", {"n": 2})
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified")
    assert "the write was answered 200, which does not count" in end["error"]["message"]
    assert len(receiver.at("/counted")) == 2


def test_redirects_are_told_and_not_followed(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/elsewhere", Reply(302, headers={"Location": "https://other.example/x"}))
    end = outcome(stack, "elsewhere", {"n": 1})
    assert end["state"] == "dead_lettered"
    assert "answered 302 (it redirects to https://other.example/x; name" in end["error"]["message"]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nowhere", "'nowhere' is no address that a request can go to"),
        ("http://h/\r\nX-Evil: 1", "holds a line break"),
        (None, "`url` renders to nothing"),
    ],
)
def test_a_packet_whose_url_is_none_fails_at_once(stack: Stack, url: Any, told: str) -> None:
    end = outcome(stack, "nowhere", {"url": url})
    assert (end["state"], end["error"]["attempts"]) == ("dead_lettered", 1)
    assert told in end["error"]["message"]


def test_as_many_requests_run_at_once_as_packets_may(stack: Stack, receiver: Receiver) -> None:
    """A slow one holds up the three others no more than it must."""
    receiver.script("/busy", Reply(delay_s=60.0), Reply(stores=True))
    slow = push(stack, "busy", {"n": 0})
    wait_for(lambda: receiver.at("/busy"))
    ids = [push(stack, "busy", {"n": n}) for n in range(1, 21)]
    for id in ids:
        assert settled(stack, "busy", id)["state"] == "delivered"
    assert packet(stack, "busy", slow)["state"] == "writing"
