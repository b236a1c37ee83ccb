"""R08: half a surrogate pair is refused at the door, or passes every store; nothing is poisoned."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.packets import running, settled
from tests.receiver import Receiver
from tests.stack import Stack, lines, query, wait_for

pytestmark = pytest.mark.slow

HEAD = """\
input: { via: http, with: { path: /s } }
nodes:
  tell: { from: input, tap: log, with: { message: "name ${data.name}" } }
"""
TO = {
    "line": "to: file, with: { path: ./out/s.jsonl }",
    "row": 'to: sqlite, with: { path: ./s.db, table: t, create: true, columns: { packet_id: "${meta.packet_id}", data: "${data}" } }',
    "path": 'to: file, with: { path: "./out/${data.name}.jsonl" }',
    "print": "to: stdout, with: { format: text }",
    "send": 'to: http, with: { url: "http://127.0.0.1:PORT/x" }',
}
HALF = r'{"name":"hi \ud83d","n":1}'


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    pipelines = {
        name: f"{HEAD}output: {{ from: tell, {to.replace('PORT', str(receiver.port))} }}\n"
        for name, to in TO.items()
    }
    folder = tmp_path_factory.mktemp("surrogate")
    with running(folder, pipelines, env={"LC_ALL": "C", "LANG": "C"}) as made:
        yield made


@pytest.mark.parametrize("name", TO)
def test_each_store_in_turn(stack: Stack, name: str) -> None:
    door, pid = f"/in/{name}/s", stack.pipeline_pid(name)
    for body in (HALF.encode(), b'{"name":"\xed\xa0\xbd","n":4}'):
        status, _, answer = stack.request(door, body)
        assert status == 400
        assert json.loads(answer)["error"]
    ends = {}
    for n, body in (
        (2, rb'{"name":"ok \ud83d\ude00","n":2}'),
        (3, rb'{"na\u0000me":"nul in a key","name":"three","n":3}'),
        (5, b'{"name":"five","n":5}'),
    ):
        status, _, answer = stack.request(door, body)
        assert status == 202, answer
        ends[n] = settled(stack, name, json.loads(answer)["packet_id"])
    assert [end["state"] for end in ends.values()] == ["delivered"] * 3, ends
    assert ends[2]["data"]["name"] == "ok \U0001f600"
    assert ends[3]["data"] == {"na\0me": "nul in a key", "name": "three", "n": 3}
    assert stack.pipeline_pid(name) == pid
    for words in (("packets", name), ("inspect", name, ends[2]["packet_id"]), ("logs", name)):
        shown = stack.pipo(*words)
        assert (shown.returncode, shown.stderr) == (0, "")
    assert stack.request("/metrics", method="GET")[0] == 200
    assert stack.get(f"/api/pipelines/{name}/events")["events"]


def test_what_was_stored(stack: Stack, receiver: Receiver) -> None:
    names = {}
    for name in TO:
        stack.settle(name)
    out = stack.workspace / "out"
    names["line"] = [line["data"]["name"] for line in lines(out / "s.jsonl")]
    found = query(stack.workspace / "s.db", "SELECT data FROM t ORDER BY packet_id")
    names["row"] = [json.loads(row[0])["name"] for row in found]
    names["path"] = sorted(path.stem for path in out.glob("*.jsonl") if path.stem != "s")
    names["send"] = [json.loads(body)["name"] for _, body in sorted(receiver.kept.items())]
    assert names["send"] == names["line"]
    assert names["line"] == names["row"] == ["ok \U0001f600", "three", "five"]
    assert names["path"] == sorted(names["line"])


@pytest.mark.parametrize("name", TO)
def test_a_pushed_half_pair_is_refused_too(stack: Stack, name: str) -> None:
    accepted = stack.stats(name)["accepted"]
    done = stack.pipo("push", name, "--data", HALF)
    assert (done.returncode, done.stdout) == (1, "")
    assert "surrogate" in done.stderr
    assert "Traceback" not in done.stderr
    status, _, _ = stack.request(f"/api/pipelines/{name}/push", f'{{"data": {HALF}}}'.encode())
    assert status == 400
    wait_for(lambda: stack.stats(name)["accepted"] == accepted)
