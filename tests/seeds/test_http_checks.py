"""The checks of the http output, against a real stack and a real receiver (delivery-checks)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packets import inspect, outcome, packet, push, running, settled
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

SNIPPET = """\
secrets:
  crm_token: env:CRM_TOKEN
input: { via: push }
output:
  from: input
  to: http
  with:
    url: https://crm.example.com/api/contacts
    headers: { Authorization: "Bearer ${secrets.crm_token}" }
delivered:
  check: follow_up
  with:
    url: "https://crm.example.com/api/contacts?email=${data.email}"
    headers: { Authorization: "Bearer ${secrets.crm_token}" }
    match: { email: "${data.email}" }
  within: 30s
"""


def checked(name: str, check: str) -> str:
    """Pushed packets become requests to `/<name>`; `check` is the inside of `delivered`."""
    return (
        "secrets: { word: env:WORD }\ninput: { via: push }\noutput:\n  from: input\n  to: http\n"
        f'  with: {{ url: "${{env.STUB}}/{name}", success: [200, 201, 409] }}\n'
        f"delivered: {{ {check} }}\n"
    )


def looks(name: str, settings: str = "", within: str = "600ms") -> str:
    url = f'url: "${{env.STUB}}/{name}/look"'
    return checked(name, f"check: follow_up, with: {{ {url}{settings} }}, within: {within}")


PIPELINES = {
    "snippet": SNIPPET.replace("https://crm.example.com", "${env.STUB}"),
    "strict": checked("strict", "check: status, with: { success: [201] }, within: 700ms"),
    "matched": looks("matched", ', match: { email: "${data.email}" }', "20s"),
    "differs": looks("differs", ', match: { email: "${data.email}" }'),
    "lacking": looks("lacking", ', match: { email: "${data.email}" }'),
    "hung": looks("hung", "", "20s"),
    "each": looks("each", "", "20s").replace("/each/look", "/each/look?n=${data.n}"),
    "later": looks("later", ", match: here", "10s"),
    "never": looks("never", ", match: here", "700ms"),
    "paced": looks("paced", "", "20s"),
    "proxied": looks("proxied", ', match: "${meta.key}"', "700ms"),
    "trusting": checked("trusting", "check: ack"),
    "gone": checked(
        "gone", 'check: follow_up, with: { url: "http://127.0.0.1:9/look" }, within: 700ms'
    ),
    "names": looks(
        "names",
        ', match: { env: "${env.WHO}", secret: "${secrets.word}",'
        ' output: "${output.to}", result: "${result.status}" }',
        "1s",
    ),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    environment = {
        "STUB": receiver.url,
        "CRM_TOKEN": "t0ken-of-the-crm",
        "WORD": "open-sesame",
        "WHO": "ada",
    }
    config = "engine: { env_allow: [STUB, WHO] }\n"
    folder = tmp_path_factory.mktemp("follow-ups")
    with running(folder, PIPELINES, env=environment, config=config) as made:
        yield made


def unverified(end: dict[str, Any]) -> str:
    """The message of a packet that its check did not pass."""
    assert (end["state"], end["error"]["code"]) == ("dead_lettered", "delivery.unverified"), end
    return str(end["error"]["message"])


@pytest.mark.seed("D037", "D036")
def test_a_status_that_is_written_and_not_delivered(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/strict", Reply(409))
    end = outcome(stack, "strict", {"n": 1})
    assert "409" in unverified(end)
    # One look at once and one at `within`, not before (edge 198).
    assert end["error"]["attempts"] <= 2
    assert end["updated_at"] - end["received_at"] >= 700
    receiver.script("/strict", Reply(201))
    assert outcome(stack, "strict", {"n": 2})["state"] == "delivered"
    assert len(receiver.at("/strict")) == 2


@pytest.mark.seed("D038")
def test_the_snippet_delivers(stack: Stack, receiver: Receiver) -> None:
    (stack.workspace.parent / "snippet.pipo").write_text(f"pipo: 1\nname: crm\n{SNIPPET}")
    done = stack.pipo("check", str(stack.workspace.parent / "snippet.pipo"))
    assert done.returncode == 0, done.stdout

    def contacts(got: Got) -> Reply:
        return Reply(201) if got.method == "POST" else Reply(200, '{"email":"a@x","id":1}')

    receiver.script("/api/contacts", contacts)
    assert outcome(stack, "snippet", {"email": "a@x"})["state"] == "delivered"
    write, look = receiver.at("/api/contacts")
    assert (write.method, write.json) == ("POST", {"email": "a@x"})
    assert (look.method, look.target) == ("GET", "/api/contacts?email=a@x")
    for got in (write, look):
        assert got.all("Authorization") == ["Bearer t0ken-of-the-crm"]


@pytest.mark.seed("D039")
def test_it_passes_once_the_answer_matches(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/matched/look", Reply(200, '{"email":"b@x"}'))
    id = push(stack, "matched", {"email": "a@x"})
    wait_for(lambda: len(receiver.at("/matched/look")) >= 3)
    assert packet(stack, "matched", id)["state"] == "verifying"
    receiver.script("/matched/look", Reply(200, '{"email":"a@x"}'))
    assert settled(stack, "matched", id)["state"] == "delivered"
    found = inspect(stack, "matched", id)
    assert f"{receiver.url}/matched/look" in str(found)
    receiver.script("/differs/look", Reply(200, '{"email":"b@x"}'))
    end = outcome(stack, "differs", {"email": "a@x"})
    assert 'email is "b@x", not "a@x"' in unverified(end)


def test_a_packet_without_the_field_matches_nothing(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/lacking/look", Reply(200, '{"email":"b@x"}'))
    assert 'email is "b@x", not null' in unverified(outcome(stack, "lacking", {"n": 1}))


@pytest.mark.seed("D040")
def test_each_look_times_out_after_5_s(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/hung/look", Reply(delay_s=60.0), Reply())
    end = outcome(stack, "hung", {"n": 1})
    assert end["state"] == "delivered"
    first, second = receiver.at("/hung/look")
    # The first one may be read late.
    assert 3.0 <= second.at - first.at < 30.0
    # Pipo's own clock knows when it began.
    receiver.script("/never/look", Reply(delay_s=60.0))
    end = outcome(stack, "never", {"n": 1})
    assert unverified(end) == f"GET {receiver.url}/never/look failed: no answer within 5 s"
    assert 5000 <= end["updated_at"] - end["received_at"] < 30_000


def test_a_slow_look_holds_up_no_other(stack: Stack, receiver: Receiver) -> None:
    receiver.script(
        "/each/look", lambda got: Reply(delay_s=60.0 if got.target.endswith("n=0") else 0.0)
    )
    slow = push(stack, "each", {"n": 0})
    wait_for(lambda: receiver.at("/each/look"))
    ids = [push(stack, "each", {"n": n}) for n in range(1, 31)]
    for id in ids:
        assert settled(stack, "each", id)["state"] == "delivered"
    assert packet(stack, "each", slow)["state"] == "verifying"


@pytest.mark.seed("D041")
def test_a_status_outside_success_is_not_yet(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/later/look", Reply(404), Reply(404, "here"), Reply(200, "it is here"))
    assert outcome(stack, "later", {"n": 1})["state"] == "delivered"
    assert len(receiver.at("/later/look")) == 3
    receiver.script("/never/look", Reply(404, "here"))
    message = unverified(outcome(stack, "never", {"n": 1}))
    assert f"GET {receiver.url}/never/look answered 404" in message


def test_a_pause_that_the_receiver_asks_for_is_kept(stack: Stack, receiver: Receiver) -> None:
    receiver.script("/paced/look", Reply(429, headers={"Retry-After": "2"}), Reply())
    assert outcome(stack, "paced", {"n": 1})["state"] == "delivered"
    first, second = receiver.at("/paced/look")
    assert second.at - first.at >= 2.0


@pytest.mark.seed("D076")
def test_a_proxy_that_answers_200_and_stores_nothing(stack: Stack, receiver: Receiver) -> None:
    """Pipo sees it where it looks, and only there."""
    for path in ("/proxied", "/trusting"):
        receiver.script(path, Reply(200))

    def stored(got: Got) -> Reply:
        return Reply(200, " ".join(receiver.kept))

    receiver.script("/proxied/look", stored)
    lost = outcome(stack, "proxied", {"n": 1})
    assert lost["packet_id"] in unverified(lost)
    assert outcome(stack, "trusting", {"n": 1})["state"] == "delivered"
    receiver.script("/proxied", Reply(200, stores=True))
    assert outcome(stack, "proxied", {"n": 2})["state"] == "delivered"


def test_an_unreachable_receiver_is_named(stack: Stack) -> None:
    message = unverified(outcome(stack, "gone", {"n": 1}))
    assert message == (
        "GET http://127.0.0.1:9/look failed: no connection: Connection refused; "
        "check that the receiver runs and the URL is right"
    )


@pytest.mark.seed("D010")
def test_the_variables_of_a_check(stack: Stack, receiver: Receiver) -> None:
    there = {"env": "ada", "secret": "open-sesame", "output": "http", "result": 201}
    receiver.script("/names", Reply(201))
    for wrong in there:
        body = {**there, wrong: "else"}
        receiver.script("/names/look", Reply(200, json.dumps(body)))
        assert f'{wrong} is "else"' in unverified(outcome(stack, "names", {"n": 1}))
    receiver.script("/names/look", Reply(200, json.dumps(there)))
    end = outcome(stack, "names", {"n": 2})
    assert end["state"] == "delivered"
    assert "open-sesame" not in str(inspect(stack, "names", end["packet_id"]))
