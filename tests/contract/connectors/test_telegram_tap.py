"""The telegram tap: what the output does, for a packet that goes on (telegram-exec-agents §1)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Refused, RetryAfter, StepCall, WriteFailed
from pipo.connectors.telegram.tap import TelegramTap
from pipo.errors import InvalidState
from pipo.home import Home
from tests.contract.connectors.contract import context
from tests.receiver import Receiver, Reply

TOKEN = "123:s3cr3t-Bot"
PATH = f"/bot{TOKEN}/sendMessage"
SENT = Reply(200, json.dumps({"ok": True, "result": {"message_id": 77, "chat": {"id": 5}}}))


@pytest.fixture
def api() -> Iterator[Receiver]:
    with Receiver() as made:
        made.fallback = lambda got: SENT
        yield made


@pytest.fixture
async def tap(tmp_path: Path, api: Receiver) -> AsyncIterator[TelegramTap]:
    home = Home(tmp_path)
    bots = {"default": "main", "bots": {"main": {"token": TOKEN, "api": api.url}}}
    home.bots_file.write_text(json.dumps({"telegram": bots}))
    made = TelegramTap(context(tmp_path, home=home))
    await made.open()
    yield made
    await made.close()


def call(data: Any, /, *, trigger: str = "push", source: str = "cli", **settings: Any) -> StepCall:
    return StepCall("p1", "tell", data, {"trigger": trigger, "source": source}, settings)


async def test_a_message_goes_out_and_the_data_stays(tap: TelegramTap, api: Receiver) -> None:
    made = call({"n": 1}, chat_id=5, parse_mode="HTML")
    assert await tap.run(made) is None  # type: ignore[func-returns-value]
    assert api.at(PATH)[0].json == {"chat_id": 5, "parse_mode": "HTML", "text": '{"n":1}'}
    assert made.data == {"n": 1}


async def test_the_chat_of_its_origin_outlives_a_change_of_data(
    tap: TelegramTap, api: Receiver
) -> None:
    await tap.run(call({"replaced": True}, trigger="telegram", source="-100200", text="hi"))
    assert api.at(PATH)[0].json == {"chat_id": "-100200", "text": "hi"}
    with pytest.raises(Refused, match="no chat to go to"):
        await tap.run(call("x"))


async def test_a_short_pause_is_kept_and_the_fourth_is_the_policys(
    tap: TelegramTap, api: Receiver
) -> None:
    later = Reply(429, json.dumps({"ok": False, "parameters": {"retry_after": 0.05}}))
    api.script(PATH, later, later, later, SENT)
    await tap.run(call("hi", chat_id=5))
    api.script(PATH, *[later] * 4)
    with pytest.raises(RetryAfter, match="answered 429"):
        await tap.run(call("hi", chat_id=5))
    assert len(api.at(PATH)) == 8


async def test_a_refusal_fails_the_step_and_names_no_token(tap: TelegramTap, api: Receiver) -> None:
    api.script(PATH, Reply(400, json.dumps({"ok": False, "description": "chat not found"})))
    with pytest.raises(WriteFailed, match="answered 400: chat not found") as caught:
        await tap.run(call("hi", chat_id=5))
    assert "s3cr3t" not in caught.value.message


async def test_a_start_without_its_bot_is_refused(tap: TelegramTap) -> None:
    tap.require({"chat_id": 5})
    with pytest.raises(InvalidState, match="no bot 'other' is set up for the tap telegram"):
        tap.require({"bot": "other"})
