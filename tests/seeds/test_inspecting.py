"""Dead letters and the story that `pipo inspect` tells of them (recovering-packets)."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator

import pytest

from tests.packets import packet, push, running, settled
from tests.stack import Stack, query

pytestmark = pytest.mark.slow

SENDER = """\
input: { via: push }
nodes:
  shape: { from: input, transform: map, with: { data: { msg: "${data.msg}" } } }
output:
  from: shape
  to: sqlite
  with: { path: ./own.db, table: own }
  on_error: { retry: 1, delay: 100ms }
"""
CAUSES = {
    "retries": """\
input: { via: push }
nodes:
  low: { from: input, transform: map, with: { data: "${lower(data.n)}" }, on_error: { retry: 2, delay: 20ms } }
output: { from: low, to: stdout }
""",
    "rule": """\
input: { via: push }
output: { from: input, to: stdout, validate: ["data.n > 5"] }
""",
    "check": """\
input: { via: push }
output: { from: input, to: file, with: { path: ./out/check.jsonl } }
delivered: { check: line_contains, with: { value: never }, within: 3s }
""",
    # As printed, but for the port: nobody ever listens on this one.
    "unheard": """\
input: { via: push }
output:
  from: input
  to: http
  with: { url: "http://127.0.0.1:9/hook" }
  on_error: { retry: 1, delay: 100ms }
""",
}
FAILED_AT = {
    "retries": ("low", "node.failed", 3),
    "rule": ("output", "output.invalid", 1),
    "check": ("delivered", "delivery.unverified", 2),
    "unheard": ("output", "output.failed", 2),
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("inspect")
    pipelines = {"sender": SENDER, **CAUSES}
    with running(folder, pipelines, before={"own.db": "CREATE TABLE own (msg)"}) as made:
        yield made


def dead_letter(stack: Stack) -> str:
    done = stack.pipo("push", "sender", "--data", '{"msg": "yo", "more": 1}')
    assert done.returncode == 0
    id = done.stdout.split()[0]
    settled(stack, "sender", id)
    return id


CLOCK = r"(\d\d:\d\d:\d\d\.\d{3})"


@pytest.mark.seed("R011", "R012", "R013")
def test_the_story_of_a_dead_letter(stack: Stack) -> None:
    id = dead_letter(stack)
    error = packet(stack, "sender", id)["error"]["message"]
    head, received, blank, *steps = stack.pipo("inspect", "sender", id).stdout.splitlines()
    assert head == f"packet {id}  sender v1  dead_lettered"
    told = re.fullmatch(
        r"received (\S+) via push \(cli\), dead_lettered after ([\d.]+)(m?s)", received
    )
    assert told, received
    at = datetime.datetime.fromisoformat(told[1].replace("Z", "+00:00"))
    assert round(at.timestamp() * 1000) == packet(stack, "sender", id)["received_at"]
    assert told[1].endswith("Z")
    assert float(told[2]) * {"ms": 1, "s": 1000}[told[3]] >= 100
    assert blank == ""
    patterns = [
        rf"  {CLOCK}  input   accepted",
        r' {22}data \{"msg":"yo","more":1\}',
        rf"  {CLOCK}  shape   done            \+[\d.]+m?s",
        r' {22}data \{"msg":"yo"\}',
        rf"  {CLOCK}  output  dead-lettered   \+[\d.]+m?s  2 attempts",
        rf" {{22}}retry 1: {re.escape(error)} \(waited 100ms\)",
        rf" {{22}}error output\.failed: {re.escape(error)}",
    ]
    assert len(steps) == len(patterns), steps
    for line, pattern in zip(steps, patterns, strict=True):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", id)
    assert ulid_ms(id) == packet(stack, "sender", id)["received_at"]


def ulid_ms(id: str) -> int:
    """The time in the first ten characters of a ULID."""
    value = 0
    for character in id[:10]:
        value = value * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(character)
    return value


@pytest.mark.seed("R006")
@pytest.mark.parametrize("name", CAUSES)
def test_what_makes_a_dead_letter(stack: Stack, name: str) -> None:
    """A listing shows where it failed and the code, as `pipo dlq` will."""
    end = settled(stack, name, push(stack, name, {"n": 1}))
    node, code, attempts = FAILED_AT[name]
    assert end["state"] == "dead_lettered"
    assert (end["error"]["node"], end["error"]["code"]) == (node, code)
    if name == "check":
        assert end["error"]["attempts"] >= attempts
    else:
        assert end["error"]["attempts"] == attempts
    listed = stack.pipo("packets", name, "--state", "dead_lettered").stdout
    [line] = [line for line in listed.splitlines() if end["packet_id"] in line]
    assert f"{code}: " in line
    assert f"  {node}  " in line


@pytest.mark.seed("R009", "R013")
def test_a_refused_connection_reads_as_printed(stack: Stack) -> None:
    id = push(stack, "unheard", {"msg": "yo"})
    settled(stack, "unheard", id)
    failed = r"POST http://127\.0\.0\.1:9/hook failed: .*\bConnection refused\b.*"
    listed = stack.pipo("dlq", "unheard").stdout
    assert re.search(rf"^{id}  output +2  v1   \d+s ago +output\.failed: {failed}$", listed, re.M)
    story = stack.pipo("inspect", "unheard", id).stdout
    assert re.search(rf"^ +retry 1: {failed} \(waited 100ms\)$", story, re.M), story
    assert re.search(rf"^ +error output\.failed: {failed}$", story, re.M), story


def test_listings_page_without_gaps(stack: Stack) -> None:
    """R015 asks for `pipo dlq` too."""
    sent = [dead_letter(stack) for _ in range(3)]
    whole = stack.get("/api/pipelines/sender/packets")["packets"]
    paged, after = [], ""
    while True:
        words = ("--after", after) if after else ()
        page = stack.pipo("packets", "sender", "--limit", "2", *words, "--json")
        found = json.loads(page.stdout)
        paged += [one["packet_id"] for one in found["packets"]]
        after = found["next"]
        if not after:
            break
    assert paged == [one["packet_id"] for one in whole]
    assert set(sent) <= set(paged)


def test_nothing_of_a_dead_letter_is_written(stack: Stack) -> None:
    dead_letter(stack)
    assert query(stack.workspace / "own.db", "SELECT * FROM own") == []
