"""The telegram input with a telegram output, against a real stack and a stub of the Bot API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bot_api import BotApi, text_message
from tests.packets import running
from tests.stack import Stack, wait_for

pytestmark = pytest.mark.slow

TOKEN = "123456:bot-token"
REPLY = """\
input: { via: telegram }
nodes:
  shouted: { from: input, transform: map, with: { data: { loud: "${upper(data.text)}!" } } }
output:
  from: shouted
  to: telegram
  with: { text: "${data.loud}" }
"""


@pytest.fixture(scope="module")
def api() -> Iterator[BotApi]:
    with BotApi(TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def stack(api: BotApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("replies")
    (folder / "home").mkdir()
    entry = {"token": TOKEN, "api": api.url, "allow": [5]}
    bots = {"telegram": {"default": "main", "bots": {"main": entry}}}
    (folder / "home/bots.json").write_text(json.dumps(bots))
    with running(folder, {"reply": REPLY}) as made:
        yield made


@pytest.mark.seed("O046")
def test_a_reply_goes_to_the_chat_that_its_packet_came_from(stack: Stack, api: BotApi) -> None:
    group = {"id": -100123, "type": "supergroup", "title": "Ops"}
    api.say(text_message("one", chat=5), text_message("two", chat=-100123) | {"chat": group})
    wait_for(lambda: stack.stats("reply").get("delivered") == 2)
    replies = [(sent["chat_id"], sent["text"]) for sent in api.sent()]
    assert sorted(replies) == [("-100123", "TWO!"), ("5", "ONE!")]
    found = stack.get("/api/pipelines/reply/packets")["packets"]
    said = [stack.get(f"/api/pipelines/reply/packets/{one['packet_id']}") for one in found]
    assert [(p["packet"]["trigger"], p["packet"]["source"]) for p in said] == [
        ("telegram", "-100123"),
        ("telegram", "5"),
    ]
