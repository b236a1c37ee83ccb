"""The telegram output against a stub of the Bot API (O045-O047, telegram-exec-agents §1)."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipo.connectors.contract import Refused, RetryAfter, WriteFailed, WriteUnit
from pipo.connectors.telegram.output import TelegramOutput
from pipo.errors import BadRequest, InvalidState
from pipo.home import Home
from tests.contract.connectors.contract import context
from tests.receiver import Got, Receiver, Reply
from tests.stack import wait_for

TOKEN = "123:s3cr3t-Bot"
OTHER = "456:s3cr3t-Other"


def sent(got: Got) -> Reply:
    """What the Bot API says of a message."""
    chat = got.json["chat_id"] if got.all("Content-Type") == ["application/json"] else 5
    return Reply(200, json.dumps({"ok": True, "result": {"message_id": 77, "chat": {"id": chat}}}))


@pytest.fixture
def api() -> Iterator[Receiver]:
    with Receiver() as made:
        for token in (TOKEN, OTHER):
            for method in ("sendMessage", "sendPhoto", "sendDocument"):
                made.script(f"/bot{token}/{method}", sent)
        yield made


class Sending:
    """One output in a home of its own; everything that was hidden and logged is kept."""

    def __init__(self, folder: Path, bots: Mapping[str, Any] | None) -> None:
        self.home = Home(folder)
        self.hidden: set[str] = set()
        if bots is not None:
            self.home.bots_file.write_text(json.dumps({"telegram": bots}))
        made = context(folder, home=self.home, hide=self.hidden.add, mask=self._mask)
        self.output = TelegramOutput(made)

    def _mask(self, text: str) -> str:
        for value in self.hidden:
            text = text.replace(value, "***")
        return text

    async def __call__(self, data: Any = "hello", **settings: Any) -> Any:
        made = WriteUnit("u", "u", data, {"chat_id": 5, **settings}, "first")
        return await self.unit(made)

    async def unit(self, made: WriteUnit) -> Any:
        await self.output.open({})
        (result,) = (await self.output.write([made], atomic=False)).results
        await self.output.close()
        return result


@pytest.fixture
def send(tmp_path: Path, api: Receiver) -> Sending:
    return Sending(
        tmp_path,
        {
            "default": "main",
            "bots": {
                "main": {"token": TOKEN, "api": api.url},
                "other": {"token": OTHER, "api": api.url},
            },
        },
    )


def text_of(result: Any) -> str:
    assert isinstance(result, (WriteFailed, RetryAfter, Refused)), result
    told = f"{result.message} ({result.hint})"
    assert "s3cr3t" not in told
    return told


async def test_a_message_and_its_result(send: Sending, api: Receiver) -> None:
    assert await send("hello", parse_mode="HTML") == {"chat_id": 5, "message_id": 77}
    (got,) = api.got
    assert (got.method, got.path) == ("POST", f"/bot{TOKEN}/sendMessage")
    assert got.json == {"chat_id": 5, "parse_mode": "HTML", "text": "hello"}
    assert TOKEN in send.hidden


@pytest.mark.parametrize(
    ("data", "settings", "text"),
    [
        ({"n": 1}, {}, '{"n":1}'),
        ("data", {"text": "text"}, "text"),
        ("x" * 5000, {}, "x" * 4096),
        ("ab" + "😀" * 3000, {}, "ab" + "😀" * 2047),
        ("a" + "😀" * 3000, {}, "a" + "😀" * 2047),
    ],
)
async def test_the_text_and_its_cut(
    send: Sending, api: Receiver, data: Any, settings: Any, text: str
) -> None:
    await send(data, **settings)
    assert api.got[0].json["text"] == text


@pytest.mark.seed("O046")
async def test_the_chat_is_the_one_the_packet_came_from(send: Sending, api: Receiver) -> None:
    made = WriteUnit("u", "u", "hi", {}, "first", trigger="telegram", source="-100200")
    assert await send.unit(made) == {"chat_id": "-100200", "message_id": 77}
    assert api.got[0].json["chat_id"] == "-100200"
    # One that the settings name goes before it.
    named = WriteUnit(
        "u", "u", "hi", {"chat_id": "@channel"}, "first", trigger="telegram", source="-100200"
    )
    await send.unit(named)
    assert api.got[1].json["chat_id"] == "@channel"
    elsewhere = WriteUnit("u", "u", "hi", {}, "first", trigger="push", source="-100200")
    assert "has no chat to go to" in text_of(await send.unit(elsewhere))
    assert "which is no chat" in text_of(await send(chat_id={"a": 1}))
    assert len(api.got) == 2


async def test_which_bot_sends(send: Sending, api: Receiver) -> None:
    for settings in ({}, {"bot": "other"}, {"token": OTHER}):
        assert "message_id" in await send(**settings)
    assert [got.path.split("/")[1] for got in api.got] == [
        f"bot{TOKEN}",
        f"bot{OTHER}",
        f"bot{OTHER}",
    ]
    assert {TOKEN, OTHER} <= send.hidden


@pytest.mark.parametrize("kind", ["photo", "document"])
async def test_a_local_file_is_uploaded(
    send: Sending, api: Receiver, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "cat é.jpg").write_bytes(b"\xff\xd8 cat")
    result = await send("caption " + "x" * 2000, **{kind: str(tmp_path / "cat é.jpg")})
    assert result == {"chat_id": 5, "message_id": 77}
    (got,) = api.got
    assert got.path.endswith(f"/send{kind.title()}")
    assert got.all("Content-Type")[0].startswith("multipart/form-data; boundary=")
    assert b'name="chat_id"' in got.body
    assert f'name="{kind}"; filename="'.encode() in got.body
    assert b"\xff\xd8 cat" in got.body
    assert b"caption " + b"x" * (1024 - 8) + b"\r\n" in got.body


async def test_an_address_is_passed_on(send: Sending, api: Receiver) -> None:
    await send("look", photo="https://h/cat.jpg")
    assert api.got[0].json == {"chat_id": 5, "caption": "look", "photo": "https://h/cat.jpg"}


def _folder(path: Path) -> None:
    path.mkdir()


def _large(path: Path) -> None:
    path.touch()
    os.truncate(path, 51 << 20)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "No such file"),
        (os.mkfifo, "is no regular file"),
        (_folder, "is no regular file"),
        (_large, "more than the 50 MiB"),
    ],
)
async def test_files_that_cannot_be_sent(
    send: Sending, api: Receiver, tmp_path: Path, make: Callable[[Path], Any], told: str
) -> None:
    make(tmp_path / "f")
    assert told in text_of(await send(document=str(tmp_path / "f")))
    assert "not both" in text_of(await send(document="f", photo="p"))
    assert api.got == []


async def test_a_short_pause_is_kept_within_the_attempt(send: Sending, api: Receiver) -> None:
    later = {"ok": False, "error_code": 429, "parameters": {"retry_after": 0.2}}
    api.script(f"/bot{TOKEN}/sendMessage", *[Reply(429, json.dumps(later))] * 3, sent)
    began = time.monotonic()
    assert await send() == {"chat_id": 5, "message_id": 77}
    assert len(api.got) == 4
    assert time.monotonic() - began >= 0.6
    api.script(f"/bot{TOKEN}/sendMessage", Reply(429, json.dumps(later)))
    result = await send()
    assert isinstance(result, RetryAfter)
    assert result.seconds == 0.2
    assert len(api.got) == 8


async def test_a_long_pause_is_the_policys(send: Sending, api: Receiver) -> None:
    later = {"ok": False, "description": "Too Many", "parameters": {"retry_after": 300}}
    api.script(f"/bot{TOKEN}/sendMessage", Reply(429, json.dumps(later)))
    result = await send()
    assert isinstance(result, RetryAfter)
    assert result.seconds == 300.0
    assert "sendMessage was answered 429: Too Many (it asks for a pause of 300 s)" in text_of(
        result
    )
    assert len(api.got) == 1


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            Reply(400, '{"ok":false,"description":"Bad Request: chat not found"}'),
            "sendMessage was answered 400: Bad Request: chat not found",
        ),
        (Reply(401, '{"ok":false,"description":"Unauthorized"}'), "check the bot's token"),
        (Reply(502, "<html>bad gateway"), "was answered 502: <html>bad gateway"),
        (Reply(200, "{}"), "was answered 200: no reason given"),
        (Reply(200, '{"ok":true,"result":true}'), "was answered 200"),
        (Reply(403, f'{{"ok":false,"description":"no {TOKEN}"}}'), "403: no ***"),
        (Reply(drops="before"), "the connection was closed without an answer"),
        (Reply(delay_s=60.0), "no answer within 0.5 s"),
        (Reply(302, headers={"Location": "/x"}), "was answered 302"),
    ],
)
async def test_what_else_is_answered(send: Sending, api: Receiver, reply: Reply, told: str) -> None:
    api.script(f"/bot{TOKEN}/sendMessage", reply)
    if reply.delay_s:
        send.output._sender._timeout_s = 0.5
    result = await send()
    assert told in text_of(result)
    assert isinstance(result, WriteFailed)


async def test_an_unreachable_api_names_no_token(tmp_path: Path) -> None:
    bots = {"default": "main", "bots": {"main": {"token": TOKEN, "api": "http://127.0.0.1:9"}}}
    told = text_of(await Sending(tmp_path, bots)())
    assert told.startswith(
        "sendMessage at http://127.0.0.1:9 failed: no connection: Connection refused"
    )


@pytest.mark.parametrize("bots", [None, {}, {"bots": {"other": {"token": OTHER}}}])
async def test_a_start_without_a_usable_bot_is_refused(tmp_path: Path, bots: Any) -> None:
    send = Sending(tmp_path, bots)
    await send.output.open({})
    with pytest.raises(InvalidState, match="no bot is set up for the output telegram") as caught:
        send.output.require({"chat_id": 5})
    assert f"add one to {tmp_path}/bots.json" in caught.value.hint
    with pytest.raises(InvalidState, match="no bot 'none' is set up"):
        send.output.require({"bot": "none"})
    send.output.require({"token": "${secrets.bot}"})
    await send.output.close()
    assert "no bot is set up" in text_of(await send())


async def test_a_start_with_a_broken_list_of_bots_is_refused(tmp_path: Path) -> None:
    send = Sending(tmp_path, {"default": "a", "bots": {"a": {"token": ""}}})
    with pytest.raises(BadRequest, match=r"1 problem: telegram\.bots\.a\.token is empty"):
        await send.output.open({})
    absent = Sending(tmp_path, {"default": "a", "bots": {"a": {"token": "env:PIPO_NO_SUCH"}}})
    await absent.output.open({})
    with pytest.raises(BadRequest, match="PIPO_NO_SUCH is not set"):
        absent.output.require({})
    await absent.output.close()
    odd = Sending(tmp_path, {"default": "a", "bots": {"a": {"token": "no/token"}}})
    await odd.output.open({})
    with pytest.raises(BadRequest, match="the bot's token is none"):
        odd.output.require({})
    await odd.output.close()


async def test_a_token_that_is_none(send: Sending, api: Receiver) -> None:
    assert "the bot's token is none" in text_of(await send(token="s3cr3t/../x"))
    assert api.got == []


async def test_messages_do_not_wait_for_each_other(send: Sending, api: Receiver) -> None:
    assert send.output.place({}, "a") != send.output.place({}, "b")
    api.script(f"/bot{TOKEN}/sendMessage", Reply(delay_s=60.0), sent)
    await send.output.open({})
    units = [WriteUnit(id, id, "t", {"chat_id": 5}, "first") for id in ("a", "b")]
    async with asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(send.output.write(units[:1], atomic=False))
        await asyncio.to_thread(wait_for, lambda: api.got)
        (quick,) = (await send.output.write(units[1:], atomic=False)).results
        assert not slow.done()
        slow.cancel()
    assert quick == {"chat_id": 5, "message_id": 77}
    await send.output.close()
