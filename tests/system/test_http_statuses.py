"""Every status of the manual's table of answers, each met once through the gateway and once directly.

The rows of docs/language.md are the cases: a row without one fails, and so does a case without a row.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packets import packet, running
from tests.stack import Stack, free_ports, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MANUAL = Path(__file__).parents[2] / "docs/language.md"
ROW = re.compile(r"^\| (\d{3}) \| (.+?) \|", re.M)

DOOR = """\
inputs:
  plain: {{ via: http, with: {{ path: /plain, listen: {port} }} }}
  put: {{ via: http, with: {{ path: /plain, method: PUT, listen: {port} }} }}
  hook: {{ via: http, format: text, with: {{ path: /hook, method: GET, listen: {port} }} }}
  ruled:
    via: http
    with: {{ path: /ruled, listen: {port} }}
    validate: ["data.age >= 18"]
  own:
    via: http
    with: {{ path: /own, listen: {port} }}
    validate: ["data.age >= 18"]
    on_invalid: {{ respond: 409, message: "too young at ${{data.age}}" }}
  token:
    via: http
    with: {{ path: /token, listen: {port}, auth: {{ header: X-Token, equals: geheim }} }}
  waits:
    via: http
    with: {{ path: /waits, listen: {port}, respond: delivered, timeout: 20s }}
  short:
    via: http
    with: {{ path: /short, listen: {port}, respond: delivered, timeout: 100ms }}
  sheet: {{ via: http, format: csv, with: {{ path: /sheet, listen: {port} }} }}
nodes:
  kept: {{ from: [plain, put, hook, ruled, own, token, waits, short, sheet], filter: "data != 'out' && data.out != true" }}
  parted: {{ from: kept, route: {{ slow: "data.slow == true", rest: else }} }}
  wait:
    from: parted.slow
    transform: map
    with: {{ data: "${{lower(data)}}" }}
    on_error: {{ retry: 1, delay: 1s }}
output:
  from: [parted.rest, wait]
  to: file
  with: {{ path: "./out/${{data.at}}.jsonl" }}
