"""The telegram output, against a real stack and a stub of the Bot API (outputs)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packets import outcome, packet, push, running, settled
from tests.receiver import Got, Receiver, Reply
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

TOKEN = "123456:bot-token"
PIPELINES = {
    "tell": """\
input: { via: push }
output:
  from: input
  to: telegram
  with: { chat_id: "${data.chat}", text: "hello ${data.name}", parse_mode: HTML }
""",
    "killed": "input: { via: push }\noutput: { from: input, to: telegram, with: { bot: other, chat_id: 9 } }\n",
    "picture": 'input: { via: push }\noutput: { from: input, to: telegram, with: { chat_id: 9, photo: "./${data.file}" } }\n',
}


def sent(got: Got) -> Reply:
    answer = {"ok": True, "result": {"message_id": 77, "chat": {"id": -100}}}
    return Reply(200, json.dumps(answer))


def bots(url: str) -> str:
    entries = {name: {"token": f"{TOKEN}-{name}", "api": url} for name in ("main", "other")}
    return json.dumps({"telegram": {"default": "main", "bots": entries}})


@pytest.fixture(scope="module")
def api() -> Iterator[Receiver]:
    with Receiver() as made:
        made.fallback = sent
        yield made


@pytest.fixture(scope="module")
def stack(api: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("telegram")
    (folder / "home").mkdir()
    (folder / "home/bots.json").write_text(bots(api.url))
    with running(folder, PIPELINES) as made:
        (made.workspace / "cat.jpg").write_bytes(b"\xff\xd8 cat")
        yield made


@pytest.mark.seed("O045")
def test_a_message_and_its_result(stack: Stack, api: Receiver) -> None:
    end = outcome(stack, "tell", {"chat": -100, "name": "Ada"})
    assert end["state"] == "delivered"
    (got,) = api.at(f"/bot{TOKEN}-main/sendMessage")
    assert got.json == {"chat_id": -100, "text": "hello Ada", "parse_mode": "HTML"}
    said = stack.pipo("inspect", "tell", end["packet_id"], "--json").stdout
    assert json.loads(said)["packet"]["result"] == {"chat_id": -100, "message_id": 77}
    assert TOKEN not in said


def test_a_picture_beside_the_pipeline(stack: Stack, api: Receiver) -> None:
    assert outcome(stack, "picture", {"file": "cat.jpg"})["state"] == "delivered"
    (got,) = api.at(f"/bot{TOKEN}-main/sendPhoto")
    assert b"\xff\xd8 cat" in got.body
    for astray in ("../home/bots.json", "none.jpg"):
        assert outcome(stack, "picture", {"file": astray})["state"] == "dead_lettered"
    assert len(api.at(f"/bot{TOKEN}-main/sendPhoto")) == 1


@pytest.mark.seed("O047")
def test_a_kill_between_the_sending_and_its_commit_sends_again(stack: Stack, api: Receiver) -> None:
    path = f"/bot{TOKEN}-other/sendMessage"
    api.script(path, Reply(delay_s=60.0), sent)
    id = push(stack, "killed", "hi")
    wait_for(lambda: api.at(path))
    pid = stack.pipeline_pid("killed")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(api.at(path)) == 2)
    wait_for(lambda: stack.stats("killed").get("delivered") == 1)
    assert packet(stack, "killed", id)["state"] == "delivered"
    assert [got.json["text"] for got in api.at(path)] == ["hi", "hi"]
    assert settled(stack, "killed", id)["result"]["message_id"] == 77


def test_a_start_without_a_bot_is_refused(tmp_path: Path) -> None:
    made = Stack(tmp_path)
    path = made.write("t.pipo", f"pipo: 1\nname: t\n{PIPELINES['tell']}")
    done = made.pipo("run", "--listen", str(made.port), str(path), timeout_s=30.0)
    assert done.returncode == 1
    assert "no bot is set up for the output telegram" in done.stderr
    assert f"add one to {made.home}/bots.json" in done.stderr