"""
FULL = """\
buffer: {{ max: 1 }}
input: {{ via: http, with: {{ path: /full, listen: {port} }} }}
output: {{ from: input, to: file, with: {{ path: ./full.jsonl }} }}
"""
PUSHED = "input: { via: push }\noutput: { from: input, to: stdout }\n"
LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    first = free_ports(2)
    return first, first + 1


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, ports: tuple[int, int]) -> Iterator[Stack]:
    pipelines = {
        "door": DOOR.format(port=ports[0]),
        "full": FULL.format(port=ports[1]),
        "pushed": PUSHED,
    }
    config = f"engine: {{ packet_limit: {LIMIT // 1024}KiB }}\n"
    with running(tmp_path_factory.mktemp("statuses"), pipelines, config=config) as made:
        yield made


Answer = tuple[int, dict[str, str], Any]
Ask = Callable[..., Answer]


def asked(base: str) -> Ask:
    """Asks below a URL; the answer with its JSON, which ends its line."""

    def ask(
        path: str, body: bytes | None = b'{"at": "a"}', method: str = "POST", **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        host, _, prefix = base.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request(method, f"/{prefix}{path}" if prefix else path, body, named)
        answer = connection.getresponse()
        status, found, said = answer.status, dict(answer.headers), answer.read()
        connection.close()
        assert found["Content-Type"] == "application/json"
        assert said.endswith(b"}\n")
        return status, found, json.loads(said)

    return ask


def accepted(ask: Ask) -> None:
    for path, method, headers in (
        ("/plain", "POST", {}),
        ("/plain/?x=1", "PUT", {}),
        ("/token", "POST", {"X_Token": "geheim"}),
    ):
        status, _, said = ask(path, method=method, **headers)
        assert (status, said["state"]) == (202, "accepted")
    assert ask("/hook", None, "GET")[0] == 202
    status, _, said = ask("/sheet", b"at\na\nb\n")
    assert (status, [one["state"] for one in said["packets"]]) == (202, ["accepted"] * 2)


def ended_well(ask: Ask) -> None:
    for body, state in ((b'{"at": "a"}', "delivered"), (b'{"out": true}', "filtered")):
        status, _, said = ask("/waits", body)
        assert (status, said["state"]) == (200, state)


def still_on_its_way(ask: Ask) -> None:
    status, _, said = ask("/short", b'{"slow": true}')
    assert (status, set(said), said["state"]) == (202, {"packet_id", "state"}, "accepted")


def dead(ask: Ask) -> None:
    status, _, said = ask("/waits", b'{"at": null}')
    assert (status, said["state"]) == (502, "dead_lettered")
    assert "data.at" in said["error"]


def breaks_a_rule(ask: Ask) -> None:
    status, _, said = ask("/ruled", b'{"age": 3}')
    assert (status, said["state"], said["rule"]) == (422, "rejected", "data.age >= 18")
    status, _, said = ask("/own", b'{"age": 3}')
    assert (status, said["error"]) == (409, "too young at 3")


def unreadable(ask: Ask) -> None:
    for path, body in (("/plain", b'{"at": '), ("/sheet", b"at\na,b\n"), ("/sheet", b"a\0\n")):
        status, _, said = ask(path, body)
        assert (status, set(said)) == (400, {"error", "hint"})


def unknown_sender(ask: Ask) -> None:
    for headers in ({}, {"X_Token": "Geheim"}, {"X_Token": "geheim1"}):
        status, _, said = ask("/token", **headers)
        assert (status, said["hint"]) == (401, "send it in the header X-Token")


def no_such_path(ask: Ask) -> None:
    status, _, said = ask("/plain/more")
    assert status == 404
    assert "PUT /plain" in said["hint"]


def other_methods(ask: Ask) -> None:
    status, headers, _ = ask("/plain", None, "DELETE")
    assert (status, headers["Allow"]) == (405, "POST, PUT")


def too_large(ask: Ask) -> None:
    whole = b'"' + b"x" * (LIMIT - 2) + b'"'
    assert ask("/plain", whole)[0] == 202
    status, _, said = ask("/plain", whole + b" ")
    assert (status, "packet_limit" in said["hint"]) == (413, True)


CASES: dict[tuple[str, str], Callable[[Ask], None] | None] = {
    ("202", "the packet is on disk"): accepted,
    ("200", "with `respond: delivered`, it was delivered or filtered"): ended_well,
    ("202", "with `respond: delivered`, it is still on its way after `timeout`"): still_on_its_way,
    ("502", "with `respond: delivered`, it is a dead letter"): dead,
    ("422", "it breaks a rule; `on_invalid.respond` sets another status"): breaks_a_rule,
    ("400", "the body cannot be read as `format` says"): unreadable,
    ("401", "the header or the signature is wrong"): unknown_sender,
    ("404", "there is no such pipeline or path"): no_such_path,
    ("405", "the path takes other methods; `Allow` lists them"): other_methods,
    ("413", "the body is over `engine.packet_limit`"): too_large,
    # These need pipelines of their own; the tests of that name are below.
    ("503", "the buffer is full, or the pipeline does not run; `Retry-After` says when to come again"): None,
    ("502", "the pipeline ended before it answered: the packet may have been accepted"): None,
}  # fmt: skip


def test_every_row_has_its_case() -> None:
    assert list(CASES) == [tuple(row) for row in ROW.findall(MANUAL.read_text())]


@pytest.mark.parametrize("door", ["the gateway", "a port of its own"])
@pytest.mark.parametrize("case", [c for c in CASES.values() if c], ids=lambda case: case.__name__)
def test_a_row(
    stack: Stack, ports: tuple[int, int], case: Callable[[Ask], None], door: str
) -> None:
    base = stack.url("/in/door") if door == "the gateway" else f"http://127.0.0.1:{ports[0]}"
    case(asked(base))


def test_what_is_refused_leaves_nothing(stack: Stack) -> None:
    """23: no 400, 401, 404, 405 or 413 is journaled, and a GET without a body is a packet."""
    ask = asked(stack.url("/in/door"))
    before = stack.stats("door")
    for refused in (unreadable, unknown_sender, no_such_path, other_methods):
        refused(ask)
    after = stack.stats("door")
    assert (after["accepted"], after["rejected"]) == (before["accepted"], before["rejected"])
    _, _, said = ask("/hook", None, "GET")
    found = packet(stack, "door", said["packet_id"])
    assert (found["data"], found["input"], found["source"]) == ("", "hook", "127.0.0.1")


def test_no_such_pipeline(stack: Stack) -> None:
    ask = asked(stack.url("/in"))
    for path, word in (("/nobody/x", "nobody"), ("/pushed/x", "no http input"), ("/", "address")):
        status, _, said = ask(path)
        assert status == 404
        assert word in f"{said['error']} {said['hint']}"


def test_no_room_and_not_running(stack: Stack, ports: tuple[int, int]) -> None:
    through, straight = (
        asked(stack.url("/in/full")),
        asked(f"http://127.0.0.1:{ports[1]}"),
    )
    assert stack.pipo("pause", "full").returncode == 0
    assert through("/full")[0] == 202
    for ask in (through, straight):
        status, headers, said = ask("/full")
        assert (status, headers["Retry-After"]) == (503, "5")
        assert said["error"] == "buffer full (1 packets pending)"
    assert stack.pipo("stop", "full", "--now").returncode == 0
    status, headers, _ = through("/full")
    assert (status, headers["Retry-After"]) == (503, "1")


def test_the_pipeline_goes_away(stack: Stack) -> None:
    """A request that was sent and has no answer: 502, and never sent again (edge 425)."""
    ask = asked(stack.url("/in/door"))
    before, answers = stack.stats("door")["accepted"], list[Answer]()
    waiting = threading.Thread(target=lambda: answers.append(ask("/waits", b'{"slow": true}')))
    waiting.start()
    wait_for(lambda: stack.stats("door").get("accepted") == before + 1)
    pid = stack.pipeline_pid("door")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    waiting.join(60)
    [(status, _, said)] = answers
    assert (status, "may have been accepted" in said["hint"]) == (502, True)
    wait_for(lambda: stack.stats("door").get("accepted") == before + 1, deadline_s=60)
    assert stack.settle("door")["accepted"] == before + 1
